// FlashAttention-1, forward (FA1 Alg. 1; line numbers refer to it). The outer loop is over keys:
//
//   for each tile of keys j:                      K_j, V_j stay in shared memory
//       for each tile of queries i:               load Q_i; load and store O_i, l_i, m_i
//           S = cap(scale Q_i K_j^T) + bias
//           m~ = rowmax(S)                        P~ = exp(S - m~)        l~ = rowsum(P~)
//           m' = max(m, m~)                       l' = e^(m - m') l + e^(m~ - m') l~
//           O_i = (l e^(m - m') O_i + e^(m~ - m') P~ V_j) / l'          m = m', l = l'
//   lse = m + ln l
//
// One block processes a whole (head, batch), so no other block accesses its O, l and m, which are
// in global memory, and the order of all sums is fixed. Within the block each element of O, l and m
// is read and written by the same thread in all steps, so these accesses need no barrier.
//
// __launch_bounds__(THREADS, 1): there are rarely more blocks than multiprocessors, so a thread may
// use all 255 registers.
#pragma once

#include "scores.cuh"

// Bytes of shared memory with tiles of M queries and N keys: Q, K, V and P.
template <int M, int N, int D>
constexpr int64_t FORWARD_BYTES = sizeof(float) * int64_t((M + 2 * N) * STRIDE<D> + M * STRIDE<N>);

// O is summed in out if that is float32, otherwise in out_scratch (batch, nheads, seqlen_q,
// headdim). l, m, lse (batch, nheads, seqlen_q). Block b * nheads + h.
template <int M, int N, int D>
__global__ void __launch_bounds__(THREADS, 1)
    fa1_forward_kernel(Problem p, const void* q, const void* k, const void* v, const void* bias, void* out,
                       float* out_scratch, float* l, float* m, float* lse) {
    constexpr int TM = M / GROUPS, TN = N / LANES;
    static_assert(TM <= LANES, "a lane keeps l and m of one row at most");
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;             // (M, D)
    float* K = Q + M * STRIDE<D>;  // (N, D)
    float* V = K + N * STRIDE<D>;  // (N, D)
    float* P = V + N * STRIDE<D>;  // (M, N)

    const int b = blockIdx.x / p.nheads, h = blockIdx.x % p.nheads, h_k = h / p.group();
    const int64_t rows_before = int64_t(blockIdx.x) * p.seqlen_q;
    l += rows_before, m += rows_before, lse += rows_before;
    float* accumulated = p.dtype == FLOAT32 ? static_cast<float*>(out) + p.out.row(b, 0, h)
                                            : out_scratch + rows_before * p.headdim;
    const int64_t stride = p.dtype == FLOAT32 ? p.out.seqlen : p.headdim;
    const int kept = row(lane());  // lane r < TM of a group reads and writes l and m of row(r) for the group
    float O[TM][D / LANES] = {}, one[TM];
    for (int r = 0; r < TM; ++r) one[r] = 1.0f;

    for (int i0 = 0; i0 < p.seqlen_q; i0 += M) {  // line 2: O = 0, l = 0, m = -inf
        store_rows<TM, D>(accumulated + i0 * stride, stride, p.seqlen_q - i0, p.headdim, O, one);
        if (lane() < TM && i0 + kept < p.seqlen_q) l[i0 + kept] = 0.0f, m[i0 + kept] = -INFINITY;
    }

    // The first query has the first key, and the last query the last.
    const int keys = p.seqlen_q ? p.keys_of(p.seqlen_q - 1) : 0;
    for (int j0 = p.first_key_of(0) / N * N; j0 < keys; j0 += N) {
        load_tile<N, D>(K, p.dtype, k, p.k.row(b, j0, h_k), p.k.seqlen, p.seqlen_k - j0, p.headdim);
        load_tile<N, D>(V, p.dtype, v, p.v.row(b, j0, h_k), p.v.seqlen, p.seqlen_k - j0, p.headdim);

        // Only query tiles from the first query that sees key j0 to the last that sees the last key.
        const int queries = p.queries_of_tile(j0, N);
        for (int i0 = p.first_query_of(j0) / M * M; i0 < queries; i0 += M) {
            const int rows = p.seqlen_q - i0;
            const bool keeps = lane() < TM && kept < rows;
            load_tile<M, D>(Q, p.dtype, q, p.q.row(b, i0, h), p.q.seqlen, rows, p.headdim);
            // No barrier: this thread wrote these elements itself, in the previous step of the
            // outer loop. They are loaded before the products and used after them.
            fetch_rows<TM, D>(O, accumulated + i0 * stride, stride, rows, p.headdim);
            const float l_kept = keeps ? l[i0 + kept] : 0.0f;  // no barrier: lane r wrote it as well
            const float m_kept = keeps ? m[i0 + kept] : -INFINITY;
            __syncthreads();  // Q, K and V are loaded by all threads: complete them before the products

            float S[TM][TN] = {};
            add_rows_dot_rows<D>(S, Q, K, p.headdim);  // line 9: S = scale Q K^T + bias
            finish_scores<false>(S, p, bias, b, h, i0, j0);
            float alpha[TM];
#pragma unroll
            for (int r = 0; r < TM; ++r) {
                float m_tile = -INFINITY, l_tile = 0.0f;
#pragma unroll
                for (int c = 0; c < TN; ++c) m_tile = fmaxf(m_tile, S[r][c]);
                m_tile = maximum_of_lanes(m_tile);  // line 10: m~ = rowmax(S)
#pragma unroll
                for (int c = 0; c < TN; ++c) {
                    S[r][c] = __expf(S[r][c] - finite(m_tile));  // P~ = exp(S - m~); the mask's -inf gives 0
                    l_tile += S[r][c];
                }
                l_tile = sum_of_lanes(l_tile);  // l~ = rowsum(P~)

                const float m_old = __shfl_sync(WARP, m_kept, r, LANES), l_old = __shfl_sync(WARP, l_kept, r, LANES);
                const float m_new = fmaxf(m_old, m_tile);  // line 11
                const float before = __expf(m_old - finite(m_new)) * l_old, now = __expf(m_tile - finite(m_new));
                const float l_new = before + now * l_tile;
                // No visible key yet: O stays 0. Compare by == instead of >, so that a NaN in l
                // propagates.
                alpha[r] = l_new == 0.0f ? 0.0f : before / l_new;
                const float beta = l_new == 0.0f ? 0.0f : now / l_new;
#pragma unroll
                for (int c = 0; c < TN; ++c) S[r][c] *= beta;
                if (keeps && lane() == r) l[i0 + kept] = l_new, m[i0 + kept] = m_new;  // line 13
            }
            share(P, S);
            __syncwarp();  // a row of P is written by the 16 lanes of its group, each of which then reads all of it

            // line 12: O = alpha O + beta P~ V
#pragma unroll
            for (int r = 0; r < TM; ++r)
#pragma unroll
                for (int n = 0; n < D / LANES; ++n) O[r][n] *= alpha[r];
            add_product<D, N>(O, P, V, N, p.headdim);
            store_rows<TM, D>(accumulated + i0 * stride, stride, rows, p.headdim, O, one);
            __syncthreads();  // Q, and K and V in their last step, are still being read: do not load the next ones yet
        }
    }

    for (int i0 = 0; i0 < p.seqlen_q; i0 += M) {  // no barrier: each thread reads what it wrote itself
        const int rows = p.seqlen_q - i0;
        if (lane() < TM && kept < rows) lse[i0 + kept] = m[i0 + kept] + logf(l[i0 + kept]);  // no visible key: -inf
        if (p.dtype == FLOAT32) continue;  // O was summed in out
        fetch_rows<TM, D>(O, accumulated + i0 * stride, stride, rows, p.headdim);
        store_tile<TM, D>(p.dtype, out, p.out.row(b, i0, h), p.out.seqlen, rows, p.headdim, O, one);
    }
}
