// The backward and the gradient of the bias on the host, for both algorithms.
#pragma once

#include "backward.cuh"
#include "bias_gradient.cuh"
#include "host.cuh"

using BackwardKernel = Kernel<In, In, In, In, In, const float*, const float*, float*, void*, void*>;
template <int M, int N, int D>
Instance<BackwardKernel> backward_instance() {
    return {M, N, D, BACKWARD_BYTES<M, N, D>, backward_kernel<M, N, D>};
}
// Sorted by head dim, then from large tiles to small. Tiles are as large as registers allow: dK and
// dV (N, D) are spread over them.
#ifdef ONE_INSTANCE  // compiles in a second, for tests that edit a source
inline const Instance<BackwardKernel> BACKWARD[] = {backward_instance<16, 16, 32>()};
#else
inline const Instance<BackwardKernel> BACKWARD[] = {
    backward_instance<64, 64, 32>(),  backward_instance<16, 16, 32>(),  backward_instance<64, 64, 64>(),
    backward_instance<16, 16, 64>(),  backward_instance<48, 32, 128>(), backward_instance<16, 16, 128>(),
    backward_instance<32, 16, 256>(), backward_instance<16, 16, 256>(),
};
#endif

// Writes dq, dk, dv, and delta, which bias_gradient needs. dq_sums (splits, batch, nheads,
// seqlen_q, headdim) is scratch.
inline int backward(const char* name, In dout, In q, In k, In v, In bias, In out, const float* lse,
                    float* delta, float* dq_sums, void* dq, void* dk, void* dv, const int64_t* problem,
                    double softmax_scale, double softcap, void* stream) {
    if (int error = check(name, problem, LARGEST_BACKWARD)) return error;
    const Problem p = problem_of(problem, softmax_scale, softcap);
    const int64_t rows = int64_t(p.batch) * p.nheads * p.seqlen_q, blocks = (rows + GROUPS - 1) / GROUPS;
    if (!dq_sums && rows)
        return refuse(cudaErrorInvalidValue, "%s: dq_sums is null: should have %lld floats", name,
                      static_cast<long long>(p.splits * rows * p.headdim));
    const Instance<BackwardKernel>* chosen;
    if (int error = choose(name, BACKWARD, p, &chosen)) return error;
    int error = launch(name, delta_kernel, blocks, 0, stream, p, dout, out, delta);
    if (!error)
        error = launch(name, chosen->kernel, int64_t(p.splits) * p.nheads_k * p.batch, chosen->bytes, stream, p, dout,
                       q, k, v, bias, lse, delta, dq_sums, dk, dv);
    if (!error)
        error = launch(name, sum_dq_kernel, blocks, 0, stream, p, chosen->m, chosen->n, dq_sums, dq);
    return error;
}

using BiasKernel = Kernel<BiasStrides, In, In, In, In, In, const float*, const float*, void*>;
template <int M, int N, int D>
Instance<BiasKernel> bias_instance() {
    return {M, N, D, BIAS_BYTES<M, N, D>, bias_gradient_kernel<M, N, D>};
}
#ifdef ONE_INSTANCE  // compiles in a second, for tests that edit a source
inline const Instance<BiasKernel> BIAS[] = {bias_instance<16, 16, 32>()};
#else
inline const Instance<BiasKernel> BIAS[] = {
    bias_instance<64, 64, 32>(),  bias_instance<16, 16, 32>(),  bias_instance<64, 64, 64>(),
    bias_instance<16, 16, 64>(),  bias_instance<64, 64, 128>(), bias_instance<16, 16, 128>(),
    bias_instance<32, 32, 256>(), bias_instance<16, 16, 256>(),
};
#endif

// Writes dbias, in bias's dtype, summed where dbias_strides (batch, head, query, key) are 0.
inline int bias_gradient(const char* name, In dout, In q, In k, In v, In bias, const float* lse, const float* delta,
                         void* dbias, const int64_t* problem, const int64_t* dbias_strides, double softmax_scale,
                         double softcap, void* stream) {
    if (int error = check(name, problem, LARGEST_BACKWARD)) return error;
    const Problem p = problem_of(problem, softmax_scale, softcap);
    const Instance<BiasKernel>* chosen;
    if (int error = choose(name, BIAS, p, &chosen)) return error;
    const BiasStrides strides = {dbias_strides[0], dbias_strides[1], dbias_strides[2], dbias_strides[3]};
    const int64_t blocks = tiles(p.seqlen_k, chosen->n) * (strides.query ? tiles(p.seqlen_q, chosen->m) : 1) *
                           (strides.head ? p.nheads : 1) * (strides.batch ? p.batch : 1);
    return launch(name, chosen->kernel, blocks, chosen->bytes, stream, p, strides, dout, q, k, v, bias, lse, delta,
                  dbias);
}
