// FlashAttention-2, backward (FA2 Alg. 2), with S and P computed again from lse:
//
//   P  = exp(S - lse)                       dV = P^T dO
//   dP = dO V^T                             dK = scale dS^T Q
//   dS = P * (dP - delta)                   dQ = scale dS K               delta = rowsum(dO * O)
//
// dK and dV are sums over queries: one block for each tile of keys walks over the queries, of all heads that share the
// key head. dQ is a sum over keys, for which one block for each tile of queries walks over the keys and computes S and
// dP once more: so each sum has one order and no atomics, and every bit is repeatable. dbias is dS itself, summed over
// what the bias was broadcast over.
#pragma once

#include "fa2_forward.cuh"

// lse so that P = exp(S - lse) is 0 for a query that saw no key (lse = -inf), and for one behind the last.
__device__ __forceinline__ float lse_at(const float* lse, int i, int seqlen_q) {
    const float x = i < seqlen_q ? lse[i] : INFINITY;
    return x == -INFINITY ? INFINITY : x;
}

// P = exp(S - lse). At most 1, also where scores are so large that the rounding of lse counts; NaN stays NaN.
__device__ __forceinline__ float probability(float s, float lse) {
    const float x = s - lse;
    return __expf(x > 0.0f ? 0.0f : x);
}

// One warp for each row: delta (batch, nheads, seqlen_q).
template <class T>
__global__ void __launch_bounds__(THREADS) fa2_delta_kernel(const T* out, const T* dout, float* delta, Problem p) {
    const int64_t number = int64_t(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
    if (number >= int64_t(p.batch) * p.nheads * p.seqlen_q) return;
    const int i = number % p.seqlen_q, h = number / p.seqlen_q % p.nheads, b = number / p.seqlen_q / p.nheads;
    out += p.out.row(b, i, h);
    dout += p.dout.row(b, i, h);
    float sum = 0.0f;
    for (int d = threadIdx.x % 32; d < p.headdim; d += 32) sum += to_float(dout[d]) * to_float(out[d]);
    for (int other = 16; other; other /= 2) sum += __shfl_xor_sync(WARP, sum, other);
    if (threadIdx.x % 32 == 0) delta[number] = sum;
}

// dk and dv of one tile of keys. All pieces of S are turned round, (keys, queries): P^T and dS^T are first factors.
template <class T, class Shape>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    fa2_dk_dv_kernel(const T* dout, const T* q, const T* k, const T* v, const void* bias, const float* lse,
                     const float* delta, T* dk, T* dv, Problem p) {
    constexpr int D = Shape::D, TM = Shape::TM, TN = Shape::TN, ROWS = Shape::ROWS, COLUMNS = Shape::COLUMNS;
    extern __shared__ __align__(16) float shared[];
    float* K = shared;                      // (ROWS, D)
    float* V = K + ROWS * STRIDE<D>;        // (ROWS, D)
    float* Q = V + ROWS * STRIDE<D>;        // (COLUMNS, D)
    float* dO = Q + COLUMNS * STRIDE<D>;    // (COLUMNS, D)
    float* PT = dO + COLUMNS * STRIDE<D>;   // (ROWS, COLUMNS): P^T, then dS^T in the same place

    const int tiles = round_up(p.seqlen_k, ROWS) / ROWS;
    const int first_key = int(blockIdx.x % tiles) * ROWS, keys = p.seqlen_k - first_key;
    const int h_k = blockIdx.x / tiles % p.nheads_k, b = blockIdx.x / tiles / p.nheads_k;
    load_tile<ROWS, D>(K, k + p.k.row(b, first_key, h_k), p.k.seqlen, keys, p.headdim);
    load_tile<ROWS, D>(V, v + p.v.row(b, first_key, h_k), p.v.seqlen, keys, p.headdim);

    float dK[TM][D / LANES] = {}, dV[TM][D / LANES] = {};
    const int first_seeing = p.first_query_of(first_key) / COLUMNS * COLUMNS;  // no tile before it sees one of the keys
    for (int h = h_k * p.group(); h < (h_k + 1) * p.group(); ++h) {            // the query heads of this key head
        const int64_t statistics = (int64_t(b) * p.nheads + h) * p.seqlen_q;
        for (int first_query = first_seeing; first_query < p.seqlen_q; first_query += COLUMNS) {
            const int queries = p.seqlen_q - first_query;
            load_tile<COLUMNS, D>(Q, q + p.q.row(b, first_query, h), p.q.seqlen, queries, p.headdim);
            load_tile<COLUMNS, D>(dO, dout + p.dout.row(b, first_query, h), p.dout.seqlen, queries, p.headdim);
            __syncthreads();  // K, V, Q, dO were loaded by all threads: no product before they are whole

            float P[TM][TN] = {};
            add_rows_dot_rows<D>(P, K, Q, p.headdim);  // S^T = K Q^T
            finish_scores<true>(P, p, bias, b, h, first_query, first_key);
#pragma unroll
            for (int c = 0; c < TN; ++c) {
                const float lse_i = lse_at(lse + statistics, first_query + column(c), p.seqlen_q);
#pragma unroll
                for (int r = 0; r < TM; ++r) P[r][c] = probability(P[r][c], lse_i);  // P = exp(S - lse)
            }
            share(PT, P);
            __syncwarp();  // a row of P^T comes from 16 lanes, all of which are about to read all of it
            add_product<D, COLUMNS>(dV, PT, dO, min(COLUMNS, queries), p.headdim);  // dV += P^T dO

            float dS[TM][TN] = {};
            add_rows_dot_rows<D>(dS, V, dO, p.headdim);  // dP^T = V dO^T
#pragma unroll
            for (int c = 0; c < TN; ++c) {
                const int i = first_query + column(c);
                const float delta_i = i < p.seqlen_q ? delta[statistics + i] : 0.0f;
#pragma unroll
                for (int r = 0; r < TM; ++r) dS[r][c] = P[r][c] * (dS[r][c] - delta_i);  // dS = P * (dP - delta)
            }
            __syncwarp();  // P^T is still being read by the lanes of its rows: dS^T may not take its place yet
            share(PT, dS);
            __syncwarp();  // a row of dS^T comes from 16 lanes, all of which are about to read all of it
            add_product<D, COLUMNS>(dK, PT, Q, min(COLUMNS, queries), p.headdim);  // dK += dS^T Q
            __syncthreads();  // Q, dO and dS^T are still being read: nobody may write the next ones yet
        }
    }
    float scale[TM], one[TM];
#pragma unroll
    for (int r = 0; r < TM; ++r) scale[r] = p.softmax_scale, one[r] = 1.0f;
    store_rows<TM, D>(dk + p.dk.row(b, first_key, h_k), p.dk.seqlen, keys, p.headdim, dK, scale);  // dK = scale dS^T Q
    store_rows<TM, D>(dv + p.dv.row(b, first_key, h_k), p.dv.seqlen, keys, p.headdim, dV, one);
}

// dq of one tile of queries.
template <class T, class Shape>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    fa2_dq_kernel(const T* dout, const T* q, const T* k, const T* v, const void* bias, const float* lse,
                  const float* delta, T* dq, Problem p) {
    constexpr int D = Shape::D, TM = Shape::TM, TN = Shape::TN, ROWS = Shape::ROWS, COLUMNS = Shape::COLUMNS;
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;                         // (ROWS, D)
    float* dO = Q + ROWS * STRIDE<D>;          // (ROWS, D)
    float* K = dO + ROWS * STRIDE<D>;          // (COLUMNS, D)
    float* V = K + COLUMNS * STRIDE<D>;        // (COLUMNS, D)
    float* dS_tile = V + COLUMNS * STRIDE<D>;  // (ROWS, COLUMNS)

    const int tiles = round_up(p.seqlen_q, ROWS) / ROWS;
    const int first_query = (tiles - 1 - int(blockIdx.x % tiles)) * ROWS, queries = p.seqlen_q - first_query;
    const int h = blockIdx.x / tiles % p.nheads, b = blockIdx.x / tiles / p.nheads;
    const int64_t statistics = (int64_t(b) * p.nheads + h) * p.seqlen_q;
    k += p.k.row(b, 0, h / p.group());
    v += p.v.row(b, 0, h / p.group());
    load_tile<ROWS, D>(Q, q + p.q.row(b, first_query, h), p.q.seqlen, queries, p.headdim);
    load_tile<ROWS, D>(dO, dout + p.dout.row(b, first_query, h), p.dout.seqlen, queries, p.headdim);

    float lse_i[TM], delta_i[TM], dQ[TM][D / LANES] = {};
#pragma unroll
    for (int r = 0; r < TM; ++r) {
        const int i = first_query + row(r);
        lse_i[r] = lse_at(lse + statistics, i, p.seqlen_q);
        delta_i[r] = i < p.seqlen_q ? delta[statistics + i] : 0.0f;
    }
    const int keys = p.keys_of(min(first_query + ROWS, p.seqlen_q) - 1);  // what the last query of the tile sees
    for (int first_key = 0; first_key < keys; first_key += COLUMNS) {
        load_tile<COLUMNS, D>(K, k + first_key * p.k.seqlen, p.k.seqlen, p.seqlen_k - first_key, p.headdim);
        load_tile<COLUMNS, D>(V, v + first_key * p.v.seqlen, p.v.seqlen, p.seqlen_k - first_key, p.headdim);
        __syncthreads();  // Q, dO, K, V were loaded by all threads: no product before they are whole

        float P[TM][TN] = {}, dS[TM][TN] = {};
        add_rows_dot_rows<D>(P, Q, K, p.headdim);    // S = Q K^T
        add_rows_dot_rows<D>(dS, dO, V, p.headdim);  // dP = dO V^T
        finish_scores<false>(P, p, bias, b, h, first_query, first_key);
#pragma unroll
        for (int r = 0; r < TM; ++r)
#pragma unroll
            for (int c = 0; c < TN; ++c)
                dS[r][c] = probability(P[r][c], lse_i[r]) * (dS[r][c] - delta_i[r]);  // dS = P * (dP - delta)
        share(dS_tile, dS);
        __syncwarp();  // a row of dS comes from 16 lanes, all of which are about to read all of it
        add_product<D, COLUMNS>(dQ, dS_tile, K, min(COLUMNS, p.seqlen_k - first_key), p.headdim);  // dQ += dS K
        __syncthreads();  // K, V and dS are still being read: nobody may write the next ones yet
    }
    float scale[TM];
#pragma unroll
    for (int r = 0; r < TM; ++r) scale[r] = p.softmax_scale;
    store_rows<TM, D>(dq + p.dq.row(b, first_query, h), p.dq.seqlen, queries, p.headdim, dQ, scale);  // dQ = scale dS K
}

__device__ inline void store_bias(void* dbias, Dtype dtype, int64_t at, float x) {
    switch (dtype) {
        case FLOAT16: static_cast<__half*>(dbias)[at] = from_float<__half>(x); break;
        case BFLOAT16: static_cast<__nv_bfloat16*>(dbias)[at] = from_float<__nv_bfloat16>(x); break;
        default: static_cast<float*>(dbias)[at] = x;
    }
}

// One tile of dbias: of (queries, keys), or, where the bias is a vector (strides.query = 0), of keys alone, summed over
// all queries. It is summed over batch and heads where their stride is 0, in their order.
template <class T, class Shape>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    fa2_bias_gradient_kernel(const T* dout, const T* q, const T* k, const T* v, const void* bias, const float* lse,
                             const float* delta, void* dbias, BiasStrides strides, Problem p) {
    constexpr int D = Shape::D, TM = Shape::TM, TN = Shape::TN, ROWS = Shape::ROWS, COLUMNS = Shape::COLUMNS;
    extern __shared__ __align__(16) float shared[];
    float* Q = shared;                         // (ROWS, D)
    float* dO = Q + ROWS * STRIDE<D>;          // (ROWS, D)
    float* K = dO + ROWS * STRIDE<D>;          // (COLUMNS, D)
    float* V = K + COLUMNS * STRIDE<D>;        // (COLUMNS, D)
    float* partial = V + COLUMNS * STRIDE<D>;  // (GROUPS, COLUMNS): the sums of each group's queries

    const bool vector = strides.query == 0;
    const int query_tiles = vector ? 1 : round_up(p.seqlen_q, ROWS) / ROWS;
    const int key_tiles = round_up(p.seqlen_k, COLUMNS) / COLUMNS, heads = strides.head ? p.nheads : 1;
    const int first_key = int(blockIdx.x % key_tiles) * COLUMNS, keys = p.seqlen_k - first_key;
    const int query_tile = int(blockIdx.x / key_tiles % query_tiles) * ROWS;
    const int my_head = blockIdx.x / key_tiles / query_tiles % heads;
    const int my_batch = blockIdx.x / key_tiles / query_tiles / heads;

    float sum[TM][TN] = {};
    for (int b = my_batch; b < (strides.batch ? my_batch + 1 : p.batch); ++b)
        for (int h = my_head; h < (strides.head ? my_head + 1 : p.nheads); ++h) {
            const int64_t statistics = (int64_t(b) * p.nheads + h) * p.seqlen_q;
            const int h_k = h / p.group();
            for (int first_query = query_tile; first_query < (vector ? p.seqlen_q : query_tile + 1);
                 first_query += ROWS) {
                const int queries = p.seqlen_q - first_query;
                if (first_key >= p.keys_of(min(first_query + ROWS, p.seqlen_q) - 1)) continue;  // no query sees a key
                load_tile<ROWS, D>(Q, q + p.q.row(b, first_query, h), p.q.seqlen, queries, p.headdim);
                load_tile<ROWS, D>(dO, dout + p.dout.row(b, first_query, h), p.dout.seqlen, queries, p.headdim);
                load_tile<COLUMNS, D>(K, k + p.k.row(b, first_key, h_k), p.k.seqlen, keys, p.headdim);
                load_tile<COLUMNS, D>(V, v + p.v.row(b, first_key, h_k), p.v.seqlen, keys, p.headdim);
                __syncthreads();  // Q, dO, K, V were loaded by all threads: no product before they are whole

                float P[TM][TN] = {}, dP[TM][TN] = {};
                add_rows_dot_rows<D>(P, Q, K, p.headdim);    // S = Q K^T
                add_rows_dot_rows<D>(dP, dO, V, p.headdim);  // dP = dO V^T
                finish_scores<false>(P, p, bias, b, h, first_query, first_key);
#pragma unroll
                for (int r = 0; r < TM; ++r) {
                    const int i = first_query + row(r);
                    const float lse_i = lse_at(lse + statistics, i, p.seqlen_q);
                    const float delta_i = i < p.seqlen_q ? delta[statistics + i] : 0.0f;
#pragma unroll
                    for (int c = 0; c < TN; ++c)
                        sum[r][c] += probability(P[r][c], lse_i) * (dP[r][c] - delta_i);  // dbias += dS
                }
                __syncthreads();  // Q, dO, K, V are still being read: nobody may load the next ones yet
            }
        }

    if (!vector) {
#pragma unroll
        for (int r = 0; r < TM; ++r)
#pragma unroll
            for (int c = 0; c < TN; ++c) {
                const int i = query_tile + row(r), j = first_key + column(c);
                if (i < p.seqlen_q && j < p.seqlen_k)
                    store_bias(dbias, p.bias_dtype, strides.at(my_batch, my_head, i, j), sum[r][c]);
            }
        return;
    }
#pragma unroll
    for (int c = 0; c < TN; ++c) {
        for (int r = 1; r < TM; ++r) sum[0][c] += sum[r][c];
        partial[group() * COLUMNS + column(c)] = sum[0][c];
    }
    __syncthreads();  // the sum of a key comes from 8 groups, one thread is about to add them
    for (int c = threadIdx.x; c < COLUMNS; c += THREADS) {
        float total = 0.0f;
        for (int g = 0; g < GROUPS; ++g) total += partial[g * COLUMNS + c];
        if (c < keys) store_bias(dbias, p.bias_dtype, strides.at(my_batch, my_head, 0, first_key + c), total);
    }
}
