// How every function of the shim is declared.
#pragma once

// Inlined even at -O0, so that what a function reads or writes through the author's pointer is an access of the author's
// line: the debug information then has the call as the frame around it (addr2line -i; the attribute "artificial" changes
// nothing there). Also the reason why nothing here is excluded from instrumentation.
#define CUDA_TRACE_INLINE inline __attribute__((always_inline))

namespace cuda_trace {

template <class To, class From>
CUDA_TRACE_INLINE To bits_as(From from) {
    return __builtin_bit_cast(To, from);  // never through memory, which would be an access of the thread's
}

// T, where a template's parameter is to be known from its other arguments: __stcs(float*, 0) stores a float.
template <class T>
struct same {
    using type = T;
};

}  // namespace cuda_trace
