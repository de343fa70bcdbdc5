// Atomics: the runtime is told of the place and hands over what is there, the new value is computed here and put back.
// Nothing comes between, as threads are switched only where the runtime is entered.
#pragma once

extern "C" {
void cuda_trace_atomic(void* place, unsigned bytes, void* old);
void cuda_trace_put(void* place, unsigned bytes, const void* value);
}

namespace cuda_trace {
template <class T, class F>
CUDA_TRACE_INLINE T update(T* place, F next) {
    T old;
    asm volatile("" ::: "memory");
    cuda_trace_atomic(place, sizeof(T), &old);
    T value = next(old);
    cuda_trace_put(place, sizeof(T), &value);
    asm volatile("" ::: "memory");
    return old;
}
template <class T>
struct Undeduced {  // the type, but not deduced from: atomicAdd(float*, int) is atomicAdd(float*, float)
    using type = T;
};
template <class T>
using undeduced = typename Undeduced<T>::type;
}  // namespace cuda_trace

#define CUDA_TRACE_ATOMIC(NAME, EXPRESSION) \
    template <class T> \
    CUDA_TRACE_INLINE T NAME(T* place, ::cuda_trace::undeduced<T> value) { \
        return ::cuda_trace::update(place, [&](T old) __attribute__((always_inline)) -> T { return EXPRESSION; }); \
    } \
    template <class T> \
    CUDA_TRACE_INLINE T NAME##_block(T* place, ::cuda_trace::undeduced<T> value) { \
        return NAME(place, value); \
    } \
    template <class T> \
    CUDA_TRACE_INLINE T NAME##_system(T* place, ::cuda_trace::undeduced<T> value) { \
        return NAME(place, value); \
    }

CUDA_TRACE_ATOMIC(atomicAdd, old + value)
CUDA_TRACE_ATOMIC(atomicSub, old - value)
CUDA_TRACE_ATOMIC(atomicMax, old > value ? old : value)
CUDA_TRACE_ATOMIC(atomicMin, old < value ? old : value)
CUDA_TRACE_ATOMIC(atomicExch, ((void)old, value))
CUDA_TRACE_ATOMIC(atomicAnd, old & value)
CUDA_TRACE_ATOMIC(atomicOr, old | value)
CUDA_TRACE_ATOMIC(atomicXor, old ^ value)
CUDA_TRACE_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_TRACE_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef CUDA_TRACE_ATOMIC

template <class T>
CUDA_TRACE_INLINE T atomicCAS(T* place, ::cuda_trace::undeduced<T> compare, ::cuda_trace::undeduced<T> value) {
    return ::cuda_trace::update(
        place, [&](T old) __attribute__((always_inline)) -> T { return __builtin_memcmp(&old, &compare, sizeof(T)) ? old : value; });
}
template <class T>
CUDA_TRACE_INLINE T atomicCAS_block(T* place, ::cuda_trace::undeduced<T> compare, ::cuda_trace::undeduced<T> value) {
    return atomicCAS(place, compare, value);
}
template <class T>
CUDA_TRACE_INLINE T atomicCAS_system(T* place, ::cuda_trace::undeduced<T> compare, ::cuda_trace::undeduced<T> value) {
    return atomicCAS(place, compare, value);
}
