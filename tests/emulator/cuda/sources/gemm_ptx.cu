// c = a b for row-major half matrices, in inline PTX: cp.async into two buffers, ldmatrix,
// mma.sync. A block of four warps computes 64 x 64 of c, each warp 16 rows. m, n and k are
// multiples of 64, 64 and 32.
#include <cuda_fp16.h>

#include <cstdint>

#ifndef PENDING
#define PENDING 1  // groups of copies that may be under way while a tile is used: the next tile's
#endif

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 32;
constexpr int ROW_A = TILE_K + 8, ROW_B = TILE_N + 8;  // padded, so that ldmatrix reads from different banks

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

__device__ void copy_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");  //! copy
}

__device__ void load_matrices(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");  //! left
}

__device__ void load_transposed(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");  //! right
}

__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void gemm_kernel(const half* a, const half* b, float* c, int n, int k) {
    __shared__ __align__(16) half tile_a[2][TILE_M][ROW_A];
    __shared__ __align__(16) half tile_b[2][TILE_K][ROW_B];
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    auto copy = [&](int step) {
        for (int i = thread; i < TILE_M * TILE_K / 8; i += 128) {
            int y = i / (TILE_K / 8), x = i % (TILE_K / 8) * 8;
            copy_16(&tile_a[step % 2][y][x], &a[(row + y) * k + step * TILE_K + x]);
        }
        for (int i = thread; i < TILE_K * TILE_N / 8; i += 128) {
            int y = i / (TILE_N / 8), x = i % (TILE_N / 8) * 8;
            copy_16(&tile_b[step % 2][y][x], &b[(step * TILE_K + y) * n + column + x]);
        }
    };
    float sums[TILE_N / 8][4] = {};
    int steps = k / TILE_K;
    copy(0);
    asm volatile("cp.async.commit_group;");
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) copy(step + 1);
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
        __syncthreads();  //! filled
        for (int kk = 0; kk < TILE_K; kk += 16) {
            uint32_t left[4];
            load_matrices(left, &tile_a[step % 2][warp * 16 + lane % 16][kk + lane / 16 * 8]);
            for (int j = 0; j < TILE_N / 8; j++) {
                uint32_t right[2];
                load_transposed(right, &tile_b[step % 2][kk + lane % 16][j * 8]);
                multiply_add(sums[j], left, right);
            }
        }
        __syncthreads();  //! emptied
    }
    for (int j = 0; j < TILE_N / 8; j++) {
        float* at = &c[(row + warp * 16 + lane / 4) * n + column + j * 8 + lane % 4 * 2];
        at[0] = sums[j][0], at[1] = sums[j][1];
        at[8 * n] = sums[j][2], at[8 * n + 1] = sums[j][3];
    }
}

int gemm(const half* a, const half* b, float* c, int m, int n, int k) {
    gemm_kernel<<<dim3(n / TILE_N, m / TILE_M), 128>>>(a, b, c, n, k);
    return cudaGetLastError();
}
