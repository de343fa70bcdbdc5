// The functions of the CUDA runtime API. They are thin, as in include/shim/host_api.h. Streams and
// events are only handles.
#include "cudart.h"

#include <cstdio>

using emulator::Variable;
using emulator::variable_of;

extern "C" {

// ---- errors -------------------------------------------------------------------------------------

cudaError_t cudaGetLastError() { return emulator_cuda_last_error(1); }
cudaError_t cudaPeekAtLastError() { return emulator_cuda_last_error(0); }
const char* cudaGetErrorName(cudaError_t error) { return emulator_cuda_error_name(error); }
const char* cudaGetErrorString(cudaError_t error) { return emulator_cuda_error_string(error); }

// ---- memory: what the host can write counts as written from the start ---------------------------

cudaError_t cudaMalloc(void** base, size_t bytes) { return emulator_cuda_malloc(base, bytes, 0); }
cudaError_t cudaMallocAsync(void** base, size_t bytes, cudaStream_t) { return emulator_cuda_malloc(base, bytes, 0); }
cudaError_t cudaMallocHost(void** base, size_t bytes) { return emulator_cuda_malloc(base, bytes, 1); }
cudaError_t cudaHostAlloc(void** base, size_t bytes, unsigned) { return emulator_cuda_malloc(base, bytes, 1); }
cudaError_t cudaMallocManaged(void** base, size_t bytes, unsigned) { return emulator_cuda_malloc(base, bytes, 1); }
cudaError_t cudaFree(void* base) { return emulator_cuda_free(base); }
cudaError_t cudaFreeAsync(void* base, cudaStream_t) { return emulator_cuda_free(base); }
cudaError_t cudaFreeHost(void* base) { return emulator_cuda_free(base); }
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) { return emulator_cuda_memory_info(available, total); }

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return emulator_cuda_copy(to, bytes, from, bytes, bytes, 1, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return emulator_cuda_copy(to, bytes, from, bytes, bytes, 1, kind);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
    return emulator_cuda_copy(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t) {
    return emulator_cuda_copy(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return emulator_cuda_set(to, bytes, value, bytes, 1); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
    return emulator_cuda_set(to, bytes, value, bytes, 1);
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    return emulator_cuda_set(to, pitch, value, width, height);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
    Variable* variable = variable_of(symbol);
    if (!variable || !variable->address) return emulator_cuda_returned(cudaErrorInvalidSymbol);
    return emulator_cuda_to_symbol(variable->address, variable->bytes, from, bytes, offset);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                    cudaStream_t) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind) {
    Variable* variable = variable_of(symbol);
    if (!variable || !variable->address) return emulator_cuda_returned(cudaErrorInvalidSymbol);
    return emulator_cuda_from_symbol(to, variable->address, variable->bytes, bytes, offset);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t) {
    return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
    Variable* variable = variable_of(symbol);
    if (!variable || !variable->address) return emulator_cuda_returned(cudaErrorInvalidSymbol);
    return *address = variable->address, cudaSuccess;
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
    Variable* variable = variable_of(symbol);
    if (!variable) return emulator_cuda_returned(cudaErrorInvalidSymbol);
    return *bytes = variable->bytes, cudaSuccess;
}

// ---- devices ------------------------------------------------------------------------------------

cudaError_t cudaDeviceSynchronize() { return emulator_cuda_synchronize(); }
cudaError_t cudaDeviceReset() { return emulator_cuda_synchronize(); }
cudaError_t cudaSetDevice(int device) { return emulator_cuda_device(device); }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    // As in -arch.
    if (attribute == cudaDevAttrComputeCapabilityMajor && device == 0) return *value = 8, cudaSuccess;
    return emulator_cuda_device_attribute(value, attribute, device);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) return emulator_cuda_returned(cudaErrorInvalidDevice);
    auto get = [](cudaDeviceAttr attribute) {
        int value = 0;
        cudaDeviceGetAttribute(&value, attribute, 0);
        return value;
    };
    cudaDeviceProp& p = *properties = {};
    std::snprintf(p.name, sizeof p.name, "CPU, traced");
    size_t available;
    emulator_cuda_memory_info(&available, &p.totalGlobalMem);
    p.sharedMemPerBlock = get(cudaDevAttrMaxSharedMemoryPerBlock);
    p.sharedMemPerBlockOptin = get(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p.sharedMemPerMultiprocessor = get(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p.totalConstMem = get(cudaDevAttrTotalConstantMemory);
    p.regsPerBlock = get(cudaDevAttrMaxRegistersPerBlock);
    p.regsPerMultiprocessor = get(cudaDevAttrMaxRegistersPerMultiprocessor);
    p.warpSize = get(cudaDevAttrWarpSize);
    p.maxThreadsPerBlock = get(cudaDevAttrMaxThreadsPerBlock);
    for (int i = 0; i < 3; ++i) {
        p.maxThreadsDim[i] = get(static_cast<cudaDeviceAttr>(cudaDevAttrMaxBlockDimX + i));
        p.maxGridSize[i] = get(static_cast<cudaDeviceAttr>(cudaDevAttrMaxGridDimX + i));
    }
    p.l2CacheSize = get(cudaDevAttrL2CacheSize);
    p.major = get(cudaDevAttrComputeCapabilityMajor);
    p.minor = get(cudaDevAttrComputeCapabilityMinor);
    p.multiProcessorCount = get(cudaDevAttrMultiProcessorCount);
    p.maxThreadsPerMultiProcessor = get(cudaDevAttrMaxThreadsPerMultiProcessor);
    p.maxBlocksPerMultiProcessor = get(cudaDevAttrMaxBlocksPerMultiprocessor);
    p.unifiedAddressing = p.managedMemory = p.canMapHostMemory = p.concurrentKernels = 1;
    return cudaSuccess;
}

// ---- streams and events: all work is complete already -------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return emulator_cuda_new_handle(reinterpret_cast<void**>(stream)); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return emulator_cuda_delete_handle(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return emulator_cuda_synchronize(); }
cudaError_t cudaStreamQuery(cudaStream_t) { return emulator_cuda_synchronize(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return emulator_cuda_new_handle(reinterpret_cast<void**>(event)); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return emulator_cuda_delete_handle(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) { return emulator_cuda_event_record(event); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return emulator_cuda_synchronize(); }
cudaError_t cudaEventQuery(cudaEvent_t) { return emulator_cuda_synchronize(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    return emulator_cuda_event_elapsed(milliseconds, first, last);
}

}  // extern "C"
