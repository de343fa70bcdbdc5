// Loads and stores with a hint for the caches, which have none to heed here; and the clocks.
#pragma once

#include "inline.h"

#include <time.h>  // clock()

template <class T>
CUDA_TRACE_INLINE T __ldg(const T* from) {
    return *from;
}
template <class T>
CUDA_TRACE_INLINE T __ldca(const T* from) {
    return *from;
}
template <class T>
CUDA_TRACE_INLINE T __ldcg(const T* from) {
    return *from;
}
template <class T>
CUDA_TRACE_INLINE T __ldcs(const T* from) {
    return *from;
}
template <class T>
CUDA_TRACE_INLINE T __ldlu(const T* from) {
    return *from;
}
template <class T>
CUDA_TRACE_INLINE T __ldcv(const T* from) {
    return *from;
}

template <class T>
CUDA_TRACE_INLINE void __stwb(T* to, typename cuda_trace::same<T>::type value) {
    *to = value;
}
template <class T>
CUDA_TRACE_INLINE void __stcg(T* to, typename cuda_trace::same<T>::type value) {
    *to = value;
}
template <class T>
CUDA_TRACE_INLINE void __stcs(T* to, typename cuda_trace::same<T>::type value) {
    *to = value;
}
template <class T>
CUDA_TRACE_INLINE void __stwt(T* to, typename cuda_trace::same<T>::type value) {
    *to = value;
}

// Counts how often it was asked, so that two runs see the same time and a loop that waits for it ends.
extern "C" long long cuda_trace_clock();

CUDA_TRACE_INLINE long long clock64() { return cuda_trace_clock(); }
CUDA_TRACE_INLINE void __nanosleep(unsigned) {}
CUDA_TRACE_INLINE void __prof_trigger(int) {}
