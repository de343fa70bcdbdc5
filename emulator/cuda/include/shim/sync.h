// Who a thread is, and how threads meet: indices, barriers, shuffles, votes, fences.
#pragma once

#include "warp_ops.h"

extern "C" {
struct cuda_trace_dim {
    unsigned x, y, z;
};
// const: the same for one thread, however often it asks.
__attribute__((const)) cuda_trace_dim cuda_trace_thread_index();
__attribute__((const)) cuda_trace_dim cuda_trace_block_index();
__attribute__((const)) cuda_trace_dim cuda_trace_block_size();
__attribute__((const)) cuda_trace_dim cuda_trace_grid_size();
int cuda_trace_barrier(int op, int value, const char* file, int line);
uint64_t cuda_trace_warp(int op, unsigned mask, uint64_t value, int argument, int width, const char* file, int line);
void cuda_trace_left();
void cuda_trace_trap(const char* text, const char* file, int line);
}

namespace cuda_trace {
CUDA_TRACE_INLINE uint3 index(cuda_trace_dim d) { return uint3{d.x, d.y, d.z}; }
CUDA_TRACE_INLINE dim3 size(cuda_trace_dim d) { return dim3(d.x, d.y, d.z); }
CUDA_TRACE_INLINE void left() { cuda_trace_left(); }

// The compiler may not carry values of memory over a meeting of threads.
CUDA_TRACE_INLINE int barrier(int op, int value, const char* file, int line) {
    asm volatile("" ::: "memory");
    int result = cuda_trace_barrier(op, value, file, line);
    asm volatile("" ::: "memory");
    return result;
}

CUDA_TRACE_INLINE uint64_t warp(int op, unsigned mask, uint64_t value, int argument, int width, const char* file, int line) {
    asm volatile("" ::: "memory");
    uint64_t result = cuda_trace_warp(op, mask, value, argument, width, file, line);
    asm volatile("" ::: "memory");
    return result;
}

template <class T>
CUDA_TRACE_INLINE T shuffle(int op, unsigned mask, T value, int argument, int width, const char* file, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    word = warp(op, mask, word, argument, width, file, line);
    __builtin_memcpy(&value, &word, sizeof(T));
    return value;
}
}  // namespace cuda_trace

#define threadIdx (::cuda_trace::index(cuda_trace_thread_index()))
#define blockIdx (::cuda_trace::index(cuda_trace_block_index()))
#define blockDim (::cuda_trace::size(cuda_trace_block_size()))
#define gridDim (::cuda_trace::size(cuda_trace_grid_size()))

// Where the author's line is: default arguments are those of the caller.
#define CUDA_TRACE_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

CUDA_TRACE_INLINE void __syncthreads(CUDA_TRACE_HERE) { ::cuda_trace::barrier(0, 0, file, line); }
CUDA_TRACE_INLINE int __syncthreads_and(int p, CUDA_TRACE_HERE) { return ::cuda_trace::barrier(1, p, file, line); }
CUDA_TRACE_INLINE int __syncthreads_or(int p, CUDA_TRACE_HERE) { return ::cuda_trace::barrier(2, p, file, line); }
CUDA_TRACE_INLINE int __syncthreads_count(int p, CUDA_TRACE_HERE) { return ::cuda_trace::barrier(3, p, file, line); }
CUDA_TRACE_INLINE void __barrier_sync(unsigned, CUDA_TRACE_HERE) { ::cuda_trace::barrier(0, 0, file, line); }

CUDA_TRACE_INLINE void __syncwarp(unsigned mask = 0xffffffffu, CUDA_TRACE_HERE) {
    ::cuda_trace::warp(::cuda_trace::SYNCWARP, mask, 0, 0, 32, file, line);
}

template <class T>
CUDA_TRACE_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CUDA_TRACE_HERE) {
    return ::cuda_trace::shuffle(::cuda_trace::SHFL, mask, value, lane, width, file, line);
}
template <class T>
CUDA_TRACE_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDA_TRACE_HERE) {
    return ::cuda_trace::shuffle(::cuda_trace::SHFL_UP, mask, value, static_cast<int>(delta), width, file, line);
}
template <class T>
CUDA_TRACE_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDA_TRACE_HERE) {
    return ::cuda_trace::shuffle(::cuda_trace::SHFL_DOWN, mask, value, static_cast<int>(delta), width, file, line);
}
template <class T>
CUDA_TRACE_INLINE T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, CUDA_TRACE_HERE) {
    return ::cuda_trace::shuffle(::cuda_trace::SHFL_XOR, mask, value, lanes, width, file, line);
}

CUDA_TRACE_INLINE int __all_sync(unsigned mask, int p, CUDA_TRACE_HERE) {
    return static_cast<int>(::cuda_trace::warp(::cuda_trace::ALL, mask, p != 0, 0, 32, file, line));
}
CUDA_TRACE_INLINE int __any_sync(unsigned mask, int p, CUDA_TRACE_HERE) {
    return static_cast<int>(::cuda_trace::warp(::cuda_trace::ANY, mask, p != 0, 0, 32, file, line));
}
CUDA_TRACE_INLINE unsigned __ballot_sync(unsigned mask, int p, CUDA_TRACE_HERE) {
    return static_cast<unsigned>(::cuda_trace::warp(::cuda_trace::BALLOT, mask, p != 0, 0, 32, file, line));
}
template <class T>
CUDA_TRACE_INLINE unsigned __match_any_sync(unsigned mask, T value, CUDA_TRACE_HERE) {
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    return static_cast<unsigned>(::cuda_trace::warp(::cuda_trace::MATCH_ANY, mask, word, 0, 32, file, line));
}
template <class T>
CUDA_TRACE_INLINE unsigned __match_all_sync(unsigned mask, T value, int* same, CUDA_TRACE_HERE) {
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    unsigned lanes = static_cast<unsigned>(::cuda_trace::warp(::cuda_trace::MATCH_ALL, mask, word, 0, 32, file, line));
    *same = lanes != 0;
    return lanes;
}

#define CUDA_TRACE_REDUCE(NAME, T, OP) \
    CUDA_TRACE_INLINE T NAME(unsigned mask, T value, CUDA_TRACE_HERE) { \
        return static_cast<T>(::cuda_trace::warp(::cuda_trace::OP, mask, static_cast<unsigned>(value), 0, 32, file, line)); \
    }
CUDA_TRACE_REDUCE(__reduce_add_sync, int, REDUCE_ADD)
CUDA_TRACE_REDUCE(__reduce_add_sync, unsigned, REDUCE_ADD)
CUDA_TRACE_REDUCE(__reduce_min_sync, int, REDUCE_MIN_S)
CUDA_TRACE_REDUCE(__reduce_min_sync, unsigned, REDUCE_MIN_U)
CUDA_TRACE_REDUCE(__reduce_max_sync, int, REDUCE_MAX_S)
CUDA_TRACE_REDUCE(__reduce_max_sync, unsigned, REDUCE_MAX_U)
CUDA_TRACE_REDUCE(__reduce_and_sync, unsigned, REDUCE_AND)
CUDA_TRACE_REDUCE(__reduce_or_sync, unsigned, REDUCE_OR)
CUDA_TRACE_REDUCE(__reduce_xor_sync, unsigned, REDUCE_XOR)
#undef CUDA_TRACE_REDUCE

// Fences order what one thread does, not what two threads do to each other: nothing to remember.
CUDA_TRACE_INLINE void __threadfence() { asm volatile("" ::: "memory"); }
CUDA_TRACE_INLINE void __threadfence_block() { asm volatile("" ::: "memory"); }
CUDA_TRACE_INLINE void __threadfence_system() { asm volatile("" ::: "memory"); }
CUDA_TRACE_INLINE void __trap(CUDA_TRACE_HERE) { cuda_trace_trap("__trap()", file, line); }
CUDA_TRACE_INLINE void __brkpt(CUDA_TRACE_HERE) { cuda_trace_trap("__brkpt()", file, line); }
