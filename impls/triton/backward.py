"""FlashAttention-2's backward (Dao 2023, Algorithm 2), with S and P recomputed from lse.

    P  = exp(scale Q K^T + bias - lse)      dV = P^T dO
    dP = dO V^T                             dK = scale dS^T Q
    dS = P * (dP - delta)                   dQ = scale dS K
    delta = rowsum(dO * O) - dlse           dsink = -sum P_sink delta,  P_sink = exp(sink - lse)

With a softcap, S has softcap tanh(scale Q K^T / softcap), and dK and dQ multiply dS by its slope.
dK and dV are sums over queries: one program per K tile loops over the Q tiles and over the query
heads that share the key head. dQ is a sum over keys, computed in one of two ways. In the first, one
program per Q tile loops over the K tiles: it computes S and dP a second time but adds in a fixed
order, so every bit is repeatable. In the second, the programs of the K tiles add their
contributions to dQ with atomics, in any order.
"""

import triton
import triton.language as tl

from .tiles import (
    LOG2E,
    NOT_SPECIALIZED,
    POINTERS,
    diagonals_of,
    keys_of_tile,
    load_lse,
    load_statistic,
    load_tile,
    matrix_of,
    probabilities,
    product,
    scores,
    sequence_of,
    slope_of_cap,
    statistics_of,
    store_tile,
    tile_offsets,
)
from .tuning import Kernel


@triton.jit(do_not_specialize=NOT_SPECIALIZED, do_not_specialize_on_alignment=POINTERS)
def delta_kernel(
    out_ptr, dout_ptr, dlse_ptr, lse_ptr, sinks_ptr, delta_ptr, dsink_ptr, cu_seqlens_q_ptr, out_strides, dout_strides,
    total_q, nheads, seqlen_q, headdim_v, tuning_key,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DV: tl.constexpr, ALIGN: tl.constexpr,
    DLSE: tl.constexpr, SINKS: tl.constexpr, VARLEN: tl.constexpr,
):  # fmt: skip
    """delta = rowsum(dO * O) - dlse, (batch, nheads, seqlen_q) float32. Program (b, h, Q tile).

    With SINKS, also each query's part of dsink, of the same shape.
    """
    tiles = tl.cdiv(seqlen_q, BLOCK_M)
    i0 = tl.program_id(0) % tiles * BLOCK_M
    bh = tl.program_id(0) // tiles
    b, h = bh // nheads, bh % nheads
    b_q, seqlen_q = sequence_of(b, seqlen_q, cu_seqlens_q_ptr, VARLEN)
    if VARLEN and i0 >= seqlen_q:  # the grid has tiles for the longest sequence
        return

    out_ptr = matrix_of(out_ptr, out_strides, b_q, h, ALIGN)
    dout_ptr = matrix_of(dout_ptr, dout_strides, b_q, h, ALIGN)
    statistics = statistics_of(bh, h, b_q, seqlen_q, total_q, VARLEN)
    out = load_tile(out_ptr, i0, out_strides.row, seqlen_q, headdim_v, BLOCK_M, BLOCK_DV, ALIGN, True)
    dout = load_tile(dout_ptr, i0, dout_strides.row, seqlen_q, headdim_v, BLOCK_M, BLOCK_DV, ALIGN, True)
    i = i0 + tl.arange(0, BLOCK_M)
    delta = tl.sum(dout.to(tl.float32) * out.to(tl.float32), 1)
    if DLSE:
        delta -= load_statistic(dlse_ptr + statistics, i, seqlen_q, 0.0)
    tl.store(delta_ptr + statistics + i, delta, mask=i < seqlen_q)
    if SINKS:
        sink = tl.load(sinks_ptr + h) * LOG2E
        p_sink = tl.exp2(sink - load_lse(lse_ptr + statistics, i, seqlen_q))  # 0 if the sink is -inf
        tl.store(dsink_ptr + statistics + i, -p_sink * delta, mask=i < seqlen_q)


@triton.jit
def gather_dk_dv(
    dk, dv, k, v, q_ptr, dout_ptr, bias_ptr, lse_ptr, delta_ptr, dq_ptr, j0, first, last, clear, full, scale, softcap,
    q_row, dout_row, bias_row, dq_row, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    ALIGN: tl.constexpr, BIAS: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr,
    PRECISION: tl.constexpr, ATOMIC: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the queries first .. last of one head to dk (BLOCK_N, BLOCK_D) and dv (BLOCK_N,
    BLOCK_DV), and return them.

    If MASKED, first .. last leaves out the queries clear .. full: later tiles lie that much further
    on. All tiles are computed transposed, (keys, queries), so P^T and dS^T can be left operands
    without a transposition.
    """
    j = j0 + tl.arange(0, BLOCK_N)[:, None]
    for at in tl.range(first, last, BLOCK_M):
        i0 = at
        if WINDOW and MASKED:
            i0 = tl.where(at < clear, at, at + (full - clear))
        i = i0 + tl.arange(0, BLOCK_M)
        q = load_tile(q_ptr, i0, q_row, seqlen_q, headdim, BLOCK_M, BLOCK_D, ALIGN, True)
        qk_t = product(k, tl.trans(q), PRECISION)
        s_t = scores(
            qk_t, bias_ptr, i[None, :], j, scale, softcap, bias_row, seqlen_q, seqlen_k, begin, diagonal,
            BIAS, CAP, WINDOW, MASKED,
        )  # fmt: skip
        p_t = probabilities(s_t, load_lse(lse_ptr, i, seqlen_q)[None, :], BIAS)
        dout = load_tile(dout_ptr, i0, dout_row, seqlen_q, headdim_v, BLOCK_M, BLOCK_DV, ALIGN, True)
        dv += product(p_t.to(dout.dtype), dout, PRECISION)
        dp_t = product(v, tl.trans(dout), PRECISION)
        ds_t = p_t * (dp_t - load_statistic(delta_ptr, i, seqlen_q, 0.0)[None, :])
        if CAP:
            ds_t *= slope_of_cap(qk_t, scale, softcap, CAP)
        ds_t = ds_t.to(q.dtype)
        dk += product(ds_t, q, PRECISION)
        if ATOMIC:
            dq = product(tl.trans(ds_t), k, PRECISION) * scale
            offsets, rows, columns = tile_offsets(i0, dq_row, headdim, BLOCK_M, BLOCK_D, ALIGN)
            tl.atomic_add(dq_ptr + offsets, dq, mask=(rows < seqlen_q) & (columns < headdim), sem="relaxed")
    return dk, dv


@triton.jit(do_not_specialize=NOT_SPECIALIZED, do_not_specialize_on_alignment=POINTERS)
def dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, bias_ptr, dout_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr,
    cu_seqlens_q_ptr, cu_seqlens_k_ptr, scale, softcap,
    q_strides, k_strides, v_strides, bias_strides, dout_strides, dq_strides, dk_strides, dv_strides,
    total_q, nheads_k, group, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v, tuning_key,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    ALIGN: tl.constexpr, BIAS: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr, OWN_V: tl.constexpr,
    UNMASKED: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """Write dk and dv: program (b, key head, K tile).

    If ATOMIC, the program adds its contribution to a float32 dq that starts at zero.
    """
    if not OWN_V:
        headdim_v = headdim
    tiles = tl.cdiv(seqlen_k, BLOCK_N)
    j0 = tl.program_id(0) % tiles * BLOCK_N  # the keys that most queries see under a causal mask come first
    bh = tl.program_id(0) // tiles
    b, h_k = bh // nheads_k, bh % nheads_k
    b_q, seqlen_q = sequence_of(b, seqlen_q, cu_seqlens_q_ptr, VARLEN)
    b_k, seqlen_k = sequence_of(b, seqlen_k, cu_seqlens_k_ptr, VARLEN)
    begin, diagonal = diagonals_of(begin, diagonal, seqlen_q, seqlen_k, VARLEN)
    if VARLEN and j0 >= seqlen_k:  # the grid has tiles for the longest sequence
        return

    k_ptr = matrix_of(k_ptr, k_strides, b_k, h_k, ALIGN)
    v_ptr = matrix_of(v_ptr, v_strides, b_k, h_k, ALIGN)
    k = load_tile(k_ptr, j0, k_strides.row, seqlen_k, headdim, BLOCK_N, BLOCK_D, ALIGN, True)
    v = load_tile(v_ptr, j0, v_strides.row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN, True)
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_DV), tl.float32)

    # Queries before `first` see no key of this tile; queries from `clear` on see all. In a window,
    # those from `full` on miss some, and those from `last` on see none. A tile with padding keys is
    # always masked: a padding key scores 0, and exp(0 - lse) overflows if lse is very negative.
    first = tl.maximum(j0 - diagonal, 0) // BLOCK_M * BLOCK_M
    clear = tl.minimum(tl.cdiv(tl.maximum(j0 + BLOCK_N - 1 - diagonal, 0), BLOCK_M) * BLOCK_M, seqlen_q)
    clear = tl.where(j0 + BLOCK_N > seqlen_k, seqlen_q, clear)
    if not UNMASKED:
        clear = seqlen_q
    full, last = seqlen_q, clear
    if WINDOW:
        last = tl.maximum(tl.minimum(seqlen_q, j0 + BLOCK_N - begin), 0)
        full = tl.maximum(tl.minimum(j0 - begin + 1, last), 0) // BLOCK_M * BLOCK_M
        full = tl.maximum(full, clear)
        last -= full - clear
    for h in range(h_k * group, (h_k + 1) * group):  # the query heads that read this key head
        statistics = statistics_of(b * nheads_k * group + h, h, b_q, seqlen_q, total_q, VARLEN)
        q_h = matrix_of(q_ptr, q_strides, b_q, h, ALIGN)
        dout_h = matrix_of(dout_ptr, dout_strides, b_q, h, ALIGN)
        dq_h = matrix_of(dq_ptr, dq_strides, b_q, h, ALIGN)
        bias_h = matrix_of(bias_ptr, bias_strides, b, h, 1)
        dk, dv = gather_dk_dv(
            dk, dv, k, v, q_h, dout_h, bias_h, lse_ptr + statistics, delta_ptr + statistics, dq_h,
            j0, first, last, clear, full, scale, softcap,
            q_strides.row, dout_strides.row, bias_strides.row, dq_strides.row,
            seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
            BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, ALIGN, BIAS, CAP, WINDOW, PRECISION, ATOMIC, True,
        )  # fmt: skip
        if UNMASKED:
            dk, dv = gather_dk_dv(
                dk, dv, k, v, q_h, dout_h, bias_h, lse_ptr + statistics, delta_ptr + statistics, dq_h,
                j0, clear, full, clear, full, scale, softcap,
                q_strides.row, dout_strides.row, bias_strides.row, dq_strides.row,
                seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
                BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, ALIGN, BIAS, CAP, WINDOW, PRECISION, ATOMIC, False,
            )  # fmt: skip

    dk_ptr = matrix_of(dk_ptr, dk_strides, b_k, h_k, ALIGN)
    dv_ptr = matrix_of(dv_ptr, dv_strides, b_k, h_k, ALIGN)
    store_tile(dk_ptr, dk * scale, j0, dk_strides.row, seqlen_k, headdim, BLOCK_N, BLOCK_D, ALIGN)
    store_tile(dv_ptr, dv, j0, dv_strides.row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN)


@triton.jit
def gather_dq(
    dq, q, dout, lse, delta, k_ptr, v_ptr, bias_ptr, i, first, last, full, clear, scale, softcap,
    k_row, v_row, bias_row, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, ALIGN: tl.constexpr,
    BIAS: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the keys first .. last to dq (BLOCK_M, BLOCK_D), and return it.

    If MASKED, the tiles full .. clear are left out (keys_of_tile).
    """
    for at in tl.range(first, last, BLOCK_N):
        j0 = at
        if WINDOW and MASKED:
            j0 = tl.where(at < clear, at - (clear - full), at)
        j = j0 + tl.arange(0, BLOCK_N)[None, :]
        k = load_tile(k_ptr, j0, k_row, seqlen_k, headdim, BLOCK_N, BLOCK_D, ALIGN, MASKED)
        v = load_tile(v_ptr, j0, v_row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN, MASKED)
        qk = product(q, tl.trans(k), PRECISION)
        s = scores(
            qk, bias_ptr, i, j, scale, softcap, bias_row, seqlen_q, seqlen_k, begin, diagonal,
            BIAS, CAP, WINDOW, MASKED,
        )  # fmt: skip
        p = probabilities(s, lse[:, None], BIAS)
        dp = product(dout, tl.trans(v), PRECISION)
        ds = p * (dp - delta[:, None])
        if CAP:
            ds *= slope_of_cap(qk, scale, softcap, CAP)
        dq += product(ds.to(k.dtype), k, PRECISION)
    return dq


@triton.jit(do_not_specialize=NOT_SPECIALIZED, do_not_specialize_on_alignment=POINTERS)
def dq_kernel(
    q_ptr, k_ptr, v_ptr, bias_ptr, dout_ptr, lse_ptr, delta_ptr, dq_ptr, cu_seqlens_q_ptr, cu_seqlens_k_ptr, scale, softcap,
    q_strides, k_strides, v_strides, bias_strides, dout_strides, dq_strides,
    total_q, nheads, group, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v, tuning_key,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    ALIGN: tl.constexpr, BIAS: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr, OWN_V: tl.constexpr,
    UNMASKED: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dq: program (b, h, Q tile) loops over the K tiles as the forward does."""
    if not OWN_V:
        headdim_v = headdim
    tiles = tl.cdiv(seqlen_q, BLOCK_M)
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
    dout_ptr = matrix_of(dout_ptr, dout_strides, b_q, h, ALIGN)
    dq_ptr = matrix_of(dq_ptr, dq_strides, b_q, h, ALIGN)
    bias_ptr = matrix_of(bias_ptr, bias_strides, b, h, 1)
    statistics = statistics_of(bh, h, b_q, seqlen_q, total_q, VARLEN)

    i = i0 + tl.arange(0, BLOCK_M)
    q = load_tile(q_ptr, i0, q_strides.row, seqlen_q, headdim, BLOCK_M, BLOCK_D, ALIGN, True)
    dout = load_tile(dout_ptr, i0, dout_strides.row, seqlen_q, headdim_v, BLOCK_M, BLOCK_DV, ALIGN, True)
    lse = load_lse(lse_ptr + statistics, i, seqlen_q)
    delta = load_statistic(delta_ptr + statistics, i, seqlen_q, 0.0)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)

    full, clear, first, last = keys_of_tile(i0, seqlen_q, seqlen_k, begin, diagonal, BLOCK_M, BLOCK_N, WINDOW, UNMASKED)
    if UNMASKED:
        dq = gather_dq(
            dq, q, dout, lse, delta, k_ptr, v_ptr, bias_ptr, i[:, None], full, clear, full, clear, scale, softcap,
            k_strides.row, v_strides.row, bias_strides.row, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
            BLOCK_N, BLOCK_D, BLOCK_DV, ALIGN, BIAS, CAP, WINDOW, PRECISION, False,
        )  # fmt: skip
    dq = gather_dq(
        dq, q, dout, lse, delta, k_ptr, v_ptr, bias_ptr, i[:, None], first, last, full, clear, scale, softcap,
        k_strides.row, v_strides.row, bias_strides.row, seqlen_q, seqlen_k, begin, diagonal, headdim, headdim_v,
        BLOCK_N, BLOCK_D, BLOCK_DV, ALIGN, BIAS, CAP, WINDOW, PRECISION, True,
    )  # fmt: skip
    store_tile(dq_ptr, dq * scale, i0, dq_strides.row, seqlen_q, headdim, BLOCK_M, BLOCK_D, ALIGN)


compute_delta = Kernel("delta", delta_kernel)
compute_dk_dv = Kernel("dk_dv", dk_dv_kernel)
compute_dk_dv_dq = Kernel("dk_dv_dq", dk_dv_kernel, accumulates=["dq_ptr"])
compute_dq = Kernel("dq", dq_kernel)
