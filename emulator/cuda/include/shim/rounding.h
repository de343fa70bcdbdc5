// Rounding in a direction, and conversion of floats to integers as on a GPU.
#pragma once

#include "inline.h"

namespace emulator {

enum class Round { nearest, zero, up, down };

// Rounds to an integral value, which may be too large for any integer type.
template <Round DIRECTION>
CUDA_SHIM_INLINE double rounded(double value) {
    if (DIRECTION == Round::nearest) return __builtin_rint(value);
    if (DIRECTION == Round::zero) return __builtin_trunc(value);
    return DIRECTION == Round::up ? __builtin_ceil(value) : __builtin_floor(value);
}

// Rounds towards zero. A value out of range becomes the nearest limit, as on a GPU; a C++ cast
// would be undefined. A NaN becomes 0, or the highest bit if the result has 64 bits.
template <class Integer>
CUDA_SHIM_INLINE Integer to_integer(double value) {
    constexpr bool has_sign = static_cast<Integer>(-1) < static_cast<Integer>(1);
    constexpr int bits = 8 * sizeof(Integer);
    constexpr unsigned long long high = 1ull << (bits - 1);
    constexpr Integer most = static_cast<Integer>(has_sign ? high - 1 : high - 1 + high);
    constexpr Integer least = static_cast<Integer>(has_sign ? high : 0);
    constexpr double beyond = has_sign ? 1.0 * high : 2.0 * high;
    if (value != value) return bits == 64 ? static_cast<Integer>(high) : Integer(0);
    if (value >= beyond) return most;
    if (value <= static_cast<double>(least)) return least;
    return static_cast<Integer>(value);
}

template <Round DIRECTION>
CUDA_SHIM_INLINE float to_float(double value) {
    float near = static_cast<float>(value);
    double back = near;
    if (DIRECTION == Round::zero && __builtin_fabs(back) > __builtin_fabs(value)) return __builtin_nextafterf(near, 0.0f);
    if (DIRECTION == Round::up && back < value) return __builtin_nextafterf(near, __builtin_inff());
    if (DIRECTION == Round::down && back > value) return __builtin_nextafterf(near, -__builtin_inff());
    return near;
}

// Returns a + b; if that is not a double, the neighbour with an odd last bit, which marks that
// digits were cut off and on which side.
CUDA_SHIM_INLINE double to_odd_sum(double a, double b) {
    double sum = a + b, b_in_sum = sum - a, a_in_sum = sum - b_in_sum;
    double lost = (a - a_in_sum) + (b - b_in_sum);  // exact; NaN if the sum is not finite
    long long bits = bits_as<long long>(sum);
    // If the last bit is even, one step towards the lost digits makes it odd.
    bool step = (bits & 1) == 0 && (lost < 0 || lost > 0);
    return bits_as<double>(bits + (step ? ((lost > 0) == (sum > 0) ? 1 : -1) : 0));
}

// Returns a double that gives the right result when it is rounded again, to at most 24 bits: the
// low digits of a large integer are kept as one odd bit (rounding to odd).
template <class Integer>
CUDA_SHIM_INLINE double to_odd_double(Integer value) {
    constexpr long long enough = 1ll << 45;
    if (sizeof(Integer) < 8) return static_cast<double>(value);
    bool small = static_cast<double>(value) < enough && static_cast<double>(value) > -enough;
    constexpr Integer low = static_cast<Integer>(0xffff), odd = static_cast<Integer>(0x10000);
    Integer rounded = static_cast<Integer>((value & ~low) | ((value & low) ? odd : Integer(0)));
    return static_cast<double>(small ? value : rounded);
}

}  // namespace emulator
