// Asynchronous copies into shared memory (cp.async): visible to their own thread after it has
// waited, and to others after a barrier that follows. See barriers.cu for the notation.

#include <cuda_pipeline.h>

// A thread reads its own copy of 4, 8 or 16 bytes.
//: own_copy<1, true><<<1, 32>>>(x=ramp(128), out=zeros(32)) -> out = x[:32]
//: own_copy<2, true><<<1, 32>>>(x=ramp(128), out=zeros(32)) -> out = x[:64:2]
//: own_copy<4, true><<<1, 32>>>(x=ramp(128), out=zeros(32)) -> out = x[::4]
//: own_copy<4, false><<<1, 32>>>(x=ramp(128), out=zeros(32)) -> async tile get copy?; maybe uninitialised tile get
template <int FLOATS, bool WAITED>
__global__ void own_copy(const float* x, float* out) {
    __shared__ __align__(16) float tile[128];
    int at = FLOATS * threadIdx.x;
    __pipeline_memcpy_async(&tile[at], &x[at], 4 * FLOATS);  //! copy
    __pipeline_commit();
    if (WAITED) __pipeline_wait_prior(0);
    out[threadIdx.x] = tile[at];  //! get
}

// Threads read each other's copies: after a wait and then a barrier.
//: others_copy<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
//: others_copy<false><<<1, 64>>>(x=ramp(64), out=zeros(64))
//:     -> race tile copy|wait get; maybe uninitialised tile get; maybe async tile get copy?
template <bool FENCED>
__global__ void others_copy(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    __pipeline_memcpy_async(&tile[i], &x[i], 4);  //! copy
    __pipeline_commit();
    __pipeline_wait_prior(0);  //! wait
    if (FENCED) __syncthreads();
    out[i] = tile[63 - i];  //! get
}

// A barrier does not wait for copies.
//: not_waited_for<<<1, 64>>>(x=ramp(64), out=zeros(64))
//:     -> async tile get copy?; maybe uninitialised tile get; maybe race tile copy|wait get
__global__ void not_waited_for(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    __pipeline_memcpy_async(&tile[i], &x[i], 4);  //! copy
    __pipeline_commit();
    __syncthreads();
    out[i] = tile[63 - i];  //! get
    __pipeline_wait_prior(0);  //! wait
}

// A write while the copy is under way.
//: overwritten<true><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> out = zeros(32)
//: overwritten<false><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> async tile put copy?
template <bool WAITED>
__global__ void overwritten(const float* x, float* out) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    __pipeline_memcpy_async(&tile[i], &x[i], 4);  //! copy
    __pipeline_commit();
    if (WAITED) __pipeline_wait_prior(0);
    tile[i] = 0;  //! put
    __pipeline_wait_prior(0);
    __syncthreads();
    out[i] = tile[31 - i];
}

// Two stages: while one tile is used, the next is copied. It needs a wait for all but PENDING
// groups, and a barrier before the next copy overwrites what others may still read.
//: two_stages<1, true><<<1, 16>>>(x=ramp(256), out=zeros(16)) -> out = x.view(4, 16, 4).flip(1).sum((0, 2))
//: two_stages<0, true><<<1, 16>>>(x=ramp(256), out=zeros(16)) -> out = x.view(4, 16, 4).flip(1).sum((0, 2))
//: two_stages<2, true><<<1, 16>>>(x=ramp(256), out=zeros(16))
//:     -> async tile get copy?; maybe async tile copy; maybe uninitialised tile get; maybe race tile copy|wait get
//: two_stages<1, false><<<1, 16>>>(x=ramp(256), out=zeros(16))
//:     -> race tile copy|wait get; maybe async tile get copy?
template <int PENDING, bool FENCED>
__global__ void two_stages(const float* x, float* out) {
    __shared__ __align__(16) float tile[2][64];
    int i = threadIdx.x;
    float sum = 0;
    x += 4 * i;
    for (int step = -1; step < 4; step++) {
        int next = step + 1;
        if (next < 4) __pipeline_memcpy_async(&tile[next % 2][4 * i], x + 64 * next, 16);  //! copy
        __pipeline_commit();
        if (step < 0) continue;
        __pipeline_wait_prior(PENDING);  //! wait
        __syncthreads();
        for (int k = 0; k < 4; k++) sum += tile[step % 2][4 * (15 - i) + k];  //! get
        if (FENCED) __syncthreads();
    }
    out[i] = sum;
}

// A tail: the source is read up to its end, and the rest becomes zero.
//: zero_filled<true><<<1, 32>>>(x=ramp(20), out=zeros(32), n=20) -> out = cat((zeros(12), x.flip(0)))
//: zero_filled<false><<<1, 32>>>(x=ramp(20), out=zeros(32), n=20) -> outside x copy; unsafe
template <bool FILLED>
__global__ void zero_filled(const float* x, float* out, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    __pipeline_memcpy_async(&tile[i], &x[i], 4, FILLED && i >= n ? 4 : 0);  //! copy
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[i] = tile[31 - i];
}
