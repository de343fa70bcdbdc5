// Tiles in shared memory as attention kernels use them: transposition, products, halos, softmax,
// flash attention. See barriers.cu for the notation.

#include <cuda_runtime.h>

//: transposed<true><<<(2, 2), (16, 4)>>>(x=draws(20, 18), out=zeros(18, 20), rows=20, cols=18) -> out = x.T
//: transposed<false><<<(2, 2), (16, 4)>>>(x=draws(20, 18), out=zeros(18, 20), rows=20, cols=18)
//:     -> race tile put get; maybe uninitialised tile get
template <bool FENCED>
__global__ void transposed(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[16][17];
    int row = blockIdx.y * 16, col = blockIdx.x * 16;
    for (int y = threadIdx.y; y < 16; y += 4)
        if (row + y < rows && col + threadIdx.x < cols)
            tile[y][threadIdx.x] = x[(row + y) * cols + col + threadIdx.x];  //! put
    if (FENCED) __syncthreads();
    for (int y = threadIdx.y; y < 16; y += 4)
        if (col + y < cols && row + threadIdx.x < rows)
            out[(col + y) * rows + row + threadIdx.x] = tile[threadIdx.x][y];  //! get
}

// a: M x K, b: K x N, in tiles of 8 x 8, with tails. A barrier after loading, and one before the
// next load.
//: product<true, true><<<(3, 2), (8, 8)>>>(a=draws(13, 20), b=draws(20, 18), c=zeros(13, 18), M=13, N=18, K=20)
//:     -> c = a @ b
//: product<false, true><<<(3, 2), (8, 8)>>>(a=draws(13, 20), b=draws(20, 18), c=zeros(13, 18), M=13, N=18, K=20)
//:     -> race as put_a get; race bs put_b get; maybe uninitialised as get; maybe uninitialised bs get
//: product<true, false><<<(3, 2), (8, 8)>>>(a=draws(13, 20), b=draws(20, 18), c=zeros(13, 18), M=13, N=18, K=20)
//:     -> race as put_a get; race bs put_b get
template <bool AFTER, bool BEFORE>
__global__ void product(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float as[8][8], bs[8][8];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 8) {
        as[y][x] = row < M && k0 + x < K ? a[row * K + k0 + x] : 0;    //! put_a
        bs[y][x] = col < N && k0 + y < K ? b[(k0 + y) * N + col] : 0;  //! put_b
        if (AFTER) __syncthreads();
        for (int k = 0; k < 8; k++) sum += as[y][k] * bs[k][x];  //! get
        if (BEFORE) __syncthreads();
    }
    if (row < M && col < N) c[row * N + col] = sum;
}

// Two arrays in one dynamic allocation: the second begins where the first ends; in the faulty
// kernel, before.
//: carved<64><<<1, 64, 512>>>(x=ramp(64), y=ramp(64) * 3, out=zeros(64)) -> out = (x + y).flip(0)
//: carved<60><<<1, 64, 512>>>(x=ramp(64), y=ramp(64) * 3, out=zeros(64)) -> race dynamic put_x put_y different
template <int LENGTH>
__global__ void carved(const float* x, const float* y, float* out) {
    extern __shared__ float memory[];
    float* xs = memory;
    float* ys = memory + LENGTH;
    int i = threadIdx.x;
    xs[i] = x[i];  //! put_x
    ys[i] = y[i];  //! put_y
    __syncthreads();
    out[i] = xs[63 - i] + ys[63 - i];
}

// The mean of three; the adjacent elements are loaded by the block's first and last thread, or by
// the first alone.
//: blurred<true><<<2, 32>>>(x=ramp(64) ** 2, out=zeros(64), n=64)
//:     -> out = cat((zeros(1), x, zeros(1))).unfold(0, 3, 1).sum(1) / 3
//: blurred<false><<<2, 32>>>(x=ramp(64) ** 2, out=zeros(64), n=64) -> uninitialised tile get
template <bool BOTH>
__global__ void blurred(const float* x, float* out, int n) {
    __shared__ float tile[34];
    int i = threadIdx.x, at = blockIdx.x * 32 + i;
    tile[i + 1] = x[at];
    if (i == 0) tile[0] = at > 0 ? x[at - 1] : 0;
    if (BOTH && i == 31) tile[33] = at + 1 < n ? x[at + 1] : 0;
    __syncthreads();
    out[at] = (tile[i] + tile[i + 1] + tile[i + 2]) / 3;  //! get
}

// Softmax of a row in one pass over its tiles, by a block of two warps: the warps combine their
// results in shared memory.
//: softmax_rows<true><<<3, 64>>>(x=draws(3, 150) * 4, out=zeros(3, 150), n=150) -> out = x.softmax(1)
//: softmax_rows<false><<<3, 64>>>(x=draws(3, 150) * 4, out=zeros(3, 150), n=150)
//:     -> race maxima put_max get; race sums put_sum get; maybe uninitialised maxima get; maybe uninitialised sums get
template <bool FENCED>
__global__ void softmax_rows(const float* x, float* out, int n) {
    __shared__ float maxima[2], sums[2];
    int i = threadIdx.x;
    float m = -INFINITY, l = 0;
    for (int k = i; k < n; k += 64) {
        float v = x[blockIdx.x * n + k], larger = fmaxf(m, v);
        l = l * expf(m - larger) + expf(v - larger);
        m = larger;
    }
    for (int s = 16; s > 0; s /= 2) {
        float m2 = __shfl_xor_sync(0xffffffff, m, s), l2 = __shfl_xor_sync(0xffffffff, l, s);
        float larger = fmaxf(m, m2);
        l = l * expf(m - larger) + l2 * expf(m2 - larger);
        m = larger;
    }
    if (i % 32 == 0) {
        maxima[i / 32] = m;  //! put_max
        sums[i / 32] = l;    //! put_sum
    }
    if (FENCED) __syncthreads();
    float m0 = maxima[0], m1 = maxima[1], l0 = sums[0], l1 = sums[1];  //! get
    float most = fmaxf(m0, m1);
    float sum = l0 * expf(m0 - most) + l1 * expf(m1 - most);
    for (int k = i; k < n; k += 64) out[blockIdx.x * n + k] = expf(x[blockIdx.x * n + k] - most) / sum;
}

// Flash attention, a query for each thread, keys and values in tiles of 16 rows and 4 columns in
// dynamic shared memory.
//: flash<true, true>(q=draws(40, 4), k=draws(37, 4), v=draws(37, 4), out=zeros(40, 4), lse=zeros(40), n=40, m=37)
//:     -> out = (q @ k.T / 2).softmax(1) @ v; lse = (q @ k.T / 2).logsumexp(1)
//: flash<false, true>(q=draws(40, 4), k=draws(37, 4), v=draws(37, 4), out=zeros(40, 4), lse=zeros(40), n=40, m=37)
//:     -> race dynamic put_k get_k; race dynamic put_v get_v; maybe uninitialised dynamic get_k;
//:     maybe uninitialised dynamic get_v
//: flash<true, false>(q=draws(40, 4), k=draws(37, 4), v=draws(37, 4), out=zeros(40, 4), lse=zeros(40), n=40, m=37)
//:     -> race dynamic put_k get_k; race dynamic put_v get_v
template <bool AFTER, bool BEFORE>
__global__ void flash_kernel(const float* q, const float* k, const float* v, float* out, float* lse, int n, int m) {
    constexpr int T = 16, D = 4;
    extern __shared__ float memory[];
    float *ks = memory, *vs = memory + T * D;
    int i = threadIdx.x, row = blockIdx.x * T + i;
    float most = -INFINITY, sum = 0, mine[D] = {}, acc[D] = {};
    for (int c = 0; c < D; c++) mine[c] = row < n ? q[row * D + c] : 0;
    for (int base = 0; base < m; base += T) {
        for (int c = 0; c < D && base + i < m; c++) {
            ks[i * D + c] = k[(base + i) * D + c];  //! put_k
            vs[i * D + c] = v[(base + i) * D + c];  //! put_v
        }
        if (AFTER) __syncthreads();
        for (int j = 0; j < T && base + j < m; j++) {
            float s = 0;
            for (int c = 0; c < D; c++) s += mine[c] * ks[j * D + c];  //! get_k
            s /= 2;
            float larger = fmaxf(most, s), p = expf(s - larger), old = expf(most - larger);
            sum = sum * old + p;
            for (int c = 0; c < D; c++) acc[c] = acc[c] * old + p * vs[j * D + c];  //! get_v
            most = larger;
        }
        if (BEFORE) __syncthreads();
    }
    if (row >= n) return;
    for (int c = 0; c < D; c++) out[row * D + c] = acc[c] / sum;
    lse[row] = most + logf(sum);
}

template <bool AFTER, bool BEFORE>
void flash(const float* q, const float* k, const float* v, float* out, float* lse, int n, int m) {
    flash_kernel<AFTER, BEFORE><<<(n + 15) / 16, 16, 2 * 16 * 4 * sizeof(float)>>>(q, k, v, out, lse, n, m);
}

// Raw dynamic memory, declared outside of the kernel: n floats, then n integers; in the faulty
// kernel with the sizes mixed up.
extern __shared__ __align__(16) unsigned char raw[];

//: sorted_order<4><<<1, 32, 256>>>(x=draws(32), order=zeros(32, dtype=int32)) -> order = x.argsort()
//: sorted_order<2><<<1, 32, 256>>>(x=draws(32), order=zeros(32, dtype=int32)) -> race dynamic key index
template <int SIZE>
__global__ void sorted_order(const float* x, int* order) {
    float* keys = reinterpret_cast<float*>(raw);
    int* indices = reinterpret_cast<int*>(raw + SIZE * blockDim.x);
    int i = threadIdx.x, rank = 0;
    keys[i] = x[i];  //! key
    indices[i] = i;  //! index
    __syncthreads();
    for (int k = 0; k < 32; k++) rank += x[k] < keys[i];
    order[SIZE == 4 ? rank : i] = indices[i];
}

// The sum of a block: by shuffles in each warp, then in the first warp over the sums of the warps;
// there are two.
//: block_total<true, true><<<2, 64>>>(x=ramp(128), out=zeros(2)) -> out = x.view(2, 64).sum(1)
//: block_total<false, true><<<2, 64>>>(x=ramp(128), out=zeros(2)) -> uninitialised sums get
//: block_total<true, false><<<2, 64>>>(x=ramp(128), out=zeros(2)) -> race sums put get; maybe uninitialised sums get
template <bool GUARDED, bool FENCED>
__global__ void block_total(const float* x, float* out) {
    __shared__ float sums[32];
    int i = threadIdx.x, lane = i % 32;
    float v = x[blockIdx.x * 64 + i];
    for (int m = 16; m > 0; m /= 2) v += __shfl_down_sync(0xffffffff, v, m);
    if (lane == 0) sums[i / 32] = v;  //! put
    if (FENCED) __syncthreads();
    if (i >= 32) return;
    v = !GUARDED || lane < blockDim.x / 32 ? sums[lane] : 0;  //! get
    for (int m = 16; m > 0; m /= 2) v += __shfl_down_sync(0xffffffff, v, m);
    if (i == 0) out[blockIdx.x] = v;
}
