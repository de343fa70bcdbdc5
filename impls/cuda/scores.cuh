// Scores from a tile of Q K^T: scale, cap, bias and mask. For the backward, probabilities from lse.
#pragma once

#include "tiles.cuh"

// Turns S = Q K^T into scale S, caps it, adds the bias, and puts -inf where query i does not see key
// j: the mask and both tails. The scale may be negative, so it is applied before any maximum. Rows
// are queries and columns keys; if ROWS_ARE_KEYS, the reverse, and with a cap `slopes` (queries,
// keys) becomes 1 - tanh^2, by which the gradient of S is multiplied. Each thread writes and reads
// the slopes of its own scores.
template <bool ROWS_ARE_KEYS, int TM, int TN>
__device__ __forceinline__ void finish_scores(float (&S)[TM][TN], const Problem& p, const void* bias, int b, int h,
                                              int first_query, int first_key, [[maybe_unused]] float* slopes = nullptr) {
    constexpr int KEYS = ROWS_ARE_KEYS ? GROUPS * TM : LANES * TN, QUERIES = ROWS_ARE_KEYS ? LANES * TN : GROUPS * TM;
    // The first query of a tile has the first last key, and the last query has the last first key.
    // If rows are queries, a query beyond the last needs no mask, because its row is not stored. If
    // rows are keys, it enters a sum, where 0 times an infinite key is NaN.
    const bool all_seen = first_key + KEYS <= p.keys_of(first_query) &&
                          first_key >= p.first_key_of(first_query + QUERIES - 1) &&
                          (!ROWS_ARE_KEYS || first_query + QUERIES <= p.seqlen_q);
#pragma unroll
    for (int r = 0; r < TM; ++r)
#pragma unroll
        for (int c = 0; c < TN; ++c) S[r][c] *= p.softmax_scale;
    if (p.softcap) {
#pragma unroll
        for (int r = 0; r < TM; ++r)
#pragma unroll
            for (int c = 0; c < TN; ++c) {
                const float t = tanhf(S[r][c] / p.softcap);
                S[r][c] = p.softcap * t;
                if (ROWS_ARE_KEYS) slopes[column(c) * STRIDE<KEYS> + row(r)] = 1.0f - t * t;
            }
    }
    if (all_seen && !bias) return;
#pragma unroll
    for (int r = 0; r < TM; ++r)
#pragma unroll
        for (int c = 0; c < TN; ++c) {
            const int i = first_query + (ROWS_ARE_KEYS ? column(c) : row(r));
            const int j = first_key + (ROWS_ARE_KEYS ? row(r) : column(c));
            const bool seen = i < p.seqlen_q && j >= p.first_key_of(i) && j < p.keys_of(i);
            S[r][c] = seen ? S[r][c] + bias_at(p, bias, b, h, i, j) : -INFINITY;
        }
}

// The value to subtract before exp: 0 for a maximum of -inf, because -inf - -inf is NaN; otherwise
// the maximum.
__device__ __forceinline__ float finite(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// lse of query i; +inf if it sees no key (lse = -inf) or is beyond the last, so that P = exp(S -
// lse) is 0.
__device__ __forceinline__ float lse_at(const float* lse, int i, int seqlen_q) {
    const float x = i < seqlen_q ? lse[i] : INFINITY;
    return x == -INFINITY ? INFINITY : x;
}

__device__ __forceinline__ float delta_at(const float* delta, int i, int seqlen_q) {
    return i < seqlen_q ? delta[i] : 0.0f;
}

// P = exp(S - lse), at most 1 even if scores are so large that the rounding of lse matters. NaN
// stays NaN.
__device__ __forceinline__ float probability(float s, float lse) {
    const float x = s - lse;
    return __expf(x > 0.0f ? 0.0f : x);
}
