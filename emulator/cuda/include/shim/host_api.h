// The CUDA runtime as host code calls it. All that is asynchronous is done at once; streams and events are names.
//
// The functions here are thin: the state is in the runtime (runtime/host_api.cpp), behind the functions cuda_trace_*.
#pragma once

#include "host_types.h"

extern "C" {
cudaError_t cuda_trace_last_error(int forget);
cudaError_t cuda_trace_synchronize();
cudaError_t cuda_trace_returned(cudaError_t error);  // remembers an error that a function is about to return
const char* cuda_trace_error_name(cudaError_t error);
const char* cuda_trace_error_string(cudaError_t error);
cudaError_t cuda_trace_malloc(void** base, size_t bytes, int host_writes);
cudaError_t cuda_trace_free(void* base);
cudaError_t cuda_trace_memory_info(size_t* available, size_t* total);
cudaError_t cuda_trace_pointer(cudaPointerAttributes* attributes, const void* pointer);
cudaError_t cuda_trace_copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                            int kind);
cudaError_t cuda_trace_set(void* to, size_t pitch, int value, size_t width, size_t rows);
cudaError_t cuda_trace_to_symbol(void* symbol, size_t size, const void* from, size_t bytes, size_t offset);
cudaError_t cuda_trace_from_symbol(void* to, const void* symbol, size_t size, size_t bytes, size_t offset);
cudaError_t cuda_trace_symbol_address(void** address, void* symbol, size_t size);
cudaError_t cuda_trace_device(int device);  // an error unless it is the one there is
cudaError_t cuda_trace_device_attribute(int* value, int attribute, int device);
cudaError_t cuda_trace_device_properties(cudaDeviceProp* properties, int device);
cudaError_t cuda_trace_new_handle(void** handle);
cudaError_t cuda_trace_delete_handle(void* handle);
cudaError_t cuda_trace_event_record(cudaEvent_t event);
cudaError_t cuda_trace_event_elapsed(float* milliseconds, cudaEvent_t first, cudaEvent_t last);
cudaError_t cuda_trace_set_function_attribute(const void* function, int attribute, int value);
cudaError_t cuda_trace_function_attributes(cudaFuncAttributes* attributes, const void* function);
}

// ---- errors -------------------------------------------------------------------------------------------------------

CUDA_TRACE_INLINE cudaError_t cudaGetLastError() { return cuda_trace_last_error(1); }
CUDA_TRACE_INLINE cudaError_t cudaPeekAtLastError() { return cuda_trace_last_error(0); }
CUDA_TRACE_INLINE const char* cudaGetErrorName(cudaError_t error) { return cuda_trace_error_name(error); }
CUDA_TRACE_INLINE const char* cudaGetErrorString(cudaError_t error) { return cuda_trace_error_string(error); }

// ---- memory -------------------------------------------------------------------------------------------------------

// CUDA has each of them for void** and as a template for a typed pointer. What the host can write itself counts as
// written from the start, as nobody sees the host do it.
#define CUDA_TRACE_ALLOCATE(name, host_writes, ...)                                   \
    CUDA_TRACE_INLINE cudaError_t name(void** base, size_t bytes __VA_ARGS__) {       \
        return cuda_trace_malloc(base, bytes, host_writes);                           \
    }                                                                                 \
    template <class T>                                                                \
    CUDA_TRACE_INLINE cudaError_t name(T** base, size_t bytes __VA_ARGS__) {          \
        return cuda_trace_malloc(reinterpret_cast<void**>(base), bytes, host_writes); \
    }

#define CUDA_TRACE_COMMA ,
CUDA_TRACE_ALLOCATE(cudaMalloc, 0)
CUDA_TRACE_ALLOCATE(cudaMallocAsync, 0, CUDA_TRACE_COMMA cudaStream_t)
CUDA_TRACE_ALLOCATE(cudaMallocHost, 1, CUDA_TRACE_COMMA unsigned = 0)
CUDA_TRACE_ALLOCATE(cudaHostAlloc, 1, CUDA_TRACE_COMMA unsigned)
CUDA_TRACE_ALLOCATE(cudaMallocManaged, 1, CUDA_TRACE_COMMA unsigned = cudaMemAttachGlobal)
#undef CUDA_TRACE_ALLOCATE
#undef CUDA_TRACE_COMMA

CUDA_TRACE_INLINE cudaError_t cudaFree(void* base) { return cuda_trace_free(base); }
CUDA_TRACE_INLINE cudaError_t cudaFreeAsync(void* base, cudaStream_t) { return cuda_trace_free(base); }
CUDA_TRACE_INLINE cudaError_t cudaFreeHost(void* base) { return cuda_trace_free(base); }
CUDA_TRACE_INLINE cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
    return cuda_trace_memory_info(available, total);
}
CUDA_TRACE_INLINE cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return cuda_trace_pointer(attributes, pointer);
}

CUDA_TRACE_INLINE cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cuda_trace_copy(to, bytes, from, bytes, bytes, 1, kind);
}
CUDA_TRACE_INLINE cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                              cudaStream_t = 0) {
    return cuda_trace_copy(to, bytes, from, bytes, bytes, 1, kind);
}
CUDA_TRACE_INLINE cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                           size_t height, cudaMemcpyKind kind) {
    return cuda_trace_copy(to, to_pitch, from, from_pitch, width, height, kind);
}
CUDA_TRACE_INLINE cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                                size_t width, size_t height, cudaMemcpyKind kind,
                                                cudaStream_t = 0) {
    return cuda_trace_copy(to, to_pitch, from, from_pitch, width, height, kind);
}
CUDA_TRACE_INLINE cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    return cuda_trace_set(to, bytes, value, bytes, 1);
}
CUDA_TRACE_INLINE cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = 0) {
    return cuda_trace_set(to, bytes, value, bytes, 1);
}
CUDA_TRACE_INLINE cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    return cuda_trace_set(to, pitch, value, width, height);
}

// A symbol is the variable itself: __constant__ and __device__ variables are ordinary ones here.
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                                 cudaMemcpyKind = cudaMemcpyHostToDevice) {
    return cuda_trace_to_symbol(const_cast<T*>(&symbol), sizeof(symbol), from, bytes, offset);
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes, size_t offset,
                                                      cudaMemcpyKind kind, cudaStream_t = 0) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                                   cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    return cuda_trace_from_symbol(to, &symbol, sizeof(symbol), bytes, offset);
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset,
                                                        cudaMemcpyKind kind, cudaStream_t = 0) {
    return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
    return cuda_trace_symbol_address(address, const_cast<T*>(&symbol), sizeof(symbol));
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaGetSymbolSize(size_t* size, const T& symbol) {
    *size = sizeof(symbol);
    return cudaSuccess;
}

// ---- devices ------------------------------------------------------------------------------------------------------

CUDA_TRACE_INLINE cudaError_t cudaDeviceSynchronize() { return cuda_trace_synchronize(); }
CUDA_TRACE_INLINE cudaError_t cudaDeviceReset() { return cuda_trace_synchronize(); }
CUDA_TRACE_INLINE cudaError_t cudaSetDevice(int device) { return cuda_trace_device(device); }
CUDA_TRACE_INLINE cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return cuda_trace_device_attribute(value, attribute, device);
}
CUDA_TRACE_INLINE cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return cuda_trace_device_properties(properties, device);
}

// ---- streams and events -------------------------------------------------------------------------------------------

CUDA_TRACE_INLINE cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cuda_trace_new_handle(reinterpret_cast<void**>(stream));
}
CUDA_TRACE_INLINE cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return cudaStreamCreate(stream);
}
CUDA_TRACE_INLINE cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    return cudaStreamCreate(stream);
}
CUDA_TRACE_INLINE cudaError_t cudaStreamDestroy(cudaStream_t stream) { return cuda_trace_delete_handle(stream); }
CUDA_TRACE_INLINE cudaError_t cudaStreamSynchronize(cudaStream_t) { return cuda_trace_synchronize(); }
CUDA_TRACE_INLINE cudaError_t cudaStreamQuery(cudaStream_t) { return cuda_trace_synchronize(); }
CUDA_TRACE_INLINE cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
CUDA_TRACE_INLINE cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = 0;
    return cudaSuccess;
}
CUDA_TRACE_INLINE cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
    function(data);
    return cudaSuccess;
}

CUDA_TRACE_INLINE cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cuda_trace_new_handle(reinterpret_cast<void**>(event));
}
CUDA_TRACE_INLINE cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
CUDA_TRACE_INLINE cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
CUDA_TRACE_INLINE cudaError_t cudaEventDestroy(cudaEvent_t event) { return cuda_trace_delete_handle(event); }
CUDA_TRACE_INLINE cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = 0) {
    return cuda_trace_event_record(event);
}
CUDA_TRACE_INLINE cudaError_t cudaEventSynchronize(cudaEvent_t) { return cuda_trace_synchronize(); }
CUDA_TRACE_INLINE cudaError_t cudaEventQuery(cudaEvent_t) { return cuda_trace_synchronize(); }
CUDA_TRACE_INLINE cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    return cuda_trace_event_elapsed(milliseconds, first, last);
}

// ---- kernels ------------------------------------------------------------------------------------------------------

// The address of a kernel, as the launch code will ask for it; `const void*` comes here as it is.
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
    return cuda_trace_set_function_attribute((const void*)kernel, attribute, value);
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
    return cuda_trace_function_attributes(attributes, (const void*)kernel);
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaFuncSetCacheConfig(T*, cudaFuncCache) {
    return cudaSuccess;
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaFuncSetSharedMemConfig(T*, cudaSharedMemConfig) {
    return cudaSuccess;
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T*, int, size_t) {
    return *blocks = 1, cudaSuccess;
}
template <class T>
CUDA_TRACE_INLINE cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, T*, size_t = 0,
                                                                 int limit = 0) {
    *blocks = 132;
    *threads = limit > 0 && limit < 1024 ? limit : 1024;
    return cudaSuccess;
}

// Launches other than <<<>>> take the parameters as void*, where their types, and so their names in a report, are lost.
#define CUDA_TRACE_REFUSE(name, reason) \
    template <class... A>               \
    cudaError_t name(A&&...) __attribute__((error("CUDA_TRACE_REFUSED: " #name ": " reason)));

CUDA_TRACE_REFUSE(cudaLaunchKernel, "launch with kernel<<<grid, block, shared, stream>>>(...) instead")
CUDA_TRACE_REFUSE(cudaLaunchKernelEx, "launch with kernel<<<grid, block, shared, stream>>>(...); no clusters")
CUDA_TRACE_REFUSE(cudaLaunchKernelExC, "launch with kernel<<<grid, block, shared, stream>>>(...); no clusters")
CUDA_TRACE_REFUSE(cudaLaunchCooperativeKernel, "cooperative launches are not covered")
CUDA_TRACE_REFUSE(cudaStreamBeginCapture, "CUDA graphs are not covered")
#undef CUDA_TRACE_REFUSE
