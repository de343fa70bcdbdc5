// The CUDA runtime API with a substitute for the runtime's memory, for
// tests/emulator/cuda/test_host.py. Each function returns the line of the first expectation that
// failed, or 0.
#include "emulator/cuda/host/host.h"

#include "emulator/runtime/runtime.h"

#include "shim/vector_types.h"
#include "shim/host_api.h"

#include <cstring>
#include <map>

static std::map<const char*, size_t> heap;
static size_t written;

namespace emulator {
void allocation_added(void* base, size_t bytes) { heap[static_cast<char*>(base)] = bytes; }
void allocation_removed(void* base) { heap.erase(static_cast<char*>(base)); }
void written_by_host(const void*, size_t bytes) { written += bytes; }
bool is_device_memory(const void* base, size_t bytes) {
    for (auto& [low, size] : heap)
        if (static_cast<const char*>(base) >= low && static_cast<const char*>(base) + bytes <= low + size) return true;
    return false;
}
}  // namespace emulator

using namespace emulator;

#define EXPECT(...) if (!(__VA_ARGS__)) return __LINE__

static void kernel(float*) {}
template <int SIZE>
static void kernel_of_a_size(int*) {}
static float table[4];

extern "C" int memory() {
    float* x = nullptr;
    float values[4] = {1, 2, 3, 4}, back[4] = {};
    EXPECT(cudaMalloc(&x, 16) == cudaSuccess && is_device_memory(x, 16) && !is_device_memory(x, 17));
    EXPECT(reinterpret_cast<size_t>(x) % 256 == 0);
    auto* bytes = reinterpret_cast<unsigned char*>(x);
    for (int i = -64 * 1024; i < 64 * 1024; ++i) EXPECT(bytes[i] == 0xff);  // an access out of bounds stays in the margin
    written = 0;
    EXPECT(cudaMemcpy(x, values, 16, cudaMemcpyHostToDevice) == cudaSuccess && written == 16);
    EXPECT(cudaMemcpyAsync(back, x, 16, cudaMemcpyDeviceToHost) == cudaSuccess && !memcmp(values, back, 16));
    EXPECT(cudaMemcpy(back, x, 17, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(values, back, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(x, values, 16, static_cast<cudaMemcpyKind>(7)) == cudaErrorInvalidMemcpyDirection);
    EXPECT(cudaMemcpy2D(back, 8, x, 4, 4, 2, cudaMemcpyDeviceToHost) == cudaSuccess && back[0] == 1 && back[2] == 2);
    EXPECT(cudaMemset(x, 0, 8) == cudaSuccess && x[1] == 0 && x[2] == 3 && cudaMemset(x, 0, 17) == cudaErrorInvalidValue);
    EXPECT(cudaFree(bytes + 4) == cudaErrorInvalidValue && cudaFree(x) == cudaSuccess && !is_device_memory(x, 1));
    EXPECT(cudaFree(x) == cudaErrorInvalidValue && cudaFree(nullptr) == cudaSuccess);
    EXPECT(cudaMalloc(&x, size_t(1) << 50) == cudaErrorMemoryAllocation && x == nullptr);
    EXPECT(cudaMalloc(&x, 0) == cudaSuccess && x == nullptr);
    written = 0;
    EXPECT(cudaMallocManaged(&x, 64) == cudaSuccess && written == 64 && cudaFree(x) == cudaSuccess);
    clear_errors();
    return 0;
}

extern "C" int symbols() {
    float values[4] = {1, 2, 3, 4}, two[2] = {};
    void* address;
    size_t size;
    EXPECT(cudaMemcpyToSymbol(table, values, 16) == cudaSuccess && table[3] == 4);
    EXPECT(cudaMemcpyFromSymbol(two, table, 8, 8) == cudaSuccess && two[1] == 4);
    EXPECT(cudaMemcpyToSymbol(table, values, 16, 4) == cudaErrorInvalidValue);
    EXPECT(cudaMemset(table, 0, 16) == cudaErrorInvalidValue);
    EXPECT(cudaGetSymbolAddress(&address, table) == cudaSuccess && address == table);
    EXPECT(cudaMemset(address, 0, 16) == cudaSuccess && table[3] == 0);
    EXPECT(cudaGetSymbolSize(&size, table) == cudaSuccess && size == 16);
    clear_errors();
    return 0;
}

extern "C" int errors() {
    EXPECT(!has_unchecked_error() && cudaGetLastError() == cudaSuccess);
    launch_failed(cudaErrorInvalidConfiguration, "2000 threads");
    launch_failed(cudaErrorInvalidConfiguration, "3000 threads");
    EXPECT(has_unchecked_error() && !strcmp(unchecked_error_text(), "2000 threads"));
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && has_unchecked_error());  // it does not return errors of launches that did not start
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration && !has_unchecked_error());
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess);
    launch_failed(cudaErrorIllegalAddress, "x[4]");
    EXPECT(has_unchecked_error() && cudaDeviceSynchronize() == cudaErrorIllegalAddress && !has_unchecked_error());
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaSetDevice(3) == cudaErrorInvalidDevice && !has_unchecked_error() && cudaGetLastError() == cudaErrorInvalidDevice);
    launch_failed(cudaErrorLaunchOutOfResources, "60000 bytes");
    clear_errors();
    EXPECT(!has_unchecked_error() && cudaGetLastError() == cudaSuccess);
    EXPECT(!strcmp(cudaGetErrorName(cudaErrorAssert), "cudaErrorAssert"));
    EXPECT(!strcmp(cudaGetErrorString(cudaErrorInvalidConfiguration), "invalid configuration argument"));
    EXPECT(!strcmp(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code"));
    return 0;
}

extern "C" int attributes() {
    auto address = [](auto* function) { return reinterpret_cast<const void*>(function); };
    cudaFuncAttributes of;
    EXPECT(dynamic_shared_limit(address(kernel)) == DEFAULT_SHARED);
    EXPECT(cudaFuncSetAttribute(kernel_of_a_size<4>, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 * 1024) == cudaSuccess);
    EXPECT(dynamic_shared_limit(address(kernel_of_a_size<4>)) == 96 * 1024);
    EXPECT(dynamic_shared_limit(address(kernel_of_a_size<8>)) == DEFAULT_SHARED);
    EXPECT(cudaFuncSetAttribute((const void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024) == cudaSuccess);
    EXPECT(dynamic_shared_limit(address(kernel)) == LARGEST_SHARED);
    EXPECT(cudaFuncGetAttributes(&of, kernel) == cudaSuccess && of.maxDynamicSharedSizeBytes == 227 * 1024);
    EXPECT(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024) == cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 101) == cudaErrorInvalidValue);
    clear_errors();
    return 0;
}

extern "C" int device() {
    cudaDeviceProp properties;
    int value;
    EXPECT(cudaGetDeviceCount(&value) == cudaSuccess && value == 1 && cudaGetDevice(&value) == cudaSuccess && value == 0);
    EXPECT(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    EXPECT(properties.warpSize == 32 && properties.maxThreadsDim[2] == 64 && properties.maxGridSize[1] == 65535);
    EXPECT(properties.sharedMemPerBlock == DEFAULT_SHARED && properties.sharedMemPerBlockOptin == LARGEST_SHARED);
    EXPECT(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess && value == 132);
    EXPECT(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0) == cudaErrorInvalidValue);
    clear_errors();
    return 0;
}

extern "C" int streams_and_events() {
    cudaStream_t stream, other;
    cudaEvent_t first, last;
    float milliseconds = -1;
    EXPECT(cudaStreamCreate(&stream) == cudaSuccess && cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    EXPECT(stream && other && stream != other && cudaStreamSynchronize(stream) == cudaSuccess);
    EXPECT(cudaEventCreate(&first) == cudaSuccess && cudaEventCreateWithFlags(&last, cudaEventDefault) == cudaSuccess);
    EXPECT(cudaEventElapsedTime(&milliseconds, first, last) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaEventRecord(first, stream) == cudaSuccess && cudaEventRecord(last) == cudaSuccess);
    EXPECT(cudaEventElapsedTime(&milliseconds, first, last) == cudaSuccess && milliseconds >= 0);
    EXPECT(cudaEventDestroy(first) == cudaSuccess && cudaEventDestroy(last) == cudaSuccess);
    EXPECT(cudaStreamDestroy(stream) == cudaSuccess && cudaStreamDestroy(other) == cudaSuccess);
    clear_errors();
    return 0;
}
