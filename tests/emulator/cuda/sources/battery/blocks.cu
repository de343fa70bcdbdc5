// Grids: blocks of one launch are not ordered, launches are. Strides, shapes of blocks and grids,
// adjacent rows. See barriers.cu for the notation.

#include <cuda_runtime.h>

//: strided<true><<<2, 64>>>(x=ramp(300), out=zeros(300), n=300) -> out = 2 * x
//: strided<false><<<2, 64>>>(x=ramp(300), out=zeros(300), n=300) -> race out put put same
template <bool BY_GRID>
__global__ void strided(const float* x, float* out, int n) {
    int step = BY_GRID ? gridDim.x * blockDim.x : blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = 2 * x[i];  //! put
}

// Each thread of a 3-D grid of 3-D blocks has a cell of its own; the faulty kernel omits z.
//: numbered<true><<<(2, 3, 2), (4, 2, 3)>>>(out=zeros(288, dtype=int32)) -> out = ints(288)
//: numbered<false><<<(2, 3, 2), (4, 2, 3)>>>(out=zeros(288, dtype=int32)) -> race out put put different
template <bool Z>
__global__ void numbered(int* out) {
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int cell = Z ? thread : threadIdx.x + blockDim.x * threadIdx.y;
    out[24 * block + cell] = 24 * block + thread;  //! put
}

// Warps of a 2-D block are made of threads in the order of x, then y.
//: warps_of_a_2d_block<<<1, (16, 4)>>>(out=zeros(4, 16)) -> out = tensor([240, 240, 752, 752])[:, None].expand(4, 16)
__global__ void warps_of_a_2d_block(float* out) {
    float sum = threadIdx.x;
    for (int m = 8; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffff, sum, m);
    out[16 * threadIdx.y + threadIdx.x] = sum + __shfl_xor_sync(0xffffffff, sum, 16) + 256 * (threadIdx.y / 2 * 2);
}

// A block of 64 for a row of 40: without a check of the column it writes into the next row, too.
//: rows<true><<<3, 64>>>(x=ramp(120), out=zeros(120), cols=40, total=120) -> out = x + 1
//: rows<false><<<3, 64>>>(x=ramp(120), out=zeros(120), cols=40, total=120) -> race out put put same
template <bool GUARDED>
__global__ void rows(const float* x, float* out, int cols, int total) {
    int col = threadIdx.x, at = blockIdx.x * cols + col;
    if (GUARDED ? col < cols : at < total) out[at] = x[at] + 1;  //! put
}

// In place, with a barrier between reading and writing: correct for one block, not for two.
//: shifted<<<1, 64>>>(x=ramp(65)) -> x = cat((x[1:], x[-1:]))
//: shifted<<<2, 64>>>(x=ramp(129)) -> race x get put
__global__ void shifted(float* x) {
    int i = blockIdx.x * 64 + threadIdx.x;
    float v = x[i + 1];  //! get
    __syncthreads();
    x[i] = v;  //! put
}

// Reads of what another block wrote: ordered in a second launch, not in the same one.
//: through_memory<<<1, 64>>>(x=ramp(64), middle=zeros(64), out=zeros(64), n=64) -> out = 2 * x.flip(0)
//: through_memory<<<2, 64>>>(x=ramp(128), middle=zeros(128), out=zeros(128), n=128) -> race middle put get
__global__ void through_memory(const float* x, float* middle, float* out, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    middle[i] = 2 * x[i];  //! put
    __syncthreads();
    out[i] = middle[n - 1 - i];  //! get
}

//: two_launches(x=ramp(128), middle=zeros(128), out=zeros(128), n=128) -> out = 4 * x
__global__ void flipped_double(const float* x, float* out, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    out[n - 1 - i] = 2 * x[i];
}

void two_launches(const float* x, float* middle, float* out, int n) {
    flipped_double<<<n / 64, 64>>>(x, middle, n);
    flipped_double<<<n / 64, 64>>>(middle, out, n);
}

// Each block has a tile of its own, of the same name.
//: own_tile<<<4, 64>>>(x=ramp(256), out=zeros(256)) -> out = x.view(4, 64).flip(1).view(-1)
__global__ void own_tile(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x, base = blockIdx.x * 64;
    tile[i] = x[base + i];
    __syncthreads();
    out[base + i] = tile[63 - i];
}

// The mean of each block, by its first thread; or of all blocks, into one cell.
//: means<true><<<4, 32>>>(x=ramp(128), out=zeros(4)) -> out = x.view(4, 32).mean(1)
//: means<false><<<4, 32>>>(x=ramp(128), out=zeros(4)) -> race out put put different
template <bool APART>
__global__ void means(const float* x, float* out) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * 32 + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) out[APART ? blockIdx.x : 0] = sum / 32;  //! put
}

// Lengths per block: loops, barriers and exits differ between blocks, which is allowed.
//: ragged<<<3, 32>>>(x=ramp(96), lengths=tensor([96, 0, 33], dtype=int32), out=zeros(3))
//:     -> out = tensor([4560.0, 0.0, 528.0])
__global__ void ragged(const float* __restrict__ x, const int* __restrict__ lengths, float* out) {
    __shared__ float tile[32];
    int i = threadIdx.x, n = lengths[blockIdx.x];
    if (n == 0) return;
    float sum = 0;
    for (int base = 0; base < n; base += 32) {
        tile[i] = base + i < n ? x[base + i] : 0;
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += tile[k];
        __syncthreads();
    }
    if (i == 0) out[blockIdx.x] = sum;
}

struct Affine {
    float scale, shift;
    int n;
    __device__ float operator()(float v) const { return scale * v + shift; }
};

//: affine(x=ramp(100), out=zeros(100), n=100) -> out = 3 * x - 1
__global__ void affine_kernel(const float* x, float* out, Affine f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < f.n) out[i] = f(x[i]);
}

void affine(const float* x, float* out, int n) {
    dim3 block(32), grid((n + 31) / 32);
    affine_kernel<<<grid, block>>>(x, out, Affine{3, -1, n});
    cudaDeviceSynchronize();
}

// The last cell of a segment is the first of the next, so two blocks write it.
//: segments_of<16><<<4, 16>>>(x=ramp(65), out=zeros(65)) -> out = cat((x[:64], zeros(1)))
//: segments_of<17><<<4, 17>>>(x=ramp(65), out=zeros(65)) -> race out put put same
template <int LENGTH>
__global__ void segments_of(const float* x, float* out) {
    int i = 16 * blockIdx.x + threadIdx.x;
    if (threadIdx.x < LENGTH) out[i] = x[i];  //! put
}

// One tensor for two parameters: some threads write x while others read it.
//: next_one<<<1, 64>>>(x=ramp(65), out=zeros(64)) -> out = x[1:]
//: next_one<<<1, 64>>>(x=(both := ramp(65)), out=both) -> race * line line
__global__ void next_one(const float* x, float* out) {
    out[threadIdx.x] = x[threadIdx.x + 1];  //! line
}

// Blocks that fetch work: thread 0 takes the next item, all threads read it, and only then it may
// take another.
//: work_queue<true><<<2, 64>>>(x=ramp(320), taken=zeros(1, dtype=int32), out=zeros(320), n=5) -> out = 2 * x; taken = 7
//: work_queue<false><<<2, 64>>>(x=ramp(320), taken=zeros(1, dtype=int32), out=zeros(320), n=5)
//:     -> race item take look; maybe barrier * wait
template <bool FENCED>
__global__ void work_queue(const float* x, int* taken, float* out, int n) {
    __shared__ int item;
    while (true) {
        if (threadIdx.x == 0) item = atomicAdd(taken, 1);  //! take
        __syncthreads();  //! wait
        int mine = item;  //! look
        if (FENCED) __syncthreads();
        if (mine >= n) break;
        out[64 * mine + threadIdx.x] = 2 * x[64 * mine + threadIdx.x];
    }
}
