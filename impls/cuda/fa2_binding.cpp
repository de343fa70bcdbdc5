// The PyTorch operators of FlashAttention-2, torch.ops.flash_attest_cuda_fa2: the host functions of
// fa2.cu with tensors instead of pointers. algorithm.py checks the tensors; extension.py builds
// this file.
#include "binding.h"

// fa2.cu
int fa2_forward(const void* q, const void* k, const void* v, const void* bias, void* out, float* lse,
                const int64_t* problem, double softmax_scale, double softcap, void* stream);
int fa2_backward(const void* dout, const void* q, const void* k, const void* v, const void* bias, const void* out,
                 const float* lse, float* delta, float* dq_sums, void* dq, void* dk, void* dv, const int64_t* problem,
                 double softmax_scale, double softcap, void* stream);
int fa2_bias_gradient(const void* dout, const void* q, const void* k, const void* v, const void* bias, const float* lse,
                      const float* delta, void* dbias, const int64_t* problem, const int64_t* dbias_strides,
                      double softmax_scale, double softcap, void* stream);
int fa2_refusal(char* text, int size);

namespace {

void forward(Tensor q, Tensor k, Tensor v, Optional bias, Tensor out, Tensor lse, Tensor problem,
             double softmax_scale, double softcap) {
    call(fa2_forward, fa2_refusal, q, softmax_scale, softcap, q, k, v, bias, out, lse, problem);
}

}  // namespace

STABLE_TORCH_LIBRARY(flash_attest_cuda_fa2, m) {
    m.def(
        "forward("
        "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor(a!) out, Tensor(b!) lse, Tensor problem, "
        "float softmax_scale, float softcap) -> ()");
    m.def(BACKWARD_SCHEMA);
    m.def(BIAS_GRADIENT_SCHEMA);
}

STABLE_TORCH_LIBRARY_IMPL(flash_attest_cuda_fa2, CUDA, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX((&backward<fa2_backward, fa2_refusal>)));
    m.impl("bias_gradient", TORCH_BOX((&bias_gradient<fa2_bias_gradient, fa2_refusal>)));
}
