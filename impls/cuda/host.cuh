// Shared by all host functions: checks, chooses the instance of a kernel, launches it, stores the
// reason of a refusal.
#pragma once

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "tiles.cuh"

constexpr int LARGEST_FORWARD = 1024, LARGEST_BACKWARD = 256;  // head dims
constexpr int LARGEST_SPLITS = 64;

using In = const void*;  // a tensor of q's dtype, or bias
template <class... P>
using Kernel = void(Problem, P...);

// A kernel for head dims up to `headdim` with tiles of m queries and n keys.
template <class Kernel>
struct Instance {
    int m, n, headdim;
    int64_t bytes;  // of shared memory
    Kernel* kernel;
};

inline thread_local char refusal[512];  // why this thread's last call was refused or failed

// Stores the reason and returns the error.
inline int refuse(cudaError_t error, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal, sizeof(refusal), format, arguments);
    va_end(arguments);
    return error;
}

// Bytes of shared memory that a block on the current device can request. -> a cudaError_t
inline int shared_memory_limit(int64_t* bytes) {
    int device = 0, limit = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (!error) error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    *bytes = limit;
    if (error) (void)cudaGetLastError();  // clears the error, which the next launch would otherwise report
    return error ? refuse(error, "the device does not say how much shared memory it has: %s", cudaGetErrorString(error))
                 : cudaSuccess;
}

// Launches a one-dimensional grid with dynamic shared memory and checks for errors; no launch for 0
// blocks. -> a cudaError_t
template <class... P, class... A>
int launch(const char* name, void (*kernel)(P...), int64_t blocks, int64_t bytes, void* stream, A... arguments) {
    if (blocks == 0) return cudaSuccess;
    if (blocks > INT_MAX)
        return refuse(cudaErrorInvalidConfiguration, "%s: %lld blocks are more than the %d of a grid", name,
                      static_cast<long long>(blocks), INT_MAX);
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    if (!error) kernel<<<unsigned(blocks), THREADS, size_t(bytes), static_cast<cudaStream_t>(stream)>>>(arguments...);
    const cudaError_t last = cudaGetLastError();  // also clears the error
    if (!error) error = last;
    return !error ? cudaSuccess
                  : refuse(error, "%s: %lld blocks of %d threads with %lld bytes of shared memory each: %s", name,
                           static_cast<long long>(blocks), THREADS, static_cast<long long>(bytes),
                           cudaGetErrorString(error));
}

// Chooses among the tiles that fit into shared memory: the smallest that hold both sequences,
// otherwise the largest.
template <class Kernel, size_t COUNT>
int choose(const char* name, const Instance<Kernel> (&instances)[COUNT], const Problem& p,
           const Instance<Kernel>** chosen) {
    int64_t limit;
    if (int error = shared_memory_limit(&limit)) return error;
    *chosen = nullptr;
    const Instance<Kernel>* smallest = nullptr;
    for (const Instance<Kernel>& instance : instances) {
        if (instance.headdim < p.headdim || (smallest && instance.headdim != smallest->headdim)) continue;
        smallest = &instance;
        const bool whole = p.seqlen_q <= instance.m && p.seqlen_k <= instance.n;
        if (instance.bytes <= limit && (!*chosen || whole)) *chosen = &instance;
    }
    if (*chosen) return cudaSuccess;
    return refuse(cudaErrorInvalidConfiguration,
                  "%s: headdim=%d needs %lld bytes of shared memory with tiles of %d queries and %d keys, "
                  "the device has %lld",
                  name, p.headdim, static_cast<long long>(smallest->bytes), smallest->m, smallest->n,
                  static_cast<long long>(limit));
}

// Refuses calls that no kernel supports. -> a cudaError_t
inline int check(const char* name, const int64_t* n, int largest_headdim) {
    static const char* const names[] = {"batch",   "nheads", "nheads_k", "seqlen_q",  "seqlen_k",
                                        "headdim", "dtype",  "bias_dtype", "splits", "first_diagonal",
                                        "last_diagonal"};
    constexpr int64_t LARGEST = 1 << 30;  // an int holds i + seqlen_k, and the end of the last tile
    for (int at = 0; at < 5; ++at)
        if (n[at] < 0 || n[at] > LARGEST)
            return refuse(cudaErrorInvalidValue, "%s: %s=%lld: should be 0 to %lld", name, names[at],
                          static_cast<long long>(n[at]), static_cast<long long>(LARGEST));
    if (n[5] < 1 || n[5] > largest_headdim)
        return refuse(cudaErrorInvalidValue, "%s: headdim=%lld: should be 1 to %d", name, static_cast<long long>(n[5]),
                      largest_headdim);
    if (n[2] ? n[1] % n[2] : n[1])
        return refuse(cudaErrorInvalidValue, "%s: nheads=%lld is not a multiple of nheads_k=%lld", name,
                      static_cast<long long>(n[1]), static_cast<long long>(n[2]));
    for (int at = 6; at < 8; ++at)
        if (n[at] < 0 || n[at] > 2)
            return refuse(cudaErrorInvalidValue, "%s: %s=%lld: should be 0, 1 or 2", name, names[at],
                          static_cast<long long>(n[at]));
    double elements = 1;  // of dq_sums, the largest tensor
    for (int at : {0, 1, 3, 5, 8}) elements *= double(n[at]);
    if (elements > double(INT64_MAX / 8))
        return refuse(cudaErrorInvalidValue, "%s: %g elements are more than an address can reach", name, elements);
    if (n[8] < 1 || n[8] > LARGEST_SPLITS)
        return refuse(cudaErrorInvalidValue, "%s: splits=%lld: should be 1 to %d", name, static_cast<long long>(n[8]),
                      LARGEST_SPLITS);
    for (int at = 9; at < 11; ++at)
        if (n[at] < -LARGEST || n[at] > LARGEST)
            return refuse(cudaErrorInvalidValue, "%s: %s=%lld: should be %lld to %lld", name, names[at],
                          static_cast<long long>(n[at]), static_cast<long long>(-LARGEST),
                          static_cast<long long>(LARGEST));
    return cudaSuccess;
}

inline int64_t tiles(int length, int tile) { return round_up(length, tile) / tile; }
