"""Right kernels of unusual build in forms other than dense: packed, paged, split and merged."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from flash_attest.impls import python_tiled, python_tiled_paged, python_tiled_varlen
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled import merge
from flash_attest.mutants.tiled.paged import OWN, SINK, paged
from flash_attest.mutants.tiled.varlen import SEQUENCES, varlen
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws

INF = float("inf")
OUT, NEIGHBOURS = "test_out_matches_the_definition", "test_neighbours_change_no_bit"
AROUND, NOBODY = "test_memory_around_inputs_is_not_read", "test_rows_of_nobody_are_zero"
SPLITS, PAGES = "test_number_of_splits_does_not_matter", "test_order_of_pages_does_not_matter"
PREFIX, HUGE = "test_query_sees_exactly_its_prefix", "test_huge_scores_match_the_definition"
TAIL = "min(j0 + BLOCK_N, seqlen_k)"
PARTS = "zip(out_parts, lse_parts, strict=True)"

# words -> how it is planted, its laws, the edits, and what it declares
TWINS = {
    "sequences are taken from the last to the first": (
        varlen,
        (OUT, NEIGHBOURS, NOBODY),
        ((SEQUENCES, "    for n in reversed(range(len(queries.starts))):\n"),),
        {},
    ),
    "rows at the end of a page are multiplied by 0": (
        paged,
        (OUT, AROUND, PREFIX),
        ((TAIL, "min(j0 + BLOCK_N, -(-seqlen_k // x.shape[1]) * x.shape[1])"),),
        dict(slack="finite"),
    ),
    "a split takes every third tile": (paged, (OUT, SPLITS), ((OWN, "own = tiles[part::num_splits]"),), {}),
    "the sink joins in the last split": (
        paged,
        (OUT, SPLITS),
        ((SINK, "sink = sinks if part == num_splits - 1 else None"),),
        {},
    ),
    "parts are merged from the last to the first": (
        merge.planted,
        (OUT, HUGE, "test_no_keys_give_zero"),
        ((PARTS, "zip(out_parts.flip(0), lse_parts.flip(0), strict=True)"),),
        {},
    ),
    "parts are weighed by exp(lse_part - lse)": (
        merge.planted,
        (OUT, HUGE, "test_no_keys_give_zero"),
        (
            (
                merge.SAFE,
                "    m_safe = torch.logsumexp(lse_parts, 0)\n    m_safe = m_safe.masked_fill(m_safe == -INF, 0.0)",
            ),
            (merge.RESULT, "return acc, torch.logsumexp(lse_parts, 0)"),
        ),
        {},
    ),
}


@pytest.mark.parametrize("words", TWINS)
def test_a_right_twin_passes_the_laws_that_catch_its_like(words):
    planted, names, edits, declares = TWINS[words]
    for name in names:
        twin = planted(name="twin", law=name, edits=edits, declares=declares, smallest={}, story=words)
        result = judge(laws()[name], build(twin), Plan(examples=6, try_contract=False, small=True))
        assert result.verdict == PASS, result.message or result.reason


def padded_and_masked(q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **keywords):
    """Pad all sequences to max_seqlen, compute one dense call, and mask what is padding."""
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    lse = q.new_full((q.shape[1], q.shape[0]), -INF, dtype=torch.float32)
    bounds = list(zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True))
    padded = [x.new_zeros(len(bounds), most, *x.shape[1:]) for x, most in ((q, max_seqlen_q), (k, max_seqlen_k))]
    values = v.new_zeros(len(bounds), max_seqlen_k, *v.shape[1:])
    bias = q.new_full((len(bounds), 1, max_seqlen_q, max_seqlen_k), -INF, dtype=torch.float32)
    causal = keywords.pop("causal")
    for n, ((a, b), (c, d)) in enumerate(bounds):
        padded[0][n, : b - a], padded[1][n, : d - c], values[n, : d - c] = q[a:b], k[c:d], v[c:d]
        i, j = torch.arange(b - a)[:, None], torch.arange(d - c)
        bias[n, 0, : b - a, : d - c] = torch.where(j > i + (d - c) - (b - a), -INF, 0.0) if causal else 0.0
    dense, dense_lse = python_tiled.forward(*padded, values, bias=bias, **keywords)
    for n, ((a, b), _) in enumerate(bounds):
        out[a:b], lse[:, a:b] = dense[n, : b - a], dense_lse[n, :, : b - a]
    return out, lse


def gathered(q, k, v, *, cu_seqlens_q, block_table, seqused_k, max_seqlen_q, max_seqlen_k, **keywords):
    """Gather the keys of each sequence from its pages, and make a dense call for it."""
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[3])
    lse = q.new_full((q.shape[1], q.shape[0]), -INF, dtype=torch.float32)
    for n, ((a, b), length) in enumerate(zip(pairwise(cu_seqlens_q.tolist()), seqused_k.tolist(), strict=True)):
        own = block_table[n, : -(-length // k.shape[1])].long()
        keys, values = (x[own].flatten(0, 1)[None, :length] for x in (k, v))
        dense, dense_lse = python_tiled.forward(q[None, a:b], keys, values, **keywords)
        out[a:b], lse[:, a:b] = dense[0], dense_lse[0]
    return out, lse


PLAIN = dict(window="none", sink_grad=False, lse_grad=False)
BUILT = {
    "sequences are padded to max_seqlen, and masked": (
        replace(
            python_tiled_varlen.IMPL,
            name="padded_and_masked",
            forward=padded_and_masked,
            backward=None,
            supports=replace(python_tiled_varlen.IMPL.supports, **PLAIN),
            invariant=(),
        ),
        (OUT, PREFIX, NEIGHBOURS, NOBODY, AROUND),
    ),
    "pages are gathered, and the call is dense": (
        replace(
            python_tiled_paged.IMPL,
            name="gathered",
            forward=gathered,
            supports=replace(python_tiled_paged.IMPL.supports, append=False, splits=(1,)),
            invariant=(),
        ),
        (OUT, PREFIX, NEIGHBOURS, PAGES, AROUND),
    ),
}


@pytest.mark.parametrize("words", BUILT)
def test_a_right_kernel_of_another_build_passes(words):
    impl, names = BUILT[words]
    for name in names:
        result = judge(laws()[name], impl, Plan(examples=6, try_contract=False, small=True))
        assert result.verdict == PASS, result.message or result.reason
