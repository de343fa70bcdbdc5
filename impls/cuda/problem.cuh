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
enum Causal : int { FULL, BOTTOM_RIGHT, TOP_LEFT };

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
    Causal causal;
    Dtype dtype, bias_dtype;
    float softmax_scale;
    Strides q, k, v, out, dout, dq, dk, dv;
    BiasStrides bias;

    // Query i sees keys 0 .. keys_of(i) - 1: j <= i + seqlen_k - seqlen_q (bottom right), j <= i
    // (top left).
    __host__ __device__ int keys_of(int i) const {
        if (causal == FULL) return seqlen_k;
        int last = causal == BOTTOM_RIGHT ? i + seqlen_k - seqlen_q : i;
        return last < 0 ? 0 : last < seqlen_k ? last + 1 : seqlen_k;
    }
    // The first query that sees key j: the inverse of keys_of.
    __host__ __device__ int first_query_of(int j) const {
        if (causal == FULL) return 0;
        int first = causal == BOTTOM_RIGHT ? j - seqlen_k + seqlen_q : j;
        return first < 0 ? 0 : first;
    }
    __host__ __device__ int group() const { return nheads / nheads_k; }  // query heads that share a key head
};

// The order of the integers in which Python and the PyTorch operators pass a problem
// (impls/cuda/problem.py).
inline Problem problem_of(const int64_t* n, double softmax_scale) {
    Problem p;
    int64_t at = 0;
    auto next = [&] { return n[at++]; };
    for (int* size : {&p.batch, &p.nheads, &p.nheads_k, &p.seqlen_q, &p.seqlen_k, &p.headdim}) *size = int(next());
    p.causal = Causal(next());
    p.dtype = Dtype(next());
    p.bias_dtype = Dtype(next());
    p.splits = int(next());
    p.softmax_scale = float(softmax_scale);
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
