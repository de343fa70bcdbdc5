"""FlashAttention-2's forward (Dao 2023, Algorithm 1).

One block for each tile of queries loops over the tiles of keys.

    S = cap(softmax_scale Q K^T) + bias     m_new = max(m, rowmax(S))
    P = exp(S - m_new)                      alpha = exp(m - m_new)
    l = alpha l + rowsum(P)                 O     = alpha O + P V
    at the end:  O / l,  lse = m + log(l)   cap(x) = softcap tanh(x / softcap), or x without one

Q, K, V and P are in shared memory. m, l and O stay in registers for the whole loop. Scores and
probabilities are float32 for every dtype.
"""

import functools

import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice

from .device import EMULATED
from .launch import launch
from .memory import matrix
from .problem import Problem
from .scores import finish_scores, finite, first_key_of, keys_of
from .tiles import (
    GROUPS,
    INF,
    LANES,
    ONE,
    PAD,
    THREADS,
    ZERO,
    add_product,
    add_rows_dot_rows,
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

# Run at least two blocks per multiprocessor, if shared memory allows: while one waits for memory,
# another computes. This leaves 255 registers per thread.
BLOCKS = 2


def forward_bytes(M: int, N: int, D: int) -> int:
    """Return the bytes of shared memory for Q (M, D), K, V (N, D) and P (M, N), padded."""
    return 4 * ((M + 2 * N) * (D + PAD) + M * (N + PAD))


@functools.cache
def make_forward(M: int, N: int, D: int, known_capped: int | None = None):
    """Return the kernel with tiles of M queries and N keys, for head dims up to D.

    It has one block for each (tile, batch, head). known_capped: the value of Problem.capped in its
    calls, so that plain attention has a kernel without tanh. None makes a kernel for both values,
    for the emulator, where compiling takes most of the time.
    """
    TM, TN, TD = M // GROUPS, N // LANES, D // LANES

    @cuda.jit(launch_bounds=(THREADS, BLOCKS))
    def fa2_forward(q, k, v, bias, out, lse, softmax_scale, softcap, p):
        """q, k, v, bias, out: all elements, flat.

        lse (batch, nheads, seqlen_q), flat. p: Problem.
        """
        capped = p.capped if known_capped is None else known_capped
        shared = cuda.shared.array(0, float32, alignment=16)
        Q = matrix(shared, 0, M, D + PAD)
        K = matrix(shared, M * (D + PAD), N, D + PAD)
        V = matrix(shared, (M + N) * (D + PAD), N, D + PAD)
        P = matrix(shared, (M + 2 * N) * (D + PAD), M, N + PAD)

        # Under a causal mask late queries see more keys. The late tiles of all heads start first,
        # so that no long block runs alone at the end.
        tile, head = cuda.blockIdx.x // (p.batch * p.nheads), cuda.blockIdx.x % (p.batch * p.nheads)
        i0 = ((p.seqlen_q - 1) // M - tile) * M
        b, h = head // p.nheads, head % p.nheads
        q_bh = matrix(q, offset(p.q, b, h), p.seqlen_q, p.q.row)
        k_bh = matrix(k, offset(p.k, b, h // p.group), p.seqlen_k, p.k.row)
        v_bh = matrix(v, offset(p.v, b, h // p.group), p.seqlen_k, p.v.row)
        bias_bh = matrix(bias, offset(p.bias, b, h), p.seqlen_q, p.bias.row)
        out_bh = matrix(out, offset(p.out, b, h), p.seqlen_q, p.out.row)

        S = cuda.local.array((TM, TN), float32)
        O = cuda.local.array((TM, TD), float32)
        m = cuda.local.array(TM, float32)
        l = cuda.local.array(TM, float32)  # this lane's part of the row's sum
        fill(O, ZERO)
        for r in range(TM):
            m[r] = -INF
            l[r] = ZERO

        load_tile(Q, q_bh, i0, p.seqlen_q, p.headdim, p.wide)
        # Tiles before the first key of the first query, and beyond the last key of the last, are
        # skipped.
        for j0 in range(first_key_of(p, i0) // N * N, keys_of(p, min(i0 + M, p.seqlen_q) - 1), N):
            load_tile(K, k_bh, j0, p.seqlen_k, p.headdim, p.wide)
            load_tile(V, v_bh, j0, p.seqlen_k, p.headdim, p.wide)
            cuda.syncthreads()  # Q, K, V are loaded by all threads: complete them before the products

            fill(S, ZERO)
            add_rows_dot_rows(S, Q, K, p.headdim)
            # S = cap(softmax_scale Q K^T) + bias
            finish_scores(S, p, bias_bh, softmax_scale, softcap, capped, i0, j0)

            for r in range(TM):
                m_tile = -INF
                for c in range(TN):
                    m_tile = libdevice.fmaxf(m_tile, S[r, c])
                m_new = libdevice.fmaxf(m[r], maximum_of_lanes(m_tile))  # m_new = max(m, rowmax(S))
                alpha = libdevice.fast_expf(m[r] - finite(m_new))
                m[r] = m_new
                l[r] *= alpha
                for c in range(TN):
                    S[r, c] = libdevice.fast_expf(S[r, c] - finite(m_new))  # P = exp(S - m_new)
                    l[r] += S[r, c]  # l = alpha l + rowsum(P)
                for n in range(TD):
                    O[r, n] *= alpha
            share(P, S)
            cuda.syncwarp()  # a row of P is written by 16 lanes, each of which then reads all of it
            add_product(O, P, V, min(N, p.seqlen_k - j0), p.headdim)  # O = alpha O + P V
            cuda.syncthreads()  # K, V and P are still being read: do not write the next ones yet

        for r in range(TM):
            total = sum_of_lanes(l[r])
            dead = total == ZERO  # no visible key: out 0, lse -inf. ==, so that a NaN in l propagates
            factor = ZERO if dead else ONE / total
            for n in range(TD):
                O[r, n] *= factor
            if lane() == 0 and i0 + row(r) < p.seqlen_q:
                lse[head * p.seqlen_q + i0 + row(r)] = -INF if dead else m[r] + libdevice.logf(total)
        store_rows(out_bh, i0, p.seqlen_q, p.headdim, O, p.wide)

    return fa2_forward


def forward(q, k, v, bias, out, lse, softmax_scale: float, softcap: float, p: Problem) -> None:
    """Write out and lse. Tensors have unit strides; bias is empty if there is none."""
    tile = choose("fa2_forward", forward_bytes, p.headdim, q.device)
    blocks = -(-p.seqlen_q // tile.M) * p.nheads * p.batch
    kernel = make_forward(*tile, None if EMULATED else p.capped)
    launch(
        kernel, blocks, forward_bytes(*tile),
        q, k, v, bias, out, lse, np.float32(softmax_scale), np.float32(softcap), p,
    )  # fmt: skip
