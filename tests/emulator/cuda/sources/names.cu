// A broad selection of functions of device and host code, compiled with the shim and, if it is
// installed, with nvcc: names, parameters and results must be CUDA's. Nothing here is run.
#include <cassert>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <vector_types.h>

// ---- sizes and values ---------------------------------------------------------------------------

#define SIZE(type, size, alignment) static_assert(sizeof(type) == size && alignof(type) == alignment, #type)
SIZE(char3, 3, 1); SIZE(char4, 4, 4); SIZE(uchar2, 2, 2); SIZE(uchar4, 4, 4);
SIZE(short2, 4, 4); SIZE(short3, 6, 2); SIZE(ushort4, 8, 8);
SIZE(int1, 4, 4); SIZE(int2, 8, 8); SIZE(int3, 12, 4); SIZE(int4, 16, 16); SIZE(uint4, 16, 16);
SIZE(long2, 16, 16); SIZE(longlong1, 8, 8); SIZE(longlong2, 16, 16); SIZE(ulonglong3, 24, 8);
SIZE(float1, 4, 4); SIZE(float2, 8, 8); SIZE(float3, 12, 4); SIZE(float4, 16, 16);
SIZE(double2, 16, 16); SIZE(double3, 24, 8); SIZE(dim3, 12, 4);
SIZE(__half, 2, 2); SIZE(__half2, 4, 4); SIZE(__nv_bfloat16, 2, 2); SIZE(__nv_bfloat162, 4, 4);
SIZE(half, 2, 2); SIZE(half2, 4, 4); SIZE(nv_bfloat16, 2, 2); SIZE(nv_bfloat162, 4, 4); SIZE(__half_raw, 2, 2);

#define VALUE(name, value) static_assert(name == value, #name)
VALUE(cudaSuccess, 0); VALUE(cudaErrorInvalidValue, 1); VALUE(cudaErrorMemoryAllocation, 2);
VALUE(cudaErrorInitializationError, 3); VALUE(cudaErrorCudartUnloading, 4);
VALUE(cudaErrorInvalidConfiguration, 9); VALUE(cudaErrorInvalidPitchValue, 12); VALUE(cudaErrorInvalidSymbol, 13);
VALUE(cudaErrorInvalidDevicePointer, 17); VALUE(cudaErrorInvalidMemcpyDirection, 21);
VALUE(cudaErrorInsufficientDriver, 35); VALUE(cudaErrorInvalidDeviceFunction, 98);
VALUE(cudaErrorNoDevice, 100); VALUE(cudaErrorInvalidDevice, 101); VALUE(cudaErrorInvalidKernelImage, 200);
VALUE(cudaErrorNoKernelImageForDevice, 209); VALUE(cudaErrorInvalidPtx, 218);
VALUE(cudaErrorInvalidResourceHandle, 400); VALUE(cudaErrorSymbolNotFound, 500); VALUE(cudaErrorNotReady, 600);
VALUE(cudaErrorIllegalAddress, 700); VALUE(cudaErrorLaunchOutOfResources, 701); VALUE(cudaErrorLaunchTimeout, 702);
VALUE(cudaErrorPeerAccessAlreadyEnabled, 704); VALUE(cudaErrorAssert, 710);
VALUE(cudaErrorHardwareStackError, 714); VALUE(cudaErrorIllegalInstruction, 715);
VALUE(cudaErrorMisalignedAddress, 716); VALUE(cudaErrorInvalidAddressSpace, 717); VALUE(cudaErrorInvalidPc, 718);
VALUE(cudaErrorLaunchFailure, 719); VALUE(cudaErrorCooperativeLaunchTooLarge, 720);
VALUE(cudaErrorNotPermitted, 800); VALUE(cudaErrorNotSupported, 801); VALUE(cudaErrorUnknown, 999);

VALUE(cudaMemcpyHostToHost, 0); VALUE(cudaMemcpyHostToDevice, 1); VALUE(cudaMemcpyDeviceToHost, 2);
VALUE(cudaMemcpyDeviceToDevice, 3); VALUE(cudaMemcpyDefault, 4);
VALUE(cudaFuncAttributeMaxDynamicSharedMemorySize, 8); VALUE(cudaFuncAttributePreferredSharedMemoryCarveout, 9);
VALUE(cudaFuncAttributeNonPortableClusterSizeAllowed, 14); VALUE(cudaSharedmemCarveoutMaxShared, 100);
VALUE(cudaFuncCachePreferL1, 2); VALUE(cudaLimitMallocHeapSize, 2); VALUE(cudaMemoryTypeManaged, 3);
VALUE(cudaStreamNonBlocking, 1); VALUE(cudaEventDisableTiming, 2); VALUE(cudaHostAllocMapped, 2);

VALUE(cudaDevAttrMaxThreadsPerBlock, 1); VALUE(cudaDevAttrMaxBlockDimX, 2); VALUE(cudaDevAttrMaxGridDimX, 5);
VALUE(cudaDevAttrMaxSharedMemoryPerBlock, 8); VALUE(cudaDevAttrTotalConstantMemory, 9); VALUE(cudaDevAttrWarpSize, 10);
VALUE(cudaDevAttrMaxRegistersPerBlock, 12); VALUE(cudaDevAttrClockRate, 13); VALUE(cudaDevAttrTextureAlignment, 14);
VALUE(cudaDevAttrMultiProcessorCount, 16); VALUE(cudaDevAttrKernelExecTimeout, 17); VALUE(cudaDevAttrIntegrated, 18);
VALUE(cudaDevAttrCanMapHostMemory, 19); VALUE(cudaDevAttrComputeMode, 20); VALUE(cudaDevAttrConcurrentKernels, 31);
VALUE(cudaDevAttrEccEnabled, 32); VALUE(cudaDevAttrMemoryClockRate, 36); VALUE(cudaDevAttrGlobalMemoryBusWidth, 37);
VALUE(cudaDevAttrL2CacheSize, 38); VALUE(cudaDevAttrMaxThreadsPerMultiProcessor, 39);
VALUE(cudaDevAttrAsyncEngineCount, 40); VALUE(cudaDevAttrUnifiedAddressing, 41);
VALUE(cudaDevAttrComputeCapabilityMajor, 75); VALUE(cudaDevAttrComputeCapabilityMinor, 76);
VALUE(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81); VALUE(cudaDevAttrMaxRegistersPerMultiprocessor, 82);
VALUE(cudaDevAttrManagedMemory, 83); VALUE(cudaDevAttrCooperativeLaunch, 95);
VALUE(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97); VALUE(cudaDevAttrMaxBlocksPerMultiprocessor, 106);
VALUE(cudaDevAttrReservedSharedMemoryPerBlock, 111); VALUE(cudaDevAttrMemoryPoolsSupported, 115);

// ---- device code --------------------------------------------------------------------------------

// Checks that the result has exactly this type.
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
#define GIVES(type, ...) static_assert(Same<decltype(__VA_ARGS__), type>::value, #__VA_ARGS__)

struct Tile {
    half elements[8];
    float4 vector;
    nv_bfloat162 pair;
};

__global__ void math(float* f, double* d, int* i, unsigned* u, long long* l, unsigned long long* w) {
    __shared__ Tile tile[2];
    float x = f[0], y = f[1], sine, cosine;
    double a = d[0], b = d[1], c;
    tile[0].vector = make_float4(x, y, x, y);
    f[2] = min(x, y) + max(x, y) + fminf(x, y) + fmaxf(x, y) + tile[0].vector.w;
    GIVES(unsigned, max(u[0], i[0])); GIVES(unsigned, min(i[0], u[0])); GIVES(int, max(i[0], 1));
    GIVES(double, max(x, a)); GIVES(float, min(x, 1.0f)); GIVES(long long, max(l[0], l[1]));
    GIVES(unsigned long long, max(w[0], l[1])); GIVES(long, max(1L, 2L));
    GIVES(float, exp(x)); GIVES(float, abs(x)); GIVES(int, abs(i[0])); GIVES(double, sqrt(a)); GIVES(float, rsqrt(x));
    f[3] = rsqrtf(x) + exp2f(x) + exp10f(x) + __expf(x) + __logf(x) + __log2f(x) + __log10f(x) + __exp10f(x) + __powf(x, y);
    f[4] = __sinf(x) + __cosf(x) + __tanf(x) + __fdividef(x, y) + fdividef(x, y) + __saturatef(x) + copysignf(x, y);
    sincosf(x, &sine, &cosine), __sincosf(x, &sine, &cosine), sincospif(x, &sine, &cosine), sincos(a, &b, &c);
    f[5] = sine + cosine + sinpif(x) + cospif(x) + rcbrtf(x) + rhypotf(x, y) + norm3df(x, y, x) + rnorm3df(x, y, x)
         + norm4df(x, y, x, y) + rnorm4df(x, y, x, y) + normcdff(x) + erff(x) + erfcf(x) + tanhf(x) + log1pf(x) + expm1f(x);
    f[6] = __fadd_rn(x, y) + __fsub_rn(x, y) + __fmul_rn(x, y) + __fdiv_rn(x, y) + __fmaf_rn(x, y, x) + __frcp_rn(x)
         + __fsqrt_rn(x) + __frsqrt_rn(x) + __fadd_rz(x, y) + __fsub_ru(x, y) + __fmul_rd(x, y) + __fadd_rd(x, y);
    d[2] = __dadd_rn(a, b) + __dsub_rn(a, b) + __dmul_rn(a, b) + __ddiv_rn(a, b) + __fma_rn(a, b, a) + __drcp_rn(a)
         + __dsqrt_rn(a) + rsqrt(a) + exp10(a) + sinpi(a) + cospi(a) + rcbrt(a) + normcdf(a) + norm3d(a, b, a);
    i[2] = __float2int_rn(x) + __float2int_rz(x) + __float2int_ru(x) + __float2int_rd(x)
         + __double2int_rn(a) + __double2int_rz(a);
    u[2] = __float2uint_rn(x) + __float2uint_rz(x) + __float2uint_ru(x) + __float2uint_rd(x) + __double2uint_rn(a);
    l[2] = __float2ll_rn(x) + __float2ll_rz(x) + __double2ll_rn(a) + __double2ll_rd(a) + __double_as_longlong(a) + clock64();
    w[2] = __float2ull_rn(x) + __double2ull_rz(a) + __brevll(w[0]) + __umul64hi(w[0], w[1]) + __mul64hi(l[0], l[1]);
    f[7] = __int2float_rn(i[0]) + __int2float_rz(i[0]) + __uint2float_rn(u[0]) + __ll2float_rn(l[0]) + __ull2float_ru(w[0])
         + __double2float_rn(a) + __double2float_rz(a) + __double2float_ru(a) + __double2float_rd(a)
         + CUDART_INF_F + CUDART_PI_F;
    d[3] = __int2double_rn(i[0]) + __uint2double_rn(u[0]) + __ll2double_rn(l[0]) + __ull2double_rn(w[0])
         + __longlong_as_double(l[0]) + __hiloint2double(i[0], i[1]) + CUDART_PI + INFINITY + NAN;
    f[8] = __int_as_float(__float_as_int(x)) + __uint_as_float(__float_as_uint(x));
    i[3] = __popc(u[0]) + __popcll(w[0]) + __clz(i[0]) + __clzll(l[0]) + __ffs(i[0]) + __ffsll(l[0]) + __mul24(i[0], i[1])
         + __mulhi(i[0], i[1]) + __double2hiint(a) + __double2loint(a) + __hadd(i[0], i[1]) + __rhadd(i[0], i[1])
         + __dp4a(i[0], i[1], i[2]);
    u[3] = __brev(u[0]) + __byte_perm(u[0], u[1], 0x5410) + __funnelshift_l(u[0], u[1], 3) + __funnelshift_r(u[0], u[1], 3)
         + __funnelshift_lc(u[0], u[1], 40) + __funnelshift_rc(u[0], u[1], 40) + __umul24(u[0], u[1]) + __umulhi(u[0], u[1])
         + __sad(i[0], i[1], u[0]) + __usad(u[0], u[1], u[2]) + __uhadd(u[0], u[1]) + __urhadd(u[0], u[1])
         + __dp4a(u[0], u[1], u[2]);
    i[4] = isnan(x) + isinf(x) + isfinite(a) + signbit(x) + isnan(a) + (clock() > 0);
    f[9] = __ldg(f) + __ldca(f) + __ldcg(f) + __ldcs(f) + __ldlu(f) + __ldcv(f);
    __stwb(f, 1.0f), __stcg(f + 1, x), __stcs(f + 2, x), __stwt(f + 3, x);
    __stcs(reinterpret_cast<float4*>(f), __ldg(reinterpret_cast<const float4*>(f)));
    __nanosleep(10);
    assert(x == x && "not a NaN");
}

#define TWINS(T, P, N)                                                                                                 \
    __global__ void twins_of_##N(T* h, P* p, float* f, double* d, int* i, unsigned* u, short* s, long long* l) {       \
        __shared__ P tile[4];                                                                                          \
        T a = h[0], b = h[1], c{};                                                                                     \
        T from_float(1.5f), from_double(2.0), from_int(3);                                                             \
        P v = p[0], z(a, b);                                                                                           \
        float as_float = a;                                                                                            \
        int as_int = static_cast<int>(a);                                                                              \
        c = as_float, c = 1, c = 2.0;                                                                                  \
        c += a, c -= a, c *= a, c /= a, ++c, c++, --c, c--;                                                            \
        h[2] = a + b - a * b / c + -a + +b + from_float + from_double + from_int;                                      \
        v += z, v -= z, v *= z, v /= z;                                                                                \
        p[2] = tile[0] = v + z - v * z / -v;                                                                           \
        i[2] = as_int + (a == b) + (a != b) + (a < b) + (a <= b) + (a > b) + (a >= b) + (v == z) + (v != z) + (a ? 1 : 2); \
        h[3] = __hadd(a, b), h[4] = __hsub(a, b), h[5] = __hmul(a, b), h[6] = __hdiv(a, b), h[7] = __hfma(a, b, c);    \
        h[3] = __hadd_sat(a, b), h[4] = __hsub_sat(a, b), h[5] = __hmul_sat(a, b), h[7] = __hfma_sat(a, b, c);         \
        h[3] = __hadd_rn(a, b), h[4] = __hmul_rn(a, b), h[5] = __hneg(a), h[6] = __habs(a), h[7] = __hfma_relu(a, b, c); \
        h[3] = __hmax(a, b), h[4] = __hmin(a, b), h[5] = __hmax_nan(a, b), h[6] = __hmin_nan(a, b);                    \
        h[3] = hexp(a), h[4] = hexp2(a), h[5] = hexp10(a), h[6] = hlog(a), h[7] = hlog2(a), h[8] = hlog10(a);          \
        h[3] = hsin(a), h[4] = hcos(a), h[5] = hsqrt(a), h[6] = hrsqrt(a), h[7] = hrcp(a), h[8] = hrint(a);            \
        h[3] = hceil(a), h[4] = hfloor(a), h[5] = htrunc(a);                                                           \
        p[3] = __hadd2(v, z), p[4] = __hsub2(v, z), p[5] = __hmul2(v, z), p[6] = __h2div(v, z), p[7] = __hfma2(v, z, v); \
        p[3] = __hadd2_sat(v, z), p[4] = __hfma2_sat(v, z, v), p[5] = __hfma2_relu(v, z, v), p[6] = __hcmadd(v, z, v); \
        p[3] = __hneg2(v), p[4] = __habs2(v), p[5] = __hmax2(v, z), p[6] = __hmin2(v, z), p[7] = __hmax2_nan(v, z);    \
        p[3] = h2exp(v), p[4] = h2exp2(v), p[5] = h2log(v), p[6] = h2log2(v), p[7] = h2sin(v), p[8] = h2cos(v);        \
        p[3] = h2sqrt(v), p[4] = h2rsqrt(v), p[5] = h2rcp(v), p[6] = h2rint(v), p[7] = h2ceil(v), p[8] = h2floor(v);   \
        i[3] = __heq(a, b) + __hne(a, b) + __hlt(a, b) + __hle(a, b) + __hgt(a, b) + __hge(a, b) + __hequ(a, b)        \
             + __hneu(a, b) + __hltu(a, b) + __hgeu(a, b) + __hisnan(a) + __hisinf(a);                                 \
        p[3] = __heq2(v, z), p[4] = __hne2(v, z), p[5] = __hlt2(v, z), p[6] = __hge2(v, z), p[7] = __hisnan2(v);       \
        i[4] = __hbeq2(v, z) + __hbne2(v, z) + __hblt2(v, z) + __hble2(v, z) + __hbgt2(v, z) + __hbge2(v, z);          \
        i[5] = __hbequ2(v, z) + __hbneu2(v, z) + __hbltu2(v, z);                                                       \
        u[3] = __heq2_mask(v, z) + __hlt2_mask(v, z) + __hgeu2_mask(v, z);                                             \
        h[3] = __float2##N(f[0]), h[4] = __float2##N##_rn(f[0]), h[5] = __float2##N##_rz(f[0]);                        \
        h[6] = __float2##N##_ru(f[0]), h[7] = __float2##N##_rd(f[0]), h[8] = __double2##N(d[0]);                       \
        f[1] = __##N##2float(a);                                                                                       \
        h[3] = __int2##N##_rn(i[0]), h[4] = __uint2##N##_rz(u[0]), h[5] = __short2##N##_ru(s[0]); \
        h[6] = __ll2##N##_rd(l[0]); \
        i[5] = __##N##2int_rn(a) + __##N##2int_rz(a) + __##N##2short_ru(a) + __##N##2uchar_rz(a);                      \
        u[5] = __##N##2uint_rd(a) + __##N##2ushort_rn(a);                                                              \
        l[5] = __##N##2ll_rn(a) + __##N##2ull_rz(a);                                                                   \
        s[5] = __##N##_as_short(a);                                                                                    \
        h[9] = __ushort_as_##N(__##N##_as_ushort(a)), h[9] = __short_as_##N(s[5]);                                     \
        p[3] = __float2##N##2_rn(f[0]), p[4] = __floats2##N##2_rn(f[0], f[1]);                                         \
        p[5] = __float22##N##2_rn(make_float2(1, 2)), p[6] = __halves2##N##2(a, b), p[7] = __##N##2##N##2(a);          \
        float2 pair = __##N##22float2(v);                                                                              \
        f[2] = pair.x + __low2float(v) + __high2float(v);                                                              \
        h[3] = __low2##N(v), h[4] = __high2##N(v), h[5] = v.x, h[6] = v.y;                                             \
        p[3] = __low2##N##2(v), p[4] = __high2##N##2(v), p[5] = __lows2##N##2(v, z), p[6] = __highs2##N##2(v, z);      \
        p[7] = __lowhigh2highlow(v), p[8] = __ldg(p), h[8] = __ldg(h);                                                 \
        __stcs(p, v), __stcg(h, a);                                                                                    \
    }

TWINS(__half, __half2, half)
TWINS(__nv_bfloat16, __nv_bfloat162, bfloat16)

// ---- host code ----------------------------------------------------------------------------------

__constant__ float table[4];
__device__ int counter;

template <int SIZE>
__global__ void kernel_of_a_size(float* x) {
    x[threadIdx.x + blockIdx.y * blockDim.x] = SIZE * table[0] + counter;
}

#define CHECK(...) do { if ((__VA_ARGS__) != cudaSuccess) return cudaGetErrorString(cudaGetLastError()); } while (0)

const char* host(const float* input, size_t bytes) {
    float *x, *pinned, *managed, milliseconds, values[4] = {};
    void* address;
    int value, blocks, threads;
    size_t available, total, size;
    cudaStream_t stream;
    cudaEvent_t first, last;
    cudaDeviceProp properties;
    cudaFuncAttributes attributes;
    cudaPointerAttributes pointer;
    CHECK(cudaGetDeviceCount(&value)); CHECK(cudaSetDevice(0)); CHECK(cudaGetDevice(&value));
    CHECK(cudaGetDeviceProperties(&properties, value));
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    if (properties.warpSize != 32 || properties.major < 7) return "small";
    if (properties.sharedMemPerBlockOptin < size_t(value)) return "small";
    CHECK(cudaMemGetInfo(&available, &total));
    CHECK(cudaStreamCreate(&stream)); CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&first)); CHECK(cudaEventCreateWithFlags(&last, cudaEventDefault));
    CHECK(cudaMalloc(&x, bytes)); CHECK(cudaMalloc((void**)&x, bytes)); CHECK(cudaMallocAsync(&x, bytes, stream));
    CHECK(cudaMallocHost(&pinned, bytes)); CHECK(cudaMallocManaged(&managed, bytes));
    CHECK(cudaMemcpy(x, input, bytes, cudaMemcpyHostToDevice)); CHECK(cudaMemset(x, 0, bytes));
    CHECK(cudaMemcpyAsync(x, input, bytes, cudaMemcpyDefault, stream)); CHECK(cudaMemsetAsync(x, 0, bytes, stream));
    CHECK(cudaMemcpy2D(x, 64, input, 64, 32, 2, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(table, values, sizeof(values))); CHECK(cudaMemcpyToSymbol(counter, &value, sizeof(int), 0));
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(int))); CHECK(cudaGetSymbolAddress(&address, table));
    CHECK(cudaGetSymbolSize(&size, table)); CHECK(cudaPointerGetAttributes(&pointer, x));
    CHECK(cudaFuncSetAttribute(kernel_of_a_size<4>, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 * 1024));
    CHECK(cudaFuncSetAttribute((const void*)kernel_of_a_size<8>, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    CHECK(cudaFuncGetAttributes(&attributes, kernel_of_a_size<4>));
    CHECK(cudaFuncSetCacheConfig(kernel_of_a_size<4>, cudaFuncCachePreferShared));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel_of_a_size<4>, 128, 0));
    CHECK(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, kernel_of_a_size<4>));
    CHECK(cudaEventRecord(first, stream)); CHECK(cudaEventRecord(last)); CHECK(cudaStreamWaitEvent(stream, last, 0));
    CHECK(cudaEventSynchronize(last)); CHECK(cudaEventElapsedTime(&milliseconds, first, last));
    CHECK(cudaStreamSynchronize(stream)); CHECK(cudaDeviceSynchronize()); CHECK(cudaPeekAtLastError());
    CHECK(cudaFree(x)); CHECK(cudaFreeAsync(x, stream)); CHECK(cudaFreeHost(pinned)); CHECK(cudaEventDestroy(first));
    dim3 grid(2, 3), block = 128, third{uint3{1, 2, 3}};
    return grid.z == block.y && third.z == 3 ? cudaGetErrorName(cudaSuccess) : "";
}
