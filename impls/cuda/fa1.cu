// FlashAttention-1 on the host: which instance of a kernel, with how much shared memory; what cannot be done, and why.
//
// Everything is given by the caller, nothing is allocated. All three return a cudaError_t, 0 for success; where they
// refuse before any launch, or a launch fails, fa1_refusal has the reason.
//
//   problem, softmax_scale    problem.cuh; `stream` is a cudaStream_t
//   l, m, lse, delta          (batch, nheads, seqlen_q), float32
//   out_scratch, dq_scratch   (batch, nheads, seqlen_q, headdim), float32; null if q is float32
//   dbias                     in bias's dtype; summed where dbias_strides (batch, head, query, key) are 0
#include "fa1_backward.cuh"

namespace {

// A kernel for head dims up to `headdim` with tiles of m queries and n keys.
template <class Kernel>
struct Instance {
    int m, n, headdim;
    int64_t bytes;
    Kernel* kernel;
};

template <class... P>
using Kernel = void(Problem, P...);
using In = const void*;
using ForwardKernel = Kernel<In, In, In, In, void*, float*, float*, float*, float*>;
using BackwardKernel = Kernel<In, In, In, In, In, const float*, const float*, float*, void*, void*, void*>;
using BiasKernel = Kernel<BiasStrides, In, In, In, In, In, const float*, const float*, void*>;

template <int M, int N, int D>
Instance<ForwardKernel> forward_instance() {
    return {M, N, D, FORWARD_BYTES<M, N, D>, fa1_forward_kernel<M, N, D>};
}
template <int M, int N, int D>
Instance<BackwardKernel> backward_instance() {
    return {M, N, D, BACKWARD_BYTES<M, N, D>, fa1_backward_kernel<M, N, D>};
}
template <int M, int N, int D>
Instance<BiasKernel> bias_instance() {
    return {M, N, D, BIAS_BYTES<M, N, D>, fa1_bias_kernel<M, N, D>};
}

// By head dim, then from large tiles to small. As large as registers allow: O (M, D), or dK and dV (N, D), is spread
// over them.
const Instance<ForwardKernel> FORWARD[] = {
    forward_instance<64, 64, 32>(),  forward_instance<16, 16, 32>(),   forward_instance<64, 64, 64>(),
    forward_instance<16, 16, 64>(),  forward_instance<64, 64, 128>(),  forward_instance<16, 16, 128>(),
    forward_instance<32, 64, 256>(), forward_instance<16, 16, 256>(),  forward_instance<16, 32, 512>(),
    forward_instance<8, 16, 512>(),  forward_instance<8, 16, 1024>(),
};
const Instance<BackwardKernel> BACKWARD[] = {
    backward_instance<64, 64, 32>(),  backward_instance<16, 16, 32>(),  backward_instance<64, 64, 64>(),
    backward_instance<16, 16, 64>(),  backward_instance<48, 32, 128>(), backward_instance<16, 16, 128>(),
    backward_instance<32, 16, 256>(), backward_instance<16, 16, 256>(),
};
const Instance<BiasKernel> BIAS[] = {
    bias_instance<64, 64, 32>(),  bias_instance<16, 16, 32>(),  bias_instance<64, 64, 64>(),
    bias_instance<16, 16, 64>(),  bias_instance<64, 64, 128>(), bias_instance<16, 16, 128>(),
    bias_instance<32, 32, 256>(), bias_instance<16, 16, 256>(),
};

// The smallest tiles that have room for both sequences, else the largest: of those that fit into shared memory.
template <class Kernel, size_t COUNT>
int choose(const char* name, const Instance<Kernel> (&instances)[COUNT], const Problem& p,
           const Instance<Kernel>** chosen) {
    int64_t limit;
    if (int error = shared_memory_limit(&limit)) return error;
    *chosen = nullptr;
    const Instance<Kernel>* smallest = nullptr;
    for (const Instance<Kernel>& instance : instances) {
        if (instance.headdim < p.headdim || (smallest && instance.headdim != smallest->headdim)) continue;
        smallest = &instance;
        const bool whole = p.seqlen_q <= instance.m && p.seqlen_k <= instance.n;
        if (instance.bytes <= limit && (!*chosen || whole)) *chosen = &instance;
    }
    if (*chosen) return cudaSuccess;
    return refuse(cudaErrorInvalidConfiguration,
                  "%s: headdim=%d needs %lld bytes of shared memory with tiles of %d queries and %d keys, "
                  "the device has %lld",
                  name, p.headdim, static_cast<long long>(smallest->bytes), smallest->m, smallest->n,
                  static_cast<long long>(limit));
}

// What none of the kernels does. -> a cudaError_t
int check(const char* name, const int64_t* n, int largest_headdim) {
    static const char* const names[] = {"batch",   "nheads", "nheads_k", "seqlen_q",  "seqlen_k",
                                        "headdim", "causal", "dtype",    "bias_dtype"};
    constexpr int64_t LARGEST = 1 << 30;  // so that an int holds i + seqlen_k, and the end of the last tile
    for (int at = 0; at < 5; ++at)
        if (n[at] < 0 || n[at] > LARGEST)
            return refuse(cudaErrorInvalidValue, "%s: %s=%lld: should be 0 to %lld", name, names[at],
                          static_cast<long long>(n[at]), static_cast<long long>(LARGEST));
    if (n[5] < 1 || n[5] > largest_headdim)
        return refuse(cudaErrorInvalidValue, "%s: headdim=%lld: should be 1 to %d", name, static_cast<long long>(n[5]),
                      largest_headdim);
    if (n[2] ? n[1] % n[2] : n[1])
        return refuse(cudaErrorInvalidValue, "%s: nheads=%lld is not a multiple of nheads_k=%lld", name,
                      static_cast<long long>(n[1]), static_cast<long long>(n[2]));
    for (int at = 6; at < 9; ++at)
        if (n[at] < 0 || n[at] > 2)
            return refuse(cudaErrorInvalidValue, "%s: %s=%lld: should be 0, 1 or 2", name, names[at],
                          static_cast<long long>(n[at]));
    return cudaSuccess;
}

int check_scratch(const char* name, const Problem& p, const char* what, const float* scratch) {
    const int64_t floats = int64_t(p.batch) * p.nheads * p.seqlen_q * p.headdim;
    if (p.dtype == FLOAT32 || scratch || !floats) return cudaSuccess;
    return refuse(cudaErrorInvalidValue, "%s: %s is null: 16-bit dtypes need %lld floats of it", name, what,
                  static_cast<long long>(floats));
}

}  // namespace

int fa1_forward(const void* q, const void* k, const void* v, const void* bias, void* out, float* out_scratch, float* l,
                float* m, float* lse, const int64_t* problem, double softmax_scale, void* stream) {
    if (int error = check("fa1_forward", problem, 1024)) return error;
    const Problem p = problem_of(problem, softmax_scale);
    if (int error = check_scratch("fa1_forward", p, "out_scratch", out_scratch)) return error;
    const Instance<ForwardKernel>* chosen;
    if (int error = choose("fa1_forward", FORWARD, p, &chosen)) return error;
    return launch("fa1_forward", chosen->kernel, p.seqlen_q ? int64_t(p.batch) * p.nheads : 0, chosen->bytes, stream, p,
                  q, k, v, bias, out, out_scratch, l, m, lse);
}

int fa1_backward(const void* dout, const void* q, const void* k, const void* v, const void* bias, const void* out,
                 const float* lse, float* delta, float* dq_scratch, void* dq, void* dk, void* dv,
                 const int64_t* problem, double softmax_scale, void* stream) {
    if (int error = check("fa1_backward", problem, 256)) return error;
    const Problem p = problem_of(problem, softmax_scale);
    if (int error = check_scratch("fa1_backward", p, "dq_scratch", dq_scratch)) return error;
    const Instance<BackwardKernel>* chosen;
    if (int error = choose("fa1_backward", BACKWARD, p, &chosen)) return error;
    const int64_t rows = int64_t(p.batch) * p.nheads * p.seqlen_q;
    if (int error = launch("fa1_backward, delta", fa1_delta_kernel, (rows + GROUPS - 1) / GROUPS, 0, stream, p, dout,
                           out, delta))
        return error;
    return launch("fa1_backward", chosen->kernel, int64_t(p.batch) * p.nheads_k, chosen->bytes, stream, p, dout, q, k,
                  v, bias, lse, delta, dq_scratch, dq, dk, dv);
}

// delta: as fa1_backward has left it.
int fa1_bias_gradient(const void* dout, const void* q, const void* k, const void* v, const void* bias, const float* lse,
                      const float* delta, void* dbias, const int64_t* problem, const int64_t* dbias_strides,
                      double softmax_scale, void* stream) {
    if (int error = check("fa1_bias_gradient", problem, 256)) return error;
    const Problem p = problem_of(problem, softmax_scale);
    const Instance<BiasKernel>* chosen;
    if (int error = choose("fa1_bias_gradient", BIAS, p, &chosen)) return error;
    const BiasStrides strides = {dbias_strides[0], dbias_strides[1], dbias_strides[2], dbias_strides[3]};
    const int64_t tiles_q = strides.query ? round_up(p.seqlen_q, chosen->m) / chosen->m : 1;
    const int64_t blocks = int64_t(round_up(p.seqlen_k, chosen->n) / chosen->n) * tiles_q *
                           (strides.head ? p.nheads : 1) * (strides.batch ? p.batch : 1);
    return launch("fa1_bias_gradient", chosen->kernel, blocks, chosen->bytes, stream, p, strides, dout, q, k, v, bias,
                  lse, delta, dbias);
}

// Why the last call of this thread returned an error -> text; its length.
int fa1_refusal(char* text, int size) { return snprintf(text, size_t(size), "%s", refusal); }
