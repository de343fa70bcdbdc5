// The CUDA runtime API: errors and whether they were checked, memory, symbols.
#include "host.h"

#include "../../runtime/runtime.h"
#include "../include/shim/host_types.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace emulator {
namespace {

// Bytes on both sides, where an access out of bounds is harmless.
constexpr size_t MARGIN = 64 * 1024;
constexpr size_t ALIGNMENT = 256;

struct Allocation {
    char* start;  // start of the margin below
    size_t bytes;
};

std::mutex lock;
cudaError_t last_error = cudaSuccess;
cudaError_t launch_error = cudaSuccess;  // first failed launch since the last check
std::string launch_text;
std::map<void*, Allocation> allocations;
std::map<char*, size_t> symbols;  // symbols whose address was taken
size_t allocated = 0;

// Later calls return errors of a running kernel; only cudaGetLastError and Peek return errors of
// the launch itself.
bool while_running(cudaError_t error) {
    return error >= cudaErrorIllegalAddress && error < cudaErrorNotPermitted && error != cudaErrorLaunchOutOfResources;
}

cudaError_t returned(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t failed_while_running() {
    if (!while_running(launch_error)) return cudaSuccess;
    cudaError_t error = launch_error;
    launch_error = cudaSuccess;  // it has been checked; the error itself stays until it is reset
    return error;
}

bool on_device(const void* base, size_t bytes) {
    if (is_device_memory(base, bytes)) return true;
    auto* low = static_cast<char*>(const_cast<void*>(base));
    auto symbol = symbols.upper_bound(low);
    if (symbol == symbols.begin()) return false;
    --symbol;
    return low + bytes <= symbol->first + symbol->second;
}

}  // namespace

void launch_failed(int error, const char* text) {
    std::lock_guard<std::mutex> guard(lock);
    last_error = static_cast<cudaError_t>(error);
    if (launch_error != cudaSuccess) return;
    launch_error = last_error;
    launch_text = text;
}

bool has_unchecked_error() {
    std::lock_guard<std::mutex> guard(lock);
    return launch_error != cudaSuccess;
}

const char* unchecked_error_text() {
    std::lock_guard<std::mutex> guard(lock);
    return launch_error == cudaSuccess ? "" : launch_text.c_str();
}

void clear_errors() {
    std::lock_guard<std::mutex> guard(lock);
    last_error = launch_error = cudaSuccess;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

// ---- errors -------------------------------------------------------------------------------------

cudaError_t emulator_cuda_last_error(int reset) {
    std::lock_guard<std::mutex> guard(lock);
    cudaError_t error = last_error;
    launch_error = cudaSuccess;
    if (reset) last_error = cudaSuccess;
    return error;
}

cudaError_t emulator_cuda_synchronize() {
    std::lock_guard<std::mutex> guard(lock);
    return failed_while_running();
}

cudaError_t emulator_cuda_returned(cudaError_t error) {
    std::lock_guard<std::mutex> guard(lock);
    return returned(error);
}

const char* emulator_cuda_error_name(cudaError_t error) {
    switch (error) {
#define CUDA_SHIM_ERROR(name, value, meaning) \
    case name: return #name;
        CUDA_SHIM_ERRORS(CUDA_SHIM_ERROR)
#undef CUDA_SHIM_ERROR
    }
    return "unrecognized error code";
}

const char* emulator_cuda_error_string(cudaError_t error) {
    switch (error) {
#define CUDA_SHIM_ERROR(name, value, meaning) \
    case name: return meaning;
        CUDA_SHIM_ERRORS(CUDA_SHIM_ERROR)
#undef CUDA_SHIM_ERROR
    }
    return "unrecognized error code";
}

// ---- memory -------------------------------------------------------------------------------------

cudaError_t emulator_cuda_malloc(void** base, size_t bytes, int host_writes) {
    std::lock_guard<std::mutex> guard(lock);
    if (!base) return returned(cudaErrorInvalidValue);
    *base = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > DEVICE_MEMORY - allocated) return returned(cudaErrorMemoryAllocation);
    size_t whole = (bytes + 2 * MARGIN + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    auto* start = static_cast<char*>(std::aligned_alloc(ALIGNMENT, whole));
    if (!start) return returned(cudaErrorMemoryAllocation);
    std::memset(start, POISON, whole);
    *base = start + MARGIN;
    allocations[*base] = {start, bytes};
    allocated += bytes;
    allocation_added(*base, bytes);
    if (host_writes) written_by_host(*base, bytes);
    return cudaSuccess;
}

cudaError_t emulator_cuda_free(void* base) {
    std::lock_guard<std::mutex> guard(lock);
    if (!base) return cudaSuccess;
    auto entry = allocations.find(base);
    if (entry == allocations.end()) return returned(cudaErrorInvalidValue);
    allocation_removed(base);
    allocated -= entry->second.bytes;
    std::free(entry->second.start);
    allocations.erase(entry);
    return failed_while_running();
}

cudaError_t emulator_cuda_memory_info(size_t* available, size_t* total) {
    std::lock_guard<std::mutex> guard(lock);
    *available = DEVICE_MEMORY - allocated;
    *total = DEVICE_MEMORY;
    return cudaSuccess;
}

cudaError_t emulator_cuda_pointer(cudaPointerAttributes* attributes, const void* pointer) {
    std::lock_guard<std::mutex> guard(lock);
    bool device = on_device(pointer, 1);
    void* address = const_cast<void*>(pointer);
    if (device) *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
    else *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, address};
    return cudaSuccess;
}

cudaError_t emulator_cuda_copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                            int kind) {
    std::lock_guard<std::mutex> guard(lock);
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return returned(cudaErrorInvalidMemcpyDirection);
    if (width == 0 || rows == 0) return failed_while_running();
    if (width > to_pitch || width > from_pitch) return returned(cudaErrorInvalidPitchValue);
    if (!to || !from) return returned(cudaErrorInvalidValue);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (to_device && !on_device(to, (rows - 1) * to_pitch + width)) return returned(cudaErrorInvalidValue);
    if (from_device && !on_device(from, (rows - 1) * from_pitch + width)) return returned(cudaErrorInvalidValue);
    for (size_t row = 0; row < rows; ++row) {
        char* at = static_cast<char*>(to) + row * to_pitch;
        std::memmove(at, static_cast<const char*>(from) + row * from_pitch, width);
        written_by_host(at, width);
    }
    return failed_while_running();
}

cudaError_t emulator_cuda_set(void* to, size_t pitch, int value, size_t width, size_t rows) {
    std::lock_guard<std::mutex> guard(lock);
    if (width == 0 || rows == 0) return failed_while_running();
    if (width > pitch) return returned(cudaErrorInvalidPitchValue);
    if (!on_device(to, (rows - 1) * pitch + width)) return returned(cudaErrorInvalidValue);
    for (size_t row = 0; row < rows; ++row) {
        char* at = static_cast<char*>(to) + row * pitch;
        std::memset(at, value, width);
        written_by_host(at, width);
    }
    return failed_while_running();
}

cudaError_t emulator_cuda_to_symbol(void* symbol, size_t size, const void* from, size_t bytes, size_t offset) {
    std::lock_guard<std::mutex> guard(lock);
    if (offset > size || bytes > size - offset) return returned(cudaErrorInvalidValue);
    std::memmove(static_cast<char*>(symbol) + offset, from, bytes);
    written_by_host(static_cast<char*>(symbol) + offset, bytes);
    return failed_while_running();
}

cudaError_t emulator_cuda_from_symbol(void* to, const void* symbol, size_t size, size_t bytes, size_t offset) {
    std::lock_guard<std::mutex> guard(lock);
    if (offset > size || bytes > size - offset) return returned(cudaErrorInvalidValue);
    std::memmove(to, static_cast<const char*>(symbol) + offset, bytes);
    written_by_host(to, bytes);
    return failed_while_running();
}

cudaError_t emulator_cuda_symbol_address(void** address, void* symbol, size_t size) {
    std::lock_guard<std::mutex> guard(lock);
    symbols[static_cast<char*>(symbol)] = size;
    *address = symbol;
    return cudaSuccess;
}

}  // extern "C"
