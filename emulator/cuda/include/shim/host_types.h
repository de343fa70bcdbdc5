// Enumerations and structs of the CUDA runtime, with CUDA's values.
#pragma once

#include "vector_types.h"

#include <stddef.h>

#ifndef CUDART_VERSION
#define CUDART_VERSION 13000
#endif
#define CUDART_CB
#define CUDARTAPI

// CUDA_SHIM_ERROR(name, value, meaning)
#define CUDA_SHIM_ERRORS(CUDA_SHIM_ERROR)                                                                            \
    CUDA_SHIM_ERROR(cudaSuccess, 0, "no error")                                                                       \
    CUDA_SHIM_ERROR(cudaErrorInvalidValue, 1, "invalid argument")                                                     \
    CUDA_SHIM_ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                                                    \
    CUDA_SHIM_ERROR(cudaErrorInitializationError, 3, "initialization error")                                          \
    CUDA_SHIM_ERROR(cudaErrorCudartUnloading, 4, "driver shutting down")                                              \
    CUDA_SHIM_ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                               \
    CUDA_SHIM_ERROR(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                         \
    CUDA_SHIM_ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                              \
    CUDA_SHIM_ERROR(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                      \
    CUDA_SHIM_ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                         \
    CUDA_SHIM_ERROR(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")  \
    CUDA_SHIM_ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                    \
    CUDA_SHIM_ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                     \
    CUDA_SHIM_ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                            \
    CUDA_SHIM_ERROR(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")                               \
    CUDA_SHIM_ERROR(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device") \
    CUDA_SHIM_ERROR(cudaErrorInvalidPtx, 218, "a PTX JIT compilation failed")                                         \
    CUDA_SHIM_ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                   \
    CUDA_SHIM_ERROR(cudaErrorSymbolNotFound, 500, "named symbol not found")                                           \
    CUDA_SHIM_ERROR(cudaErrorNotReady, 600, "device not ready")                                                       \
    CUDA_SHIM_ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                         \
    CUDA_SHIM_ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                    \
    CUDA_SHIM_ERROR(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                           \
    CUDA_SHIM_ERROR(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                         \
    CUDA_SHIM_ERROR(cudaErrorAssert, 710, "device-side assert triggered")                                             \
    CUDA_SHIM_ERROR(cudaErrorHardwareStackError, 714, "hardware stack error")                                         \
    CUDA_SHIM_ERROR(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")                       \
    CUDA_SHIM_ERROR(cudaErrorMisalignedAddress, 716, "misaligned address")                                            \
    CUDA_SHIM_ERROR(cudaErrorInvalidAddressSpace, 717, "operation not supported on global/shared address space")      \
    CUDA_SHIM_ERROR(cudaErrorInvalidPc, 718, "invalid program counter")                                               \
    CUDA_SHIM_ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                        \
    CUDA_SHIM_ERROR(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")                 \
    CUDA_SHIM_ERROR(cudaErrorNotPermitted, 800, "operation not permitted")                                            \
    CUDA_SHIM_ERROR(cudaErrorNotSupported, 801, "operation not supported")                                            \
    CUDA_SHIM_ERROR(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define CUDA_SHIM_ERROR(name, value, meaning) name = value,
    CUDA_SHIM_ERRORS(CUDA_SHIM_ERROR)
#undef CUDA_SHIM_ERROR
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

// The device that the runtime describes, as CUDA_SHIM_ATTRIBUTE(name after cudaDevAttr, CUDA's
// number, value). The sizes are those of a GPU with 132 multiprocessors (capability 9.0), so that
// launch code takes the same path as there.
#define CUDA_SHIM_ATTRIBUTES(CUDA_SHIM_ATTRIBUTE)                        \
    CUDA_SHIM_ATTRIBUTE(MaxThreadsPerBlock, 1, 1024)                      \
    CUDA_SHIM_ATTRIBUTE(MaxBlockDimX, 2, 1024)                            \
    CUDA_SHIM_ATTRIBUTE(MaxBlockDimY, 3, 1024)                            \
    CUDA_SHIM_ATTRIBUTE(MaxBlockDimZ, 4, 64)                              \
    CUDA_SHIM_ATTRIBUTE(MaxGridDimX, 5, 2147483647)                       \
    CUDA_SHIM_ATTRIBUTE(MaxGridDimY, 6, 65535)                            \
    CUDA_SHIM_ATTRIBUTE(MaxGridDimZ, 7, 65535)                            \
    CUDA_SHIM_ATTRIBUTE(MaxSharedMemoryPerBlock, 8, 48 * 1024)            \
    CUDA_SHIM_ATTRIBUTE(TotalConstantMemory, 9, 64 * 1024)                \
    CUDA_SHIM_ATTRIBUTE(WarpSize, 10, 32)                                 \
    CUDA_SHIM_ATTRIBUTE(MaxPitch, 11, 2147483647)                         \
    CUDA_SHIM_ATTRIBUTE(MaxRegistersPerBlock, 12, 64 * 1024)              \
    CUDA_SHIM_ATTRIBUTE(ClockRate, 13, 1980000)                           \
    CUDA_SHIM_ATTRIBUTE(TextureAlignment, 14, 512)                        \
    CUDA_SHIM_ATTRIBUTE(MultiProcessorCount, 16, 132)                     \
    CUDA_SHIM_ATTRIBUTE(KernelExecTimeout, 17, 0)                         \
    CUDA_SHIM_ATTRIBUTE(Integrated, 18, 0)                                \
    CUDA_SHIM_ATTRIBUTE(CanMapHostMemory, 19, 1)                          \
    CUDA_SHIM_ATTRIBUTE(ComputeMode, 20, 0)                               \
    CUDA_SHIM_ATTRIBUTE(ConcurrentKernels, 31, 1)                         \
    CUDA_SHIM_ATTRIBUTE(EccEnabled, 32, 1)                                \
    CUDA_SHIM_ATTRIBUTE(MemoryClockRate, 36, 2619000)                     \
    CUDA_SHIM_ATTRIBUTE(GlobalMemoryBusWidth, 37, 5120)                   \
    CUDA_SHIM_ATTRIBUTE(L2CacheSize, 38, 50 * 1024 * 1024)                \
    CUDA_SHIM_ATTRIBUTE(MaxThreadsPerMultiProcessor, 39, 2048)            \
    CUDA_SHIM_ATTRIBUTE(AsyncEngineCount, 40, 3)                          \
    CUDA_SHIM_ATTRIBUTE(UnifiedAddressing, 41, 1)                         \
    CUDA_SHIM_ATTRIBUTE(ComputeCapabilityMajor, 75, 7) /* as __CUDA_ARCH__ */ \
    CUDA_SHIM_ATTRIBUTE(ComputeCapabilityMinor, 76, 0)                    \
    CUDA_SHIM_ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, 81, 228 * 1024) \
    CUDA_SHIM_ATTRIBUTE(MaxRegistersPerMultiprocessor, 82, 64 * 1024)     \
    CUDA_SHIM_ATTRIBUTE(ManagedMemory, 83, 1)                             \
    CUDA_SHIM_ATTRIBUTE(CooperativeLaunch, 95, 0)                         \
    CUDA_SHIM_ATTRIBUTE(MaxSharedMemoryPerBlockOptin, 97, 227 * 1024)     \
    CUDA_SHIM_ATTRIBUTE(MaxBlocksPerMultiprocessor, 106, 32)              \
    CUDA_SHIM_ATTRIBUTE(ReservedSharedMemoryPerBlock, 111, 1024)          \
    CUDA_SHIM_ATTRIBUTE(MemoryPoolsSupported, 115, 0)

enum cudaDeviceAttr {
#define CUDA_SHIM_ATTRIBUTE(name, number, value) cudaDevAttr##name = number,
    CUDA_SHIM_ATTRIBUTES(CUDA_SHIM_ATTRIBUTE)
#undef CUDA_SHIM_ATTRIBUTE
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

// Only for code that names them before it calls cudaLaunchKernelEx, which is refused.
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
