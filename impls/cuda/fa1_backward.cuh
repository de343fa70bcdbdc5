// FlashAttention-1, backward (FA1 Alg. 4, of which the numbers of lines are): the keys are the outer loop, the queries
// the inner one.
//
//   delta_i = <dout_i, out_i>           in a kernel of its own, once for each i; line 19 has it in every step
//   for each tile of keys j:            K_j, V_j stay in shared memory, dK_j, dV_j in registers
//       for each tile of queries i:     Q_i, dO_i come; dQ_i comes and goes back: it lives in global memory
//           P = exp(S - lse)            dV_j += P^T dO_i          line 13 has exp(S - m) / l; lse = m + ln l
//           dP = dO_i V_j^T             dS = P (dP - delta)
//           dQ_i += scale dS K_j        dK_j += scale dS^T Q_i
//
// S, P, dP and dS are kept turned round, (keys, queries): dV and dK then need only rows that a group of lanes has made
// itself. One block has a (key head, batch) and walks over the query heads that read it, so that nobody else touches
// its dQ, dK and dV, and the order of all sums is fixed. Within the block each element of dQ belongs to one thread.
#pragma once

#include "fa1_forward.cuh"

__device__ __forceinline__ float element(Dtype dtype, const void* x, int64_t at) {
    switch (dtype) {
        case FLOAT16: return to_float(static_cast<const __half*>(x)[at]);
        case BFLOAT16: return to_float(static_cast<const __nv_bfloat16*>(x)[at]);
        default: return static_cast<const float*>(x)[at];
    }
}

__device__ __forceinline__ void set_element(Dtype dtype, void* x, int64_t at, float value) {
    switch (dtype) {
        case FLOAT16: static_cast<__half*>(x)[at] = from_float<__half>(value); break;
        case BFLOAT16: static_cast<__nv_bfloat16*>(x)[at] = from_float<__nv_bfloat16>(value); break;
        default: static_cast<float*>(x)[at] = value;
    }
}

// delta (batch, nheads, seqlen_q). A group of lanes has a row; GROUPS rows for each block.
__global__ void __launch_bounds__(THREADS, 1)
    fa1_delta_kernel(Problem p, const void* dout, const void* out, float* delta) {
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

// P = exp(S - lse) of a row. A row that sees no key has lse = -inf, and P = 0.
__device__ __forceinline__ float probability(float s, float lse) { return lse == -INFINITY ? 0.0f : expf(s - lse); }

// Bytes of shared memory with tiles of M queries and N keys: Q, dO, K, V, P^T or dS^T, and dS.
template <int M, int N, int D>
constexpr int64_t BACKWARD_BYTES =
    sizeof(float) * int64_t(2 * (M + N) * STRIDE<D> + N * STRIDE<M> + M * STRIDE<N>);

// dQ is summed in dq itself if that is float32, else in dq_scratch (batch, nheads, seqlen_q, headdim).
// Block b * nheads_k + h_k.
template <int M, int N, int D>
__global__ void __launch_bounds__(THREADS, 1)
    fa1_backward_kernel(Problem p, const void* dout, const void* q, const void* k, const void* v, const void* bias,
                        const float* lse, const float* delta, float* dq_scratch, void* dq, void* dk, void* dv) {
    constexpr int TK = N / GROUPS, TQ = M / LANES, TM = M / GROUPS;
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;                   // (M, D)
    float* dO = Q + M * STRIDE<D>;       // (M, D)
    float* K = dO + M * STRIDE<D>;       // (N, D)
    float* V = K + N * STRIDE<D>;        // (N, D)
    float* turned = V + N * STRIDE<D>;   // (N, M): P^T, then dS^T
    float* dS = turned + N * STRIDE<M>;  // (M, N)

    const int b = blockIdx.x / p.nheads_k, h_k = blockIdx.x % p.nheads_k, headdim = p.headdim;
    const int first_head = h_k * p.group(), end_head = first_head + p.group();
    // The float32 sum of dQ of head h, and how far its rows are apart.
    auto sum_of = [&](int h) {
        return p.dtype == FLOAT32 ? static_cast<float*>(dq) + p.dq.row(b, 0, h)
                                  : dq_scratch + (int64_t(b) * p.nheads + h) * p.seqlen_q * headdim;
    };
    const int64_t stride = p.dtype == FLOAT32 ? p.dq.seqlen : headdim;
    float one[TM], one_k[TK];
    for (int r = 0; r < TM; ++r) one[r] = 1.0f;
    for (int r = 0; r < TK; ++r) one_k[r] = 1.0f;

    for (int h = first_head; h < end_head; ++h)  // line 5: dQ = 0
        for (int i0 = 0; i0 < p.seqlen_q; i0 += M) {
            const float zero[TM][D / LANES] = {};
            store_rows<TM, D>(sum_of(h) + i0 * stride, stride, p.seqlen_q - i0, headdim, zero, one);
        }

    for (int j0 = 0; j0 < p.seqlen_k; j0 += N) {
        load_rows<N, D>(K, p.dtype, k, p.k.row(b, j0, h_k), p.k.seqlen, p.seqlen_k - j0, headdim);
        load_rows<N, D>(V, p.dtype, v, p.v.row(b, j0, h_k), p.v.seqlen, p.seqlen_k - j0, headdim);
        float dK[TK][D / LANES] = {}, dV[TK][D / LANES] = {};

        for (int h = first_head; h < end_head; ++h) {
            const int64_t rows_before = (int64_t(b) * p.nheads + h) * p.seqlen_q;
            // Tiles of queries before the first that sees key j0 see nothing of this tile.
            for (int i0 = p.first_query_of(j0) / M * M; i0 < p.seqlen_q; i0 += M) {
                const int rows = p.seqlen_q - i0;
                load_rows<M, D>(Q, p.dtype, q, p.q.row(b, i0, h), p.q.seqlen, rows, headdim);
                load_rows<M, D>(dO, p.dtype, dout, p.dout.row(b, i0, h), p.dout.seqlen, rows, headdim);
                __syncthreads();  // Q, dO, K and V were loaded by all threads: no product before they are whole

                float P[TK][TQ] = {}, dP[TK][TQ] = {};
                add_rows_dot_rows<D>(P, K, Q, headdim);  // line 11: S^T = scale K Q^T + bias^T
                finish_scores<true>(P, p, bias, b, h, i0, j0);
#pragma unroll
                for (int c = 0; c < TQ; ++c) {
                    const int i = i0 + column(c);
                    const float lse_i = i < p.seqlen_q ? lse[rows_before + i] : -INFINITY;
#pragma unroll
                    for (int r = 0; r < TK; ++r) P[r][c] = probability(P[r][c], lse_i);  // line 13; 0 where masked
                }
                share(turned, P);
                __syncwarp();  // a row of P^T comes from the 16 lanes of its group, who are about to read all of it
                add_product<D, M>(dV, turned, dO, M, headdim);  // line 16: dV += P^T dO

                add_rows_dot_rows<D>(dP, V, dO, headdim);  // line 17: dP^T = V dO^T
#pragma unroll
                for (int c = 0; c < TQ; ++c) {
                    const int i = i0 + column(c);
                    const float delta_i = i < p.seqlen_q ? delta[rows_before + i] : 0.0f;
#pragma unroll
                    for (int r = 0; r < TK; ++r) {
                        dP[r][c] = p.softmax_scale * P[r][c] * (dP[r][c] - delta_i);  // line 20: scale dS, for both
                        dS[column(c) * STRIDE<N> + row(r)] = dP[r][c];
                    }
                }
                __syncwarp();  // P^T is still being read by the lanes of its group: dS^T may not take its place yet
                share(turned, dP);
                __syncthreads();  // a row of dS comes from all groups; dS^T from the lanes of its own

                // No barrier: this thread wrote these elements itself, one step of the outer loop ago. Asked for before
                // dK, used after it.
                float dQ[TM][D / LANES];
                float* sum = sum_of(h) + i0 * stride;
                fetch_rows<TM, D>(dQ, sum, stride, rows, headdim);
                add_product<D, M>(dK, turned, Q, M, headdim);  // line 22: dK += dS^T Q
                add_product<D, N>(dQ, dS, K, N, headdim);      // line 21: dQ += dS K
                store_rows<TM, D>(sum, stride, rows, headdim, dQ, one);
                __syncthreads();  // Q, and K if this was its last step, are still being read: nothing new yet
            }
        }
        store_as<TK, D>(p.dtype, dk, p.dk.row(b, j0, h_k), p.dk.seqlen, p.seqlen_k - j0, headdim, dK, one_k);
        store_as<TK, D>(p.dtype, dv, p.dv.row(b, j0, h_k), p.dv.seqlen, p.seqlen_k - j0, headdim, dV, one_k);
    }

    if (p.dtype == FLOAT32) return;  // dQ was summed in dq itself
    for (int h = first_head; h < end_head; ++h)
        for (int i0 = 0; i0 < p.seqlen_q; i0 += M) {  // no barrier: each thread reads what it wrote itself
            float dQ[TM][D / LANES];
            fetch_rows<TM, D>(dQ, sum_of(h) + i0 * stride, stride, p.seqlen_q - i0, headdim);
            store_as<TM, D>(p.dtype, dq, p.dq.row(b, i0, h), p.dq.seqlen, p.seqlen_q - i0, headdim, dQ, one);
        }
}

// Q, dO, K, V, and one row of sums for each group.
template <int M, int N, int D>
constexpr int64_t BIAS_BYTES = sizeof(float) * int64_t(2 * (M + N) * STRIDE<D> + GROUPS * N);

// dbias = dS, summed where its strides are 0 (over batch, heads, queries), in this order, by one block for each tile:
// of queries and keys, or of keys alone where all queries share a row.
template <int M, int N, int D>
__global__ void __launch_bounds__(THREADS, 1)
    fa1_bias_kernel(Problem p, BiasStrides strides, const void* dout, const void* q, const void* k, const void* v,
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
    const int end_i = vector ? p.seqlen_q : min(p.seqlen_q, first + M);
    float total[TM][TN] = {};

    for (int b = b0; b < end_b; ++b)
        for (int h = h0; h < end_h; ++h) {
            const int h_k = h / p.group();
            const int64_t rows_before = (int64_t(b) * p.nheads + h) * p.seqlen_q;
            load_rows<N, D>(K, p.dtype, k, p.k.row(b, j0, h_k), p.k.seqlen, p.seqlen_k - j0, p.headdim);
            load_rows<N, D>(V, p.dtype, v, p.v.row(b, j0, h_k), p.v.seqlen, p.seqlen_k - j0, p.headdim);
            for (int i0 = max(first, p.first_query_of(j0) / M * M); i0 < end_i; i0 += M) {
                const int rows = p.seqlen_q - i0;
                load_rows<M, D>(Q, p.dtype, q, p.q.row(b, i0, h), p.q.seqlen, rows, p.headdim);
                load_rows<M, D>(dO, p.dtype, dout, p.dout.row(b, i0, h), p.dout.seqlen, rows, p.headdim);
                __syncthreads();  // Q, dO, K and V were loaded by all threads: no product before they are whole

                float P[TM][TN] = {}, dP[TM][TN] = {};
                add_rows_dot_rows<D>(P, Q, K, p.headdim);
                add_rows_dot_rows<D>(dP, dO, V, p.headdim);
                finish_scores<false>(P, p, bias, b, h, i0, j0);
#pragma unroll
                for (int r = 0; r < TM; ++r) {
                    const int i = i0 + row(r);
                    const float lse_i = i < p.seqlen_q ? lse[rows_before + i] : -INFINITY;
                    const float delta_i = i < p.seqlen_q ? delta[rows_before + i] : 0.0f;
#pragma unroll
                    for (int c = 0; c < TN; ++c)  // dS, not scaled: the bias is not
                        total[r][c] += probability(P[r][c], lse_i) * (dP[r][c] - delta_i);
                }
                __syncthreads();  // Q, dO, and K and V in their last step, are still being read: nothing new yet
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
    __syncthreads();  // a column was summed by 8 groups, each over its rows: one thread is about to add those
    const int j = j0 + int(threadIdx.x);
    if (threadIdx.x >= N || j >= p.seqlen_k) return;
    float sum = 0.0f;
    for (int g = 0; g < GROUPS; ++g) sum += sums[g * N + threadIdx.x];
    set_element(p.bias_dtype, dbias, strides.at(b0, h0, 0, j), sum);
}
