// Enumerations and structs of the CUDA runtime, with CUDA's values.
#pragma once

#include "vector_types.h"

#include <stddef.h>

#ifndef CUDART_VERSION
#define CUDART_VERSION 13000
#endif
#define CUDART_CB
#define CUDARTAPI

// CUDA_TRACE_ERROR(name, value, what it means)
#define CUDA_TRACE_ERRORS(CUDA_TRACE_ERROR)                                                                            \
    CUDA_TRACE_ERROR(cudaSuccess, 0, "no error")                                                                       \
    CUDA_TRACE_ERROR(cudaErrorInvalidValue, 1, "invalid argument")                                                     \
    CUDA_TRACE_ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                                                    \
    CUDA_TRACE_ERROR(cudaErrorInitializationError, 3, "initialization error")                                          \
    CUDA_TRACE_ERROR(cudaErrorCudartUnloading, 4, "driver shutting down")                                              \
    CUDA_TRACE_ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                               \
    CUDA_TRACE_ERROR(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                         \
    CUDA_TRACE_ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                              \
    CUDA_TRACE_ERROR(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                      \
    CUDA_TRACE_ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                         \
    CUDA_TRACE_ERROR(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")  \
    CUDA_TRACE_ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                    \
    CUDA_TRACE_ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                     \
    CUDA_TRACE_ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                            \
    CUDA_TRACE_ERROR(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")                               \
    CUDA_TRACE_ERROR(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device") \
    CUDA_TRACE_ERROR(cudaErrorInvalidPtx, 218, "a PTX JIT compilation failed")                                         \
    CUDA_TRACE_ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                   \
    CUDA_TRACE_ERROR(cudaErrorSymbolNotFound, 500, "named symbol not found")                                           \
    CUDA_TRACE_ERROR(cudaErrorNotReady, 600, "device not ready")                                                       \
    CUDA_TRACE_ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                         \
    CUDA_TRACE_ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                    \
    CUDA_TRACE_ERROR(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                           \
    CUDA_TRACE_ERROR(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                         \
    CUDA_TRACE_ERROR(cudaErrorAssert, 710, "device-side assert triggered")                                             \
    CUDA_TRACE_ERROR(cudaErrorHardwareStackError, 714, "hardware stack error")                                         \
    CUDA_TRACE_ERROR(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")                       \
    CUDA_TRACE_ERROR(cudaErrorMisalignedAddress, 716, "misaligned address")                                            \
    CUDA_TRACE_ERROR(cudaErrorInvalidAddressSpace, 717, "operation not supported on global/shared address space")      \
    CUDA_TRACE_ERROR(cudaErrorInvalidPc, 718, "invalid program counter")                                               \
    CUDA_TRACE_ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                        \
    CUDA_TRACE_ERROR(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")                 \
    CUDA_TRACE_ERROR(cudaErrorNotPermitted, 800, "operation not permitted")                                            \
    CUDA_TRACE_ERROR(cudaErrorNotSupported, 801, "operation not supported")                                            \
    CUDA_TRACE_ERROR(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define CUDA_TRACE_ERROR(name, value, meaning) name = value,
    CUDA_TRACE_ERRORS(CUDA_TRACE_ERROR)
#undef CUDA_TRACE_ERROR
};
typedef enum cudaError cudaError_t;

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef void (*cudaHostFn_t)(void* data);

#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventInterprocess 0x04
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaHostRegisterDefault 0x00
#define cudaMemAttachGlobal 0x01
#define cudaMemAttachHost 0x02

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaFuncAttributeClusterDimMustBeSet = 10,
    cudaFuncAttributeRequiredClusterWidth = 11,
    cudaFuncAttributeRequiredClusterHeight = 12,
    cudaFuncAttributeRequiredClusterDepth = 13,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
};

enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100,
};

enum cudaFuncCache {
    cudaFuncCachePreferNone = 0,
    cudaFuncCachePreferShared = 1,
    cudaFuncCachePreferL1 = 2,
    cudaFuncCachePreferEqual = 3,
};

enum cudaSharedMemConfig {
    cudaSharedMemBankSizeDefault = 0,
    cudaSharedMemBankSizeFourByte = 1,
    cudaSharedMemBankSizeEightByte = 2,
};

enum cudaLimit {
    cudaLimitStackSize = 0,
    cudaLimitPrintfFifoSize = 1,
    cudaLimitMallocHeapSize = 2,
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3,
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void* devicePointer;
    void* hostPointer;
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
    int maxDynamicSharedSizeBytes, preferredShmemCarveout;
};

// The device that the runtime describes. CUDA_TRACE_ATTRIBUTE(name behind cudaDevAttr, CUDA's number, value): a GPU of
// capability 9.0 with 132 multiprocessors, so that launch code which asks takes the path that it takes there.
#define CUDA_TRACE_ATTRIBUTES(CUDA_TRACE_ATTRIBUTE)                        \
    CUDA_TRACE_ATTRIBUTE(MaxThreadsPerBlock, 1, 1024)                      \
    CUDA_TRACE_ATTRIBUTE(MaxBlockDimX, 2, 1024)                            \
    CUDA_TRACE_ATTRIBUTE(MaxBlockDimY, 3, 1024)                            \
    CUDA_TRACE_ATTRIBUTE(MaxBlockDimZ, 4, 64)                              \
    CUDA_TRACE_ATTRIBUTE(MaxGridDimX, 5, 2147483647)                       \
    CUDA_TRACE_ATTRIBUTE(MaxGridDimY, 6, 65535)                            \
    CUDA_TRACE_ATTRIBUTE(MaxGridDimZ, 7, 65535)                            \
    CUDA_TRACE_ATTRIBUTE(MaxSharedMemoryPerBlock, 8, 48 * 1024)            \
    CUDA_TRACE_ATTRIBUTE(TotalConstantMemory, 9, 64 * 1024)                \
    CUDA_TRACE_ATTRIBUTE(WarpSize, 10, 32)                                 \
    CUDA_TRACE_ATTRIBUTE(MaxPitch, 11, 2147483647)                         \
    CUDA_TRACE_ATTRIBUTE(MaxRegistersPerBlock, 12, 64 * 1024)              \
    CUDA_TRACE_ATTRIBUTE(ClockRate, 13, 1980000)                           \
    CUDA_TRACE_ATTRIBUTE(TextureAlignment, 14, 512)                        \
    CUDA_TRACE_ATTRIBUTE(MultiProcessorCount, 16, 132)                     \
    CUDA_TRACE_ATTRIBUTE(KernelExecTimeout, 17, 0)                         \
    CUDA_TRACE_ATTRIBUTE(Integrated, 18, 0)                                \
    CUDA_TRACE_ATTRIBUTE(CanMapHostMemory, 19, 1)                          \
    CUDA_TRACE_ATTRIBUTE(ComputeMode, 20, 0)                               \
    CUDA_TRACE_ATTRIBUTE(ConcurrentKernels, 31, 1)                         \
    CUDA_TRACE_ATTRIBUTE(EccEnabled, 32, 1)                                \
    CUDA_TRACE_ATTRIBUTE(MemoryClockRate, 36, 2619000)                     \
    CUDA_TRACE_ATTRIBUTE(GlobalMemoryBusWidth, 37, 5120)                   \
    CUDA_TRACE_ATTRIBUTE(L2CacheSize, 38, 50 * 1024 * 1024)                \
    CUDA_TRACE_ATTRIBUTE(MaxThreadsPerMultiProcessor, 39, 2048)            \
    CUDA_TRACE_ATTRIBUTE(AsyncEngineCount, 40, 3)                          \
    CUDA_TRACE_ATTRIBUTE(UnifiedAddressing, 41, 1)                         \
    CUDA_TRACE_ATTRIBUTE(ComputeCapabilityMajor, 75, 7) /* as __CUDA_ARCH__ */ \
    CUDA_TRACE_ATTRIBUTE(ComputeCapabilityMinor, 76, 0)                    \
    CUDA_TRACE_ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, 81, 228 * 1024) \
    CUDA_TRACE_ATTRIBUTE(MaxRegistersPerMultiprocessor, 82, 64 * 1024)     \
    CUDA_TRACE_ATTRIBUTE(ManagedMemory, 83, 1)                             \
    CUDA_TRACE_ATTRIBUTE(CooperativeLaunch, 95, 0)                         \
    CUDA_TRACE_ATTRIBUTE(MaxSharedMemoryPerBlockOptin, 97, 227 * 1024)     \
    CUDA_TRACE_ATTRIBUTE(MaxBlocksPerMultiprocessor, 106, 32)              \
    CUDA_TRACE_ATTRIBUTE(ReservedSharedMemoryPerBlock, 111, 1024)          \
    CUDA_TRACE_ATTRIBUTE(MemoryPoolsSupported, 115, 0)

enum cudaDeviceAttr {
#define CUDA_TRACE_ATTRIBUTE(name, number, value) cudaDevAttr##name = number,
    CUDA_TRACE_ATTRIBUTES(CUDA_TRACE_ATTRIBUTE)
#undef CUDA_TRACE_ATTRIBUTE
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    size_t reservedSharedMemPerBlock, totalConstMem, memPitch, textureAlignment;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int clockRate, memoryClockRate, memoryBusWidth, l2CacheSize, major, minor;
    int multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor;
    int integrated, canMapHostMemory, computeMode, concurrentKernels, ECCEnabled, asyncEngineCount, unifiedAddressing;
    int managedMemory, cooperativeLaunch, kernelExecTimeoutEnabled, pciBusID, pciDeviceID, pciDomainID;
};

// Only for code that names them on its way to cudaLaunchKernelEx, which is refused.
typedef union {
    int cooperative, priority, programmaticStreamSerializationAllowed;
    struct {
        unsigned x, y, z;
    } clusterDim;
} cudaLaunchAttributeValue;

enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePriority = 8,
};

struct cudaLaunchAttribute {
    enum cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};
