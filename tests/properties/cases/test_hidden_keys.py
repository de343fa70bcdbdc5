"""Hidden keys: drawings, and their notations as blocks and as lists of keys."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Supports, torch_math
from flash_attest.oracle import ALIGNMENTS
from flash_attest.properties.cases.bias_masks import may_have_empty_rows
from flash_attest.properties.cases.case import BLOCKED, HIDDEN, LISTED, Case, CaseError, parse_case
from flash_attest.properties.cases.features import FEATURES, hidden_of, in_declared_blocks, mask_of, variant_of
from flash_attest.properties.cases.hidden_keys import in_blocks, in_lists
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.random_tensors import RandomTensors
from flash_attest.properties.cases.support import unsupported

BLOCK = (8, 24)
NOTATIONS = [*((kind, BLOCK) for kind in BLOCKED), *((kind, None) for kind in LISTED)]
each_notation = pytest.mark.parametrize(("kind", "block"), NOTATIONS)


def case(kind, block, **changed) -> Case:
    sizes = dict(batch=2, seqlen_q=40, seqlen_k=60, nheads=4, nheads_k=2, headdim=8)
    return Case(**(sizes | changed), hidden=kind, hidden_block=block)


def shown(c: Case) -> torch.Tensor:
    return ~hidden_of(c, build(c, "cpu"))


@each_notation
def test_each_head_has_a_pattern_of_its_own_which_hides_some_keys(kind, block):
    patterns = torch.stack([shown(case(kind, block, seed=seed)) for seed in range(5)])
    assert patterns.shape[1:] == (2, 4, 40, 60)
    assert bool(patterns.any()) and not bool(patterns.all())
    own = patterns if block else patterns[:, :, ::2]  # lists are those of a key head
    if kind != "tree":
        assert bool((own[:, 0] != own[:, 1]).any()) and bool((own[:, :, 0] != own[:, :, 1]).any())
    if not block:
        assert torch.equal(patterns[:, :, ::2], patterns[:, :, 1::2])


@each_notation
@pytest.mark.parametrize("position", [dict(), dict(causal=True), dict(window=(3, None)), dict(window=(2, 5))], ids=str)
@pytest.mark.parametrize("lengths", [(40, 60), (40, 40), (1, 60), (50, 30)], ids=str)
def test_a_query_that_sees_a_key_by_position_sees_one_of_those_shown(kind, block, position, lengths):
    for seed in range(5):
        c = case(kind, block, seqlen_q=lengths[0], seqlen_k=lengths[1], seed=seed, **position)
        for alignment in ALIGNMENTS:
            by_position = mask_of(c, alignment).visible(*lengths)
            seen = (shown(c) & by_position).any(-1)
            assert bool((seen == by_position.any(-1)).all()) == (kind != "dead_rows")
            assert may_have_empty_rows(c, alignment) == (not bool(seen.all()))


@each_notation
@pytest.mark.parametrize("lengths", [(0, 5), (5, 0), (1, 1), (0, 0)], ids=str)
def test_the_smallest_lengths_have_a_notation(kind, block, lengths):
    c = case(kind, block, seqlen_q=lengths[0], seqlen_k=lengths[1])
    assert shown(c).shape == (2, 4, *lengths)


@each_notation
@pytest.mark.parametrize("causal", [False, True])
def test_shapes_do_not_depend_on_the_seed(kind, block, causal):
    """Laws write new values into the same memory."""
    for lengths in ((40, 60), (50, 30)):
        c = case(kind, block, seqlen_q=lengths[0], seqlen_k=lengths[1], causal=causal)
        shapes = [[tuple(t.shape) for _, t in build(c.but(seed=seed), "cpu").items()] for seed in range(8)]
        assert all(each == shapes[0] for each in shapes)


def test_a_block_is_shown_if_any_of_its_pairs_is():
    seen = torch.zeros(1, 1, 9, 30, dtype=torch.bool)
    seen[0, 0, 8, 29] = seen[0, 0, 0, 23] = True
    assert in_blocks(seen, BLOCK).tolist() == [[[[True, False], [False, True]]]]


def test_a_list_has_each_shown_key_once_and_ends_with_padding():
    c = case("topk", None)
    seen = torch.rand(2, 2, 40, 60, generator=torch.Generator().manual_seed(0)) < 0.3
    lists = in_lists(seen, 60, RandomTensors(c, "cpu"))
    assert lists.dtype == torch.int32 and lists.shape == (2, 40, 2, 60)
    for b, i, h in ((0, 0, 0), (1, 3, 1), (0, 39, 1)):
        row = lists[b, i, h].tolist()
        count = int(seen[b, h, i].sum())
        assert sorted(row[:count]) == seen[b, h, i].nonzero().flatten().tolist() and set(row[count:]) == {-1}
    assert bool((lists[..., :10].diff(dim=-1) < 0).any()), "lists are in any order"


def test_topk_fills_some_lists_and_pads_others():
    full = [bool((build(case("topk", None, seqlen_k=n, causal=True), "cpu").kv_indices[..., -1] >= 0).any())
            for n in range(40, 60)]  # fmt: skip
    padded = [bool((build(case("topk", None, seqlen_k=n), "cpu").kv_indices == -1).any()) for n in range(40, 60)]
    assert all(full) and all(padded)


def test_documents_are_whole_blocks_of_keys_that_a_query_shares_with_its_own_key():
    c = case("documents", BLOCK, seqlen_q=60, seqlen_k=60, nheads=1, nheads_k=1)
    for seed in range(5):
        seen, i = shown(c.but(seed=seed)), torch.arange(60)
        assert bool(seen[..., i, i].all())
        assert torch.equal(seen[:, :, 0:56:8], seen[:, :, 7:56:8]) and torch.equal(
            seen[..., 0:48:24], seen[..., 23:48:24]
        )
    c = case("documents", None, seqlen_q=60, seqlen_k=60)
    seen = shown(c)
    assert torch.equal(seen, seen.mT), "without blocks, two queries of a document see each other's keys"


def test_a_tree_shows_the_prefix_and_ancestors():
    c = case("tree", None, seqlen_q=20, seqlen_k=50, causal=True)
    seen = shown(c)[0, 0]
    assert bool(seen[:, :30].all()), "the keys before the drafts"
    drafts = seen[:, 30:]
    assert bool(drafts.diagonal().all()) and not bool(drafts.triu(1).any())
    for query in range(20):  # an ancestor's ancestors are ancestors
        for ancestor in drafts[query].nonzero().flatten().tolist():
            assert not bool((drafts[ancestor] & ~drafts[query]).any())


def test_a_case_is_a_line_and_back():
    for kind, block in NOTATIONS:
        c = case(kind, block)
        assert parse_case(str(c)) == c
    assert "hidden=blocks hidden_block=8:24" in str(case("blocks", BLOCK))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("hidden=blocks", "hidden=blocks: needs a hidden_block, such as 64:128"),
        ("hidden=tree hidden_block=8:8", "hidden_block=8:8: should be queries:keys"),
        ("hidden_block=8:8", "hidden_block=8:8: should be queries:keys"),
        ("hidden=blocks hidden_block=8", "hidden_block=8: should be queries:keys, such as 64:128"),
        ("hidden=blocks hidden_block=0:8", "hidden_block=0:8: should be queries:keys"),
        ("hidden=holes", "hidden=holes: should be one of None, documents, blocks, tree, topk, dead_rows"),
        ("shared_kv=True headdim=8 headdim_v=9", "shared_kv=True: headdim_v=9 should be at most headdim=8"),
    ],
)
def test_an_impossible_case_is_refused(fields, words):
    with pytest.raises(CaseError, match=words):
        parse_case(fields)


def test_another_drawing_drops_a_block_that_it_does_not_have():
    assert case("blocks", BLOCK).but(hidden="tree").hidden_block is None
    assert case("blocks", BLOCK).but(hidden=None) == case(None, None)


@pytest.mark.parametrize("kind", HIDDEN[1:])
def test_the_notation_is_a_declared_one(kind):
    def declared(**supports):
        supports = Supports(dtypes={torch.float32}, headdims={8}, cross=True, gqa=True, **supports)
        return replace(torch_math.IMPL, name="tested", supports=supports)

    both, blocks = (
        declared(hidden={"blocks", "indices"}, hidden_block=BLOCK),
        declared(hidden={"blocks"}, hidden_block=(4, 4)),
    )
    lists = declared(hidden={"indices"})
    plain = FEATURES["hidden"].changed(Case(headdim=8, seqlen_q=9, seqlen_k=9), kind)
    for impl in (both, blocks, lists):
        taken = unsupported(impl, in_declared_blocks(plain, impl.supports)) is None
        assert taken == FEATURES["hidden"].takes(impl.supports, kind)
    if kind in BLOCKED:
        assert "as hidden_block=8:24 is not supported" in unsupported(blocks, case(kind, BLOCK))
        assert "is not supported" in unsupported(lists, case(kind, BLOCK))
    if kind in LISTED and kind in BLOCKED:
        assert "as kv_indices is not supported" in unsupported(blocks, case(kind, None))


def test_the_oracle_gets_the_hidden_keys_of_the_notation():
    for kind, block in NOTATIONS:
        c = case(kind, block)
        x = build(c, "cpu")
        assert torch.equal(variant_of(c, "bottom_right", x).hidden, hidden_of(c, x))
