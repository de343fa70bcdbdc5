// Min and max of floating-point numbers: -0 is less than +0; a NaN loses, but wins with .NaN.
#pragma once

#include "number.h"

namespace emulator::ptx {

// Magnitudes: .xorsign.abs compares absolute values, and the result has the product of the signs.
template <bool Max, bool NaN, bool Magnitudes>
struct Extreme {
    template <class T>
    T operator()(T a, T b) const {
        using B = bits_type<T>;
        const B sign = (as<B>(a) ^ as<B>(b)) & sign_bit<T>;
        if constexpr (Magnitudes) {
            a = as<T>(static_cast<B>(as<B>(a) & ~sign_bit<T>));
            b = as<T>(static_cast<B>(as<B>(b) & ~sign_bit<T>));
        }
        const T equal = as<T>(static_cast<B>(Max ? as<B>(a) & as<B>(b) : as<B>(a) | as<B>(b)));
        const T ordered = (Max ? a > b : a < b) ? a : (Max ? b > a : b < a) ? b : equal;
        const T result = a != a ? NaN ? a : b : b != b ? NaN ? b : a : ordered;
        return Magnitudes && result == result ? as<T>(static_cast<B>(as<B>(result) | sign)) : result;
    }
};

}  // namespace emulator::ptx
