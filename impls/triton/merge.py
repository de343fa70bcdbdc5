"""Merging parts of attention, each computed from a part of the keys.

With out_s and lse_s of part s, over its own keys:

    m = max_s lse_s      w_s = exp(lse_s - m)      out = sum_s w_s out_s / sum_s w_s
    lse = m + log(sum_s w_s)

A part without keys has lse -inf, and so the weight 0. A sink is one more part, with the value 0 and
the lse `sink`; it is counted here, once, and not in each part.
"""

import triton
import triton.language as tl

from .tiles import INF, LN2, LOG2E

NUMBERS = ["num_parts", "batch", "seqlen_q", "nheads", "headdim_v"]
TENSORS = ["out_parts_ptr", "lse_parts_ptr", "sinks_ptr", "out_ptr", "lse_ptr"]


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def merge_kernel(
    out_parts_ptr, lse_parts_ptr, sinks_ptr, out_ptr, lse_ptr, num_parts, batch, seqlen_q, nheads, headdim_v,
    BLOCK_M: tl.constexpr, BLOCK_DV: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    """Merge BLOCK_M queries of one batch and head.

    Parts are out (num_parts, batch, seqlen_q, nheads, headdim_v), lse (num_parts, batch, nheads,
    seqlen_q); out and lse are the same without num_parts. All are contiguous.
    """
    tiles = tl.cdiv(seqlen_q, BLOCK_M)
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    bh = tl.program_id(0) // tiles
    b, h = bh // nheads, bh % nheads
    columns = tl.arange(0, BLOCK_DV)[None, :]
    rows = ((b.to(tl.int64) * seqlen_q + i) * nheads + h) * headdim_v
    offsets = rows[:, None] + columns
    exists = i < seqlen_q
    here = exists[:, None] & (columns < headdim_v)
    statistics = bh.to(tl.int64) * seqlen_q + i
    heads = batch.to(tl.int64) * nheads  # of a part

    sink = tl.load(sinks_ptr + h) if SINKS else -INF
    m = tl.full((BLOCK_M,), 0.0, tl.float32) + sink
    for part in range(num_parts):
        m = tl.maximum(m, tl.load(lse_parts_ptr + part * heads * seqlen_q + statistics, mask=exists, other=-INF))
    m_safe = tl.where(m == -INF, 0.0, m)  # neither a key nor a sink: every weight is exp(-inf - 0) = 0
    l = tl.exp2((sink - m_safe) * LOG2E)
    acc = tl.zeros((BLOCK_M, BLOCK_DV), tl.float32)
    for part in range(num_parts):
        lse = tl.load(lse_parts_ptr + part * heads * seqlen_q + statistics, mask=exists, other=-INF)
        weight = tl.exp2((lse - m_safe) * LOG2E)
        out = tl.load(out_parts_ptr + part * heads * seqlen_q * headdim_v + offsets, mask=here, other=0.0)
        l += weight
        acc += weight[:, None] * out

    empty = l == 0.0
    out = acc / tl.where(empty, 1.0, l)[:, None]
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=here)
    tl.store(lse_ptr + statistics, tl.where(empty, -INF, m_safe + tl.log2(tl.where(empty, 1.0, l)) * LN2), mask=exists)
