// The PyTorch operators of FlashAttention-1, torch.ops.flash_attest_cuda_fa1: the host functions of
// fa1.cu with tensors instead of pointers. algorithm.py checks the tensors; extension.py builds
// this file.
#include "binding.h"

// fa1.cu
int fa1_forward(const void* q, const void* k, const void* v, const void* bias, void* out, float* out_scratch, float* l,
                float* m, float* lse, const int64_t* problem, double softmax_scale, double softcap, void* stream);
int fa1_backward(const void* dout, const void* q, const void* k, const void* v, const void* bias, const void* out,
                 const float* lse, float* delta, float* dq_sums, void* dq, void* dk, void* dv,
                 const int64_t* problem, double softmax_scale, double softcap, void* stream);
int fa1_bias_gradient(const void* dout, const void* q, const void* k, const void* v, const void* bias, const float* lse,
                      const float* delta, void* dbias, const int64_t* problem, const int64_t* dbias_strides,
                      double softmax_scale, double softcap, void* stream);
int fa1_refusal(char* text, int size);

namespace {

void forward(Tensor q, Tensor k, Tensor v, Optional bias, Tensor out, Optional out_scratch, Tensor l, Tensor m,
             Tensor lse, Tensor problem, double softmax_scale, double softcap) {
    call(fa1_forward, fa1_refusal, q, softmax_scale, softcap, q, k, v, bias, out, out_scratch, l, m, lse, problem);
}

}  // namespace

STABLE_TORCH_LIBRARY(flash_attest_cuda_fa1, m) {
    m.def(
        "forward("
        "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor(a!) out, Tensor(b!)? out_scratch, "
        "Tensor(c!) l, Tensor(d!) m, Tensor(e!) lse, Tensor problem, float softmax_scale, float softcap) -> ()");
    m.def(BACKWARD_SCHEMA);
    m.def(BIAS_GRADIENT_SCHEMA);
}

STABLE_TORCH_LIBRARY_IMPL(flash_attest_cuda_fa1, CUDA, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX((&backward<fa1_backward, fa1_refusal>)));
    m.impl("bias_gradient", TORCH_BOX((&bias_gradient<fa1_bias_gradient, fa1_refusal>)));
}
