// Floating-point types that C++ lacks, as bits: exact widening, rounding to nearest even,
// subnormals, NaN.
#pragma once

#include "table.h"

#include <cmath>

namespace emulator::ptx {

struct f16 { uint16_t bits; };
struct bf16 { uint16_t bits; };
template <class T>
struct Pair { T low, high; };  // f16x2, bf16x2

template <> constexpr const char* type_name<f16> = "f16";
template <> constexpr const char* type_name<bf16> = "bf16";
template <class T>
constexpr bool is_half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

template <class To, class From>
inline To as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

// GPUs return this for every NaN, except in float64: they keep no payload.
constexpr uint32_t NAN32 = 0x7fffffff;
constexpr uint16_t NAN16 = 0x7fff;  // of both half types

template <class T>
constexpr uint16_t one = std::is_same_v<T, f16> ? 0x3c00 : 0x3f80;

inline float canonical(float x) { return x != x ? as<float>(NAN32) : x; }
inline double canonical(double x) { return x; }

// ---- to float -----------------------------------------------------------------------------------

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bf16 x) { return as<float>(static_cast<uint32_t>(x.bits) << 16); }
inline float widen(f16 x) {
    const uint32_t magnitude = x.bits & 0x7fff, sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
    const uint32_t subnormal = as<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
    const uint32_t normal = (magnitude << 13) + ((magnitude < 0x7c00 ? 127 - 15 : 255 - 31) << 23);
    return as<float>(sign | (magnitude < 0x400 ? subnormal : normal));
}

// ---- from float ---------------------------------------------------------------------------------

template <class T>
T narrow(float x);
template <>
inline float narrow<float>(float x) {
    return canonical(x);
}
template <>
inline bf16 narrow<bf16>(float x) {
    const uint32_t bits = as<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? NAN16 : rounded)};
}
template <>
inline f16 narrow<f16>(float x) {
    const uint32_t bits = as<uint32_t>(x), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    const uint32_t subnormal = as<uint32_t>(as<float>(magnitude) + 0.5f) - 0x3f000000;  // the sum rounds at 2^-24
    const uint32_t normal = (magnitude + 0xc8000fff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    const uint32_t large = magnitude > 0x7f800000 ? NAN16 : 0x7c00 | sign;
    return {static_cast<uint16_t>(magnitude >= 0x47800000 ? large : finite | sign)};
}

// Rounds to odd: a second rounding, to a format that is at least two bits shorter, then gives the
// same as rounding the exact value once. `error` has the sign of exact value minus x.
inline double to_odd(double x, double error) {
    const int64_t bits = as<int64_t>(x);
    const int64_t step = (error > 0) == (x > 0) ? 1 : -1;
    return (error > 0 || error < 0) && !(bits & 1) ? as<double>(bits + step) : x;
}
inline float to_odd_float(double x) {
    const float near = static_cast<float>(x);
    const double error = x - static_cast<double>(near);
    const int32_t bits = as<int32_t>(near);
    // A value below the smallest subnormal becomes that subnormal.
    const int32_t least = x > 0 ? 1 : static_cast<int32_t>(0x80000001);
    const int32_t odd = near == 0 ? least : bits + ((error > 0) == (near > 0) ? 1 : -1);
    return (error > 0 || error < 0) && !(bits & 1) ? as<float>(odd) : near;
}

// ---- subnormals, sign ---------------------------------------------------------------------------

inline float flush(float x) {
    const uint32_t bits = as<uint32_t>(x);
    return as<float>(bits & 0x7f800000 ? bits : bits & 0x80000000);
}
inline f16 flush(f16 x) { return {static_cast<uint16_t>(x.bits & 0x7c00 ? x.bits : x.bits & 0x8000)}; }
inline bf16 flush(bf16 x) { return {static_cast<uint16_t>(x.bits & 0x7f80 ? x.bits : x.bits & 0x8000)}; }
inline double flush(double x) {
    const uint64_t bits = as<uint64_t>(x);
    return as<double>(bits & 0x7ff0000000000000 ? bits : bits & 0x8000000000000000);
}

template <class T>
using bits_type = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
template <class T>
constexpr bits_type<T> sign_bit = bits_type<T>(1) << (8 * sizeof(T) - 1);

// Clamps to [0, 1]; NaN and -0 give 0.
template <class T>
T saturated(T x) {
    return x > 0 ? x < 1 ? x : T(1) : T(0);
}

}  // namespace emulator::ptx
