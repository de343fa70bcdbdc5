"""FlashAttention-1's forward (Dao 2022, Algorithm 1): keys in the outer loop, queries in the inner.

Line numbers in comments refer to the algorithm.

    for each tile of keys j:                K_j, V_j stay in shared memory
        for each tile of queries i:         Q_i is loaded; O_i, l_i, m_i are loaded and stored
            S  = cap(softmax_scale Q_i K_j^T) + bias
            m~ = rowmax(S)                  P~ = exp(S - m~)                l~ = rowsum(P~)
            m' = max(m, m~)                 l' = e^(m - m') l + e^(m~ - m') l~
            O_i = (l e^(m - m') O_i + e^(m~ - m') P~ V_j) / l'              m = m', l = l'
    lse = m + log(l)

One block processes a whole (batch, head), so no other block accesses its O, l and m, which are in
global memory, and the order of all sums is fixed. Each element of O is read and written by the same
thread in all steps.
"""

import functools

import numpy as np
import torch
from numba import cuda, float32
from numba.cuda import libdevice

from .device import EMULATED
from .launch import launch
from .memory import matrix
from .problem import Problem
from .scores import finish_scores, finite, first_key_of, first_query_of, keys_of, queries_of_tile
from .tiles import (
    GROUPS,
    INF,
    LANES,
    PAD,
    THREADS,
    ZERO,
    add_product,
    add_rows_dot_rows,
    fetch_rows,
    fill,
    lane,
    load_tile,
    maximum_of_lanes,
    offset,
    row,
    share,
    store_rows,
    sum_of_lanes,
)
from .tuning import choose


def forward_bytes(M: int, N: int, D: int) -> int:
    """Return the bytes of shared memory for Q (M, D), K, V (N, D) and P (M, N), padded."""
    return 4 * ((M + 2 * N) * (D + PAD) + M * (N + PAD))


@functools.cache
def make_forward(M: int, N: int, D: int, known_capped: int | None = None):
    """Return the kernel with tiles of M queries and N keys, for head dims up to D.

    It has one block for each (batch, head). known_capped: as in fa2.py.
    """
    TM, TN, TD = M // GROUPS, N // LANES, D // LANES

    # There are rarely more blocks than multiprocessors, so a thread may use 255 registers.
    @cuda.jit(launch_bounds=THREADS)
    def fa1_forward(q, k, v, bias, sums, out, l, m, lse, softmax_scale, softcap, p):
        """q, k, v, bias, out: all elements, flat. l, m, lse (batch, nheads, seqlen_q), flat. p:
        Problem.

        O is summed in float32 in `sums`, which has the strides of out, and is out itself if out is
        float32. The caller has done line 2: O = 0, l = 0, m = -inf.
        """
        shared = cuda.shared.array(0, float32, alignment=16)
        Q = matrix(shared, 0, M, D + PAD)
        K = matrix(shared, M * (D + PAD), N, D + PAD)
        V = matrix(shared, (M + N) * (D + PAD), N, D + PAD)
        P = matrix(shared, (M + 2 * N) * (D + PAD), M, N + PAD)

        capped = p.capped if known_capped is None else known_capped

        # This block's batch and head.
        head = cuda.blockIdx.x
        b, h = head // p.nheads, head % p.nheads
        first = head * p.seqlen_q  # of l, m and lse
        q_bh = matrix(q, offset(p.q, b, h), p.seqlen_q, p.q.row)
        k_bh = matrix(k, offset(p.k, b, h // p.group), p.seqlen_k, p.k.row)
        v_bh = matrix(v, offset(p.v, b, h // p.group), p.seqlen_k, p.v.row)
        bias_bh = matrix(bias, offset(p.bias, b, h), p.seqlen_q, p.bias.row)
        sums_bh = matrix(sums, offset(p.out, b, h), p.seqlen_q, p.out.row)
        out_bh = matrix(out, offset(p.out, b, h), p.seqlen_q, p.out.row)

        # Register tiles, and l and m of their rows.
        S = cuda.local.array((TM, TN), float32)
        O = cuda.local.array((TM, TD), float32)
        l_old = cuda.local.array(TM, float32)
        m_old = cuda.local.array(TM, float32)

        # line 5; the first query has the first key, and the last query the last
        for j0 in range(first_key_of(p, 0) // N * N, keys_of(p, p.seqlen_q - 1), N):
            load_tile(K, k_bh, j0, p.seqlen_k, p.headdim, p.wide)  # line 6
            load_tile(V, v_bh, j0, p.seqlen_k, p.headdim, p.wide)

            # Only query tiles from the first query that sees key j0 to the last that sees the last
            # key.
            for i0 in range(first_query_of(p, j0) // M * M, queries_of_tile(p, j0, N), M):  # line 7
                load_tile(Q, q_bh, i0, p.seqlen_q, p.headdim, p.wide)  # line 8
                fetch_rows(O, sums_bh, i0, p.seqlen_q, p.headdim, p.wide)
                for r in range(TM):
                    i = i0 + row(r)
                    l_old[r] = l[first + i] if i < p.seqlen_q else ZERO
                    m_old[r] = m[first + i] if i < p.seqlen_q else -INF
                cuda.syncthreads()  # Q, K and V are loaded by all threads; l and m are read by 16 lanes, written by one

                fill(S, ZERO)
                add_rows_dot_rows(S, Q, K, p.headdim)
                # line 9: S = cap(softmax_scale Q K^T) + bias
                finish_scores(S, p, bias_bh, softmax_scale, softcap, capped, i0, j0)

                for r in range(TM):
                    m_tile, l_tile = -INF, ZERO
                    for c in range(TN):
                        m_tile = libdevice.fmaxf(m_tile, S[r, c])
                    m_tile = maximum_of_lanes(m_tile)  # line 10: m~ = rowmax(S)
                    for c in range(TN):
                        S[r, c] = libdevice.fast_expf(S[r, c] - finite(m_tile))  # P~ = exp(S - m~)
                        l_tile += S[r, c]
                    l_tile = sum_of_lanes(l_tile)  # l~ = rowsum(P~)

                    m_new = libdevice.fmaxf(m_old[r], m_tile)  # line 11
                    before = libdevice.fast_expf(m_old[r] - finite(m_new)) * l_old[r]
                    now = libdevice.fast_expf(m_tile - finite(m_new))
                    l_new = before + now * l_tile
                    dead = l_new == ZERO  # no visible key yet: O stays 0. ==, so that a NaN in l propagates
                    alpha = ZERO if dead else before / l_new
                    beta = ZERO if dead else now / l_new
                    for c in range(TN):
                        S[r, c] *= beta
                    for n in range(TD):
                        O[r, n] *= alpha
                    i = i0 + row(r)
                    if lane() == 0 and i < p.seqlen_q:
                        l[first + i], m[first + i] = l_new, m_new  # line 13
                share(P, S)
                cuda.syncwarp()  # a row of P is written by 16 lanes, each of which then reads all of it
                add_product(O, P, V, min(N, p.seqlen_k - j0), p.headdim)  # line 12: O = alpha O + beta P~ V
                store_rows(sums_bh, i0, p.seqlen_q, p.headdim, O, p.wide)
                cuda.syncthreads()  # Q, and K and V in their last step, are still being read: do not load the next ones yet

        for i0 in range(0, p.seqlen_q, M):  # no barrier: each thread reads what it wrote itself
            for r in range(TM):
                i = i0 + row(r)
                if lane() == 0 and i < p.seqlen_q:
                    lse[first + i] = m[first + i] + libdevice.logf(l[first + i])  # no visible key: -inf
            fetch_rows(O, sums_bh, i0, p.seqlen_q, p.headdim, p.wide)
            store_rows(out_bh, i0, p.seqlen_q, p.headdim, O, p.wide)

    return fa1_forward


def forward(q, k, v, bias, out, lse, softmax_scale: float, softcap: float, p: Problem) -> None:
    """Write out and lse. Tensors have unit strides; bias is empty if there is none."""
    tile = choose("fa1_forward", forward_bytes, p.headdim, q.device)
    sums = (out if out.dtype == torch.float32 else torch.empty_like(out, dtype=torch.float32)).zero_()
    l, m = torch.zeros_like(lse), torch.full_like(lse, -torch.inf)
    launch(
        make_forward(*tile, None if EMULATED else p.capped), p.batch * p.nheads if p.seqlen_q else 0,
        forward_bytes(*tile), q, k, v, bias, sums, out, l, m, lse, np.float32(softmax_scale), np.float32(softcap), p,
    )  # fmt: skip
