// The arguments of both algorithms: sizes, strides, mask, bias. The host fills one struct from an
// array of integers and passes it to kernels by value.
//
//   q, out, dout, dq (batch, seqlen_q, nheads, headdim)
//   k, v, dk, dv (batch, seqlen_k, nheads_k, headdim)
//   bias, dbias (batch | 1, nheads | 1, seqlen_q | 1, seqlen_k)
//   lse, delta (batch, nheads, seqlen_q), contiguous
//
// Every tensor has its own strides, in elements. headdim has stride 1; a broadcast dimension of
// bias has stride 0. Offsets have 64 bits, because batch * seqlen * nheads * headdim exceeds 2^31.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

#include <type_traits>

enum Dtype : int { FLOAT32, FLOAT16, BFLOAT16 };

struct Strides {
    int64_t batch, seqlen, head;
    __host__ __device__ int64_t row(int b, int i, int h) const { return b * batch + i * seqlen + h * head; }
};

struct BiasStrides {
    int64_t batch, head, query, key;
    __host__ __device__ int64_t at(int b, int h, int i, int j) const {
        return b * batch + h * head + i * query + j * key;
    }
};

struct Problem {
    int batch, nheads, nheads_k, seqlen_q, seqlen_k, headdim;
    int splits;  // of the backward: how many blocks share the keys of a head
    int first_diagonal, last_diagonal;  // query i sees keys i + first_diagonal .. i + last_diagonal, as far as they exist
    Dtype dtype, bias_dtype;
    float softmax_scale;
    float softcap;  // 0 without one
    Strides q, k, v, out, dout, dq, dk, dv;
    BiasStrides bias;

    // Query i sees keys first_key_of(i) .. keys_of(i) - 1.
    __host__ __device__ int first_key_of(int i) const {
        const int first = i + first_diagonal;
        return first < 0 ? 0 : first;
    }
    __host__ __device__ int keys_of(int i) const {
        const int last = i + last_diagonal;
        return last < 0 ? 0 : last < seqlen_k ? last + 1 : seqlen_k;
    }
    // Key j is seen by queries first_query_of(j) .. queries_of(j) - 1: the inverse of both.
    __host__ __device__ int first_query_of(int j) const {
        const int first = j - last_diagonal;
        return first < 0 ? 0 : first;
    }
    __host__ __device__ int queries_of(int j) const {
        const int last = j - first_diagonal;
        return last < 0 ? 0 : last < seqlen_q ? last + 1 : seqlen_q;
    }
    // The end of the queries that see one of the keys j0 .. j0 + n - 1.
    __host__ __device__ int queries_of_tile(int j0, int n) const {
        return queries_of(seqlen_k - j0 < n ? seqlen_k - 1 : j0 + n - 1);
    }
    __host__ __device__ int group() const { return nheads / nheads_k; }  // query heads that share a key head
};

// The order of the integers in which Python and the PyTorch operators pass a problem
// (impls/cuda/problem.py).
inline Problem problem_of(const int64_t* n, double softmax_scale, double softcap) {
    Problem p;
    int64_t at = 0;
    auto next = [&] { return n[at++]; };
    for (int* size : {&p.batch, &p.nheads, &p.nheads_k, &p.seqlen_q, &p.seqlen_k, &p.headdim}) *size = int(next());
    p.dtype = Dtype(next());
    p.bias_dtype = Dtype(next());
    p.splits = int(next());
    p.first_diagonal = int(next());
    p.last_diagonal = int(next());
    p.softmax_scale = float(softmax_scale);
    p.softcap = float(softcap);
    for (Strides* s : {&p.q, &p.k, &p.v, &p.out, &p.dout, &p.dq, &p.dk, &p.dv})
        for (int64_t* stride : {&s->batch, &s->seqlen, &s->head}) *stride = next();
    for (int64_t* stride : {&p.bias.batch, &p.bias.head, &p.bias.query, &p.bias.key}) *stride = next();
    return p;
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) { return x; }
template <>
__device__ inline __half from_float<__half>(float x) { return __float2half_rn(x); }
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

// f(x), with x cast to a pointer to dtype.
template <class F>
__device__ __forceinline__ auto as_dtype(Dtype dtype, const void* x, F f) {
    switch (dtype) {
        case FLOAT16: return f(static_cast<const __half*>(x));
        case BFLOAT16: return f(static_cast<const __nv_bfloat16*>(x));
        default: return f(static_cast<const float*>(x));
    }
}
template <class F>
__device__ __forceinline__ void as_dtype(Dtype dtype, void* x, F f) {
    switch (dtype) {
        case FLOAT16: return f(static_cast<__half*>(x));
        case BFLOAT16: return f(static_cast<__nv_bfloat16*>(x));
        default: return f(static_cast<float*>(x));
    }
}

// x[at] in float32.
__device__ __forceinline__ float element(Dtype dtype, const void* x, int64_t at) {
    return as_dtype(dtype, x, [=](auto* typed) { return to_float(typed[at]); });
}
// x[at] = value, rounded.
__device__ __forceinline__ void set_element(Dtype dtype, void* x, int64_t at, float value) {
    as_dtype(dtype, x, [=](auto* typed) { typed[at] = from_float<std::remove_reference_t<decltype(*typed)>>(value); });
}

// The bias of query i and key j in float32; 0 without a bias.
__device__ __forceinline__ float bias_at(const Problem& p, const void* bias, int b, int h, int i, int j) {
    return bias ? element(p.bias_dtype, bias, p.bias.at(b, h, i, j)) : 0.0f;
}
