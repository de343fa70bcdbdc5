"""Right kernels of unusual build: block masks, lists of keys, and a v that is k's first columns."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import ContractError, Supports, python_tiled, python_topk
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.hidden import ADDED, BACKWARD, FORWARD, GATHERED, HIDDEN, LISTS, PADDING
from flash_attest.properties.cases.case import Case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS, REFUSED
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.thorough import covering
from tests.trials import fails

LAWS = (
    "test_query_sees_exactly_the_keys_that_are_shown",
    "test_keys_that_are_not_shown_change_no_bit",
    "test_rows_without_keys_leave_the_others_alone",
    "test_gradients_match_the_definition",
)
SKIPS = "            if shown is not None and not shown.any():\n                continue\n"
OF_FORWARD = FORWARD[: FORWARD.index("            if shown")] + SKIPS
TWINS = {
    "hidden blocks are a bias of -inf, and no tile is skipped": (
        "python_tiled",
        (
            (HIDDEN, "s = s + torch.where(shown, 0.0, -INF)"),
            (OF_FORWARD, OF_FORWARD.replace(SKIPS, "")),
            (BACKWARD + "\n" + SKIPS, BACKWARD + "\n"),
        ),
    ),
    "tiles are visited from the last one on": (
        "python_tiled",
        (
            ("        for j0 in range(max(0, first_key)", "        for j0 in reversed(range(max(0, first_key)"),
            ("min(seqlen_k, last_key), BLOCK_N):", "min(seqlen_k, last_key), BLOCK_N)):"),
        ),
    ),
    "blocks are as small as one pair in the kernel": (
        "python_tiled",
        (
            (
                "    if block_mask is None:\n        return None\n",
                "    if block_mask is None:\n        return None\n"
                "    pairs = block_mask.repeat_interleave(HIDDEN_BLOCK[0], 2).repeat_interleave(HIDDEN_BLOCK[1], 3)\n"
                "    tile = pairs[:, :, i0 : i0 + BLOCK_M, j0 : j0 + BLOCK_N]\n"
                "    missing = (0, BLOCK_N - tile.shape[3], 0, BLOCK_M - tile.shape[2])\n"
                "    return torch.nn.functional.pad(tile, missing, value=False)\n",
            ),
        ),
    ),
    "lists are sorted, padding first": (
        "python_topk",
        ((LISTS, LISTS.replace("long()", "long().sort(-1).values", 1)),),
    ),
    "padding loads the last key, and is masked": (
        "python_topk",
        ((GATHERED, "return x[batches, keys, heads].float()"),),
    ),
    "lists become a mask over all keys": (
        "python_topk",
        (
            (
                LISTS,
                "dense = torch.full((batch, seqlen_q, nheads_k, seqlen_k + 1), -1)\n"
                "    dense.scatter_(3, kv_indices.long() % (seqlen_k + 1), kv_indices.long())\n"
                "    return dense[..., :seqlen_k]",
            ),
        ),
    ),
    "gradients of keys are a product with a matrix of ones": (
        "python_topk",
        (
            (
                ADDED,
                "ones = torch.nn.functional.one_hot(keys.clamp(min=0), x.shape[1]).float()\n"
                "    x += torch.einsum('bihnj,bihnd->bjhd', ones, rows)",
            ),
        ),
    ),
    "padding is known by its place": (
        "python_topk",
        ((PADDING, "hidden = torch.logical_not(keys + 1 > 0)"),),
    ),
}


@pytest.mark.parametrize("words, law", covering(1, {words: words for words in TWINS}, {law: law for law in LAWS}))
def test_a_right_twin_passes(words, law):
    impl, edits = TWINS[words]
    twin = planted(name="twin", impl=impl, law=law, edits=edits, smallest={}, story=words)
    result = judge(laws()[law], build(twin), Plan(examples=8, try_contract=False, small=True))
    assert result.verdict == PASS, result.message or result.reason


# --- v is the first columns of k ------------------------------------------------------------------


def latent(q, k, v, **options):
    """Return the outputs as MLA has them: v is not read, only its width."""
    return python_tiled.forward(q, k, k[..., : v.shape[3]], **options)


def of_k(**changed):
    """Return a kernel whose v is always the first columns of k."""
    supports = Supports(
        dtypes={torch.float32}, headdims={64, 72}, headdims_v={(72, 64)}, cross=True, causal="optional", gqa=True,
        shared_kv="always",
    )  # fmt: skip
    fields = dict(name="latent", forward=latent, backward=None, supports=supports)
    return replace(python_tiled.IMPL, **(fields | changed))


def every_law() -> list:
    """Return the laws. Those that set v are refused, and few others are judged each time."""
    quick = ("out", "lse", "query_sees", "hidden_keys", "neighbours", "inputs_come_back", "any_layout", "copies")
    return [
        law if "own v" in laws()[law].needs or law.startswith(tuple(f"test_{word}" for word in quick))
        else pytest.param(law, marks=pytest.mark.thorough)
        for law in laws()
    ]  # fmt: skip


@pytest.mark.parametrize("law", every_law())
def test_a_kernel_that_never_reads_v_passes_or_is_refused(law):
    """Every law either keeps v as the first columns of k, or says that it sets v alone."""
    result = judge(laws()[law], of_k(), Plan(examples=3, try_contract=False))
    sets_v = "own v" in laws()[law].needs
    assert result.verdict in ((REFUSED,) if sets_v else (PASS, REFUSED)), result.message or result.reason


def test_reading_v_where_it_is_not_k_fails():
    """The same kernel, declared to take any v, is wrong."""
    wrong = of_k(supports=replace(of_k().supports, shared_kv="optional"))
    assert fails(laws()["test_out_matches_the_definition"], wrong, Plan(examples=8))


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "gapped", "offset", "mixed", "last_strided"])
@pytest.mark.parametrize("order", ["bshd", "bhsd"])
def test_v_lies_in_the_memory_of_k(layout, order):
    case = Case(batch=2, seqlen_q=3, seqlen_k=5, nheads=2, nheads_k=2, headdim=8, headdim_v=3, layout=layout,
                shared_kv=True)  # fmt: skip
    trial = Trial(replace(python_topk.IMPL, layout=order), case, "cpu")
    placed, _ = trial.caller.place(trial.x, 7.0)
    for handed in (trial.caller.stored(trial.x), trial.caller.laid_out(trial.x), placed):
        assert handed.v.data_ptr() == handed.k.data_ptr() and handed.v.stride() == handed.k.stride()
        assert torch.equal(handed.v, handed.k[..., :3])


def test_a_v_that_a_law_has_set_has_memory_of_its_own():
    case = Case(seqlen_k=5, headdim=8, headdim_v=3, shared_kv=True)
    trial = Trial(python_topk.IMPL, case, "cpu")
    other = trial.x.v + 1
    handed = trial.caller.laid_out(trial.x.with_(v=other))
    assert torch.equal(handed.v, other) and handed.v.data_ptr() != handed.k.data_ptr()


def test_a_kernel_without_a_v_of_its_own_has_no_backward():
    with pytest.raises(ContractError, match='shared_kv="always" has no backward'):
        of_k(backward=python_tiled.backward)
