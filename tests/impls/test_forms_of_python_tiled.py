"""The readable kernels of each form: each sequence against float64, and its bits in other calls."""

import math
from itertools import pairwise

import pytest
import torch

from flash_attest import oracle
from flash_attest.impls import (
    python_tiled_cache,
    python_tiled_merge,
    python_tiled_padded,
    python_tiled_paged,
    python_tiled_varlen,
)
from flash_attest.oracle import Mask, Variant

NAN = math.nan
NHEADS, NHEADS_K, HEADDIM, HEADDIM_V = 4, 2, 16, 64
LENGTHS = [(5, 9), (0, 3), (1, 0), (0, 0), (17, 40), (3, 1), (1, 33)]  # (seqlen_q, seqlen_k) of each sequence
SINKS = torch.tensor([0.5, -math.inf, 2.0, -1.0])
OPTIONS = {
    "plain": {},
    "causal": dict(causal=True),
    "window": dict(window=(3, 2)),
    "softcap": dict(softcap=2.0, softmax_scale=1.0),
    "sinks": dict(sinks=SINKS, causal=True),
}
TOLERANCE = dict(atol=1e-5, rtol=1e-4)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def int32(values):
    return torch.tensor(values, dtype=torch.int32)


def inputs_of(lengths, dtype=torch.float32):
    """Return q, k, v, dout (seqlen, nheads, headdim) of each sequence; each has its own seed."""
    return [
        (
            randn(seqlen_q, NHEADS, HEADDIM, seed=4 * n, dtype=dtype),
            randn(seqlen_k, NHEADS_K, HEADDIM, seed=4 * n + 1, dtype=dtype),
            randn(seqlen_k, NHEADS_K, HEADDIM_V, seed=4 * n + 2, dtype=dtype),
            randn(seqlen_q, NHEADS, HEADDIM_V, seed=4 * n + 3, dtype=dtype),
        )
        for n, (seqlen_q, seqlen_k) in enumerate(lengths)
    ]


def definition(q, k, v, dout=None, *, causal=False, window=None, softmax_scale=None, softcap=None, sinks=None):
    """Return the oracle's results for one sequence, without a batch."""
    variant = Variant(Mask(causal, "bottom_right", window), None, softmax_scale, softcap, sinks)
    dense = [None if x is None else x[None] for x in (q, k, v, dout)]
    return oracle.attention(*dense[:3], variant, dout=dense[3])


def check_forward(got, sequences, options):
    """got: (out (seqlen_q, h, dv), lse (h, seqlen_q)) of each sequence."""
    for (out, lse), (q, k, v, _) in zip(got, sequences, strict=True):
        want = definition(q, k, v, **options)
        torch.testing.assert_close(out.double(), want.out[0], **TOLERANCE)
        torch.testing.assert_close(lse.double(), want.lse[0], **TOLERANCE)


# ---- packed and padded ---------------------------------------------------------------------------


def packed(sequences, slack):
    """Return the keywords of a varlen call, and q, k, v, dout with `slack` rows of NaN behind."""
    q, k, v, dout = (
        torch.cat([*xs, torch.full((slack, *xs[0].shape[1:]), NAN, dtype=xs[0].dtype)])
        for xs in zip(*sequences, strict=True)
    )
    lengths_q, lengths_k = zip(*((len(x[0]), len(x[1])) for x in sequences), strict=True)
    tables = dict(
        cu_seqlens_q=int32([0, *torch.tensor(lengths_q).cumsum(0)]),
        cu_seqlens_k=int32([0, *torch.tensor(lengths_k).cumsum(0)]),
        max_seqlen_q=max(lengths_q) + slack,
        max_seqlen_k=max(lengths_k) + slack,
    )
    return tables, (q, k, v, dout)


def padded(sequences, slack):
    """Return the same of a padded call. Rows that no sequence uses are NaN."""
    lengths_q, lengths_k = zip(*((len(x[0]), len(x[1])) for x in sequences), strict=True)
    most_q, most_k = max(lengths_q) + slack, max(lengths_k) + slack
    buffers = []
    for xs, most in zip(zip(*sequences, strict=True), (most_q, most_k, most_k, most_q), strict=True):
        buffer = torch.full((len(xs), most, *xs[0].shape[1:]), NAN, dtype=xs[0].dtype)
        for n, x in enumerate(xs):
            buffer[n, : len(x)] = x
        buffers.append(buffer)
    return dict(seqused_q=int32(lengths_q), seqused_k=int32(lengths_k)), buffers


def rows_of(tables, x, name):
    """Return the rows of each sequence in x, and those that belong to nobody. name: "q" or "k"."""
    if f"seqused_{name}" in tables:
        used = tables[f"seqused_{name}"].tolist()
        return [x[n, :length] for n, length in enumerate(used)], [x[n, length:] for n, length in enumerate(used)]
    cu = tables[f"cu_seqlens_{name}"].tolist()
    return [x[a:b] for a, b in pairwise(cu)], [x[cu[-1] :]]


TRAINED = {
    "varlen": (packed, python_tiled_varlen, lambda lse: lse.T),
    "padded": (padded, python_tiled_padded, lambda lse: lse.transpose(1, 2)),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("slack", (0, 17))
@pytest.mark.parametrize("form", TRAINED)
def test_each_sequence_matches_the_definition(form, slack, options):
    """Out, lse and gradients of each are its own; rows of nobody hold NaN before and 0 after."""
    pack, module, rows_first = TRAINED[form]
    options = OPTIONS[options]
    sequences = inputs_of(LENGTHS)
    tables, (q, k, v, dout) = pack(sequences, slack)
    out, lse = module.forward(q, k, v, **tables, **options)
    outs, behind = rows_of(tables, out, "q")
    lses, _ = rows_of(tables, rows_first(lse), "q")
    check_forward(zip(outs, (x.T for x in lses), strict=True), sequences, options)
    dq, dk, dv, *dsink = module.backward(dout, q, k, v, out, lse, **tables, **options)
    gradients = [rows_of(tables, x, name) for x, name in ((dq, "q"), (dk, "k"), (dv, "k"))]
    total = torch.zeros(NHEADS, dtype=torch.float64)
    for n, (qn, kn, vn, doutn) in enumerate(sequences):
        want = definition(qn, kn, vn, doutn, **options)
        for (own, _), name in zip(gradients, ("dq", "dk", "dv"), strict=True):
            torch.testing.assert_close(own[n].double(), getattr(want, name)[0], **TOLERANCE)
        total += 0.0 if want.dsink is None else want.dsink
    for one in dsink:
        torch.testing.assert_close(one.double(), total, **TOLERANCE)
    assert all((rows == 0).all() for rows in (*behind, *(rows for _, rest in gradients for rows in rest)))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
@pytest.mark.parametrize("form", TRAINED)
def test_a_sequence_has_the_same_bits_alone(form, dtype):
    pack, module, rows_first = TRAINED[form]
    sequences = inputs_of(LENGTHS, dtype)

    def results(some, slack):
        tables, (q, k, v, dout) = pack(some, slack)
        out, lse = module.forward(q, k, v, **tables, causal=True)
        gradients = module.backward(dout, q, k, v, out, lse, **tables, causal=True)
        named = ((out, "q"), (rows_first(lse), "q"), *zip(gradients, "qkk", strict=True))
        return list(zip(*(rows_of(tables, x, name)[0] for x, name in named), strict=True))

    for each, whole in zip(sequences, results(sequences, slack=17), strict=True):
        (alone,) = results([each], slack=0)
        assert all(map(torch.equal, alone, whole))


# ---- cache and pages -----------------------------------------------------------------------------


def paged(sequences, page_size, new):
    """Return the keywords and operands of a paged call. Free pages and ends of pages are NaN."""
    lengths = [len(k) for _, k, _, _ in sequences]
    counts = [-(-n // page_size) for n in lengths]
    pages = torch.randperm(sum(counts) + 3, generator=torch.Generator().manual_seed(0)).tolist()
    k = torch.full((len(pages), page_size, NHEADS_K, HEADDIM), NAN)
    v = torch.full((len(pages), page_size, NHEADS_K, HEADDIM_V), NAN)
    table = torch.full((len(sequences), max(counts) + 1), -1, dtype=torch.int32)
    for n, (_, kn, vn, _) in enumerate(sequences):
        table[n, : counts[n]] = int32([pages.pop() for _ in range(counts[n])])
        for j in range(lengths[n] - new):
            k[table[n, j // page_size], j % page_size] = kn[j]
            v[table[n, j // page_size], j % page_size] = vn[j]
    lengths_q = [len(q) for q, _, _, _ in sequences]
    tables = dict(
        cu_seqlens_q=int32([0, *torch.tensor(lengths_q).cumsum(0)]),
        max_seqlen_q=max(lengths_q),
        block_table=table,
        seqused_k=int32(lengths) - new,
        max_seqlen_k=max(lengths),
    )
    return tables, torch.cat([x[0] for x in sequences]), k, v


def cached(sequences, capacity, new):
    """Return the same of a call with a cache, in which every second slot is free."""
    lengths = [len(k) for _, k, _, _ in sequences]
    slots = [2 * n + 1 for n in reversed(range(len(sequences)))]
    k = torch.full((2 * len(slots) + 1, capacity, NHEADS_K, HEADDIM), NAN)
    v = torch.full((2 * len(slots) + 1, capacity, NHEADS_K, HEADDIM_V), NAN)
    for slot, (_, kn, vn, _) in zip(slots, sequences, strict=True):
        k[slot, : len(kn) - new], v[slot, : len(vn) - new] = kn[: len(kn) - new], vn[: len(vn) - new]
    tables = dict(cache_seqlens=int32(lengths) - new, cache_batch_idx=int32(slots))
    return tables, torch.stack([x[0] for x in sequences]), k, v


def appended(sequences, new):
    """Return the keywords k_new and v_new: the last keys and values of each sequence."""
    names = ("k_new", "v_new")
    return {names[n]: torch.stack([x[1 + n][len(x[1]) - new :] for x in sequences]) for n in (0, 1)} if new else {}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("num_splits", (1, 3, 64))
@pytest.mark.parametrize("page_size", (1, 16, 17))
def test_pages_and_splits_match_the_definition(page_size, num_splits, options):
    """Rows of nobody are NaN, and table entries behind the pages of a sequence are -1."""
    sequences = inputs_of(LENGTHS)
    tables, q, k, v = paged(sequences, page_size, new=0)
    out, lse = python_tiled_paged.forward(q, k, v, **tables, num_splits=num_splits, **OPTIONS[options])
    outs, _ = rows_of(tables, out, "q")
    lses, _ = rows_of(tables, lse.T, "q")
    check_forward(zip(outs, (x.T for x in lses), strict=True), sequences, OPTIONS[options])


@pytest.mark.parametrize("new", (0, 1, 5))
def test_new_keys_are_written_behind_those_in_the_pages(new):
    """Only their rows change, and the call attends to all keys."""
    sequences = inputs_of([(q, k + 5) for q, k in LENGTHS])
    tables, q, k, v = paged(sequences, 3, new)
    *_, whole_k, whole_v = paged(sequences, 3, 0)
    out, lse = python_tiled_paged.forward(q, k, v, **tables, **appended(sequences, new), causal=True)
    outs, _ = rows_of(tables, out, "q")
    lses, _ = rows_of(tables, lse.T, "q")
    check_forward(zip(outs, (x.T for x in lses), strict=True), sequences, dict(causal=True))
    assert torch.equal(k.nan_to_num(7.0), whole_k.nan_to_num(7.0))
    assert torch.equal(v.nan_to_num(7.0), whole_v.nan_to_num(7.0))


@pytest.mark.parametrize("new", (0, 5))
@pytest.mark.parametrize("num_splits", (1, 3))
def test_slots_of_a_cache_match_the_definition(num_splits, new):
    sequences = inputs_of([(3, 5), (3, 40), (3, 17)])
    tables, q, k, v = cached(sequences, 45, new)
    *_, whole_k, whole_v = cached(sequences, 45, 0)
    keywords = dict(num_splits=num_splits, causal=True, sinks=SINKS)
    out, lse = python_tiled_cache.forward(q, k, v, **tables, **appended(sequences, new), **keywords)
    check_forward(zip(out, lse, strict=True), sequences, dict(causal=True, sinks=SINKS))
    assert torch.equal(k.nan_to_num(7.0), whole_k.nan_to_num(7.0))
    assert torch.equal(v.nan_to_num(7.0), whole_v.nan_to_num(7.0))


@pytest.mark.parametrize("num_splits", (1, 3))
def test_a_sequence_in_pages_has_the_same_bits_alone_and_in_any_pages(num_splits):
    sequences = inputs_of(LENGTHS)

    def results(some, page_size):
        tables, q, k, v = paged(some, page_size, new=0)
        out, lse = python_tiled_paged.forward(q, k, v, **tables, num_splits=num_splits, causal=True)
        return list(zip(rows_of(tables, out, "q")[0], rows_of(tables, lse.T, "q")[0], strict=True))

    for each, whole in zip(sequences, results(sequences, 3), strict=True):
        (alone,) = results([each], 16)
        assert all(map(torch.equal, alone, whole))


# ---- merge ---------------------------------------------------------------------------------------


def test_merged_parts_match_the_definition():
    """One part has no keys, and the first query sees none at all."""
    q, k, v = randn(2, 4, 3, 8, seed=1), randn(2, 3, 3, 8, seed=2), randn(2, 3, 3, 8, seed=3)
    variant = Variant(Mask(True, "bottom_right"))
    cuts = [(0, 1), (1, 1), (1, 3)]
    parts = []
    for first, end in cuts:
        hidden = torch.zeros(1, 1, 1, 3)
        hidden[..., :first] = hidden[..., end:] = -math.inf
        parts.append(oracle.attention(q, k, v, Variant(variant.mask, hidden)))
    out_parts = torch.stack([part.out for part in parts]).float()
    lse_parts = torch.stack([part.lse for part in parts]).float()
    out, lse = python_tiled_merge.forward(out_parts, lse_parts, out_dtype=torch.float16)
    want = oracle.attention(q, k, v, variant)
    assert out.dtype == torch.float16 and lse.dtype == torch.float32
    torch.testing.assert_close(out.double(), want.out, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(lse.double(), want.lse, **TOLERANCE)
    assert (out[:, 0] == 0).all() and (lse[:, :, 0] == -math.inf).all()


# ---- calls outside of `supports` -----------------------------------------------------------------


@pytest.mark.parametrize(
    "changed, words",
    [
        (dict(k=randn(5, 3, HEADDIM), v=randn(5, 3, HEADDIM)), "nheads=4 should be a multiple of nheads_k=3"),
        (dict(k=randn(5, 2, 8)), "do not fit together"),
        (dict(q=randn(5, 4, HEADDIM).double()), "should be one supported dtype"),
        (dict(cu_seqlens_k=torch.tensor([0, 5])), "cu_seqlens_k is"),
        (dict(cu_seqlens_k=int32([0, 2, 5])), "cu_seqlens_k is"),
    ],
)
def test_a_call_outside_of_supports_raises(changed, words):
    call = dict(q=randn(5, 4, HEADDIM), k=randn(5, 2, HEADDIM), v=randn(5, 2, HEADDIM))
    call |= dict(cu_seqlens_q=int32([0, 5]), cu_seqlens_k=int32([0, 5]), max_seqlen_q=5, max_seqlen_k=5)
    with pytest.raises(ValueError, match=words):
        python_tiled_varlen.forward(**call | changed)
