// Converts the bits of __half and __nv_bfloat16 from and to float and double, without branches, as
// these are in the innermost loops.
//
// Widening is exact. Narrowing rounds once, to nearest even unless the name says otherwise, with
// subnormals, and every NaN becomes 0x7fff as on a GPU.
#pragma once

#include "rounding.h"

#define CUDA_SHIM_JOIN(a, b, c) CUDA_SHIM_JOIN_EXPANDED(a, b, c)
#define CUDA_SHIM_JOIN_EXPANDED(a, b, c) a##b##c

namespace emulator {

constexpr unsigned SIGN = 0x80000000u, INFINITE = 0x7f800000u;  // of a float
constexpr unsigned short CANONICAL_NAN = 0x7fff;  // of a half and of a bfloat16

CUDA_SHIM_INLINE float half_to_float(unsigned short half) {
    // Exponent and fraction at their positions in a float.
    unsigned magnitude = (half & 0x7fffu) << 13;
    unsigned normal = magnitude + (112u << 23);  // the biases are 15 and 127
    // A subnormal is its fraction times 2^-24: it is written after a one at 2^-14, which is then
    // subtracted.
    unsigned subnormal = bits_as<unsigned>(bits_as<float>(magnitude + (113u << 23)) - 0x1p-14f);
    unsigned bits = magnitude < (1u << 23) ? subnormal : normal;
    bits |= magnitude >= (31u << 23) ? INFINITE : 0u;  // infinity and NaN; the fraction stays
    return bits_as<float>(bits | (half & 0x8000u) << 16);
}

CUDA_SHIM_INLINE unsigned short float_to_half(float value) {
    unsigned bits = bits_as<unsigned>(value), magnitude = bits & ~SIGN;
    // Adds half a unit in the last place, or one less where the last kept bit is even. A carry
    // correctly goes into the exponent, up to infinity.
    unsigned normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    // The spacing of floats at 0.5 is 2^-24, the spacing of subnormal halves, so the addition
    // rounds.
    unsigned subnormal = bits_as<unsigned>(bits_as<float>(magnitude) + 0.5f) - bits_as<unsigned>(0.5f);
    unsigned half = magnitude < (113u << 23) ? subnormal : normal;
    half = magnitude >= (143u << 23) ? 0x7c00u : half;  // 65536 and above
    half |= bits >> 16 & 0x8000u;
    return static_cast<unsigned short>(magnitude > INFINITE ? CANONICAL_NAN : half);
}

CUDA_SHIM_INLINE float bfloat16_to_float(unsigned short bfloat16) {
    return bits_as<float>(static_cast<unsigned>(bfloat16) << 16);
}

CUDA_SHIM_INLINE unsigned short float_to_bfloat16(float value) {
    unsigned bits = bits_as<unsigned>(value);
    unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return static_cast<unsigned short>((bits & ~SIGN) > INFINITE ? CANONICAL_NAN : rounded);
}

// Returns the float next to `value` that has an odd last bit, unless `value` is a float. Rounding
// it to a narrower format gives the same result as rounding `value` directly: the odd bit marks
// that digits were cut off, and on which side of a tie.
CUDA_SHIM_INLINE float to_odd_float(double value) {
    float near = static_cast<float>(value);
    double back = near;
    unsigned bits = bits_as<unsigned>(near);
    bits -= __builtin_fabs(back) > __builtin_fabs(value) ? 1u : 0u;  // towards zero
    return bits_as<float>(bits | (back != value ? 1u : 0u));  // a NaN stays a NaN
}

// Returns x * y + z, to be rounded once more, to a narrower format. The product of two halves or
// bfloat16s is a double.
CUDA_SHIM_INLINE float to_odd_fma(float x, float y, float z) {
    return to_odd_float(to_odd_sum(static_cast<double>(x) * y, z));
}

// Turns a value rounded to nearest into one rounded in a direction. `wide` is `narrow` as float,
// `value` the exact value. The bit patterns of one sign are in order: infinity follows the largest
// number, zero precedes the smallest.
template <Round DIRECTION>
CUDA_SHIM_INLINE unsigned short redirect(unsigned short narrow, float wide, float value) {
    if (DIRECTION == Round::nearest || wide == value || wide != wide) return narrow;
    bool negative = bits_as<unsigned>(value) & SIGN;
    // Whether it was rounded away from zero.
    bool outwards = __builtin_fabsf(wide) > __builtin_fabsf(value);
    bool wanted = DIRECTION == Round::up ? !negative : DIRECTION == Round::down ? negative : false;
    return static_cast<unsigned short>(narrow + wanted - outwards);
}

// If one argument is NaN, the result is the other; +0 is larger than -0.
CUDA_SHIM_INLINE float greater_of(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? b : a;
    return a > b ? a : b;
}

// Converts a float to the 16-bit float `T`; specialised where T is defined. wide(T) converts back.
template <class T>
T narrow(float value);

}  // namespace emulator
