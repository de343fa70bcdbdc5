"""FlashAttention-2's forward (Dao 2023, Algorithm 1).

One program per Q tile loops over the K tiles.

    S = scale Q K^T + bias                  m_new = max(m, rowmax(S))
    P = exp(S - m_new)                      alpha = exp(m - m_new)
    l = alpha l + rowsum(P)                 O     = alpha O + P V
    at the end:  O / l,  lse = m + log(l)

The running maximum m, the running sum l, and O stay in registers for the whole loop.
"""

import triton
import triton.language as tl

from .tiles import INF, LN2, LOG2E, NOT_SPECIALIZED, POINTERS, load_tile, matrix_of, product, scores, store_tile
from .tuning import Kernel


@triton.jit
def attend(
    acc, l, m, q, k_ptr, v_ptr, bias_ptr, i, first, last, scale,
    k_row, v_row, bias_row, seqlen_q, seqlen_k, diagonal, headdim,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, ALIGN: tl.constexpr, BIAS: tl.constexpr,
    PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the keys first .. last to acc (BLOCK_M, BLOCK_D), l, m (BLOCK_M,), and return these."""
    for j0 in tl.range(first, last, BLOCK_N):
        j = j0 + tl.arange(0, BLOCK_N)[None, :]
        k = load_tile(k_ptr, j0, k_row, seqlen_k, headdim, BLOCK_N, BLOCK_D, ALIGN, MASKED)
        qk = product(q, tl.trans(k), PRECISION)
        if MASKED or BIAS:
            s = scores(qk, bias_ptr, i, j, scale, bias_row, seqlen_q, seqlen_k, diagonal, BIAS, MASKED)
            m_new = tl.maximum(m, tl.max(s, 1))
        else:  # the same, with scaling fused with the subtraction of m; the scale is not negative here
            s = qk * (scale * LOG2E)
            m_new = tl.maximum(m, tl.max(qk, 1) * (scale * LOG2E))
        m_safe = tl.where(m_new == -INF, 0.0, m_new)  # no visible key yet: exp(-inf - 0) = 0, not NaN
        p = tl.exp2(s - m_safe[:, None])
        alpha = tl.exp2(m - m_safe)
        l = alpha * l + tl.sum(p, 1)
        v = load_tile(v_ptr, j0, v_row, seqlen_k, headdim, BLOCK_N, BLOCK_D, ALIGN, MASKED)
        acc = acc * alpha[:, None] + product(p.to(v.dtype), v, PRECISION)
        m = m_new
    return acc, l, m


@triton.jit(do_not_specialize=NOT_SPECIALIZED, do_not_specialize_on_alignment=POINTERS)
def forward_kernel(
    q_ptr, k_ptr, v_ptr, bias_ptr, out_ptr, lse_ptr, scale,
    q_strides, k_strides, v_strides, bias_strides, out_strides,
    nheads, group, seqlen_q, seqlen_k, diagonal, headdim, tuning_key,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    ALIGN: tl.constexpr, BIAS: tl.constexpr, UNMASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write out and lse: program (b, h, Q tile).

    Query head h reads key head h // group; query i sees keys 0 .. i + diagonal. UNMASKED: tiles
    that need no mask get a separate loop.
    """
    tiles = tl.cdiv(seqlen_q, BLOCK_M)
    # Under a causal mask the tiles with the most keys start first.
    i0 = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M
    bh = tl.program_id(0) // tiles
    b, h = bh // nheads, bh % nheads

    q_ptr = matrix_of(q_ptr, q_strides, b, h, ALIGN)
    k_ptr = matrix_of(k_ptr, k_strides, b, h // group, ALIGN)
    v_ptr = matrix_of(v_ptr, v_strides, b, h // group, ALIGN)
    out_ptr = matrix_of(out_ptr, out_strides, b, h, ALIGN)
    bias_ptr = matrix_of(bias_ptr, bias_strides, b, h, 1)
    lse_ptr += bh.to(tl.int64) * seqlen_q

    q = load_tile(q_ptr, i0, q_strides.row, seqlen_q, headdim, BLOCK_M, BLOCK_D, ALIGN, True)
    q = tl.where(scale < 0, -q, q)  # moving the sign into Q is exact, and makes rowmax(Q K^T) scale the maximum
    scale = tl.abs(scale)
    i = i0 + tl.arange(0, BLOCK_M)
    m = tl.full((BLOCK_M,), -INF, tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)

    # Every query of this tile sees the keys before `clear`; none sees the keys from `end` on.
    clear = tl.maximum(tl.minimum(seqlen_k, i0 + diagonal + 1), 0) // BLOCK_N * BLOCK_N
    end = tl.maximum(tl.minimum(seqlen_k, i0 + diagonal + BLOCK_M), 0)
    if UNMASKED:
        acc, l, m = attend(
            acc, l, m, q, k_ptr, v_ptr, bias_ptr, i[:, None], 0, clear, scale,
            k_strides.row, v_strides.row, bias_strides.row, seqlen_q, seqlen_k, diagonal, headdim,
            BLOCK_N, BLOCK_D, ALIGN, BIAS, PRECISION, False,
        )  # fmt: skip
    else:
        clear = 0
    acc, l, m = attend(
        acc, l, m, q, k_ptr, v_ptr, bias_ptr, i[:, None], clear, end, scale,
        k_strides.row, v_strides.row, bias_strides.row, seqlen_q, seqlen_k, diagonal, headdim,
        BLOCK_N, BLOCK_D, ALIGN, BIAS, PRECISION, True,
    )  # fmt: skip

    dead = l == 0.0  # a row that sees no key: out 0, lse -inf
    out = acc / tl.where(dead, 1.0, l)[:, None]
    lse = tl.where(dead, -INF, (m + tl.log2(tl.where(dead, 1.0, l))) * LN2)
    store_tile(out_ptr, out, i0, out_strides.row, seqlen_q, headdim, BLOCK_M, BLOCK_D, ALIGN)
    tl.store(lse_ptr + i, lse, mask=i < seqlen_q)


compute_forward = Kernel("forward", forward_kernel)
