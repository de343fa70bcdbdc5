// The backward of FlashAttention-1 (FA1 Alg. 4) and FlashAttention-2 (FA2 Alg. 2). S and P are
// recomputed from lse:
//
//   delta_i = <dout_i, out_i>           computed by a separate kernel, once for each i
//   for each tile of keys j:            K_j, V_j stay in shared memory, dK_j, dV_j in registers
//       for each tile of queries i:     Q_i, dO_i are loaded; dQ_i is loaded and stored
//           P = exp(S - lse)            dV_j += P^T dO_i
//           dP = dO_i V_j^T             dS = P (dP - delta), times 1 - tanh^2 with a cap
//           dQ_i += scale dS K_j        dK_j += scale dS^T Q_i
//
// The two algorithms assign key tiles to blocks differently. In FlashAttention-1 one block
// processes all key tiles of a head. In FlashAttention-2 key tiles are dealt round-robin to several
// blocks (`splits`), to fill the device when there are few heads. In the paper these blocks add to
// dQ by atomics, in any order. Here each block has its own sums, in global memory, and a last
// kernel adds them in a fixed order: every bit is repeatable, at the cost of `splits` times the
// memory of dQ. (The papers also differ in what is stored: FA1 has l and m instead of lse, and
// computes delta in every step.)
//
// S, P, dP and dS are stored transposed, (keys, queries): dV and dK then need only rows that the
// same group of lanes computed. One block processes the query heads that share its key head, so no
// other block writes its dQ, dK and dV. Within the block each element of dQ belongs to one thread.
#pragma once

#include "scores.cuh"

// delta (batch, nheads, seqlen_q). Each group of lanes computes one row; a block computes GROUPS
// rows.
__global__ void __launch_bounds__(THREADS) delta_kernel(Problem p, const void* dout, const void* out, float* delta) {
    const int64_t rows = int64_t(p.batch) * p.nheads * p.seqlen_q, n = int64_t(blockIdx.x) * GROUPS + group();
    float sum = 0.0f;
    if (n < rows) {
        const int i = n % p.seqlen_q, h = n / p.seqlen_q % p.nheads, b = n / p.seqlen_q / p.nheads;
        const int64_t of_dout = p.dout.row(b, i, h), of_out = p.out.row(b, i, h);
        for (int d = lane(); d < p.headdim; d += LANES)
            sum += element(p.dtype, dout, of_dout + d) * element(p.dtype, out, of_out + d);
    }
    sum = sum_of_lanes(sum);
    if (n < rows && lane() == 0) delta[n] = sum;
}

// Bytes of shared memory with tiles of M queries and N keys: Q, dO, K, V, P^T or dS^T, and dS.
template <int M, int N, int D>
constexpr int64_t BACKWARD_BYTES =
    sizeof(float) * int64_t(2 * (M + N) * STRIDE<D> + N * STRIDE<M> + M * STRIDE<N>);

// dq_sums (splits, batch, nheads, seqlen_q, headdim): queries that see none of the block's keys are
// not written. Block (split * batch + b) * nheads_k + h_k. Two blocks per multiprocessor: while one
// waits, the other computes.
template <int M, int N, int D>
__global__ void __launch_bounds__(THREADS, 2)
    backward_kernel(Problem p, const void* dout, const void* q, const void* k, const void* v, const void* bias,
                    const float* lse, const float* delta, float* dq_sums, void* dk, void* dv) {
    constexpr int TK = N / GROUPS, TQ = M / LANES, TM = M / GROUPS;
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;                   // (M, D)
    float* dO = Q + M * STRIDE<D>;       // (M, D)
    float* K = dO + M * STRIDE<D>;       // (N, D)
    float* V = K + N * STRIDE<D>;        // (N, D)
    float* turned = V + N * STRIDE<D>;   // (N, M): P^T, then dS^T
    float* dS = turned + N * STRIDE<M>;  // (M, N)

    // Under a causal mask more queries see early keys, so the blocks that begin with them start
    // first.
    const int blocks = p.nheads_k * p.batch, split = blockIdx.x / blocks, rest = blockIdx.x % blocks;
    const int h_k = rest % p.nheads_k, b = rest / p.nheads_k, headdim = p.headdim;
    dq_sums += int64_t(split) * p.batch * p.nheads * p.seqlen_q * headdim;
    float one[TM], one_k[TK];
    for (int r = 0; r < TM; ++r) one[r] = 1.0f;
    for (int r = 0; r < TK; ++r) one_k[r] = 1.0f;

    for (int j0 = split * N; j0 < p.seqlen_k; j0 += p.splits * N) {
        load_tile<N, D>(K, p.dtype, k, p.k.row(b, j0, h_k), p.k.seqlen, p.seqlen_k - j0, headdim);
        load_tile<N, D>(V, p.dtype, v, p.v.row(b, j0, h_k), p.v.seqlen, p.seqlen_k - j0, headdim);
        float dK[TK][D / LANES] = {}, dV[TK][D / LANES] = {};
        // The block's last key tile wrote sums for query tiles that begin before `summed`.
        const int queries = p.queries_of_tile(j0, N), last = j0 - p.splits * N;
        const int summed = last < 0 ? 0 : p.queries_of_tile(last, N);

        for (int h = h_k * p.group(); h < (h_k + 1) * p.group(); ++h) {
            const int64_t rows_before = (int64_t(b) * p.nheads + h) * p.seqlen_q;
            // Only query tiles from the first query that sees key j0 to the last that sees the last
            // key.
            for (int i0 = p.first_query_of(j0) / M * M; i0 < queries; i0 += M) {
                const int rows = p.seqlen_q - i0;
                load_tile<M, D>(Q, p.dtype, q, p.q.row(b, i0, h), p.q.seqlen, rows, headdim);
                load_tile<M, D>(dO, p.dtype, dout, p.dout.row(b, i0, h), p.dout.seqlen, rows, headdim);
                __syncthreads();  // Q, dO, K and V are loaded by all threads: complete them before the products

                float P[TK][TQ] = {}, dP[TK][TQ] = {};
                add_rows_dot_rows<D>(P, K, Q, headdim);  // S^T = cap(scale K Q^T) + bias^T
                finish_scores<true>(P, p, bias, b, h, i0, j0, dS);  // dS: 1 - tanh^2 for now
#pragma unroll
                for (int c = 0; c < TQ; ++c) {
                    const float lse_i = lse_at(lse + rows_before, i0 + column(c), p.seqlen_q);
#pragma unroll
                    for (int r = 0; r < TK; ++r) P[r][c] = probability(P[r][c], lse_i);  // P = exp(S - lse)
                }
                share(turned, P);
                __syncwarp();  // a row of P^T is written by the 16 lanes of its group, each of which then reads all of it
                add_product<D, M>(dV, turned, dO, M, headdim);  // dV += P^T dO

                if (p.softcap) {
#pragma unroll
                    for (int c = 0; c < TQ; ++c)
#pragma unroll
                        for (int r = 0; r < TK; ++r) P[r][c] *= dS[column(c) * STRIDE<N> + row(r)];
                }
                add_rows_dot_rows<D>(dP, V, dO, headdim);  // dP^T = V dO^T
#pragma unroll
                for (int c = 0; c < TQ; ++c) {
                    const float delta_i = delta_at(delta + rows_before, i0 + column(c), p.seqlen_q);
#pragma unroll
                    for (int r = 0; r < TK; ++r) {
                        dP[r][c] = p.softmax_scale * P[r][c] * (dP[r][c] - delta_i);  // scale dS for both
                        dS[column(c) * STRIDE<N> + row(r)] = dP[r][c];
                    }
                }
                __syncwarp();  // the group's lanes are still reading P^T, which dS^T is about to overwrite
                share(turned, dP);
                __syncthreads();  // a row of dS is written by all groups; a row of dS^T by the lanes of its own group

                // No barrier: this thread wrote these elements itself, in the previous step of the
                // outer loop. They are loaded before dK is computed and used after it. For the
                // block's first key tile that these queries see there is no sum yet.
                float dQ[TM][D / LANES] = {};
                float* sum = dq_sums + (rows_before + i0) * headdim;
                if (i0 < summed) fetch_rows<TM, D>(dQ, sum, headdim, rows, headdim);
                add_product<D, M>(dK, turned, Q, M, headdim);  // dK += dS^T Q
                add_product<D, N>(dQ, dS, K, N, headdim);      // dQ += dS K
                store_rows<TM, D>(sum, headdim, rows, headdim, dQ, one);
                __syncthreads();  // Q, and K in its last step, are still being read: do not load the next ones yet
            }
        }
        store_tile<TK, D>(p.dtype, dk, p.dk.row(b, j0, h_k), p.dk.seqlen, p.seqlen_k - j0, headdim, dK, one_k);
        store_tile<TK, D>(p.dtype, dv, p.dv.row(b, j0, h_k), p.dv.seqlen, p.seqlen_k - j0, headdim, dV, one_k);
    }
}

// dq: the sums of all blocks, added in order. Each group of lanes adds one row; a block adds GROUPS
// rows. m, n: the tile sizes of the sums. Key tile t belongs to block t % splits; a block has a sum
// for query tiles that see one of its key tiles.
__global__ void __launch_bounds__(THREADS) sum_dq_kernel(Problem p, int m, int n, const float* dq_sums, void* dq) {
    const int64_t rows = int64_t(p.batch) * p.nheads * p.seqlen_q, at = int64_t(blockIdx.x) * GROUPS + group();
    if (at >= rows) return;
    const int i = at % p.seqlen_q, h = at / p.seqlen_q % p.nheads, b = at / p.seqlen_q / p.nheads;
    // The query's tile sees key tiles first .. first + tiles - 1.
    const int i0 = i / m * m, keys = p.keys_of(min(i0 + m, p.seqlen_q) - 1), first = p.first_key_of(i0) / n;
    const int tiles = p.first_key_of(i0) < keys ? round_up(keys, n) / n - first : 0;
    const int sums = min(tiles, p.splits), wraps = p.splits - first % p.splits;
    for (int d = lane(); d < p.headdim; d += LANES) {
        float sum = 0.0f;
        for (int t = 0; t < sums; ++t) {
            const int split = t < wraps ? p.splits - wraps + t : t - wraps;
            sum += dq_sums[(split * rows + at) * p.headdim + d];
        }
        set_element(p.dtype, dq, p.dq.row(b, i, h) + d, sum);
    }
}
