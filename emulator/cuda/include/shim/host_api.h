// The CUDA runtime API. Asynchronous operations complete at once; streams and events are only
// handles.
//
// The functions here are thin: the state is in emulator/cuda/host, behind the functions
// emulator_cuda_*.
#pragma once

#include "host_types.h"

extern "C" {
cudaError_t emulator_cuda_last_error(int reset);
cudaError_t emulator_cuda_synchronize();
cudaError_t emulator_cuda_returned(cudaError_t error);  // remembers the error that a function returns
const char* emulator_cuda_error_name(cudaError_t error);
const char* emulator_cuda_error_string(cudaError_t error);
cudaError_t emulator_cuda_malloc(void** base, size_t bytes, int host_writes);
cudaError_t emulator_cuda_free(void* base);
cudaError_t emulator_cuda_memory_info(size_t* available, size_t* total);
cudaError_t emulator_cuda_pointer(cudaPointerAttributes* attributes, const void* pointer);
cudaError_t emulator_cuda_copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                            int kind);
cudaError_t emulator_cuda_set(void* to, size_t pitch, int value, size_t width, size_t rows);
cudaError_t emulator_cuda_to_symbol(void* symbol, size_t size, const void* from, size_t bytes, size_t offset);
cudaError_t emulator_cuda_from_symbol(void* to, const void* symbol, size_t size, size_t bytes, size_t offset);
cudaError_t emulator_cuda_symbol_address(void** address, void* symbol, size_t size);
cudaError_t emulator_cuda_device(int device);  // an error unless it is device 0
cudaError_t emulator_cuda_device_attribute(int* value, int attribute, int device);
cudaError_t emulator_cuda_device_properties(cudaDeviceProp* properties, int device);
cudaError_t emulator_cuda_new_handle(void** handle);
cudaError_t emulator_cuda_delete_handle(void* handle);
cudaError_t emulator_cuda_event_record(cudaEvent_t event);
cudaError_t emulator_cuda_event_elapsed(float* milliseconds, cudaEvent_t first, cudaEvent_t last);
cudaError_t emulator_cuda_set_function_attribute(const void* function, int attribute, int value);
cudaError_t emulator_cuda_function_attributes(cudaFuncAttributes* attributes, const void* function);
}

// ---- errors -------------------------------------------------------------------------------------

CUDA_SHIM_INLINE cudaError_t cudaGetLastError() { return emulator_cuda_last_error(1); }
CUDA_SHIM_INLINE cudaError_t cudaPeekAtLastError() { return emulator_cuda_last_error(0); }
CUDA_SHIM_INLINE const char* cudaGetErrorName(cudaError_t error) { return emulator_cuda_error_name(error); }
CUDA_SHIM_INLINE const char* cudaGetErrorString(cudaError_t error) { return emulator_cuda_error_string(error); }

// ---- memory -------------------------------------------------------------------------------------

// CUDA has each of them for void** and as a template for a typed pointer. Memory that the host can
// write counts as written from the start, because writes by the host are not traced.
#define CUDA_SHIM_ALLOCATE(name, host_writes, ...)                                   \
    CUDA_SHIM_INLINE cudaError_t name(void** base, size_t bytes __VA_ARGS__) {       \
        return emulator_cuda_malloc(base, bytes, host_writes);                           \
    }                                                                                 \
    template <class T>                                                                \
    CUDA_SHIM_INLINE cudaError_t name(T** base, size_t bytes __VA_ARGS__) {          \
        return emulator_cuda_malloc(reinterpret_cast<void**>(base), bytes, host_writes); \
    }

#define CUDA_SHIM_COMMA ,
CUDA_SHIM_ALLOCATE(cudaMalloc, 0)
CUDA_SHIM_ALLOCATE(cudaMallocAsync, 0, CUDA_SHIM_COMMA cudaStream_t)
CUDA_SHIM_ALLOCATE(cudaMallocHost, 1, CUDA_SHIM_COMMA unsigned = 0)
CUDA_SHIM_ALLOCATE(cudaHostAlloc, 1, CUDA_SHIM_COMMA unsigned)
CUDA_SHIM_ALLOCATE(cudaMallocManaged, 1, CUDA_SHIM_COMMA unsigned = cudaMemAttachGlobal)
#undef CUDA_SHIM_ALLOCATE
#undef CUDA_SHIM_COMMA

CUDA_SHIM_INLINE cudaError_t cudaFree(void* base) { return emulator_cuda_free(base); }
CUDA_SHIM_INLINE cudaError_t cudaFreeAsync(void* base, cudaStream_t) { return emulator_cuda_free(base); }
CUDA_SHIM_INLINE cudaError_t cudaFreeHost(void* base) { return emulator_cuda_free(base); }
CUDA_SHIM_INLINE cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
    return emulator_cuda_memory_info(available, total);
}
CUDA_SHIM_INLINE cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return emulator_cuda_pointer(attributes, pointer);
}

CUDA_SHIM_INLINE cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return emulator_cuda_copy(to, bytes, from, bytes, bytes, 1, kind);
}
CUDA_SHIM_INLINE cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                              cudaStream_t = 0) {
    return emulator_cuda_copy(to, bytes, from, bytes, bytes, 1, kind);
}
CUDA_SHIM_INLINE cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                           size_t height, cudaMemcpyKind kind) {
    return emulator_cuda_copy(to, to_pitch, from, from_pitch, width, height, kind);
}
CUDA_SHIM_INLINE cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                                size_t width, size_t height, cudaMemcpyKind kind,
                                                cudaStream_t = 0) {
    return emulator_cuda_copy(to, to_pitch, from, from_pitch, width, height, kind);
}
CUDA_SHIM_INLINE cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    return emulator_cuda_set(to, bytes, value, bytes, 1);
}
CUDA_SHIM_INLINE cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = 0) {
    return emulator_cuda_set(to, bytes, value, bytes, 1);
}
CUDA_SHIM_INLINE cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    return emulator_cuda_set(to, pitch, value, width, height);
}

// A symbol is the variable itself: __constant__ and __device__ variables are ordinary variables
// here.
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                                 cudaMemcpyKind = cudaMemcpyHostToDevice) {
    return emulator_cuda_to_symbol(const_cast<T*>(&symbol), sizeof(symbol), from, bytes, offset);
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes, size_t offset,
                                                      cudaMemcpyKind kind, cudaStream_t = 0) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                                   cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    return emulator_cuda_from_symbol(to, &symbol, sizeof(symbol), bytes, offset);
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset,
                                                        cudaMemcpyKind kind, cudaStream_t = 0) {
    return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
    return emulator_cuda_symbol_address(address, const_cast<T*>(&symbol), sizeof(symbol));
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaGetSymbolSize(size_t* size, const T& symbol) {
    *size = sizeof(symbol);
    return cudaSuccess;
}

// ---- devices ------------------------------------------------------------------------------------

CUDA_SHIM_INLINE cudaError_t cudaDeviceSynchronize() { return emulator_cuda_synchronize(); }
CUDA_SHIM_INLINE cudaError_t cudaDeviceReset() { return emulator_cuda_synchronize(); }
CUDA_SHIM_INLINE cudaError_t cudaSetDevice(int device) { return emulator_cuda_device(device); }
CUDA_SHIM_INLINE cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return emulator_cuda_device_attribute(value, attribute, device);
}
CUDA_SHIM_INLINE cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return emulator_cuda_device_properties(properties, device);
}

// ---- streams and events -------------------------------------------------------------------------

CUDA_SHIM_INLINE cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return emulator_cuda_new_handle(reinterpret_cast<void**>(stream));
}
CUDA_SHIM_INLINE cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return cudaStreamCreate(stream);
}
CUDA_SHIM_INLINE cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    return cudaStreamCreate(stream);
}
CUDA_SHIM_INLINE cudaError_t cudaStreamDestroy(cudaStream_t stream) { return emulator_cuda_delete_handle(stream); }
CUDA_SHIM_INLINE cudaError_t cudaStreamSynchronize(cudaStream_t) { return emulator_cuda_synchronize(); }
CUDA_SHIM_INLINE cudaError_t cudaStreamQuery(cudaStream_t) { return emulator_cuda_synchronize(); }
CUDA_SHIM_INLINE cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
CUDA_SHIM_INLINE cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = 0;
    return cudaSuccess;
}
CUDA_SHIM_INLINE cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
    function(data);
    return cudaSuccess;
}

CUDA_SHIM_INLINE cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return emulator_cuda_new_handle(reinterpret_cast<void**>(event));
}
CUDA_SHIM_INLINE cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
CUDA_SHIM_INLINE cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
CUDA_SHIM_INLINE cudaError_t cudaEventDestroy(cudaEvent_t event) { return emulator_cuda_delete_handle(event); }
CUDA_SHIM_INLINE cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = 0) {
    return emulator_cuda_event_record(event);
}
CUDA_SHIM_INLINE cudaError_t cudaEventSynchronize(cudaEvent_t) { return emulator_cuda_synchronize(); }
CUDA_SHIM_INLINE cudaError_t cudaEventQuery(cudaEvent_t) { return emulator_cuda_synchronize(); }
CUDA_SHIM_INLINE cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    return emulator_cuda_event_elapsed(milliseconds, first, last);
}

// ---- kernels ------------------------------------------------------------------------------------

// The kernel's address, as in a launch; a `const void*` is passed on as it is.
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
    return emulator_cuda_set_function_attribute((const void*)kernel, attribute, value);
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
    return emulator_cuda_function_attributes(attributes, (const void*)kernel);
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaFuncSetCacheConfig(T*, cudaFuncCache) {
    return cudaSuccess;
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaFuncSetSharedMemConfig(T*, cudaSharedMemConfig) {
    return cudaSuccess;
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T*, int, size_t) {
    return *blocks = 1, cudaSuccess;
}
template <class T>
CUDA_SHIM_INLINE cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, T*, size_t = 0,
                                                                 int limit = 0) {
    *blocks = 132;
    *threads = limit > 0 && limit < 1024 ? limit : 1024;
    return cudaSuccess;
}

// Launches other than <<<>>> take the parameters as void*, so their types are lost.
#define CUDA_SHIM_REFUSE(name, reason) \
    template <class... A>               \
    cudaError_t name(A&&...) __attribute__((error("CUDA_SHIM_REFUSED: " #name ": " reason)));

CUDA_SHIM_REFUSE(cudaLaunchKernel, "launch with kernel<<<grid, block, shared, stream>>>(...) instead")
CUDA_SHIM_REFUSE(cudaLaunchKernelEx, "launch with kernel<<<grid, block, shared, stream>>>(...); no clusters")
CUDA_SHIM_REFUSE(cudaLaunchKernelExC, "launch with kernel<<<grid, block, shared, stream>>>(...); no clusters")
CUDA_SHIM_REFUSE(cudaLaunchCooperativeKernel, "cooperative launches are not covered")
CUDA_SHIM_REFUSE(cudaStreamBeginCapture, "CUDA graphs are not covered")
#undef CUDA_SHIM_REFUSE
