// FlashAttention-2 on the host: chooses a kernel's instance and its shared memory, and refuses
// invalid calls.
//
// The caller allocates everything. All three functions return a cudaError_t, 0 for success. If they
// refuse before any launch, or if a launch fails, fa2_refusal gives the reason.
//
//   problem, softmax_scale    problem.cuh; `stream` is a cudaStream_t
//   softcap                   0 without one
//   lse, delta                (batch, nheads, seqlen_q), float32
//   dq_sums                   (splits, batch, nheads, seqlen_q, headdim), float32
//   bias                      may be null; dbias is in its dtype, summed where dbias_strides
//                             (batch, head, query, key) are 0
#include "fa2_forward.cuh"
#include "host_backward.cuh"

namespace {

using ForwardKernel = Kernel<In, In, In, In, void*, float*>;

template <int M, int N, int D, bool WIDE = false>
Instance<ForwardKernel> forward_instance() {
    return {M, N, WIDE ? LARGEST_FORWARD : D, FORWARD_BYTES<M, N, D>, fa2_forward_kernel<M, N, D, WIDE>};
}

// Sorted by head dim, then from large tiles to small. Tiles are as large as registers allow: O (M,
// D) is spread over them. A block of a WIDE instance owns 256 columns of O.
#ifdef ONE_INSTANCE  // compiles in a second, for tests that edit a source
constexpr int WIDE = 32;
const Instance<ForwardKernel> FORWARD[] = {forward_instance<16, 16, 32>(), forward_instance<16, 16, WIDE, true>()};
#else
constexpr int WIDE = 256;
const Instance<ForwardKernel> FORWARD[] = {
    forward_instance<64, 64, 32>(),         forward_instance<16, 16, 32>(),
    forward_instance<64, 64, 64>(),         forward_instance<16, 16, 64>(),
    forward_instance<64, 32, 128>(),        forward_instance<16, 16, 128>(),
    forward_instance<32, 32, 256>(),        forward_instance<16, 16, 256>(),
    forward_instance<32, 32, WIDE, true>(), forward_instance<16, 16, WIDE, true>(),
};
#endif

}  // namespace

int fa2_forward(const void* q, const void* k, const void* v, const void* bias, void* out, float* lse,
                const int64_t* problem, double softmax_scale, double softcap, void* stream) {
    if (int error = check("fa2_forward", problem, LARGEST_FORWARD)) return error;
    const Problem p = problem_of(problem, softmax_scale, softcap);
    const Instance<ForwardKernel>* chosen;
    if (int error = choose("fa2_forward", FORWARD, p, &chosen)) return error;
    const int64_t pieces = p.headdim > WIDE ? tiles(p.headdim, WIDE) : 1;
    const int64_t blocks = tiles(p.seqlen_q, chosen->m) * pieces * p.nheads * p.batch;
    return launch("fa2_forward", chosen->kernel, blocks, chosen->bytes, stream, p, q, k, v, bias, out, lse);
}

// The key tiles of each head are dealt round-robin to problem's `splits` blocks.
int fa2_backward(const void* dout, const void* q, const void* k, const void* v, const void* bias, const void* out,
                 const float* lse, float* delta, float* dq_sums, void* dq, void* dk, void* dv, const int64_t* problem,
                 double softmax_scale, double softcap, void* stream) {
    return backward("fa2_backward", dout, q, k, v, bias, out, lse, delta, dq_sums, dq, dk, dv, problem,
                    softmax_scale, softcap, stream);
}

// delta is as fa2_backward wrote it.
int fa2_bias_gradient(const void* dout, const void* q, const void* k, const void* v, const void* bias, const float* lse,
                      const float* delta, void* dbias, const int64_t* problem, const int64_t* dbias_strides,
                      double softmax_scale, double softcap, void* stream) {
    return bias_gradient("fa2_bias_gradient", dout, q, k, v, bias, lse, delta, dbias, problem, dbias_strides,
                         softmax_scale, softcap, stream);
}

// Writes why this thread's last call returned an error to text, and returns its length.
int fa2_refusal(char* text, int size) { return snprintf(text, size_t(size), "%s", refusal); }
