// Loads and stores with a cache hint, which is ignored here; and the clocks.
#pragma once

#include "inline.h"

#include <time.h>  // clock()

template <class T>
CUDA_SHIM_INLINE T __ldg(const T* from) {
    return *from;
}
template <class T>
CUDA_SHIM_INLINE T __ldca(const T* from) {
    return *from;
}
template <class T>
CUDA_SHIM_INLINE T __ldcg(const T* from) {
    return *from;
}
template <class T>
CUDA_SHIM_INLINE T __ldcs(const T* from) {
    return *from;
}
template <class T>
CUDA_SHIM_INLINE T __ldlu(const T* from) {
    return *from;
}
template <class T>
CUDA_SHIM_INLINE T __ldcv(const T* from) {
    return *from;
}

template <class T>
CUDA_SHIM_INLINE void __stwb(T* to, typename emulator::same<T>::type value) {
    *to = value;
}
template <class T>
CUDA_SHIM_INLINE void __stcg(T* to, typename emulator::same<T>::type value) {
    *to = value;
}
template <class T>
CUDA_SHIM_INLINE void __stcs(T* to, typename emulator::same<T>::type value) {
    *to = value;
}
template <class T>
CUDA_SHIM_INLINE void __stwt(T* to, typename emulator::same<T>::type value) {
    *to = value;
}

// Counts its calls, so that two runs see the same time and a loop that waits for a time ends.
extern "C" long long emulator_cuda_clock();

CUDA_SHIM_INLINE long long clock64() { return emulator_cuda_clock(); }
CUDA_SHIM_INLINE void __nanosleep(unsigned) {}
CUDA_SHIM_INLINE void __prof_trigger(int) {}
