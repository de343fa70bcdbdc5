// How every function of the shim is declared.
#pragma once

// Inlined even at -O0, so that an access through the author's pointer belongs to the author's line:
// the debug information then has the call as the frame around it (addr2line -i; the attribute
// "artificial" changes nothing there). For the same reason nothing here is excluded from
// instrumentation.
#define CUDA_SHIM_INLINE inline __attribute__((always_inline))

namespace emulator {

template <class To, class From>
CUDA_SHIM_INLINE To bits_as(From from) {
    return __builtin_bit_cast(To, from);  // never through memory, which would be an access
}

// T, not deduced from this parameter: __stcs(float*, 0) stores a float.
template <class T>
struct same {
    using type = T;
};

}  // namespace emulator
