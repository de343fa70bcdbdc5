// Kernels for sm_90a: six that use the asynchronous proxy, each in its own way, and an ordinary one.
#include <cstdint>
#include <cuda_fp16.h>
__device__ __forceinline__ uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

extern "C" __global__ void bulk(const float* x, float* y) {
    __shared__ alignas(128) float tile[256];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem(&bar)));
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(smem(&bar)) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(smem(tile)), "l"(x), "r"(smem(&bar)) : "memory");
    }
    asm volatile("{ .reg .pred p; w: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra w; }" ::"r"(smem(&bar)) : "memory");
    y[threadIdx.x] = tile[threadIdx.x];
}
struct alignas(64) Map { uint64_t words[16]; };
extern "C" __global__ void tma(const __grid_constant__ Map map, float* y) {
    __shared__ alignas(128) float tile[256];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem(&bar)));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(smem(tile)), "l"(&map), "r"(smem(&bar)), "r"(0), "r"(0) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(smem(tile)), "r"(0), "r"(0) : "memory");
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(smem(tile)), "r"(0), "r"(0) : "memory");
    }
    y[threadIdx.x] = tile[threadIdx.x];
}
extern "C" __global__ void wgmma(uint64_t a, uint64_t b, float* y) {
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("{ wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0; }" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
    y[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void barrier_alone(float* y) {
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(smem(&bar)));
    __syncthreads();
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(smem(&bar)) : "memory");
    y[threadIdx.x] = 1;
}
extern "C" __global__ void copies_to_a_barrier(const float* x, float* y) {
    __shared__ alignas(16) float tile[256];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(smem(&bar)));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(smem(tile + 4 * threadIdx.x)), "l"(x + 4 * threadIdx.x));
    asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(smem(&bar)) : "memory");
    y[threadIdx.x] = tile[threadIdx.x];
}
template <int N> __global__ void ordinary(const float* x, float* y) {
    __shared__ float tile[256];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(smem(tile + 4 * threadIdx.x)), "l"(x + 4 * threadIdx.x));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    y[threadIdx.x] = tile[(threadIdx.x + N) % 256];
}
template __global__ void ordinary<1>(const float*, float*);
