// The built-ins of nvcc, for g++: included before the first line of an author's .cu
// (emulator/cuda/build.py). emulator/cuda/source.py rewrites __global__, __device__, __shared__ and
// <<<>>>.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <tuple>
#include <utility>

#define __CUDACC__ 1
#define __NVCC__ 1
#define CUDA_ON_CPU 1  // lets a file detect the CPU
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 700  // headers that test it take the branch without inline PTX
#endif

#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline_hint__ inline
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

#define __builtin_assume(condition) ((void)0)

#define CUDA_SHIM_INLINE inline __attribute__((always_inline))

constexpr int warpSize = 32;

#include "shim/vector_types.h"
#include "shim/device_math.h"
#include "shim/host_api.h"
#include "shim/sync.h"
#include "shim/atomics.h"
#include "shim/launch.h"
#include "shim/entry.h"
