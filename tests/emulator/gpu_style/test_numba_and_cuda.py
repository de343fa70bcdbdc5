"""A kernel in Numba and one in CUDA C++, on GPU tensors."""

import math

import pytest
import torch

cuda = pytest.importorskip("numba.cuda")
pytestmark = pytest.mark.skipif(not cuda.is_available() or not torch.cuda.is_available(), reason="needs a GPU")


@cuda.jit
def saxpy_kernel(a, x, y):
    i = cuda.grid(1)
    if i < x.shape[0]:
        y[i] += a * x[i]


@pytest.mark.parametrize("n", [1, 1000])
def test_numba(n):
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    want = 3 * x + y
    saxpy_kernel[math.ceil(n / 128), 128](3.0, cuda.as_cuda_array(x), cuda.as_cuda_array(y))
    cuda.synchronize()
    torch.testing.assert_close(y, want)


def test_numba_arrays_become_tensors():
    x = cuda.to_device(torch.arange(5.0).numpy())
    tensor = torch.as_tensor(x, device="cuda")
    assert tensor.is_cuda and tensor.tolist() == [0, 1, 2, 3, 4]
    tensor += 1
    assert x.copy_to_host().tolist() == [1, 2, 3, 4, 5]


SOURCE = """
extern "C" __global__ void reversed(const float* x, float* out, int n) {
    __shared__ float tile[256];
    int i = threadIdx.x;
    if (i < n) tile[i] = x[i];
    __syncthreads();
    if (i < n) out[i] = tile[n - 1 - i];
}
"""


def test_cuda_cpp():
    kernel = torch.cuda._compile_kernel(SOURCE, "reversed")
    x = torch.randn(200, device="cuda")
    out = torch.empty_like(x)
    kernel(grid=(1, 1, 1), block=(256, 1, 1), args=[x, out, 200])
    torch.testing.assert_close(out, x.flip(0))
