"""dbias = dS, summed over broadcast dimensions of the bias without atomics, so it is repeatable.

    dS = P * (dO V^T - delta),  P = exp(scale Q K^T + bias - lse)    (softcap: before the bias)

A matrix bias (batch | 1, nheads | 1, seqlen_q, seqlen_k) has one program for each of its tiles,
which loops over the batches and heads that share it. A vector bias (.., 1, seqlen_k) has one
program per (b, h, K tile), which loops over the queries; torch then computes the small sum over
batch and heads.
"""

import triton
import triton.language as tl

from .tiles import (
    NOT_SPECIALIZED,
    POINTERS,
    elements,
    load_lse,
    load_statistic,
    load_tile,
    matrix_of,
    probabilities,
    product,
    scores,
)
from .tuning import Kernel


@triton.jit(do_not_specialize=NOT_SPECIALIZED, do_not_specialize_on_alignment=POINTERS)
def dbias_kernel(
    q_ptr, k_ptr, v_ptr, bias_ptr, dout_ptr, lse_ptr, delta_ptr, dbias_ptr, scale, softcap,
    q_strides, k_strides, v_strides, bias_strides, dout_strides, dbias_strides,
    nheads, group, shared_batch, shared_heads, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v, vector,
    tuning_key,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    ALIGN: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr, OWN_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dbias: program (batch of dbias, head of dbias, Q tile or all queries, K tile).

    It sums over shared_batch batches and shared_heads heads, and also over the queries for a
    vector.
    """
    if not OWN_V:
        headdim_v = headdim
    # The part of dbias that this program computes.
    tiles_k = tl.cdiv(seqlen_k, BLOCK_N)
    queries_each = tl.where(vector != 0, tl.maximum(seqlen_q, 1), BLOCK_M)
    parts_q = tl.maximum(tl.cdiv(seqlen_q, queries_each), 1)
    j0 = tl.program_id(0) % tiles_k * BLOCK_N
    first = tl.program_id(0) // tiles_k % parts_q * queries_each
    bh = tl.program_id(0) // tiles_k // parts_q
    heads = nheads // shared_heads  # of dbias
    b0, h0 = bh // heads * shared_batch, bh % heads * shared_heads

    # The sum of dS over the batches and heads that share this part, and for a vector over queries.
    j = j0 + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for b in range(b0, b0 + shared_batch):
        for h in range(h0, h0 + shared_heads):
            k_h = matrix_of(k_ptr, k_strides, b, h // group, ALIGN)
            v_h = matrix_of(v_ptr, v_strides, b, h // group, ALIGN)
            k = load_tile(k_h, j0, k_strides.row, seqlen_k, headdim, BLOCK_N, BLOCK_D, ALIGN, True)
            v = load_tile(v_h, j0, v_strides.row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN, True)
            q_h = matrix_of(q_ptr, q_strides, b, h, ALIGN)
            dout_h = matrix_of(dout_ptr, dout_strides, b, h, ALIGN)
            bias_h = matrix_of(bias_ptr, bias_strides, b, h, 1)
            statistics = tl.cast(b * nheads + h, tl.int64) * seqlen_q
            # Every tile is masked, because this kernel takes little of the time.
            for i0 in range(first, tl.minimum(first + queries_each, seqlen_q), BLOCK_M):
                i = i0 + tl.arange(0, BLOCK_M)
                q = load_tile(q_h, i0, q_strides.row, seqlen_q, headdim, BLOCK_M, BLOCK_D, ALIGN, True)
                dout = load_tile(dout_h, i0, dout_strides.row, seqlen_q, headdim_v, BLOCK_M, BLOCK_DV, ALIGN, True)
                qk = product(q, tl.trans(k), PRECISION)
                s = scores(
                    qk, bias_h, i[:, None], j, scale, softcap, bias_strides.row, seqlen_q, seqlen_k, begin, diagonal,
                    True, CAP, WINDOW, True,
                )  # fmt: skip
                p = probabilities(s, load_lse(lse_ptr + statistics, i, seqlen_q)[:, None], True)
                dp = product(dout, tl.trans(v), PRECISION)
                total += p * (dp - load_statistic(delta_ptr + statistics, i, seqlen_q, 0.0)[:, None])

    # A vector has one row, a matrix a tile of rows.
    dbias_ptr = matrix_of(dbias_ptr, dbias_strides, bh // heads, bh % heads, 1)
    if vector != 0:
        keys = j0 + tl.arange(0, BLOCK_N)
        tl.store(dbias_ptr + keys, tl.sum(total, 0).to(dbias_ptr.dtype.element_ty), mask=keys < seqlen_k)
    else:
        rows = first + tl.arange(0, BLOCK_M)[:, None]
        offsets = rows.to(tl.int64) * elements(dbias_strides.row, 1) + j
        here = (rows < seqlen_q) & (j < seqlen_k)
        tl.store(dbias_ptr + offsets, total.to(dbias_ptr.dtype.element_ty), mask=here)


compute_dbias = Kernel("dbias", dbias_kernel)
