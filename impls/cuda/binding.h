// Shared by the PyTorch operators of both algorithms: tensors to pointers, q's device and its
// current stream, exceptions.
//
// It uses only LibTorch's stable ABI, so a library that is built against one version of PyTorch
// loads into later ones. The stream needs -DUSE_CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <type_traits>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/shim_utils.h>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

// Not STD_TORCH_CHECK: its failure crashed the process (PyTorch 2.11; it formats its message with a
// std::ostringstream).
inline void must(bool holds, const char* message) {
    if (!holds) throw std::runtime_error(message);
}

// Converts a tensor to a pointer parameter of a host function. The parameter's type determines the
// checks: float* and void* are on the device, int64_t* (sizes and strides) on the CPU. An absent
// tensor is a null pointer.
class Argument {
  public:
    Argument(const Tensor& tensor) : tensor_(&tensor) {}
    Argument(const Optional& tensor) : tensor_(tensor ? &*tensor : nullptr) {}

    template <class T>
    operator T*() const {
        using Element = std::remove_const_t<T>;
        constexpr bool numbers = std::is_same_v<Element, int64_t>, floats = std::is_same_v<Element, float>;
        static_assert(numbers || floats || std::is_void_v<Element>);
        if (!tensor_) return nullptr;
        must(numbers ? tensor_->is_cpu() : tensor_->is_cuda(),
             numbers ? "numbers should be on the CPU" : "tensors should be on a CUDA device");
        if constexpr (numbers || floats) {
            must(tensor_->scalar_type() == (numbers ? ScalarType::Long : ScalarType::Float),
                 numbers ? "numbers should be int64" : "statistics and sums should be float32");
            must(tensor_->is_contiguous(), "numbers, statistics and sums should be contiguous");
        }
        if constexpr (std::is_const_v<T>)
            return static_cast<T*>(tensor_->const_data_ptr());
        else
            return static_cast<T*>(tensor_->mutable_data_ptr());
    }

  private:
    const Tensor* tensor_;
};

// Calls host(arguments as pointers, softmax_scale, softcap, stream) on the device of q and its
// current stream. If the host function returns a cudaError_t other than 0, throws the text of refusal(text,
// size).
template <class Host, class... Tensors>
void call(Host host, int (*refusal)(char*, int), const Tensor& q, double softmax_scale, double softcap,
          const Tensors&... arguments) {
    const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(q.get_device_index(), &stream));
    if (host(Argument(arguments)..., softmax_scale, softcap, stream)) {
        char text[512];
        refusal(text, sizeof(text));
        throw std::runtime_error(text);
    }
}

// The operators of the backward, whose arguments are the same for both algorithms.
constexpr const char* BACKWARD_SCHEMA =
    "backward("
    "Tensor dout, Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor out, Tensor lse, Tensor(a!) delta, "
    "Tensor(b!) dq_sums, Tensor(c!) dq, Tensor(d!) dk, Tensor(e!) dv, Tensor problem, float softmax_scale, "
    "float softcap) -> ()";
template <auto host, auto refusal>
void backward(Tensor dout, Tensor q, Tensor k, Tensor v, Optional bias, Tensor out, Tensor lse, Tensor delta,
              Tensor dq_sums, Tensor dq, Tensor dk, Tensor dv, Tensor problem, double softmax_scale, double softcap) {
    call(host, refusal, q, softmax_scale, softcap, dout, q, k, v, bias, out, lse, delta, dq_sums, dq, dk, dv, problem);
}

constexpr const char* BIAS_GRADIENT_SCHEMA =
    "bias_gradient("
    "Tensor dout, Tensor q, Tensor k, Tensor v, Tensor bias, Tensor lse, Tensor delta, "
    "Tensor(a!) dbias, Tensor problem, Tensor dbias_strides, float softmax_scale, float softcap) -> ()";
template <auto host, auto refusal>
void bias_gradient(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor bias, Tensor lse, Tensor delta, Tensor dbias,
                   Tensor problem, Tensor dbias_strides, double softmax_scale, double softcap) {
    call(host, refusal, q, softmax_scale, softcap, dout, q, k, v, bias, lse, delta, dbias, problem, dbias_strides);
}

}  // namespace
