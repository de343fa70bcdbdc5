// Bounds, alignment, uninitialised memory, failing launches, assertions. See barriers.cu for the
// notation.

#include <cassert>

#include <cuda_runtime.h>

//: bounds<0, 0><<<2, 64>>>(x=ramp(100), out=zeros(100), n=100) -> out = x
//: bounds<1, 0><<<2, 64>>>(x=ramp(100), out=zeros(100), n=100) -> outside x get; unsafe
//: bounds<-1, 0><<<2, 64>>>(x=ramp(100), out=zeros(100), n=100) -> outside x get; unsafe
//: bounds<0, 1><<<2, 64>>>(x=ramp(100), out=zeros(100), n=100) -> outside out put; unsafe
//: bounds<0, -1><<<2, 64>>>(x=ramp(100), out=zeros(100), n=100) -> outside out put; unsafe
template <int READ, int WRITE>
__global__ void bounds(const float* x, float* out, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    float v = x[i + READ];  //! get
    out[i + WRITE] = v;     //! put
}

// An optional output.
//: optional<true><<<1, 32>>>(x=ramp(32), out=zeros(32), twice=None) -> out = x
//: optional<true><<<1, 32>>>(x=ramp(32), out=zeros(32), twice=zeros(32)) -> out = x; twice = 2 * x
//: optional<false><<<1, 32>>>(x=ramp(32), out=zeros(32), twice=None) -> outside * put; raises
template <bool ASKED>
__global__ void optional(const float* x, float* out, float* twice) {
    int i = threadIdx.x;
    out[i] = x[i];
    if (!ASKED || twice) twice[i] = 2 * x[i];  //! put
}

//: far_away<<<1, 1>>>(x=ramp(4), out=zeros(1)) -> outside * get; raises
__global__ void far_away(const float* x, float* out) {
    out[0] = x[-(1LL << 40)];  //! get
}

//: four_at_once<0><<<1, 16>>>(x=ramp(68), out=zeros(64)) -> out = x[:64]
//: four_at_once<4><<<1, 16>>>(x=ramp(68), out=zeros(64)) -> out = x[4:]
//: four_at_once<2><<<1, 16>>>(x=ramp(68), out=zeros(64)) -> misaligned x get; unsafe
//: four_at_once<0><<<1, 16>>>(x=ramp(62), out=zeros(64)) -> outside x get; unsafe
template <int FROM>
__global__ void four_at_once(const float* x, float* out) {
    float4 v = reinterpret_cast<const float4*>(x + FROM)[threadIdx.x];  //! get
    reinterpret_cast<float4*>(out)[threadIdx.x] = v;
}

//: two_at_once<2><<<1, 32>>>(x=ramp(64), out=zeros(66)) -> out = cat((zeros(2), x))
//: two_at_once<1><<<1, 32>>>(x=ramp(64), out=zeros(66)) -> misaligned out put; unsafe
template <int TO>
__global__ void two_at_once(const float* x, float* out) {
    float2 v = reinterpret_cast<const float2*>(x)[threadIdx.x];
    reinterpret_cast<float2*>(out + TO)[threadIdx.x] = v;  //! put
}

//: beyond_the_tile<0, 0><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x
//: beyond_the_tile<0, 1><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> outside tile get; unsafe
//: beyond_the_tile<1, 1><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> outside tile put; outside tile get; unsafe
template <int PUT, int GET>
__global__ void beyond_the_tile(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i + PUT] = x[i];  //! put
    __syncthreads();
    out[i] = tile[i + GET];  //! get
}

//: asked_for<<<1, 64, 256>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
//: asked_for<<<1, 64, 252>>>(x=ramp(64), out=zeros(64)) -> outside dynamic put; outside dynamic get; unsafe
//: asked_for<<<1, 64>>>(x=ramp(64), out=zeros(64)) -> outside dynamic put; outside dynamic get; unsafe
__global__ void asked_for(const float* x, float* out) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];  //! put
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];  //! get
}

// A tile of 64 for 40 elements: the rest is zero; or is not written; the first block alone writes
// it; no thread writes it.
//: filled<0><<<2, 64>>>(x=ramp(40), out=zeros(2), n=40) -> out = x.sum()
//: filled<1><<<2, 64>>>(x=ramp(40), out=zeros(2), n=40) -> uninitialised tile get
//: filled<2><<<2, 64>>>(x=ramp(40), out=zeros(2), n=40) -> uninitialised tile get
//: filled<3><<<2, 64>>>(x=ramp(40), out=zeros(2), n=40) -> uninitialised tile get
template <int HOW>
__global__ void filled(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    bool fills = HOW == 0 || HOW == 1 && i < n || HOW == 2 && blockIdx.x == 0 || HOW == 3 && n > 64;
    if (fills) tile[i] = i < n ? x[i] : 0;
    __syncthreads();
    if (i > 0) return;
    float sum = 0;
    for (int k = 0; k < 64; k++) sum += tile[k];  //! get
    out[blockIdx.x] = sum;
}

//: scratch(x=ramp(64), out=zeros(64), clear=True) -> out = x
//: scratch(x=ramp(64), out=zeros(64), clear=False) -> uninitialised * get
__global__ void add_to(const float* x, const float* memory, float* out) {
    out[threadIdx.x] = x[threadIdx.x] + memory[threadIdx.x];  //! get
}

void scratch(const float* x, float* out, bool clear) {
    float* memory;
    cudaMalloc(&memory, 64 * sizeof(float));
    if (clear) cudaMemset(memory, 0, 64 * sizeof(float));
    add_to<<<1, 64>>>(x, memory, out);
    cudaFree(memory);
}

//: own_array<<<1, 32>>>(x=draws(32, 8), out=zeros(32, 8)) -> out = x.sort(1).values
__global__ void own_array(const float* x, float* out) {
    float row[8];
    for (int k = 0; k < 8; k++) row[k] = x[8 * threadIdx.x + k];
    for (int k = 1; k < 8; k++) {
        float v = row[k];
        int at = k;
        for (; at > 0 && row[at - 1] > v; at--) row[at] = row[at - 1];
        row[at] = v;
    }
    for (int k = 0; k < 8; k++) out[8 * threadIdx.x + k] = row[k];
}

__constant__ float taps[3] = {0.25f, 0.5f, 0.25f};
__device__ float shifts[4];
__device__ int total;

//: smoothed(x=ramp(66) ** 2, shift=ramp(4), out=zeros(64))
//:     -> out = x.unfold(0, 3, 1) @ tensor([.25, .5, .25]) + shift.repeat(16)
__global__ void smooth(const float* x, float* out) {
    int i = threadIdx.x;
    float sum = shifts[i % 4];
    for (int k = 0; k < 3; k++) sum += taps[k] * __ldg(&x[i + k]);
    out[i] = sum;
}

void smoothed(const float* x, const float* shift, float* out) {
    cudaMemcpyToSymbol(shifts, shift, sizeof(shifts), 0, cudaMemcpyDeviceToDevice);
    smooth<<<1, 64>>>(x, out);
}

//: count_all<true>(out=zeros(1, dtype=int32)) -> out = 64
//: count_all<false>(out=zeros(1, dtype=int32)) -> race total add add
template <bool ATOMIC>
__global__ void count() {
    if (ATOMIC) {
        atomicAdd(&total, 1);
    } else {
        total += 1;  //! add
    }
}

template <bool ATOMIC>
void count_all(int* out) {
    int none = 0;
    cudaMemcpyToSymbol(total, &none, sizeof(int));
    count<ATOMIC><<<2, 32>>>();
    cudaMemcpyFromSymbol(out, total, sizeof(int), 0, cudaMemcpyDeviceToDevice);
}

//: doubled<<<1, 1024>>>(x=ramp(2048), out=zeros(2048)) -> out = cat((2 * x[:1024], zeros(1024)))
//: doubled<<<1, 2048>>>(x=ramp(2048), out=zeros(2048)) -> launch *
//: doubled<<<1, 1024, 65536>>>(x=ramp(2048), out=zeros(2048)) -> launch *
//: doubled<<<(1, 70000), 32>>>(x=ramp(2048), out=zeros(2048)) -> launch *
//: doubled<<<1, (4, 4, 128)>>>(x=ramp(2048), out=zeros(2048)) -> launch *
//: doubled<<<0, 64>>>(x=ramp(2048), out=zeros(2048)) -> launch *
__global__ void doubled(const float* x, float* out) {
    out[threadIdx.x] = 2 * x[threadIdx.x];
}

// A launch that fails, and the host checks; one that succeeds, because the host has opted in to
// more shared memory.
//: host_asks(x=ramp(2048), out=zeros(2048)) -> out = cat((2 * x[:1024], zeros(1024)))
//: opted_in(x=ramp(2048), out=zeros(2048)) -> out = cat((2 * x[:64], zeros(1984)))
void host_asks(const float* x, float* out) {
    doubled<<<1, 2048>>>(x, out);
    if (cudaGetLastError() != cudaSuccess) doubled<<<1, 1024>>>(x, out);
}

void opted_in(const float* x, float* out) {
    cudaFuncSetAttribute(doubled, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
    doubled<<<1, 64, 65536>>>(x, out);
    cudaFuncSetAttribute(doubled, cudaFuncAttributeMaxDynamicSharedMemorySize, 0);
}

//: checked<0><<<1, 32>>>(x=ramp(32), out=zeros(32), n=4) -> out = x
//: checked<0><<<1, 32>>>(x=ramp(32) - 3, out=zeros(32), n=4) -> trap * assert
//: checked<1><<<1, 32>>>(x=ramp(32), out=zeros(32), n=4) -> out = x
//: checked<1><<<1, 32>>>(x=ramp(32) - 3, out=zeros(32), n=4) -> trap * trap
template <int HOW>
__global__ void checked(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (HOW == 0) assert(v >= 0);     //! assert
    if (HOW == 1 && v < 0) __trap();  //! trap
    out[threadIdx.x] = v;
}

//: divided<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32), by=4) -> out = x // 4
//: divided<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32), by=0) -> trap * divide
__global__ void divided(const int* x, int* out, int by) {
    out[threadIdx.x] = x[threadIdx.x] / by;  //! divide
}

// Sums that were not set to zero.
//: never_zeroed<0><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> out = 2 * x
//: never_zeroed<1><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> uninitialised sums add
//: never_zeroed<2><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> uninitialised sums update
template <int HOW>
__global__ void never_zeroed(const float* x, float* out) {
    __shared__ float sums[32];
    int i = threadIdx.x;
    if (HOW == 0) sums[i] = x[i];
    if (HOW == 1) sums[i] += x[i];  //! add
    if (HOW == 2) atomicAdd(&sums[i], x[i]);  //! update
    __syncthreads();
    out[i] = sums[i] + x[i];
}

// Shared memory does not last from one launch to the next.
//: in_two_launches(x=ramp(64), out=zeros(64)) -> uninitialised dynamic get
__global__ void first_half(const float* x) {
    extern __shared__ float kept[];
    kept[threadIdx.x] = x[threadIdx.x];
}

__global__ void second_half(float* out) {
    extern __shared__ float kept[];
    out[threadIdx.x] = kept[threadIdx.x];  //! get
}

void in_two_launches(const float* x, float* out) {
    first_half<<<1, 64, 256>>>(x);
    second_half<<<1, 64, 256>>>(out);
}
