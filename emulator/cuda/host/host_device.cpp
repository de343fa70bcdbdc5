// The CUDA runtime API: the device's properties, streams and events, attributes of kernels.
#include "host.h"

#include "../../runtime/runtime.h"
#include "../include/shim/host_types.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <unordered_map>

extern "C" cudaError_t emulator_cuda_returned(cudaError_t error);

namespace emulator {
namespace {

struct Event {
    std::chrono::steady_clock::time_point when;
    bool recorded;
};

std::mutex lock;
std::unordered_map<const void*, size_t> opted_in;  // bytes of dynamic shared memory
std::atomic<int> most_shared{LARGEST_SHARED};        // bytes that a block can opt in to

}  // namespace

size_t dynamic_shared_limit(const void* function) {
    std::lock_guard<std::mutex> guard(lock);
    auto entry = opted_in.find(function);
    return entry == opted_in.end() || entry->second < DEFAULT_SHARED ? DEFAULT_SHARED : entry->second;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t emulator_cuda_device(int device) {
    return device == 0 ? cudaSuccess : emulator_cuda_returned(cudaErrorInvalidDevice);
}

cudaError_t emulator_cuda_device_attribute(int* value, int attribute, int device) {
    if (device != 0) return emulator_cuda_returned(cudaErrorInvalidDevice);
    if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin) {
        *value = most_shared;
        return cudaSuccess;
    }
    switch (attribute) {
#define CUDA_SHIM_ATTRIBUTE(name, number, its_value) \
    case number: *value = its_value; return cudaSuccess;
        CUDA_SHIM_ATTRIBUTES(CUDA_SHIM_ATTRIBUTE)
#undef CUDA_SHIM_ATTRIBUTE
    }
    return emulator_cuda_returned(cudaErrorInvalidValue);
}

// Lets a block opt in to this many bytes only, as on a smaller device. Returns how many it was before.
int emulator_cuda_set_most_shared(int bytes) { return most_shared.exchange(bytes); }

cudaError_t emulator_cuda_device_properties(cudaDeviceProp* properties, int device) {
    if (device != 0) return emulator_cuda_returned(cudaErrorInvalidDevice);
    auto get = [](cudaDeviceAttr attribute) {
        int value = 0;
        emulator_cuda_device_attribute(&value, attribute, 0);
        return value;
    };
    cudaDeviceProp& p = *properties = {};
    std::snprintf(p.name, sizeof(p.name), "CPU, traced");
    p.totalGlobalMem = DEVICE_MEMORY;
    p.sharedMemPerBlock = get(cudaDevAttrMaxSharedMemoryPerBlock);
    p.sharedMemPerBlockOptin = get(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p.sharedMemPerMultiprocessor = get(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p.reservedSharedMemPerBlock = get(cudaDevAttrReservedSharedMemoryPerBlock);
    p.totalConstMem = get(cudaDevAttrTotalConstantMemory);
    p.memPitch = get(cudaDevAttrMaxPitch);
    p.textureAlignment = get(cudaDevAttrTextureAlignment);
    p.regsPerBlock = get(cudaDevAttrMaxRegistersPerBlock);
    p.regsPerMultiprocessor = get(cudaDevAttrMaxRegistersPerMultiprocessor);
    p.warpSize = get(cudaDevAttrWarpSize);
    p.maxThreadsPerBlock = get(cudaDevAttrMaxThreadsPerBlock);
    for (int i = 0; i < 3; ++i) {
        p.maxThreadsDim[i] = get(static_cast<cudaDeviceAttr>(cudaDevAttrMaxBlockDimX + i));
        p.maxGridSize[i] = get(static_cast<cudaDeviceAttr>(cudaDevAttrMaxGridDimX + i));
    }
    p.clockRate = get(cudaDevAttrClockRate);
    p.memoryClockRate = get(cudaDevAttrMemoryClockRate);
    p.memoryBusWidth = get(cudaDevAttrGlobalMemoryBusWidth);
    p.l2CacheSize = get(cudaDevAttrL2CacheSize);
    p.major = get(cudaDevAttrComputeCapabilityMajor);
    p.minor = get(cudaDevAttrComputeCapabilityMinor);
    p.multiProcessorCount = get(cudaDevAttrMultiProcessorCount);
    p.maxThreadsPerMultiProcessor = get(cudaDevAttrMaxThreadsPerMultiProcessor);
    p.maxBlocksPerMultiProcessor = get(cudaDevAttrMaxBlocksPerMultiprocessor);
    p.canMapHostMemory = get(cudaDevAttrCanMapHostMemory);
    p.concurrentKernels = get(cudaDevAttrConcurrentKernels);
    p.ECCEnabled = get(cudaDevAttrEccEnabled);
    p.asyncEngineCount = get(cudaDevAttrAsyncEngineCount);
    p.unifiedAddressing = get(cudaDevAttrUnifiedAddressing);
    p.managedMemory = get(cudaDevAttrManagedMemory);
    return cudaSuccess;
}

// Streams and events share one struct; a stream uses none of its fields.
cudaError_t emulator_cuda_new_handle(void** handle) {
    *handle = new Event{};
    return cudaSuccess;
}

cudaError_t emulator_cuda_delete_handle(void* handle) {
    if (!handle) return emulator_cuda_returned(cudaErrorInvalidResourceHandle);
    delete static_cast<Event*>(handle);
    return cudaSuccess;
}

cudaError_t emulator_cuda_event_record(cudaEvent_t event) {
    if (!event) return emulator_cuda_returned(cudaErrorInvalidResourceHandle);
    *reinterpret_cast<Event*>(event) = {std::chrono::steady_clock::now(), true};
    return cudaSuccess;
}

cudaError_t emulator_cuda_event_elapsed(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    auto *from = reinterpret_cast<Event*>(first), *to = reinterpret_cast<Event*>(last);
    if (!from || !to || !from->recorded || !to->recorded) return emulator_cuda_returned(cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return cudaSuccess;
}

cudaError_t emulator_cuda_set_function_attribute(const void* function, int attribute, int value) {
    std::lock_guard<std::mutex> guard(lock);
    if (!function) return emulator_cuda_returned(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > most_shared) return emulator_cuda_returned(cudaErrorInvalidValue);
        opted_in[function] = static_cast<size_t>(value);
    } else if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
        if (value < -1 || value > 100) return emulator_cuda_returned(cudaErrorInvalidValue);  // %; -1: the driver's choice
    } else if (attribute < 0 || attribute > cudaFuncAttributeNonPortableClusterSizeAllowed) {
        return emulator_cuda_returned(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t emulator_cuda_function_attributes(cudaFuncAttributes* attributes, const void* function) {
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 70;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_limit(function));
    attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
    return cudaSuccess;
}

long long emulator_cuda_clock() {
    static std::atomic<long long> asked{0};
    return asked += 100;  // cycles, about the cost of reading the clock
}

}  // extern "C"
