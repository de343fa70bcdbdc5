// Atomics: the runtime returns the old value; the new value is computed here, and the runtime
// stores it. Nothing comes between, because threads are switched only inside the runtime.
#pragma once

#include "../../../runtime/kernel_api.h"

namespace emulator {
template <class T, class F>
CUDA_SHIM_INLINE T update(T* place, F next) {
    T old;
    asm volatile("" ::: "memory");
    emulator_atomic(place, sizeof(T), &old);
    T value = next(old);
    emulator_put(place, sizeof(T), &value);
    asm volatile("" ::: "memory");
    return old;
}
template <class T>
// Excludes a parameter from deduction: atomicAdd(float*, int) is atomicAdd(float*, float).
struct Undeduced {
    using type = T;
};
template <class T>
using undeduced = typename Undeduced<T>::type;
}  // namespace emulator

#define CUDA_SHIM_ATOMIC(NAME, EXPRESSION) \
    template <class T> \
    CUDA_SHIM_INLINE T NAME(T* place, ::emulator::undeduced<T> value) { \
        return ::emulator::update(place, [&](T old) __attribute__((always_inline)) -> T { return EXPRESSION; }); \
    } \
    template <class T> \
    CUDA_SHIM_INLINE T NAME##_block(T* place, ::emulator::undeduced<T> value) { \
        return NAME(place, value); \
    } \
    template <class T> \
    CUDA_SHIM_INLINE T NAME##_system(T* place, ::emulator::undeduced<T> value) { \
        return NAME(place, value); \
    }

CUDA_SHIM_ATOMIC(atomicAdd, old + value)
CUDA_SHIM_ATOMIC(atomicSub, old - value)
CUDA_SHIM_ATOMIC(atomicMax, old > value ? old : value)
CUDA_SHIM_ATOMIC(atomicMin, old < value ? old : value)
CUDA_SHIM_ATOMIC(atomicExch, ((void)old, value))
CUDA_SHIM_ATOMIC(atomicAnd, old & value)
CUDA_SHIM_ATOMIC(atomicOr, old | value)
CUDA_SHIM_ATOMIC(atomicXor, old ^ value)
CUDA_SHIM_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_SHIM_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef CUDA_SHIM_ATOMIC

template <class T>
CUDA_SHIM_INLINE T atomicCAS(T* place, ::emulator::undeduced<T> compare, ::emulator::undeduced<T> value) {
    return ::emulator::update(
        place, [&](T old) __attribute__((always_inline)) -> T { return __builtin_memcmp(&old, &compare, sizeof(T)) ? old : value; });
}
template <class T>
CUDA_SHIM_INLINE T atomicCAS_block(T* place, ::emulator::undeduced<T> compare, ::emulator::undeduced<T> value) {
    return atomicCAS(place, compare, value);
}
template <class T>
CUDA_SHIM_INLINE T atomicCAS_system(T* place, ::emulator::undeduced<T> compare, ::emulator::undeduced<T> value) {
    return atomicCAS(place, compare, value);
}
