// Between the CUDA runtime API (host_*.cpp), the launches (scheduler.cpp) and what is known of memory (memory.cpp).
#pragma once

#include <cstddef>

namespace cuda_trace {

constexpr size_t DEVICE_MEMORY = size_t{8} << 30;  // bytes; cudaMalloc touches every page, so not those of a real GPU
constexpr size_t DEFAULT_SHARED = 48 * 1024, LARGEST_SHARED = 227 * 1024;  // bytes a block: as it is, and after opting in

// ---- host_api.cpp -------------------------------------------------------------------------------------------------

// Remembers that a launch failed, until somebody asks for the error. Where two fail and nobody asks, the first is told.
void fail(int error, const char* text);
bool unasked();
const char* unasked_text();
void forget_error();

// ---- host_device.cpp ----------------------------------------------------------------------------------------------

size_t dynamic_shared_limit(const void* function);  // bytes; what cudaFuncSetAttribute gave it, or DEFAULT_SHARED

// ---- memory.cpp ---------------------------------------------------------------------------------------------------

void heap_added(void* base, size_t bytes);  // by cudaMalloc: poisoned, nobody has written it
void heap_removed(void* base);
void written_by_host(const void* base, size_t bytes);
bool known(const void* base, size_t bytes);  // all of it is memory that a kernel may touch

}  // namespace cuda_trace
