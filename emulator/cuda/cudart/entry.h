// Compiled before the first line of an author's .cu by nvcc: the types that include/shim/entry.h
// needs to call its functions from Python, made of nvcc's own types and launches.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <type_traits>
#include <utility>

#define CUDA_SHIM_INLINE inline __attribute__((always_inline))

namespace emulator {

using Dim = uint3;

bool is_kernel(const void* function);  // launches.cpp

struct Config {
    dim3 grid, block;
    size_t shared;
    Config(dim3 grid, dim3 block, size_t shared) : grid(grid), block(block), shared(shared) {}
};

template <class... P>
struct Bound {
    Config config;
    void (*kernel)(P...);
    void operator()(P... arguments) const {
        void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
        cudaLaunchKernel(reinterpret_cast<const void*>(kernel), config.grid, config.block, addresses, config.shared, 0);
    }
};

template <class Call, class... P>
Bound<P...> bind(Config config, const char*, void (*kernel)(P...), Call, const char*, int) {
    return {config, kernel};
}

}  // namespace emulator

#include "../include/shim/entry.h"
