"""The gradient of the bias: dbias = dS = P (dO V^T - delta).

It is summed over the dimensions along which the bias is broadcast.
"""

import functools

import numpy as np
from numba import cuda, float32

from .device import EMULATED
from .elements import from_float
from .launch import launch
from .memory import matrix
from .problem import Problem, strides_of_bias
from .scores import delta_at, finish_scores, first_query_of, lse_at, probability, queries_of_tile
from .tiles import (
    GROUPS,
    LANES,
    PAD,
    THREADS,
    ZERO,
    add_rows_dot_rows,
    column,
    fill,
    group,
    load_tile,
    offset,
    row,
)
from .tuning import choose


def bias_gradient_bytes(M: int, N: int, D: int) -> int:
    """Return the bytes of shared memory for tiles of M queries and N keys.

    They hold Q, dO (M, D), K, V (N, D), and one row of sums per group.
    """
    return 4 * (2 * (M + N) * (D + PAD) + GROUPS * N)


@functools.cache
def make_bias_gradient(M: int, N: int, D: int, known_capped: int | None = None):
    """Return the kernel with tiles of M queries and N keys, for head dims up to D.

    It has one block for each (batch and head of dbias, tile of queries, tile of keys). The block
    processes the batches and heads that share them, in order. If all queries share a row of the
    bias, it also processes all tiles of queries. known_capped: as in fa2.py.
    """
    TM, TN = M // GROUPS, N // LANES

    @cuda.jit(launch_bounds=(THREADS, 1))
    def bias_gradient_kernel(dout, q, k, v, bias, lse, delta, dbias, softmax_scale, softcap, strides, p):
        """dbias: all elements, flat. strides: its Strides, 0 in dimensions that are summed.

        The other arguments are as in backward_kernel.
        """
        shared = cuda.shared.array(0, float32, alignment=16)
        Q = matrix(shared, 0, M, D + PAD)
        dO = matrix(shared, M * (D + PAD), M, D + PAD)
        K = matrix(shared, 2 * M * (D + PAD), N, D + PAD)
        V = matrix(shared, (2 * M + N) * (D + PAD), N, D + PAD)
        sums = matrix(shared, 2 * (M + N) * (D + PAD), GROUPS, N)
        capped = p.capped if known_capped is None else known_capped

        # The part of dbias that this block computes, and the batches, heads and queries in its sum.
        vector = strides.row == 0
        tiles_k, tiles_q = (p.seqlen_k + N - 1) // N, 1 if vector else (p.seqlen_q + M - 1) // M
        heads = p.nheads if strides.head else 1
        j0, rest = cuda.blockIdx.x % tiles_k * N, cuda.blockIdx.x // tiles_k
        first_query, rest = rest % tiles_q * M, rest // tiles_q
        first_head, first_batch = rest % heads, rest // heads
        end_batch = first_batch + 1 if strides.batch else p.batch
        end_head = first_head + 1 if strides.head else p.nheads
        end_query = min(queries_of_tile(p, j0, N), p.seqlen_q if vector else first_query + M)

        P = cuda.local.array((TM, TN), float32)
        dP = cuda.local.array((TM, TN), float32)
        total = cuda.local.array((TM, TN), float32)
        fill(total, ZERO)

        for b in range(first_batch, end_batch):
            for h in range(first_head, end_head):
                first = (b * p.nheads + h) * p.seqlen_q  # of lse and delta
                q_bh = matrix(q, offset(p.q, b, h), p.seqlen_q, p.q.row)
                dout_bh = matrix(dout, offset(p.dout, b, h), p.seqlen_q, p.dout.row)
                k_bh = matrix(k, offset(p.k, b, h // p.group), p.seqlen_k, p.k.row)
                v_bh = matrix(v, offset(p.v, b, h // p.group), p.seqlen_k, p.v.row)
                bias_bh = matrix(bias, offset(p.bias, b, h), p.seqlen_q, p.bias.row)
                load_tile(K, k_bh, j0, p.seqlen_k, p.headdim, p.wide)
                load_tile(V, v_bh, j0, p.seqlen_k, p.headdim, p.wide)

                # Query tiles before the first query that sees key j0 see no key of this tile.
                for i0 in range(max(first_query, first_query_of(p, j0) // M * M), end_query, M):
                    load_tile(Q, q_bh, i0, p.seqlen_q, p.headdim, p.wide)
                    load_tile(dO, dout_bh, i0, p.seqlen_q, p.headdim, p.wide)
                    cuda.syncthreads()  # Q, dO, K and V are loaded by all threads: complete them before the products

                    fill(P, ZERO)
                    fill(dP, ZERO)
                    add_rows_dot_rows(P, Q, K, p.headdim)
                    add_rows_dot_rows(dP, dO, V, p.headdim)  # dP = dO V^T
                    # S = cap(softmax_scale Q K^T) + bias
                    finish_scores(P, p, bias_bh, softmax_scale, softcap, capped, i0, j0)
                    for r in range(TM):
                        lse_i = lse_at(lse, first + i0 + row(r), first + p.seqlen_q)
                        delta_i = delta_at(delta, first + i0 + row(r), first + p.seqlen_q)
                        for c in range(TN):  # dS, not scaled, because the bias is not
                            total[r, c] += probability(P[r, c], lse_i) * (dP[r, c] - delta_i)
                    cuda.syncthreads()  # Q, dO, and K and V in their last step, are still being read

        # A matrix is stored as it is. For a vector the rows are summed first.
        dbias_bh = matrix(dbias, offset(strides, first_batch, first_head), p.seqlen_q, strides.row)
        if not vector:
            for r in range(TM):
                for c in range(TN):
                    i, j = first_query + row(r), j0 + column(c)
                    if i < p.seqlen_q and j < p.seqlen_k:
                        dbias_bh[i, j] = from_float(total[r, c], dbias)
        else:
            for c in range(TN):
                for r in range(1, TM):
                    total[0, c] += total[r, c]
                sums[group(), column(c)] = total[0, c]
            cuda.syncthreads()  # each group has summed its own rows of a column: one thread adds these sums
            j = j0 + cuda.threadIdx.x
            if cuda.threadIdx.x < N and j < p.seqlen_k:
                column_sum = ZERO
                for g in range(GROUPS):
                    column_sum += sums[g, cuda.threadIdx.x]
                dbias_bh[0, j] = from_float(column_sum, dbias)

    return bias_gradient_kernel


def bias_gradient(dout, q, k, v, bias, lse, delta, dbias, softmax_scale: float, softcap: float, p: Problem) -> None:
    """Write dbias, which has the shape of bias and is summed over dimensions of size 1.

    delta: the output of `backward`. The other arguments are the same as in `backward`.
    """
    strides = strides_of_bias(dbias)
    tile = choose("bias_gradient", bias_gradient_bytes, p.headdim, q.device)
    blocks = -(-p.seqlen_k // tile.N) * (-(-p.seqlen_q // tile.M) if strides.row else 1)
    blocks *= (p.nheads if strides.head else 1) * (p.batch if strides.batch else 1)
    launch(
        make_bias_gradient(*tile, None if EMULATED else p.capped), blocks, bias_gradient_bytes(*tile),
        dout, q, k, v, bias, lse, delta, dbias, np.float32(softmax_scale), np.float32(softcap), strides, p,
    )  # fmt: skip
