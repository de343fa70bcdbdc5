"""FlashAttention-2's forward (Dao 2023, Algorithm 1).

One program per Q tile loops over the K tiles.

    S = scale Q K^T + bias                  m_new = max(m, rowmax(S))
    P = exp(S - m_new)                      alpha = exp(m - m_new)
    l = alpha l + rowsum(P)                 O     = alpha O + P V
    at the end:  O / l,  lse = m + log(l)

With a softcap, softcap tanh(scale Q K^T / softcap) replaces scale Q K^T. With a sink, m begins as
the sink and l as 1.

The running maximum m, the running sum l, and O stay in registers for the whole loop.
"""

import triton
import triton.language as tl

from .tiles import (
    INF,
    LN2,
    LOG2E,
    NOT_SPECIALIZED,
    POINTERS,
    diagonals_of,
    keys_of_tile,
    load_tile,
    matrix_of,
    product,
    scores,
    sequence_of,
    statistics_of,
    store_tile,
)
from .tuning import Kernel


@triton.jit
def attend(
    acc, l, m, q, k_ptr, v_ptr, bias_ptr, i, first, last, full, clear, scale, softcap,
    k_row, v_row, bias_row, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, ALIGN: tl.constexpr,
    BIAS: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the keys first .. last to acc (BLOCK_M, BLOCK_DV), l, m (BLOCK_M,), and return these.

    If MASKED, the tiles full .. clear are left out (keys_of_tile).
    """
    for at in tl.range(first, last, BLOCK_N):
        j0 = at
        if WINDOW and MASKED:
            j0 = tl.where(at < clear, at - (clear - full), at)
        j = j0 + tl.arange(0, BLOCK_N)[None, :]
        k = load_tile(k_ptr, j0, k_row, seqlen_k, headdim, BLOCK_N, BLOCK_D, ALIGN, MASKED)
        qk = product(q, tl.trans(k), PRECISION)
        if MASKED or BIAS or CAP:
            s = scores(
                qk, bias_ptr, i, j, scale, softcap, bias_row, seqlen_q, seqlen_k, begin, diagonal,
                BIAS, CAP, WINDOW, MASKED,
            )  # fmt: skip
            m_new = tl.maximum(m, tl.max(s, 1))
        else:  # the same, with scaling fused with the subtraction of m; the scale is not negative here
            s = qk * (scale * LOG2E)
            m_new = tl.maximum(m, tl.max(qk, 1) * (scale * LOG2E))
        m_safe = tl.where(m_new == -INF, 0.0, m_new)  # no visible key yet: exp(-inf - 0) = 0, not NaN
        p = tl.exp2(s - m_safe[:, None])
        alpha = tl.exp2(m - m_safe)
        l = alpha * l + tl.sum(p, 1)
        v = load_tile(v_ptr, j0, v_row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN, MASKED)
        acc = acc * alpha[:, None] + product(p.to(v.dtype), v, PRECISION)
        m = m_new
    return acc, l, m


@triton.jit(do_not_specialize=NOT_SPECIALIZED, do_not_specialize_on_alignment=POINTERS)
def forward_kernel(
    q_ptr, k_ptr, v_ptr, bias_ptr, sinks_ptr, out_ptr, lse_ptr, cu_seqlens_q_ptr, cu_seqlens_k_ptr, scale, softcap,
    q_strides, k_strides, v_strides, bias_strides, out_strides,
    total_q, nheads, group, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v, tuning_key,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    ALIGN: tl.constexpr, BIAS: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    OWN_V: tl.constexpr, UNMASKED: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write out and lse: program (b, h, Q tile).

    Query head h reads key head h // group; query i sees keys i + begin .. i + diagonal. UNMASKED:
    tiles that need no mask get a separate loop. Without CAP, WINDOW, SINKS and OWN_V (headdim_v
    differs from headdim), their arguments are not read, and cost nothing.
    """
    if not OWN_V:
        headdim_v = headdim
    tiles = tl.cdiv(seqlen_q, BLOCK_M)
    # Under a causal mask the tiles with the most keys start first.
    i0 = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M
    bh = tl.program_id(0) // tiles
    b, h = bh // nheads, bh % nheads
    b_q, seqlen_q = sequence_of(b, seqlen_q, cu_seqlens_q_ptr, VARLEN)
    b_k, seqlen_k = sequence_of(b, seqlen_k, cu_seqlens_k_ptr, VARLEN)
    begin, diagonal = diagonals_of(begin, diagonal, seqlen_q, seqlen_k, VARLEN)
    if VARLEN and i0 >= seqlen_q:  # the grid has tiles for the longest sequence
        return

    q_ptr = matrix_of(q_ptr, q_strides, b_q, h, ALIGN)
    k_ptr = matrix_of(k_ptr, k_strides, b_k, h // group, ALIGN)
    v_ptr = matrix_of(v_ptr, v_strides, b_k, h // group, ALIGN)
    out_ptr = matrix_of(out_ptr, out_strides, b_q, h, ALIGN)
    bias_ptr = matrix_of(bias_ptr, bias_strides, b, h, 1)
    lse_ptr += statistics_of(bh, h, b_q, seqlen_q, total_q, VARLEN)

    q = load_tile(q_ptr, i0, q_strides.row, seqlen_q, headdim, BLOCK_M, BLOCK_D, ALIGN, True)
    q = tl.where(scale < 0, -q, q)  # moving the sign into Q is exact, and makes rowmax(Q K^T) scale the maximum
    scale = tl.abs(scale)
    i = i0 + tl.arange(0, BLOCK_M)
    if SINKS:  # a key that every query sees, with the score `sink` and the value 0
        sink = tl.load(sinks_ptr + h) * LOG2E
        m = tl.zeros((BLOCK_M,), tl.float32) + sink
        l = tl.full((BLOCK_M,), 1.0, tl.float32)  # times alpha, which is 0 if the sink is -inf
    else:
        m = tl.full((BLOCK_M,), -INF, tl.float32)
        l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_DV), tl.float32)

    full, clear, first, last = keys_of_tile(i0, seqlen_q, seqlen_k, begin, diagonal, BLOCK_M, BLOCK_N, WINDOW, UNMASKED)
    if UNMASKED:
        acc, l, m = attend(
            acc, l, m, q, k_ptr, v_ptr, bias_ptr, i[:, None], full, clear, full, clear, scale, softcap,
            k_strides.row, v_strides.row, bias_strides.row, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
            BLOCK_N, BLOCK_D, BLOCK_DV, ALIGN, BIAS, CAP, WINDOW, PRECISION, False,
        )  # fmt: skip
    acc, l, m = attend(
        acc, l, m, q, k_ptr, v_ptr, bias_ptr, i[:, None], first, last, full, clear, scale, softcap,
        k_strides.row, v_strides.row, bias_strides.row, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
        BLOCK_N, BLOCK_D, BLOCK_DV, ALIGN, BIAS, CAP, WINDOW, PRECISION, True,
    )  # fmt: skip

    dead = l == 0.0  # a row that sees no key, and has no sink: out 0, lse -inf
    out = acc / tl.where(dead, 1.0, l)[:, None]
    lse = tl.where(dead, -INF, (m + tl.log2(tl.where(dead, 1.0, l))) * LN2)
    store_tile(out_ptr, out, i0, out_strides.row, seqlen_q, headdim_v, BLOCK_M, BLOCK_DV, ALIGN)
    tl.store(lse_ptr + i, lse, mask=i < seqlen_q)


compute_forward = Kernel("forward", forward_kernel)
