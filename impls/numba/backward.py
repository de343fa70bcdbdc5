"""The backward of FlashAttention-1 (FA1 Algorithm 4) and FlashAttention-2 (FA2 Algorithm 2).

S and P are recomputed from lse.

    delta_i = <dout_i, out_i>               computed by a separate kernel, once for each i

    for each tile of keys j:                K_j, V_j in shared memory, dK_j, dV_j in registers
        for each tile of queries i:         Q_i, dO_i in shared memory
            S  = cap(softmax_scale Q_i K_j^T) + bias
            P  = exp(S - lse)               dV_j += P^T dO_i
            dP = dO_i V_j^T
            dS = P (dP - delta), times 1 - tanh^2 with a cap
                                            dK_j += softmax_scale dS^T Q_i
            dQ_i += softmax_scale dS K_j    a sum in global memory, loaded and stored

The two algorithms assign key tiles to blocks differently. In FlashAttention-1 one block processes
all key tiles of a head. In FlashAttention-2 key tiles are dealt round-robin to several blocks
(`splits`), which fill a GPU even if there are few heads. In the paper the blocks add to dQ by
atomics, in any order. Here each block has its own dQ, and a last kernel adds these in order, so
every bit of dq is repeatable, at the cost of `splits` times its memory.

S, P, dP and dS are stored transposed, (keys, queries), so that dV and dK need only rows that the
same group of lanes computed. A block processes all query heads that read its key head, so no other
block adds to its dK and dV. Within a block each element of dQ belongs to one thread.
"""

import functools

import numpy as np
import torch
from numba import cuda, float32

from .device import EMULATED
from .elements import from_float, to_float
from .launch import launch
from .memory import matrix
from .problem import Problem
from .scores import (
    delta_at,
    finish_scores_of_keys,
    first_key_of,
    first_query_of,
    keys_of,
    lse_at,
    probability,
    queries_of_tile,
)
from .tiles import (
    GROUPS,
    LANES,
    PAD,
    THREADS,
    ZERO,
    add_product,
    add_rows_dot_rows,
    column,
    fetch_rows,
    fill,
    group,
    lane,
    load_tile,
    offset,
    row,
    share,
    store_rows,
    sum_of_lanes,
)
from .tuning import choose

# Two blocks per multiprocessor: while one waits for memory, the other computes. This leaves 255
# registers per thread.
BLOCKS = 2

KEYS = 64  # the smallest number of keys for each block that shares the keys of a head
MANY_BLOCKS = 768  # three times as many as an H200 runs at once
MOST_SPLITS = 8  # a limit on extra memory, in copies of dq


@cuda.jit(launch_bounds=THREADS)
def delta_kernel(dout, out, delta, p):
    """Compute delta (batch, nheads, seqlen_q), flat like lse. Each group computes one row."""
    n = cuda.blockIdx.x * GROUPS + group()
    exists = n < p.batch * p.nheads * p.seqlen_q
    total = ZERO
    if exists:
        head, i = n // p.seqlen_q, n % p.seqlen_q
        dout_at = offset(p.dout, head // p.nheads, head % p.nheads) + i * p.dout.row
        out_at = offset(p.out, head // p.nheads, head % p.nheads) + i * p.out.row
        for d in range(lane(), p.headdim, LANES):
            total += to_float(dout[dout_at + d]) * to_float(out[out_at + d])
    total = sum_of_lanes(total)
    if exists and lane() == 0:
        delta[n] = total


def backward_bytes(M: int, N: int, D: int) -> int:
    """Return the bytes of shared memory for tiles of M queries and N keys.

    They hold Q, dO (M, D), K, V (N, D), P^T or dS^T (N, M), dS (M, N).
    """
    return 4 * (2 * (M + N) * (D + PAD) + N * (M + PAD) + M * (N + PAD))


@functools.cache
def make_backward(M: int, N: int, D: int, known_wide: int | None, known_capped: int | None):
    """Return the kernel with tiles of M queries and N keys, for head dims up to D.

    It has one block for each (split, batch, key head). known_wide, known_capped: the values of
    Problem.wide and Problem.capped in its calls, because a kernel for both values would need more
    registers than a thread has. None makes a kernel for both values, for the emulator, where
    compiling takes most of the time.
    """
    TK, TQ, TM, TD = N // GROUPS, M // LANES, M // GROUPS, D // LANES

    @cuda.jit(launch_bounds=(THREADS, BLOCKS))
    def backward_kernel(dout, q, k, v, bias, lse, delta, dq_sums, dk, dv, softmax_scale, softcap, splits, p):
        """dout, q, k, v, bias, dk, dv: all elements, flat.

        lse, delta (batch, nheads, seqlen_q), flat. dq_sums (splits, batch, nheads, seqlen_q,
        headdim), flat: rows of queries that see no key of the block are not written. p: Problem.
        """
        shared = cuda.shared.array(0, float32, alignment=16)
        Q = matrix(shared, 0, M, D + PAD)
        dO = matrix(shared, M * (D + PAD), M, D + PAD)
        K = matrix(shared, 2 * M * (D + PAD), N, D + PAD)
        V = matrix(shared, (2 * M + N) * (D + PAD), N, D + PAD)
        turned = matrix(shared, 2 * (M + N) * (D + PAD), N, M + PAD)  # P^T, then dS^T
        dS = matrix(shared, 2 * (M + N) * (D + PAD) + N * (M + PAD), M, N + PAD)
        wide = p.wide if known_wide is None else known_wide
        capped = p.capped if known_capped is None else known_capped

        # Under a causal mask early keys are seen by more queries: blocks that begin with them start
        # first.
        split, rest = cuda.blockIdx.x // (p.batch * p.nheads_k), cuda.blockIdx.x % (p.batch * p.nheads_k)
        b, h_k = rest // p.nheads_k, rest % p.nheads_k
        k_bh = matrix(k, offset(p.k, b, h_k), p.seqlen_k, p.k.row)
        v_bh = matrix(v, offset(p.v, b, h_k), p.seqlen_k, p.v.row)
        dk_bh = matrix(dk, offset(p.dk, b, h_k), p.seqlen_k, p.dk.row)
        dv_bh = matrix(dv, offset(p.dv, b, h_k), p.seqlen_k, p.dv.row)

        P = cuda.local.array((TK, TQ), float32)
        dP = cuda.local.array((TK, TQ), float32)
        dK = cuda.local.array((TK, TD), float32)
        dV = cuda.local.array((TK, TD), float32)
        dQ = cuda.local.array((TM, TD), float32)

        for j0 in range(split * N, p.seqlen_k, splits * N):
            load_tile(K, k_bh, j0, p.seqlen_k, p.headdim, wide)
            load_tile(V, v_bh, j0, p.seqlen_k, p.headdim, wide)
            fill(dK, ZERO)
            fill(dV, ZERO)
            # The block's last key tile wrote sums for query tiles that begin before `summed`.
            last = j0 - splits * N
            summed = queries_of_tile(p, last, N) if last >= 0 else 0

            for h in range(h_k * p.group, (h_k + 1) * p.group):
                first = (b * p.nheads + h) * p.seqlen_q  # of lse and delta
                q_bh = matrix(q, offset(p.q, b, h), p.seqlen_q, p.q.row)
                dout_bh = matrix(dout, offset(p.dout, b, h), p.seqlen_q, p.dout.row)
                bias_bh = matrix(bias, offset(p.bias, b, h), p.seqlen_q, p.bias.row)
                sums_at = (split * p.batch * p.nheads * p.seqlen_q + first) * p.headdim
                sums = matrix(dq_sums, sums_at, p.seqlen_q, p.headdim)

                # Only query tiles from the first query that sees key j0 to the last that sees the
                # last key.
                for i0 in range(first_query_of(p, j0) // M * M, queries_of_tile(p, j0, N), M):
                    load_tile(Q, q_bh, i0, p.seqlen_q, p.headdim, wide)
                    load_tile(dO, dout_bh, i0, p.seqlen_q, p.headdim, wide)
                    cuda.syncthreads()  # Q, dO, K and V are loaded by all threads: complete them before the products

                    fill(P, ZERO)
                    add_rows_dot_rows(P, K, Q, p.headdim)
                    # S^T = cap(softmax_scale K Q^T) + bias^T; dS: 1 - tanh^2 for now
                    finish_scores_of_keys(P, p, bias_bh, softmax_scale, softcap, capped, dS, i0, j0)
                    for c in range(TQ):
                        lse_i = lse_at(lse, first + i0 + column(c), first + p.seqlen_q)
                        for r in range(TK):
                            P[r, c] = probability(P[r, c], lse_i)  # P = exp(S - lse)
                    share(turned, P)
                    cuda.syncwarp()  # a row of P^T is written by 16 lanes, each of which then reads all of it
                    add_product(dV, turned, dO, M, p.headdim)  # dV += P^T dO

                    if capped:
                        for c in range(TQ):
                            for r in range(TK):
                                P[r, c] *= dS[column(c), row(r)]
                    fill(dP, ZERO)
                    add_rows_dot_rows(dP, V, dO, p.headdim)  # dP^T = V dO^T
                    for c in range(TQ):
                        delta_i = delta_at(delta, first + i0 + column(c), first + p.seqlen_q)
                        for r in range(TK):
                            dP[r, c] = softmax_scale * P[r, c] * (dP[r, c] - delta_i)  # dS, scaled for dK and dQ
                            dS[column(c), row(r)] = dP[r, c]
                    cuda.syncwarp()  # the lanes of the group still read P^T: do not overwrite it by dS^T yet
                    share(turned, dP)
                    cuda.syncthreads()  # a row of dS is written by all groups, one of dS^T by the lanes of its own

                    # No barrier: this thread wrote these elements itself, in the previous step of
                    # the outer loop. For the block's first key tile that these queries see there
                    # is no sum yet.
                    fetch_rows(dQ, sums, i0, p.seqlen_q if i0 < summed else 0, p.headdim, wide)
                    add_product(dK, turned, Q, M, p.headdim)  # dK += dS^T Q
                    add_product(dQ, dS, K, N, p.headdim)  # dQ += dS K
                    store_rows(sums, i0, p.seqlen_q, p.headdim, dQ, wide)
                    cuda.syncthreads()  # Q, and K in its last step, are still being read: do not load the next ones yet

            store_rows(dk_bh, j0, p.seqlen_k, p.headdim, dK, wide)
            store_rows(dv_bh, j0, p.seqlen_k, p.headdim, dV, wide)

    return backward_kernel


@cuda.jit(launch_bounds=THREADS)
def sum_dq_kernel(dq_sums, dq, M, N, splits, p):
    """Write dq: the sums of all blocks, added in order. Each group of a block adds one row.

    M, N: the tiles of the kernel that wrote the sums. Key tile t belongs to block t % splits; a
    block has a sum for query tiles that see one of its key tiles.
    """
    rows = p.batch * p.nheads * p.seqlen_q
    n = cuda.blockIdx.x * GROUPS + group()
    if n < rows:
        head, i = n // p.seqlen_q, n % p.seqlen_q
        dq_at = offset(p.dq, head // p.nheads, head % p.nheads) + i * p.dq.row
        # The query's tile sees key tiles first .. first + tiles - 1.
        i0 = i // M * M
        first_key, keys = first_key_of(p, i0), keys_of(p, min(i0 + M, p.seqlen_q) - 1)
        first = first_key // N
        tiles = (keys + N - 1) // N - first if first_key < keys else 0
        written, first_split = min(tiles, splits), first % splits
        for d in range(lane(), p.headdim, LANES):
            total, split = ZERO, first_split
            for _ in range(written):
                total += dq_sums[(split * rows + n) * p.headdim + d]
                split = split + 1 if split + 1 < splits else 0  # a remainder would take longer than the load
            dq[dq_at + d] = from_float(total, dq)


def backward(
    dout, q, k, v, bias, out, lse, delta, dq_sums, dq, dk, dv, softmax_scale: float, softcap: float, splits: int,
    p: Problem,
) -> None:  # fmt: skip
    """Write dq, dk, dv, and delta, which the gradient of the bias needs.

    dq_sums (splits, b, h, sq, d) is scratch. Tensors have unit strides; lse and delta are
    contiguous; bias is empty if there is none.
    """
    tile = choose("backward", backward_bytes, p.headdim, q.device)
    rows = -(-p.batch * p.nheads * p.seqlen_q // GROUPS)  # blocks with a row for each group
    launch(delta_kernel, rows, 0, dout, out, delta, p)
    known = (None, None) if EMULATED else (p.wide, p.capped)
    launch(
        make_backward(*tile, *known), splits * p.batch * p.nheads_k, backward_bytes(*tile),
        dout, q, k, v, bias, lse, delta, dq_sums, dk, dv, np.float32(softmax_scale), np.float32(softcap), splits, p,
    )  # fmt: skip
    launch(sum_dq_kernel, rows, 0, dq_sums, dq, tile.M, tile.N, splits, p)


def splits_of(k: torch.Tensor) -> int:
    """k (b, sk, hk, d) -> how many blocks of FlashAttention-2 share the keys of a head.

    There are just enough to fill a large GPU, as each has its own float32 dq. The number is the
    same on every device, so that dq has the same bits.
    """
    batch, seqlen_k, nheads_k, _ = k.shape
    return max(1, min(-(-seqlen_k // KEYS), -(-MANY_BLOCKS // max(1, batch * nheads_k)), MOST_SPLITS))
