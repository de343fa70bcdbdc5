// Floating-point formats by their numbers, and rounding to them in any direction, for rare
// conversions.
#pragma once

#include "number.h"

#include <algorithm>
#include <cfenv>

namespace emulator::ptx {

// to nearest even, zero, down, up; the same to a whole number; to nearest, ties away from zero
enum Rounding { NOT_ROUNDED, RN, RZ, RM, RP, RNI, RZI, RMI, RPI, RNA };
constexpr const char* rounding_name[] = {"", ".rn", ".rz", ".rm", ".rp", ".rni", ".rzi", ".rmi", ".rpi", ".rna"};

struct Format {
    int digits;  // of a normal number, the leading one included
    int least;   // the smallest subnormal is 2**least
    double largest;
    bool infinite;  // it has infinities
};
constexpr Format F16 = {11, -24, 65504, true}, BF16 = {8, -133, 0x1.fep127, true}, F32 = {24, -149, 0x1.fffffep127, true};
constexpr Format E4M3 = {4, -9, 448, false}, E5M2 = {3, -16, 57344, true};

inline double to_whole(double x, Rounding how) {
    switch (how) {
        case RN: case RNI: return std::nearbyint(x);
        case RZ: case RZI: return std::trunc(x);
        case RM: case RMI: return std::floor(x);
        case RP: case RPI: return std::ceil(x);
        case RNA: return std::round(x);
        default: return x;
    }
}

// Rounds x to a value of the format. NaN stays NaN.
inline double to_format(double x, const Format& format, Rounding how, bool finite = false) {
    if (x != x || x == 0) return x;
    double result = x;
    if (x - x == 0) {
        const int unit = std::max(std::ilogb(x) - format.digits + 1, format.least);
        result = std::scalbn(to_whole(std::scalbn(x, -unit), how), unit);
    }
    if (std::fabs(result) <= format.largest) return result;
    const bool stays = x - x == 0 && (how == RZ || (how == RM && x > 0) || (how == RP && x < 0));
    return std::copysign(stays || finite ? format.largest : INFINITY, x);
}

// Formats of eight bits. A NaN has all bits but its sign; e4m3 has no infinity.
inline uint8_t to_byte(double x, const Format& format) {
    if (x != x) return 0x7f;
    const uint8_t sign = std::signbit(x) ? 0x80 : 0;
    const double magnitude = std::fabs(x);
    const int fraction = format.digits - 1, bias = 2 - format.digits - format.least;
    if (magnitude == INFINITY) return sign | 0x7c;
    if (magnitude == 0) return sign;
    const int exponent = std::max(std::ilogb(magnitude) + bias, 0);
    const int digits = static_cast<int>(std::scalbn(magnitude, -(std::max(exponent, 1) - bias - fraction)));
    return static_cast<uint8_t>(sign | (exponent == 0 ? digits : (exponent << fraction) + digits - (1 << fraction)));
}

inline float from_byte(uint8_t bits, const Format& format) {
    const int fraction = format.digits - 1, bias = 2 - format.digits - format.least, magnitude = bits & 0x7f;
    const int exponent = magnitude >> fraction, digits = magnitude & ((1 << fraction) - 1);
    const int whole = exponent ? digits + (1 << fraction) : digits;
    float value = static_cast<float>(std::scalbn(whole, std::max(exponent, 1) - bias - fraction));
    if (format.infinite && magnitude >= 0x7c) value = magnitude == 0x7c ? INFINITY : as<float>(NAN32);
    if (!format.infinite && magnitude == 0x7f) value = as<float>(NAN32);
    return bits & 0x80 ? -value : value;
}

}  // namespace emulator::ptx
