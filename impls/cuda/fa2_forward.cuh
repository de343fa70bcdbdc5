// FlashAttention-2, forward (FA2 Alg. 1). One block for each (tile of queries, head, batch) loops
// over the tiles of keys.
//
//   S = cap(scale Q K^T) + bias             m_new = max(m, rowmax(S))
//   P = exp(S - m_new)                      alpha = exp(m - m_new)
//   l = alpha l + rowsum(P)                 O     = alpha O + P V
//   at the end: O / l, lse = m + ln l       cap(x) = softcap tanh(x / softcap), or x without one
//
// m, l and O stay in registers for the whole loop. Scores and probabilities are float32 for every
// dtype.
#pragma once

#include "scores.cuh"

// At least two blocks per multiprocessor, if shared memory allows: while one waits for memory,
// another computes. This leaves 255 registers per thread. By default the compiler spills some to
// make room for a fourth block.
constexpr int BLOCKS = 2;

// Bytes of shared memory with tiles of M queries and N keys: Q, K, V and P.
template <int M, int N, int D>
constexpr int64_t FORWARD_BYTES = sizeof(float) * int64_t((M + 2 * N) * STRIDE<D> + M * STRIDE<N>);

// WIDE: for head dims beyond D. Several blocks share a query tile: each owns D columns of O, and
// computes all of S itself, D columns of Q and K at a time.
template <int M, int N, int D, bool WIDE>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    fa2_forward_kernel(Problem p, const void* q, const void* k, const void* v, const void* bias, void* out,
                       float* lse) {
    constexpr int TM = M / GROUPS, TN = N / LANES;
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;             // (M, D)
    float* K = Q + M * STRIDE<D>;  // (N, D)
    float* V = K + N * STRIDE<D>;  // (N, D)
    float* P = V + N * STRIDE<D>;  // (M, N)

    // Under a causal mask late queries see more keys. The late tiles of all heads start first, so
    // that no long block runs alone at the end.
    const int tiles = round_up(p.seqlen_q, M) / M, pieces = WIDE ? round_up(p.headdim, D) / D : 1;
    const int of_a_tile = gridDim.x / tiles, rest = blockIdx.x % of_a_tile;
    const int first_query = (tiles - 1 - int(blockIdx.x / of_a_tile)) * M;
    const int first_column = rest % pieces * D, h = rest / pieces % p.nheads, b = rest / pieces / p.nheads;
    const int columns = WIDE ? min(D, p.headdim - first_column) : p.headdim;  // of O and V
    const int queries = p.seqlen_q - first_query;
    const int h_k = h / p.group();
    const int64_t Q_at = p.q.row(b, first_query, h);

    float m[TM], l[TM], O[TM][D / LANES] = {};  // l: this lane's part of the row's sum
#pragma unroll
    for (int r = 0; r < TM; ++r) m[r] = -INFINITY, l[r] = 0.0f;

    if (!WIDE) load_tile<M, D>(Q, p.dtype, q, Q_at, p.q.seqlen, queries, p.headdim);
    // Tiles before the first key of the first query, and beyond the last key of the last, are skipped.
    const int keys = p.keys_of(min(first_query + M, p.seqlen_q) - 1);
    for (int first_key = p.first_key_of(first_query) / N * N; first_key < keys; first_key += N) {
        const int left = p.seqlen_k - first_key;
        load_tile<N, D>(V, p.dtype, v, p.v.row(b, first_key, h_k) + first_column, p.v.seqlen, left, columns);

        float S[TM][TN] = {};
        for (int d = 0; d < (WIDE ? p.headdim : 1); d += D) {  // S = Q K^T
            const int width = min(D, p.headdim - d);
            if (WIDE) load_tile<M, D>(Q, p.dtype, q, Q_at + d, p.q.seqlen, queries, width);
            load_tile<N, D>(K, p.dtype, k, p.k.row(b, first_key, h_k) + d, p.k.seqlen, left, width);
            __syncthreads();  // Q, K, V are loaded by all threads: complete them before the products
            add_rows_dot_rows<D>(S, Q, K, width);
            if (WIDE) __syncthreads();  // Q and K are still being read: do not load their next columns yet
        }
        finish_scores<false>(S, p, bias, b, h, first_query, first_key);

#pragma unroll
        for (int r = 0; r < TM; ++r) {
            float m_new = S[r][0];
#pragma unroll
            for (int c = 1; c < TN; ++c) m_new = fmaxf(m_new, S[r][c]);
            m_new = fmaxf(m[r], maximum_of_lanes(m_new));  // m_new = max(m, rowmax(S))
            const float shift = finite(m_new);
            const float alpha = __expf(m[r] - shift);
            l[r] *= alpha;
#pragma unroll
            for (int c = 0; c < TN; ++c) {
                S[r][c] = __expf(S[r][c] - shift);  // P = exp(S - m_new)
                l[r] += S[r][c];                    // l = alpha l + rowsum(P)
            }
#pragma unroll
            for (int n = 0; n < D / LANES; ++n) O[r][n] *= alpha;
            m[r] = m_new;
        }
        share(P, S);
        __syncwarp();  // a row of P is written by 16 lanes, each of which then reads all of it
        add_product<D, N>(O, P, V, min(N, left), columns);  // O = alpha O + P V
        __syncthreads();  // K, V and P are still being read: do not write the next ones yet
    }

    float factor[TM];
#pragma unroll
    for (int r = 0; r < TM; ++r) {
        l[r] = sum_of_lanes(l[r]);
        factor[r] = l[r] == 0.0f ? 0.0f : 1.0f / l[r];  // no visible key: 0. ==, so that a NaN in l propagates
        if (row(r) < queries && lane() == 0 && first_column == 0)
            lse[(int64_t(b) * p.nheads + h) * p.seqlen_q + first_query + row(r)] =
                l[r] == 0.0f ? -INFINITY : m[r] + logf(l[r]);
    }
    store_tile<TM, D>(p.dtype, out, p.out.row(b, first_query, h) + first_column, p.out.seqlen, queries, columns, O,
                      factor);
}
