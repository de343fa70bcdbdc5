// The runtime that compiled CuTe DSL code calls instead of libcute_dsl_runtime.so: its functions
// keep the names and parameters of those. Python (emulator/cutedsl/library.py) does the work.
#pragma once

#include <cstddef>

namespace emulator::cutedsl {

// Values of cudaError_t.
enum Error { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, NOT_SUPPORTED = 801, LAUNCH_FAILED = 719 };

// Functions of Python. Each returns 0 or a negative number after an exception, which the caller of
// the compiled code raises.
struct Python {
    int (*load)(const void* image);                     // returns the number of the library
    int (*kernel)(int library, const char* name);       // returns the number of the kernel
    int (*attribute)(int number);                       // of the device, as in cudaDeviceAttr
    // Returns an Error.
    int (*launch)(int kernel, const unsigned* grid, const unsigned* block, const unsigned* cluster, size_t shared, void** arguments);
    void (*refuse)(const char* what);
};

extern Python python;

int refused(const char* what);

}  // namespace emulator::cutedsl
