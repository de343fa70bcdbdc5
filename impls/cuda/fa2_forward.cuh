// FlashAttention-2, forward (FA2 Alg. 1): one block for each (tile of queries, head, batch), which walks over the keys.
//
//   S = scale Q K^T + bias                  m_new = max(m, rowmax(S))
//   P = exp(S - m_new)                      alpha = exp(m - m_new)
//   l = alpha l + rowsum(P)                 O     = alpha O + P V          at the end: O / l, lse = m + ln l
//
// m, l and O stay in registers from the first key to the last. Scores and probabilities are float32 for every dtype.
#pragma once

#include "tiles.cuh"

// At least two blocks to a multiprocessor, if shared memory lets them: while one waits for memory, another computes.
// That leaves 255 registers to a thread; left to itself the compiler spills some to make room for a third.
constexpr int BLOCKS = 2;

// The tiles of a kernel: 8 TM rows by 16 TN columns of S, head dims up to D.
template <int HEADDIM, int ROWS_OF_THREAD, int COLUMNS_OF_THREAD>
struct Shape {
    static constexpr int D = HEADDIM, TM = ROWS_OF_THREAD, TN = COLUMNS_OF_THREAD;
    static constexpr int ROWS = GROUPS * TM, COLUMNS = LANES * TN;
    static constexpr int P_FLOATS = ROWS * STRIDE<COLUMNS>;  // S, P or dS in shared memory
};

// From S = Q K^T to scale S + bias, and -inf where query i does not see key j: causal mask, and both tails.
// A row is a query and a column a key; if ROWS_ARE_KEYS, the other way round.
template <bool ROWS_ARE_KEYS, int TM, int TN>
__device__ __forceinline__ void finish_scores(float (&S)[TM][TN], const Problem& p, const void* bias, int b, int h,
                                              int first_query, int first_key) {
    constexpr int KEYS = ROWS_ARE_KEYS ? GROUPS * TM : LANES * TN;
    // The first query of a tile sees the fewest keys. A query behind the last is not stored, so it may see anything.
    const bool all_seen = first_key + KEYS <= p.keys_of(first_query);
#pragma unroll
    for (int r = 0; r < TM; ++r)
#pragma unroll
        for (int c = 0; c < TN; ++c) S[r][c] *= p.softmax_scale;
    if (all_seen && !bias) return;
#pragma unroll
    for (int r = 0; r < TM; ++r)
#pragma unroll
        for (int c = 0; c < TN; ++c) {
            const int i = first_query + (ROWS_ARE_KEYS ? column(c) : row(r));
            const int j = first_key + (ROWS_ARE_KEYS ? row(r) : column(c));
            const bool seen = i < p.seqlen_q && j < p.keys_of(i);
            S[r][c] = seen ? S[r][c] + bias_at(p, bias, b, h, i, j) : -INFINITY;
        }
}

// WIDE: for head dims beyond D. Several blocks share a tile of queries: each has D of the columns of O, and computes
// all of S for itself, D columns of Q and K at a time.
template <class T, class Shape, bool WIDE>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    fa2_forward_kernel(const T* q, const T* k, const T* v, const void* bias, T* out, float* lse, Problem p) {
    constexpr int D = Shape::D, TM = Shape::TM, TN = Shape::TN, ROWS = Shape::ROWS, COLUMNS = Shape::COLUMNS;
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;                     // (ROWS, D)
    float* K = Q + ROWS * STRIDE<D>;       // (COLUMNS, D)
    float* V = K + COLUMNS * STRIDE<D>;    // (COLUMNS, D)
    float* P = V + COLUMNS * STRIDE<D>;    // (ROWS, COLUMNS)

    // Late queries see more keys under a causal mask: they start first, so that no long block is left over at the end.
    const int tiles = round_up(p.seqlen_q, ROWS) / ROWS, pieces = WIDE ? round_up(p.headdim, D) / D : 1;
    const int first_query = (tiles - 1 - int(blockIdx.x % tiles)) * ROWS;
    const int first_column = int(blockIdx.x / tiles % pieces) * D;
    const int h = blockIdx.x / tiles / pieces % p.nheads, b = blockIdx.x / tiles / pieces / p.nheads;
    const int columns = WIDE ? min(D, p.headdim - first_column) : p.headdim;  // of O and V
    const int queries = p.seqlen_q - first_query;
    q += p.q.row(b, first_query, h);
    k += p.k.row(b, 0, h / p.group());
    v += p.v.row(b, 0, h / p.group()) + first_column;

    float m[TM], l[TM], O[TM][D / LANES] = {};  // l: what this lane has seen of the row's sum
#pragma unroll
    for (int r = 0; r < TM; ++r) m[r] = -INFINITY, l[r] = 0.0f;

    if (!WIDE) load_tile<ROWS, D>(Q, q, p.q.seqlen, queries, p.headdim);
    // The last query of the tile sees most; behind what it sees no tile need be looked at.
    const int keys = p.keys_of(min(first_query + ROWS, p.seqlen_q) - 1);
    for (int first_key = 0; first_key < keys; first_key += COLUMNS) {
        load_tile<COLUMNS, D>(V, v + first_key * p.v.seqlen, p.v.seqlen, p.seqlen_k - first_key, columns);

        float S[TM][TN] = {};
        for (int d = 0; d < (WIDE ? p.headdim : 1); d += D) {  // S = Q K^T
            const int left = p.headdim - d < D ? p.headdim - d : D;
            if (WIDE) load_tile<ROWS, D>(Q, q + d, p.q.seqlen, queries, left);
            load_tile<COLUMNS, D>(K, k + first_key * p.k.seqlen + d, p.k.seqlen, p.seqlen_k - first_key, left);
            __syncthreads();  // Q, K, V were loaded by all threads: no product before they are whole
            add_rows_dot_rows<D>(S, Q, K, left);
            if (WIDE) __syncthreads();  // Q and K are still being read: nobody may load their next columns yet
        }
        finish_scores<false>(S, p, bias, b, h, first_query, first_key);

#pragma unroll
        for (int r = 0; r < TM; ++r) {
            float m_new = S[r][0];
#pragma unroll
            for (int c = 1; c < TN; ++c) m_new = fmaxf(m_new, S[r][c]);
            m_new = fmaxf(m[r], maximum_of_lanes(m_new));           // m_new = max(m, rowmax(S))
            const float shift = m_new == -INFINITY ? 0.0f : m_new;  // nothing seen yet: -inf - -inf would be NaN
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
        __syncwarp();  // a row of P comes from 16 lanes, all of which are about to read all of it
        add_product<D, COLUMNS>(O, P, V, min(COLUMNS, p.seqlen_k - first_key), columns);  // O = alpha O + P V
        __syncthreads();  // K, V and P are still being read: nobody may write the next ones yet
    }

    float factor[TM];
#pragma unroll
    for (int r = 0; r < TM; ++r) {
        l[r] = sum_of_lanes(l[r]);
        factor[r] = l[r] == 0.0f ? 0.0f : 1.0f / l[r];  // no key seen: 0. == and not >: a NaN in l should reach out
        if (row(r) < queries && lane() == 0 && first_column == 0)
            lse[(int64_t(b) * p.nheads + h) * p.seqlen_q + first_query + row(r)] =
                l[r] == 0.0f ? -INFINITY : m[r] + logf(l[r]);
    }
    store_rows<TM, D>(out + p.out.row(b, first_query, h) + first_column, p.out.seqlen, queries, columns, O, factor);
}
