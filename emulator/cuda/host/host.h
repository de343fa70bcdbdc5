// State that the parts of the CUDA runtime API share.
#pragma once

#include <cstddef>

namespace emulator {

constexpr size_t DEVICE_MEMORY = size_t{8} << 30;  // bytes; less than a real GPU has, because cudaMalloc touches every page

// ---- host_api.cpp -------------------------------------------------------------------------------

// Remembers a failed launch until the host code checks for errors. If several fail before a check,
// the first is kept.
void launch_failed(int error, const char* text);
bool has_unchecked_error();
const char* unchecked_error_text();
void clear_errors();

// ---- host_device.cpp ----------------------------------------------------------------------------

size_t dynamic_shared_limit(const void* function);  // bytes; set by cudaFuncSetAttribute, or DEFAULT_SHARED

}  // namespace emulator
