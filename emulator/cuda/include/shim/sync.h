// Indices of threads, barriers, shuffles, votes, fences.
#pragma once

#include "../../../runtime/kernel_api.h"

namespace emulator {
CUDA_SHIM_INLINE uint3 index(Dim d) { return uint3{d.x, d.y, d.z}; }
CUDA_SHIM_INLINE dim3 size(Dim d) { return dim3(d.x, d.y, d.z); }
CUDA_SHIM_INLINE void returned() { emulator_returned(); }  // source.py puts it into each `return;` of a kernel

// The asm keeps the compiler from moving memory accesses across a barrier or a warp operation.
CUDA_SHIM_INLINE int barrier(int op, int value, const char* file, int line, int place) {
    asm volatile("" ::: "memory");
    int result = emulator_barrier(op, value, file, line, place);
    asm volatile("" ::: "memory");
    return result;
}

CUDA_SHIM_INLINE uint64_t warp(int op, unsigned mask, uint64_t value, int argument, int width, const char* file, int line) {
    asm volatile("" ::: "memory");
    uint64_t result = emulator_warp(op, mask, value, argument, width, file, line);
    asm volatile("" ::: "memory");
    return result;
}

template <class T>
CUDA_SHIM_INLINE T shuffle(int op, unsigned mask, T value, int argument, int width, const char* file, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    word = warp(op, mask, word, argument, width, file, line);
    __builtin_memcpy(&value, &word, sizeof(T));
    return value;
}
}  // namespace emulator

#define threadIdx (::emulator::index(emulator_thread_index()))
#define blockIdx (::emulator::index(emulator_block_index()))
#define blockDim (::emulator::size(emulator_block_size()))
#define gridDim (::emulator::size(emulator_grid_size()))

// Default arguments are evaluated at the call, so these are the author's file and line.
#define CUDA_SHIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// source.py passes the number of the barrier in the file, so that two on one line are told apart.
#define CUDA_SHIM_PLACE CUDA_SHIM_HERE, int place = 0

CUDA_SHIM_INLINE void __syncthreads(CUDA_SHIM_PLACE) {
    ::emulator::barrier(::emulator::SYNC, 0, file, line, place);
}
CUDA_SHIM_INLINE int __syncthreads_and(int p, CUDA_SHIM_PLACE) {
    return ::emulator::barrier(::emulator::SYNC_AND, p, file, line, place);
}
CUDA_SHIM_INLINE int __syncthreads_or(int p, CUDA_SHIM_PLACE) {
    return ::emulator::barrier(::emulator::SYNC_OR, p, file, line, place);
}
CUDA_SHIM_INLINE int __syncthreads_count(int p, CUDA_SHIM_PLACE) {
    return ::emulator::barrier(::emulator::SYNC_COUNT, p, file, line, place);
}
CUDA_SHIM_INLINE void __barrier_sync(unsigned, CUDA_SHIM_PLACE) {
    ::emulator::barrier(::emulator::SYNC, 0, file, line, place);
}

CUDA_SHIM_INLINE void __syncwarp(unsigned mask = 0xffffffffu, CUDA_SHIM_HERE) {
    ::emulator::warp(::emulator::SYNCWARP, mask, 0, 0, 32, file, line);
}

template <class T>
CUDA_SHIM_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CUDA_SHIM_HERE) {
    return ::emulator::shuffle(::emulator::SHFL, mask, value, lane, width, file, line);
}
template <class T>
CUDA_SHIM_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDA_SHIM_HERE) {
    return ::emulator::shuffle(::emulator::SHFL_UP, mask, value, static_cast<int>(delta), width, file, line);
}
template <class T>
CUDA_SHIM_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDA_SHIM_HERE) {
    return ::emulator::shuffle(::emulator::SHFL_DOWN, mask, value, static_cast<int>(delta), width, file, line);
}
template <class T>
CUDA_SHIM_INLINE T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, CUDA_SHIM_HERE) {
    return ::emulator::shuffle(::emulator::SHFL_XOR, mask, value, lanes, width, file, line);
}

CUDA_SHIM_INLINE int __all_sync(unsigned mask, int p, CUDA_SHIM_HERE) {
    return static_cast<int>(::emulator::warp(::emulator::ALL, mask, p != 0, 0, 32, file, line));
}
CUDA_SHIM_INLINE int __any_sync(unsigned mask, int p, CUDA_SHIM_HERE) {
    return static_cast<int>(::emulator::warp(::emulator::ANY, mask, p != 0, 0, 32, file, line));
}
CUDA_SHIM_INLINE unsigned __ballot_sync(unsigned mask, int p, CUDA_SHIM_HERE) {
    return static_cast<unsigned>(::emulator::warp(::emulator::BALLOT, mask, p != 0, 0, 32, file, line));
}
template <class T>
CUDA_SHIM_INLINE unsigned __match_any_sync(unsigned mask, T value, CUDA_SHIM_HERE) {
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    return static_cast<unsigned>(::emulator::warp(::emulator::MATCH_ANY, mask, word, 0, 32, file, line));
}
template <class T>
CUDA_SHIM_INLINE unsigned __match_all_sync(unsigned mask, T value, int* same, CUDA_SHIM_HERE) {
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    unsigned lanes = static_cast<unsigned>(::emulator::warp(::emulator::MATCH_ALL, mask, word, 0, 32, file, line));
    *same = lanes != 0;
    return lanes;
}

#define CUDA_SHIM_REDUCE(NAME, T, OP) \
    CUDA_SHIM_INLINE T NAME(unsigned mask, T value, CUDA_SHIM_HERE) { \
        return static_cast<T>(::emulator::warp(::emulator::OP, mask, static_cast<unsigned>(value), 0, 32, file, line)); \
    }
CUDA_SHIM_REDUCE(__reduce_add_sync, int, REDUCE_ADD)
CUDA_SHIM_REDUCE(__reduce_add_sync, unsigned, REDUCE_ADD)
CUDA_SHIM_REDUCE(__reduce_min_sync, int, REDUCE_MIN_S)
CUDA_SHIM_REDUCE(__reduce_min_sync, unsigned, REDUCE_MIN_U)
CUDA_SHIM_REDUCE(__reduce_max_sync, int, REDUCE_MAX_S)
CUDA_SHIM_REDUCE(__reduce_max_sync, unsigned, REDUCE_MAX_U)
CUDA_SHIM_REDUCE(__reduce_and_sync, unsigned, REDUCE_AND)
CUDA_SHIM_REDUCE(__reduce_or_sync, unsigned, REDUCE_OR)
CUDA_SHIM_REDUCE(__reduce_xor_sync, unsigned, REDUCE_XOR)
#undef CUDA_SHIM_REDUCE

// A fence orders the accesses of one thread, not those of two threads: nothing to record.
CUDA_SHIM_INLINE void __threadfence() { asm volatile("" ::: "memory"); }
CUDA_SHIM_INLINE void __threadfence_block() { asm volatile("" ::: "memory"); }
CUDA_SHIM_INLINE void __threadfence_system() { asm volatile("" ::: "memory"); }
CUDA_SHIM_INLINE void __trap(CUDA_SHIM_HERE) { emulator_trap("__trap()", file, line); }
CUDA_SHIM_INLINE void __brkpt(CUDA_SHIM_HERE) { emulator_trap("__brkpt()", file, line); }
