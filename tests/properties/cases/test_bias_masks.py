"""A bias hides exactly the keys that its mask names."""

import math
from itertools import product

import pytest
import torch

from flash_attest.oracle import ALIGNMENTS
from flash_attest.properties.cases.bias_masks import (
    FIRST,
    hidden_by_bias,
    hidden_entries,
    masks_of,
    may_have_empty_rows,
)
from flash_attest.properties.cases.case import ADDED, BIAS_MASKS, BOOLEAN, OF_NUMBERS, Case, CaseError
from flash_attest.properties.cases.features import mask_of, variant_of
from flash_attest.properties.cases.inputs import FINITE_MASKS, build
from flash_attest.properties.cases.random_tensors import RandomTensors

INF = math.inf


def case(**changed) -> Case:
    return Case(**(dict(batch=2, seqlen_q=40, seqlen_k=40, headdim=64) | changed))


def biased(mask: str, kind: str = "matrix", **changed) -> Case:
    return case(bias=kind, bias_mask=mask, nheads=3, nheads_k=3, bias_batch=2, bias_nheads=3, **changed)


def hidden(c: Case) -> torch.Tensor:
    return build(c, "cpu").bias == -INF


@pytest.mark.parametrize("mask", BIAS_MASKS)
@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_bias_has_the_shape_and_dtype_of_its_case(mask, kind):
    c = biased(mask, kind, bias_dtype=torch.bfloat16)
    bias = build(c, "cpu").bias
    assert bias.shape == c.bias_shape and bias.dtype == torch.bfloat16


@pytest.mark.parametrize("mask", masks_of("boolean_matrix"))
@pytest.mark.parametrize("kind", BOOLEAN)
def test_a_boolean_mask_is_false_where_it_hides_a_key(mask, kind):
    c = biased(mask, "boolean_matrix" if mask == "dead_row" else kind)
    x = build(c, "cpu")
    bias = x.bias
    assert bias.dtype == torch.bool and bias.shape == c.bias_shape and bool(bias.any())
    assert torch.equal(hidden_entries(bias), ~bias) and bool(bias.all()) == (mask == "none")
    plain = variant_of(c, "bottom_right", x).bias
    assert torch.equal(plain == 0, bias) and torch.equal(plain == -INF, ~bias)
    if mask in ("right", "left"):  # padding begins or ends somewhere, and the last or the first keys are hidden
        assert bool((bias.int().diff(dim=-1) * (1 if mask == "left" else -1) >= 0).all())


def test_a_boolean_mask_holds_no_numbers():
    for mask in OF_NUMBERS:
        with pytest.raises(CaseError, match=f"bias_mask={mask}: should be another one if bias=boolean_vector"):
            biased(mask, "boolean_vector")
        assert biased(mask, "vector", bias_dtype=torch.float32).but(bias="boolean_vector").bias_mask == "none"
    assert {"dead_row", *OF_NUMBERS}.isdisjoint(masks_of("boolean_vector"))
    assert {mask for kind in ADDED for mask in masks_of(kind)} == set(BIAS_MASKS)


@pytest.mark.parametrize("mask", ["none", "finite", "alibi"])
def test_masks_without_infinity_hide_nothing(mask):
    assert not hidden(biased(mask)).any()


def test_right_padding_hides_the_last_keys():
    rows = hidden(biased("right"))
    assert not rows[..., 0].any() and rows[..., -1].any()
    assert bool((rows.int().diff(dim=-1) >= 0).all())
    assert len(rows.sum(-1).unique()) > 1


def test_left_padding_hides_the_first_keys():
    rows = hidden(biased("left"))
    assert not rows[..., -1].any() and rows[..., 0].any()
    assert bool((rows.int().diff(dim=-1) <= 0).all())


@pytest.mark.parametrize("mask", ["left", "right", "window", "first_and_window"])
def test_padding_leaves_a_key_for_every_query(mask):
    """Only the mask dead_row may leave a row without keys."""
    assert (
        not hidden(case(bias="vector", bias_mask=mask, batch=30, bias_batch=30, seqlen_q=2, seqlen_k=2)).all(-1).any()
    )


@pytest.mark.parametrize("seqlen_k", [40, 60])
def test_a_window_ends_with_the_query_itself(seqlen_k):
    """Positions are counted from the end, as in bottom-right alignment."""
    c = biased("window", seqlen_k=seqlen_k)
    seen = ~hidden(c)
    i = torch.arange(c.seqlen_q) + seqlen_k - c.seqlen_q
    assert seen[..., torch.arange(c.seqlen_q), i].all()
    assert not (seen & (torch.arange(seqlen_k) > i[:, None])).any()
    width = seen.sum(-1)
    assert torch.equal(width, torch.minimum(i + 1, width[..., -1:]).expand_as(width))


def test_first_and_window_leaves_two_ranges():
    """The hidden keys lie between the window and the first keys, or after the window."""
    for seed in range(9):
        c = biased("first_and_window", seed=seed)
        seen, window = ~hidden(c), ~hidden(c.but(bias_mask="window"))
        assert seen[..., 0].all() and not (window & ~seen).any()
        first = (seen & ~window)[..., -1, :]
        assert not first[..., FIRST:].any()
    assert (seen.int().diff(dim=-1) == 1).any()  # hidden keys, and seen ones behind them


@pytest.mark.parametrize("mask", BIAS_MASKS)
@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_rows_are_empty_for_some_seed_exactly_where_they_may_be(mask, kind):
    """The test draws 72 ranges of keys for each case, over all short lengths."""
    for causal, keeps, sq, sk in product((False, True), (False, True), (0, 1, 2, 4), (0, 1, 3, 4)):
        c = case(batch=9, seqlen_q=sq, seqlen_k=sk, nheads=8, nheads_k=8, headdim=1, causal=causal, bias=kind,
                 bias_mask=mask, bias_keeps_key=keeps, bias_batch=9, bias_nheads=8)  # fmt: skip
        for alignment in ALIGNMENTS:
            seen = mask_of(c, alignment).visible(sq, sk) & ~hidden(c)
            assert bool((~seen.any(-1)).any()) * bool(sq) == may_have_empty_rows(c, alignment), (c, alignment)


@pytest.mark.parametrize("mask", ["left", "dead_row"])
def test_a_kept_key_is_the_diagonal_under_causal(mask):
    c = biased(mask, causal=True)
    kept_key = hidden(c) & ~hidden(c.but(bias_keeps_key=True))
    assert kept_key.any() and not (kept_key & ~torch.eye(40, dtype=torch.bool)).any()


def test_dead_row_masks_one_whole_row():
    rows = hidden(biased("dead_row"))
    assert torch.equal(rows.all(-1).sum(-1), torch.ones(2, 3)) and torch.equal(rows.any(-1), rows.all(-1))


def test_finite_marks_the_last_keys_or_all_with_a_finite_number():
    seen = []
    for seed in range(40):
        bias = build(biased("finite", seqlen_k=3, seed=seed), "cpu").bias
        (value,) = bias[bias < -100].unique().tolist() or [0.0]
        marked = bias == value
        assert bool((marked.int().diff(dim=-1) >= 0).all()) and (bias[~marked].abs() < 100).all()
        seen += [value, *marked.sum(-1).flatten().tolist()]
    assert {*seen} >= {*FINITE_MASKS, 0, 1, 2, 3}


def test_alibi_slopes_depend_on_the_head():
    c = case(bias="matrix", bias_mask="alibi", nheads=8, nheads_k=8, bias_nheads=8, seqlen_k=60)
    bias = build(c, "cpu").bias[0]
    assert [bias[h, 0, 20].item() for h in (0, 7)] == [0, 0]
    assert [bias[h, 39, 57].item() for h in (0, 1, 7)] == [-1, -0.5, -1 / 128]  # slopes 2^-1, 2^-2, 2^-8


def test_visible_keys_have_a_random_bias():
    bias = build(biased("left"), "cpu").bias
    assert bias[bias > -INF].std() > 0.8


def test_bias_is_small_in_the_flat_regime():
    assert build(biased("none", regime="flat"), "cpu").bias.abs().max() < 0.1


def test_batches_and_heads_are_padded_differently():
    widths = hidden(biased("right"))[:, :, 0].sum(-1)
    assert len(widths.unique()) > 1


def test_a_case_without_keys_has_no_mask():
    c = biased("left", seqlen_k=0)
    assert hidden_by_bias(c, RandomTensors(c, "cpu")) is None
