// FlashAttention-1 on the host: chooses a kernel's instance and its shared memory, and refuses
// invalid calls.
//
// The caller allocates everything. All three functions return a cudaError_t, 0 for success. If they
// refuse before any launch, or if a launch fails, fa1_refusal gives the reason.
//
//   problem, softmax_scale    problem.cuh; `stream` is a cudaStream_t
//   softcap                   0 without one
//   l, m, lse, delta          (batch, nheads, seqlen_q), float32
//   out_scratch               (batch, nheads, seqlen_q, headdim), float32; null if q is float32
//   dq_sums                   the same, but never null
//   dbias                     in bias's dtype; summed where dbias_strides
//                             (batch, head, query, key) are 0
#include "fa1_forward.cuh"
#include "host_backward.cuh"

namespace {

using ForwardKernel = Kernel<In, In, In, In, void*, float*, float*, float*, float*>;

template <int M, int N, int D>
Instance<ForwardKernel> forward_instance() {
    return {M, N, D, FORWARD_BYTES<M, N, D>, fa1_forward_kernel<M, N, D>};
}

// Sorted by head dim, then from large tiles to small. Tiles are as large as registers allow: O (M,
// D) is spread over them.
#ifdef ONE_INSTANCE  // compiles in a second, for tests that edit a source
const Instance<ForwardKernel> FORWARD[] = {forward_instance<16, 16, 32>()};
#else
const Instance<ForwardKernel> FORWARD[] = {
    forward_instance<64, 64, 32>(),  forward_instance<16, 16, 32>(),   forward_instance<64, 64, 64>(),
    forward_instance<16, 16, 64>(),  forward_instance<64, 64, 128>(),  forward_instance<16, 16, 128>(),
    forward_instance<32, 64, 256>(), forward_instance<16, 16, 256>(),  forward_instance<16, 32, 512>(),
    forward_instance<8, 16, 512>(),  forward_instance<8, 16, 1024>(),
};
#endif

int check_scratch(const char* name, const Problem& p, const char* what, const float* scratch) {
    const int64_t floats = int64_t(p.batch) * p.nheads * p.seqlen_q * p.headdim;
    if (p.dtype == FLOAT32 || scratch || !floats) return cudaSuccess;
    return refuse(cudaErrorInvalidValue, "%s: %s is null: 16-bit dtypes need %lld floats of it", name, what,
                  static_cast<long long>(floats));
}

}  // namespace

int fa1_forward(const void* q, const void* k, const void* v, const void* bias, void* out, float* out_scratch, float* l,
                float* m, float* lse, const int64_t* problem, double softmax_scale, double softcap, void* stream) {
    if (int error = check("fa1_forward", problem, LARGEST_FORWARD)) return error;
    const Problem p = problem_of(problem, softmax_scale, softcap);
    if (int error = check_scratch("fa1_forward", p, "out_scratch", out_scratch)) return error;
    const Instance<ForwardKernel>* chosen;
    if (int error = choose("fa1_forward", FORWARD, p, &chosen)) return error;
    return launch("fa1_forward", chosen->kernel, p.seqlen_q ? int64_t(p.batch) * p.nheads : 0, chosen->bytes, stream, p,
                  q, k, v, bias, out, out_scratch, l, m, lse);
}

int fa1_backward(const void* dout, const void* q, const void* k, const void* v, const void* bias, const void* out,
                 const float* lse, float* delta, float* dq_sums, void* dq, void* dk, void* dv,
                 const int64_t* problem, double softmax_scale, double softcap, void* stream) {
    if (problem[8] != 1)
        return refuse(cudaErrorInvalidValue, "fa1_backward: splits=%lld: should be 1, as one block has a head",
                      static_cast<long long>(problem[8]));
    return backward("fa1_backward", dout, q, k, v, bias, out, lse, delta, dq_sums, dq, dk, dv, problem,
                    softmax_scale, softcap, stream);
}

// delta is as fa1_backward wrote it.
int fa1_bias_gradient(const void* dout, const void* q, const void* k, const void* v, const void* bias, const float* lse,
                      const float* delta, void* dbias, const int64_t* problem, const int64_t* dbias_strides,
                      double softmax_scale, double softcap, void* stream) {
    return bias_gradient("fa1_bias_gradient", dout, q, k, v, bias, lse, delta, dbias, problem, dbias_strides,
                         softmax_scale, softcap, stream);
}

// Writes why this thread's last call returned an error to text, and returns its length.
int fa1_refusal(char* text, int size) { return snprintf(text, size_t(size), "%s", refusal); }
