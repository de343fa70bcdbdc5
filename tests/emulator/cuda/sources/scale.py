"""A kernel of two lines and a host function that launches it, for tests of loading, calling and
compiling.
"""

SCALE = """\
#include <cuda_runtime.h>
template <class T>
__global__ void scale(T* out, const T* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = T(float(x[i]) * by);
}
int scale_all(float* out, const float* x, float by, int n) {
    scale<<<(n + 31) / 32, 32>>>(out, x, by, n);
    return cudaGetLastError();
}
"""
