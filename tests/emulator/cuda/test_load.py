"""A .cu file is loaded on the CPU and called with tensors.

An error that stops a GPU is an exception, and Ctrl-C ends a launch.
"""

import pytest
import torch

from flash_attest.emulator.cuda import CudaError
from flash_attest.properties.cases.sparse_memory import sparse_zeros
from tests.emulator.cuda.sources.scale import SCALE
from tests.runs import python


def test_a_host_function_is_called_as_it_stands(cu):
    x, out = torch.randn(100), torch.zeros(100)
    assert cu(SCALE, "scale_all").scale_all(out, x, 2.5, 100) == 0
    assert torch.equal(out, x * 2.5)


@pytest.mark.parametrize("dtype, name", [(torch.float32, "float"), (torch.float64, "double"), (torch.int32, "int")])
def test_a_kernel_is_launched_by_its_template_arguments(cu, dtype, name):
    x = torch.arange(70).to(dtype)
    out = torch.zeros_like(x)
    cu(SCALE, f"scale<{name}>")[f"scale<{name}>"].launch(grid=3, block=(32, 1))(out, x, 2, 70)
    assert torch.equal(out, x * 2)


@pytest.mark.parametrize(
    "dtype, name, header", [(torch.float16, "__half", "cuda_fp16.h"), (torch.bfloat16, "__nv_bfloat16", "cuda_bf16.h")]
)
def test_half_precision_tensors_go_where_half_precision_pointers_are(cu, dtype, name, header):
    x = torch.randn(70).to(dtype)
    out = torch.zeros_like(x)
    file = cu(f"#include <{header}>\n{SCALE}", f"scale<{name}>")
    file[f"scale<{name}>"].launch(3, 32)(out, x, 2, 70)
    assert torch.equal(out, (x.float() * 2).to(dtype))
    with pytest.raises(TypeError, match=f"x: dtype should be {dtype}, is torch.float32"):
        file[f"scale<{name}>"].launch(3, 32)(out, x.float(), 2, 70)


def test_views_of_one_storage_stay_views_of_one(cu):
    packed = torch.arange(64.0)
    cu(SCALE, "scale_all").scale_all(packed[32:], packed[:32], 3.0, 32)
    assert torch.equal(packed[32:], torch.arange(32.0) * 3) and torch.equal(packed[:32], torch.arange(32.0))


def test_a_large_storage_is_not_copied(cu):
    """A call may use a small part of a storage that is larger than memory.

    The storage here has 2^38 bytes.
    """
    add = cu("__global__ void add(float* x, float* y, size_t n) { y[0] += x[n]; x[n] = 5; }", "add")["add"].launch(1, 1)
    x = sparse_zeros(2**36, torch.float32, torch.device("cpu"))
    y = torch.ones(1)
    x[2**35] = 3.0
    add(x, y, 2**35)
    assert (y.item(), x[2**35].item()) == (4.0, 5.0)
    view = x[2**35 :]
    add(view, y, 0)
    assert (y.item(), x[2**35].item()) == (9.0, 5.0)


def test_headers_of_the_author_are_found_and_rewritten(cu, tmp_path):
    (tmp_path / "tile.cuh").write_text(
        "template <int N> __device__ float first(float x) { __shared__ float s[N]; s[0] = x; return s[0]; }\n"
    )
    file = cu('#include "tile.cuh"\n__global__ void one(float* out) { out[0] = first<4>(7); }\n', "one")
    out = torch.zeros(1)
    file.one.launch(1, 1)(out)
    assert out.item() == 7


def test_defines_reach_the_compiler(cu):
    out = torch.zeros(1, dtype=torch.int32)
    cu("__global__ void k(int* out) { out[0] = BLOCK; }", "k", defines={"BLOCK": 24}).k.launch(1, 1)(out)
    assert out.item() == 24


def test_launches_in_every_form(cu):
    text = """
    namespace deep { template <int A, bool B> __global__ void k(int* out, int x) { out[threadIdx.x] = A + B + x; } }
    template <class T> __global__ void deduced(T* out, T x) { extern __shared__ T s[]; s[0] = x; out[1] = s[0]; }
    #define LAUNCH(kernel, ...) kernel<<<dim3(1), dim3(1, 1, 1)>>>(__VA_ARGS__)
    void host(int* out) {
        cudaStream_t stream = 0;
        deep::k<(3 > 2), sizeof(int) == 4><<<1, 1, 0, stream>>>(out, 5);
        deduced<<<1, 1, sizeof(int)>>>(out, 11);
        auto pointer = &deep::k<20, false>;
        pointer<<<dim3{1, 1}, 1>>>(out + 2, 0);
        auto last = &deep::k<30, false>;
        LAUNCH(last, out + 3, 0);
    }
    """
    out = torch.zeros(4, dtype=torch.int32)
    cu(text, "host").host(out)
    assert out.tolist() == [7, 11, 20, 30]


def test_constants_and_device_variables(cu):
    text = """
    __constant__ float weights[2];
    __device__ int counter;
    __global__ void k(float* out) { out[threadIdx.x] = weights[threadIdx.x]; atomicAdd(&counter, 1); }
    int host(float* out) {
        float w[2] = {1.5f, 2.5f};
        cudaMemcpyToSymbol(weights, w, sizeof w);
        k<<<1, 2>>>(out);
        int seen = 0;
        cudaMemcpyFromSymbol(&seen, counter, sizeof seen);
        return seen;
    }
    """
    out = torch.zeros(2)
    assert cu(text, "host").host(out) == 2 and out.tolist() == [1.5, 2.5]


# ---- plain mode: an error that stops a GPU is an exception ---------------------------------------


@pytest.mark.parametrize(
    "body, message",
    [
        ("if (threadIdx.x < 8) __syncwarp(); else __syncthreads();", "deadlock: "),
        ("((int*)nullptr)[threadIdx.x] = 1;", "outside: address 0, where no tensor is"),
        ("int z = x[0]; x[1] = 5 / z;", "trap: division of an integer by zero"),
        ("__trap();", r"trap: __trap\(\)"),
        ("assert(threadIdx.x < 5);", r"trap: assert\(threadIdx.x < 5\)"),
        ("x[64] = 3;", "writes outside of its tensors: 0 to 4 bytes past the end of x"),
        ("x[70] = 3;", "writes outside of its tensors: 24 to 28 bytes past the end of x"),
        ("x[64] = x[70] = 0xFF00FF;", "writes outside of its tensors: 0 to 28 bytes past the end of x"),
        ("x[-2] = 3;", "writes outside of its tensors: 4 to 8 bytes before the start of x"),
        ("while (atomicAdd(x, 0) == 0) {}", "deadlock: "),
        ("volatile char big[1 << 20]; big[threadIdx.x] = 1; x[0] = big[5];", "KiB of local memory in one thread"),
    ],
)
def test_what_a_gpu_would_stop_at_raises(cu, body, message):
    x = torch.zeros(64, dtype=torch.int32)
    file = cu(f"#include <assert.h>\n__global__ void k(int* x) {{\n  {body}\n}}", "k")
    with pytest.raises(CudaError, match=message):
        file.k.launch(1, 32)(x)
    with pytest.raises(CudaError, match=message):  # and the next launch works again
        file.k.launch(1, 32)(torch.zeros(64, dtype=torch.int32))


@pytest.mark.parametrize(
    "block, shared, message",
    [(2000, 0, "2000 threads a block"), (32, 50000, "50000 bytes of dynamic shared memory, at most 49152")],
)
def test_a_launch_that_fails_raises_unless_the_host_asks(cu, block, shared, message):
    text = f"""
    __global__ void k(int* x) {{ x[0] = 1; }}
    void silent(int* x) {{ k<<<1, {block}, {shared}>>>(x); }}
    int asking(int* x) {{ k<<<1, {block}, {shared}>>>(x); return cudaGetLastError(); }}
    int opted(int* x) {{
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared});
        k<<<1, 32, {shared}>>>(x);
        return cudaGetLastError();
    }}
    """
    x = torch.zeros(1, dtype=torch.int32)
    file = cu(text, "silent", "asking", "opted")
    with pytest.raises(CudaError, match=f"launch: k at kernel.cu:2, .*{message}"):
        file.silent(x)
    assert file.asking(x) != 0 and x.item() == 0
    assert file.opted(x) == 0 and x.item() == 1


def test_ctrl_c_ends_a_launch(tmp_path):
    (tmp_path / "k.cu").write_text("__global__ void k(volatile int* x) { while (x[0] == 0) {} }\n")
    script = f"""
import torch
from flash_attest.emulator.cuda import load
from tests.emulator.cuda.ctrl_c import press
k = load({str(tmp_path / "k.cu")!r}, "k").k
press(after=0.5)
try:
    k.launch(1, 1)(torch.zeros(1, dtype=torch.int32))
except KeyboardInterrupt:
    print("interrupted")
"""
    assert python("-c", script).stdout == "interrupted\n"
