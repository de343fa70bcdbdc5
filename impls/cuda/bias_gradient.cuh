// The gradient of the bias: dbias = dS, summed over the broadcast dimensions of the bias.
#pragma once

#include "scores.cuh"

// Q, dO, K, V, and one row of sums for each group.
template <int M, int N, int D>
constexpr int64_t BIAS_BYTES = sizeof(float) * int64_t(2 * (M + N) * STRIDE<D> + GROUPS * N);

// dbias = dS, summed in this order over the dimensions (batch, heads, queries) in which its stride
// is 0. There is one block for each tile of queries and keys, or for each tile of keys if all
// queries share a row.
template <int M, int N, int D>
__global__ void __launch_bounds__(THREADS, 1)
    bias_gradient_kernel(Problem p, BiasStrides strides, const void* dout, const void* q, const void* k, const void* v,
                    const void* bias, const float* lse, const float* delta, void* dbias) {
    constexpr int TM = M / GROUPS, TN = N / LANES;
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;                // (M, D)
    float* dO = Q + M * STRIDE<D>;    // (M, D)
    float* K = dO + M * STRIDE<D>;    // (N, D)
    float* V = K + N * STRIDE<D>;     // (N, D)
    float* sums = V + N * STRIDE<D>;  // (GROUPS, N)

    // Block ((b * heads + h) * tiles of queries + tile of queries) * tiles of keys + tile of keys.
    const bool vector = strides.query == 0;
    const int tiles_k = round_up(p.seqlen_k, N) / N, tiles_q = vector ? 1 : round_up(p.seqlen_q, M) / M;
    const int heads = strides.head ? p.nheads : 1;
    const int j0 = blockIdx.x % tiles_k * N, first = blockIdx.x / tiles_k % tiles_q * M;
    const int h0 = blockIdx.x / tiles_k / tiles_q % heads, b0 = blockIdx.x / tiles_k / tiles_q / heads;
    const int end_b = strides.batch ? b0 + 1 : p.batch, end_h = strides.head ? h0 + 1 : p.nheads;
    const int end_i = min(p.queries_of_tile(j0, N), vector ? p.seqlen_q : first + M);
    float total[TM][TN] = {};

    for (int b = b0; b < end_b; ++b)
        for (int h = h0; h < end_h; ++h) {
            const int h_k = h / p.group();
            const int64_t rows_before = (int64_t(b) * p.nheads + h) * p.seqlen_q;
            load_tile<N, D>(K, p.dtype, k, p.k.row(b, j0, h_k), p.k.seqlen, p.seqlen_k - j0, p.headdim);
            load_tile<N, D>(V, p.dtype, v, p.v.row(b, j0, h_k), p.v.seqlen, p.seqlen_k - j0, p.headdim);
            for (int i0 = max(first, p.first_query_of(j0) / M * M); i0 < end_i; i0 += M) {
                const int rows = p.seqlen_q - i0;
                load_tile<M, D>(Q, p.dtype, q, p.q.row(b, i0, h), p.q.seqlen, rows, p.headdim);
                load_tile<M, D>(dO, p.dtype, dout, p.dout.row(b, i0, h), p.dout.seqlen, rows, p.headdim);
                __syncthreads();  // Q, dO, K and V are loaded by all threads: complete them before the products

                float P[TM][TN] = {}, dP[TM][TN] = {};
                add_rows_dot_rows<D>(P, Q, K, p.headdim);
                add_rows_dot_rows<D>(dP, dO, V, p.headdim);
                finish_scores<false>(P, p, bias, b, h, i0, j0);
#pragma unroll
                for (int r = 0; r < TM; ++r) {
                    const float lse_i = lse_at(lse + rows_before, i0 + row(r), p.seqlen_q);
                    const float delta_i = delta_at(delta + rows_before, i0 + row(r), p.seqlen_q);
#pragma unroll
                    for (int c = 0; c < TN; ++c)  // dS, not scaled, because the bias is not
                        total[r][c] += probability(P[r][c], lse_i) * (dP[r][c] - delta_i);
                }
                __syncthreads();  // Q, dO, and K and V in their last step, are still being read: do not load new ones yet
            }
        }

    if (!vector) {
#pragma unroll
        for (int r = 0; r < TM; ++r)
#pragma unroll
            for (int c = 0; c < TN; ++c) {
                const int i = first + row(r), j = j0 + column(c);
                if (i < p.seqlen_q && j < p.seqlen_k)
                    set_element(p.bias_dtype, dbias, strides.at(b0, h0, i, j), total[r][c]);
            }
        return;
    }
#pragma unroll
    for (int c = 0; c < TN; ++c) {
        float sum = 0.0f;
#pragma unroll
        for (int r = 0; r < TM; ++r) sum += total[r][c];
        sums[group() * N + column(c)] = sum;
    }
    __syncthreads();  // 8 groups each summed their rows of a column: one thread is about to add these sums
    const int j = j0 + int(threadIdx.x);
    if (threadIdx.x >= N || j >= p.seqlen_k) return;
    float sum = 0.0f;
    for (int g = 0; g < GROUPS; ++g) sum += sums[g * N + threadIdx.x];
    set_element(p.bias_dtype, dbias, strides.at(b0, h0, 0, j), sum);
}
