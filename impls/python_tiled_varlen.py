"""python_tiled for packed sequences, whose rows lie one behind another in buffers without a batch.

A kernel is launched for max_seqlen_q queries of each sequence, and a program whose tile lies behind
its sequence ends at once. Nothing else depends on the longest sequence: tiles, masks and the
diagonal follow from a sequence's own lengths. Rows of other sequences, and rows of nobody, are
neither read nor written.

The loops are those of python_tiled.py, for one sequence after the other. A tile is a copy of its
rows, as in shared memory, and has BLOCK_M or BLOCK_N rows. So a sequence has the same bits wherever
it lies, and whatever else is in the call.
"""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.arguments import check_like, check_sinks, check_softcap, check_window
from flash_attest.impls.contract.shares import FORM_OF_TILED
from flash_attest.impls.python_tiled import (
    BLOCK_M,
    BLOCK_N,
    HEADDIMS_V,
    INF,
    add_tile,
    as_operand,
    key_head_of,
    load_tile,
    scores,
    store_tile,
    sum_query_heads,
    window_of,
)

DTYPES = {torch.float32, torch.float16, torch.bfloat16}
HEADDIMS = range(1, 257)
MOST_SEQUENCES = 4096  # of a case


class Rows(NamedTuple):
    """The rows of each sequence in a buffer: where they start, and how many there are."""

    starts: list[int]
    lengths: list[int]


class Scoring(NamedTuple):
    """The keywords of a call that its scores depend on. An open side of the window is inf."""

    scale: float
    softcap: float | None
    left: float
    right: float


def forward(
    q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    causal=False, window=None, softmax_scale=None, softcap=None, sinks=None,
):  # fmt: skip
    """(total_q, h, d), (total_k, hk, d or dv) -> out (total_q, h, dv), lse (h, total_q).

    cu_seqlens_q, cu_seqlens_k (batch + 1), int32: sequence n has the rows from cu_seqlens[n] to
    cu_seqlens[n + 1]. Rows of nobody get 0. Raises ValueError for a call outside of `supports`.
    """
    check("python_tiled_varlen", q, k, v, window, softcap, sinks)
    check_tables(q, cu_seqlens_q.shape, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    queries, keys = rows_of(cu_seqlens_q), rows_of(cu_seqlens_k)
    scoring = scoring_of(q, causal, window, softmax_scale, softcap)
    return forward_of(q, k, v, queries, keys, max_seqlen_q, scoring, sinks)


def backward(
    dout, q, k, v, out, lse, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    causal=False, window=None, softmax_scale=None, softcap=None, sinks=None, dlse=None,
):  # fmt: skip
    """dout, out (total_q, h, dv); lse, dlse (h, total_q) -> dq, dk, dv[, dsink].

    Rows of nobody get 0. Raises ValueError for a call outside of `supports`.
    """
    check("python_tiled_varlen", q, k, v, window, softcap, sinks)
    check_tables(q, cu_seqlens_q.shape, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    queries, keys = rows_of(cu_seqlens_q), rows_of(cu_seqlens_k)
    scoring = scoring_of(q, causal, window, softmax_scale, softcap)
    return backward_of(dout, q, k, v, out, lse, queries, keys, max_seqlen_k, scoring, sinks, dlse)


def forward_of(q, k, v, queries, keys, max_seqlen_q, scoring, sinks):
    """Return out (total_q, h, dv) and lse (h, total_q) of all sequences: FA2, Algorithm 1."""
    total_q, nheads, _ = q.shape
    kv_head = key_head_of(q[None], k[None])
    out = q.new_zeros(total_q, nheads, v.shape[2])
    lse = q.new_zeros(nheads, total_q, dtype=torch.float32)
    for n in range(len(queries.starts)):
        seqlen_q, seqlen_k = queries.lengths[n], keys.lengths[n]
        q_n, k_n, v_n = sequence(q, queries, n), sequence(k, keys, n), sequence(v, keys, n)
        out_n, lse_n = sequence(out, queries, n), sequence(lse.T.unsqueeze(2), queries, n)

        def load_keys(j0, k_n=k_n, v_n=v_n):
            return load(k_n, j0, BLOCK_N)[:, kv_head], load(v_n, j0, BLOCK_N)[:, kv_head]

        for i0 in range(0, max_seqlen_q, BLOCK_M):
            if i0 >= seqlen_q:
                continue  # the launch is for the longest sequence
            qi = load(q_n, i0, BLOCK_M)
            tiles = tiles_of_keys(i0, seqlen_q, seqlen_k, scoring)
            oi, lse_i = attend(q, qi, i0, seqlen_q, seqlen_k, scoring, sinks, tiles, load_keys, v.shape[2])
            store_tile(out_n, i0, oi)
            store_tile(lse_n, i0, lse_i)
    return out, lse


def attend(q, qi, i0, seqlen_q, seqlen_k, scoring, sinks, tiles, load_keys, headdim_v):
    """Return out (1, h, BLOCK_M, dv), lse (1, h, BLOCK_M, 1) of a tile of queries over these keys.

    qi (1, h, BLOCK_M, d): the queries from i0 on. tiles: the first key of each tile. load_keys(j0)
    returns K (1, h, BLOCK_N, d), V (1, h, BLOCK_N, dv) of the keys from j0 on.
    """
    nheads = qi.shape[1]
    sink = qi.new_full((nheads,), -INF) if sinks is None else sinks  #  exp(-inf) = 0: no sink
    m = sink[:, None, None].expand(1, nheads, BLOCK_M, 1)  #            the sink is the first score: m = sink
    l = (m > -INF).float()  #                                           l = exp(sink - m)
    acc = qi.new_zeros(1, nheads, BLOCK_M, headdim_v)
    for j0 in tiles:
        kj, vj = load_keys(j0)
        s, _ = scores(qi, kj, None, None, i0, j0, seqlen_q, seqlen_k, *scoring)
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))  #           m = max(m, rowmax(S))
        m_safe = m_new.masked_fill(m_new == -INF, 0.0)  #               no visible key yet: exp(-inf - 0) = 0
        p = torch.exp(s - m_safe)  #                                    P = exp(S - m)
        alpha = torch.exp(m - m_safe)  #                                rescales the earlier tiles
        l = alpha * l + p.sum(-1, keepdim=True)  #                      l = alpha l + rowsum(P)
        acc = alpha * acc + as_operand(p, q) @ vj  #                    O = alpha O + P V
        m = m_new
    return torch.where(l == 0, 0.0, acc / l), m + torch.log(l)  # a dead row: out 0, lse -inf or its sink


def backward_of(dout, q, k, v, out, lse, queries, keys, max_seqlen_k, scoring, sinks, dlse):
    """Return dq, dk, dv[, dsink] of all sequences: FA2, Algorithm 2."""
    nheads, (total_k, nheads_k, headdim), headdim_v = q.shape[1], k.shape, v.shape[2]
    kv_head = key_head_of(q[None], k[None])  # as in forward_of
    dq = q.new_zeros(q.shape, dtype=torch.float32)  # summed over tiles of keys, so in float32 until the end
    dk, dv = k.new_zeros(total_k, nheads_k, headdim), v.new_zeros(total_k, nheads_k, headdim_v)
    dsink = None if sinks is None else torch.zeros_like(sinks)
    for n in range(len(keys.starts)):
        seqlen_q, seqlen_k = queries.lengths[n], keys.lengths[n]
        q_n, dout_n, out_n = sequence(q, queries, n), sequence(dout, queries, n), sequence(out, queries, n)
        k_n, v_n = sequence(k, keys, n), sequence(v, keys, n)
        dq_n, dk_n, dv_n = sequence(dq, queries, n), sequence(dk, keys, n), sequence(dv, keys, n)
        delta_n = (dout_n.float() * out_n.float()).sum(-1, keepdim=True)  #     delta = rowsum(dO * O)
        if dlse is not None:
            delta_n = delta_n - sequence(dlse.T.unsqueeze(2), queries, n)  #    delta -= dL, as dL / dS = P
        lse_n = sequence(lse.T.unsqueeze(2), queries, n)
        lse_n = lse_n.masked_fill(lse_n == -INF, INF)  #                        a dead row: P = exp(-inf - inf) = 0
        if sinks is not None:
            p_sink = torch.exp(sinks[:, None, None] - lse_n)  #                 P_sink = exp(sink - L)
            dsink -= (p_sink * delta_n).sum((0, 2, 3))  #                       dsink = -sum(P_sink * delta)
        for j0 in range(0, max_seqlen_k, BLOCK_N):
            if j0 >= seqlen_k:
                continue  # the launch is for the longest sequence
            kj, vj = load(k_n, j0, BLOCK_N)[:, kv_head], load(v_n, j0, BLOCK_N)[:, kv_head]
            dkj = kj.new_zeros(1, nheads, BLOCK_N, headdim)
            dvj = vj.new_zeros(1, nheads, BLOCK_N, headdim_v)
            for i0 in tiles_of_queries(j0, seqlen_q, seqlen_k, scoring):
                qi, doi = load(q_n, i0, BLOCK_M), load(dout_n, i0, BLOCK_M)
                lse_i, delta_i = load(lse_n, i0, BLOCK_M, padding=INF), load(delta_n, i0, BLOCK_M)
                s, slope = scores(qi, kj, None, None, i0, j0, seqlen_q, seqlen_k, *scoring)
                p = torch.exp(s - lse_i)  #                                     P = exp(S - L)
                dvj += as_operand(p, q).mT @ doi  #                             dV = P^T dO
                ds = p * (doi @ vj.mT - delta_i)  #                             dS = P * (dP - delta), dP = dO V^T
                dr = ds if scoring.softcap is None else ds * slope  #           dR = dS * (1 - tanh(R / softcap)^2)
                add_tile(dq_n, i0, as_operand(dr, q) @ kj)  #                   dQ = scale dR K: the scale is below
                dkj += as_operand(dr, q).mT @ qi  #                             dK = scale dR^T Q
            store_tile(dk_n, j0, sum_query_heads(scoring.scale * dkj, nheads_k))
            store_tile(dv_n, j0, sum_query_heads(dvj, nheads_k))
    dq = (dq * scoring.scale).to(q.dtype)
    return (dq, dk, dv) if dsink is None else (dq, dk, dv, dsink)


def tiles_of_keys(i0, seqlen_q, seqlen_k, scoring):
    """Return the first key of each tile that the queries from i0 on see a key of."""
    first = i0 + seqlen_k - seqlen_q - scoring.left  # the first key that the tile's first query sees
    last = i0 + BLOCK_M + seqlen_k - seqlen_q + scoring.right  # one past the last key that its last query sees
    return range(int(max(0, first)) // BLOCK_N * BLOCK_N, int(min(seqlen_k, last)), BLOCK_N)


def tiles_of_queries(j0, seqlen_q, seqlen_k, scoring):
    """Return the first query of each tile that sees one of the keys from j0 on."""
    first = j0 - (seqlen_k - seqlen_q) - scoring.right  # the first query that sees the tile's first key
    last = j0 + BLOCK_N - (seqlen_k - seqlen_q) + scoring.left  # one past the last query that sees its last key
    return range(int(max(0, first)) // BLOCK_M * BLOCK_M, int(min(seqlen_q, last)), BLOCK_M)


def sequence(x, rows, n):
    """(total, h, d) -> a view (1, h, length, d) of the rows of sequence n."""
    start = rows.starts[n]
    return x[start : start + rows.lengths[n]].transpose(0, 1).unsqueeze(0)


def load(x, start, block, padding=0.0):
    """Return rows start .. start + block of x (1, h, length, d) in float32, padded after length.

    They are a copy, so that what is computed from them does not depend on where they lie.
    """
    return load_tile(x, start, block, padding).clone(memory_format=torch.contiguous_format)


def rows_of(cu_seqlens):
    """Return the Rows of sequences that cu_seqlens (batch + 1) separates."""
    ends = cu_seqlens.tolist()
    return Rows(ends[:-1], [end - start for start, end in pairwise(ends)])


def scoring_of(q, causal, window, softmax_scale, softcap):
    """Return the Scoring of a call with these keywords."""
    return Scoring(q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale, softcap, *window_of(window, causal))


def check(name, q, k, v, window, softcap, sinks):
    """Raise ValueError for a call outside of `supports`.

    q (..., h, d), k (..., hk, d), v (..., hk, dv).
    """
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in DTYPES:
        raise ValueError(f"{name}: q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: should be one supported dtype")
    (nheads, headdim), (nheads_k, headdim_v) = q.shape[-2:], v.shape[-2:]
    if k.shape[:-1] != v.shape[:-1] or k.shape[-1] != headdim:
        raise ValueError(f"{name}: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit together")
    if headdim not in HEADDIMS or headdim_v not in HEADDIMS:
        raise ValueError(f"{name}: headdim={headdim}, headdim_v={headdim_v}: should be 1 to 256")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"{name}: nheads={nheads} should be a multiple of nheads_k={nheads_k}")
    check_window(window)
    check_softcap(softcap)
    check_sinks(sinks, nheads, q.device)


def check_tables(q, shape, **tables):
    """Raise ValueError unless the tables are int32, of this shape, and on q's device."""
    for name, table in tables.items():
        check_like(name, table, shape, torch.int32, q.device)


def too_long_for_python(case):
    """Return why a case is refused: a loop over its sequences would take minutes."""
    return None if case.batch <= MOST_SEQUENCES else f"batch={case.batch}: should be at most {MOST_SEQUENCES}"


SUPPORTS = Supports(
    dtypes=DTYPES,
    headdims=HEADDIMS,
    causal="optional",
    cross=True,
    gqa=True,
    softmax_scale=True,
    window={"left", "right", "both"},
    softcap=True,
    sinks=True,
    headdims_v=HEADDIMS_V,
    strides=True,
    accepts=too_long_for_python,
)

IMPL = Implementation(
    name="python_tiled_varlen",
    forward=forward,
    backward=backward,
    devices={"cpu"},  # as python_tiled
    supports=replace(SUPPORTS, form="varlen", sink_grad=True, lse_grad=True),
    causal_alignment="bottom_right",
    lse="natural",
    empty_rows="zero",
    slack="anything",
    slack_rows="zero",
    invariant={"batch"},
    precision=Precision(probabilities="operand"),
    tile=(BLOCK_M, BLOCK_N),
    share=FORM_OF_TILED,
)
