// Math functions of device code. Approximations (__expf, __sinf, __fdividef) are as exact as libm,
// but keep the GPU's special values: __powf of a negative base is NaN, __fdividef by more than
// 2^126 is 0.
#pragma once

#include "bits.h"
#include "cached.h"
#include "rounding.h"

// libstdc++'s, which also overloads exp, abs, isnan ... for float in the global namespace
#include <math.h>
#include <stdlib.h>

// ---- min and max --------------------------------------------------------------------------------

// Not templates, so that they are preferred to std::max after `using namespace std`.
#define CUDA_SHIM_MIN_MAX(common, left, right)                                                                   \
    CUDA_SHIM_INLINE common min(left a, right b) {                                                               \
        return static_cast<common>(a) < static_cast<common>(b) ? static_cast<common>(a) : static_cast<common>(b); \
    }                                                                                                             \
    CUDA_SHIM_INLINE common max(left a, right b) {                                                               \
        return static_cast<common>(a) > static_cast<common>(b) ? static_cast<common>(a) : static_cast<common>(b); \
    }

#define CUDA_SHIM_MIN_MAX_OF(with_sign, without)       \
    CUDA_SHIM_MIN_MAX(with_sign, with_sign, with_sign) \
    CUDA_SHIM_MIN_MAX(without, without, without)       \
    CUDA_SHIM_MIN_MAX(without, with_sign, without)     \
    CUDA_SHIM_MIN_MAX(without, without, with_sign)

CUDA_SHIM_MIN_MAX_OF(int, unsigned int)
CUDA_SHIM_MIN_MAX_OF(long, unsigned long)
CUDA_SHIM_MIN_MAX_OF(long long, unsigned long long)

// If one argument is NaN, the result is the other.
CUDA_SHIM_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
CUDA_SHIM_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }
CUDA_SHIM_INLINE double min(double a, double b) { return __builtin_fmin(a, b); }
CUDA_SHIM_INLINE double max(double a, double b) { return __builtin_fmax(a, b); }
CUDA_SHIM_INLINE double min(float a, double b) { return __builtin_fmin(a, b); }
CUDA_SHIM_INLINE double max(float a, double b) { return __builtin_fmax(a, b); }
CUDA_SHIM_INLINE double min(double a, float b) { return __builtin_fmin(a, b); }
CUDA_SHIM_INLINE double max(double a, float b) { return __builtin_fmax(a, b); }

// ---- functions that libm does not have ----------------------------------------------------------

// Extern "C" and noexcept to match glibc, which declares __expf and others today, and rsqrt and
// sinpi in newer versions.
extern "C" {

CUDA_SHIM_INLINE float __expf(float x) noexcept { return expf(x); }
CUDA_SHIM_INLINE float __exp10f(float x) noexcept { return exp10f(x); }
CUDA_SHIM_INLINE float __logf(float x) noexcept { return logf(x); }
CUDA_SHIM_INLINE float __log2f(float x) noexcept { return log2f(x); }
CUDA_SHIM_INLINE float __log10f(float x) noexcept { return log10f(x); }
CUDA_SHIM_INLINE float __powf(float x, float y) noexcept { return exp2f(y * log2f(x)); }
CUDA_SHIM_INLINE float __sinf(float x) noexcept { return sinf(x); }
CUDA_SHIM_INLINE float __cosf(float x) noexcept { return cosf(x); }
CUDA_SHIM_INLINE float __tanf(float x) noexcept { return tanf(x); }
CUDA_SHIM_INLINE float __tanhf(float x) noexcept { return tanhf(x); }
CUDA_SHIM_INLINE void __sincosf(float x, float* sine, float* cosine) noexcept {
    *sine = sinf(x);
    *cosine = cosf(x);
}

CUDA_SHIM_INLINE double rsqrt(double x) noexcept { return 1 / sqrt(x); }
CUDA_SHIM_INLINE float rsqrtf(float x) noexcept { return 1 / sqrtf(x); }
CUDA_SHIM_INLINE double rcbrt(double x) noexcept { return 1 / cbrt(x); }
CUDA_SHIM_INLINE float rcbrtf(float x) noexcept { return 1 / cbrtf(x); }
CUDA_SHIM_INLINE double rhypot(double x, double y) noexcept { return 1 / hypot(x, y); }
CUDA_SHIM_INLINE float rhypotf(float x, float y) noexcept { return 1 / hypotf(x, y); }

// Remainder reduces the argument to [-1, 1] exactly, so large arguments lose no digits.
CUDA_SHIM_INLINE double sinpi(double x) noexcept { return sin(M_PI * remainder(x, 2)); }
CUDA_SHIM_INLINE double cospi(double x) noexcept { return cos(M_PI * remainder(x, 2)); }
CUDA_SHIM_INLINE float sinpif(float x) noexcept { return static_cast<float>(sinpi(x)); }
CUDA_SHIM_INLINE float cospif(float x) noexcept { return static_cast<float>(cospi(x)); }

}  // extern "C"

CUDA_SHIM_INLINE float rsqrt(float x) { return rsqrtf(x); }
CUDA_SHIM_INLINE float exp10(float x) { return exp10f(x); }
CUDA_SHIM_INLINE void sincos(float x, float* sine, float* cosine) { __sincosf(x, sine, cosine); }
CUDA_SHIM_INLINE void sincospi(double x, double* sine, double* cosine) {
    *sine = sinpi(x);
    *cosine = cospi(x);
}
CUDA_SHIM_INLINE void sincospif(float x, float* sine, float* cosine) {
    *sine = sinpif(x);
    *cosine = cospif(x);
}

CUDA_SHIM_INLINE double norm3d(double a, double b, double c) { return sqrt(a * a + b * b + c * c); }
CUDA_SHIM_INLINE double norm4d(double a, double b, double c, double d) { return sqrt(a * a + b * b + c * c + d * d); }
CUDA_SHIM_INLINE double rnorm3d(double a, double b, double c) { return 1 / norm3d(a, b, c); }
CUDA_SHIM_INLINE double rnorm4d(double a, double b, double c, double d) { return 1 / norm4d(a, b, c, d); }
// Squares of floats neither overflow nor vanish in double, and CUDA guarantees no more.
CUDA_SHIM_INLINE float norm3df(float a, float b, float c) { return static_cast<float>(norm3d(a, b, c)); }
CUDA_SHIM_INLINE float norm4df(float a, float b, float c, float d) { return static_cast<float>(norm4d(a, b, c, d)); }
CUDA_SHIM_INLINE float rnorm3df(float a, float b, float c) { return static_cast<float>(1 / norm3d(a, b, c)); }
CUDA_SHIM_INLINE float rnorm4df(float a, float b, float c, float d) {
    return static_cast<float>(1 / norm4d(a, b, c, d));
}
CUDA_SHIM_INLINE double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
CUDA_SHIM_INLINE float normcdff(float x) { return static_cast<float>(normcdf(x)); }

CUDA_SHIM_INLINE float __fdividef(float x, float y) { return fabsf(y) > 0x1p126f ? x * copysignf(0.0f, y) : x / y; }
CUDA_SHIM_INLINE float fdividef(float x, float y) { return x / y; }
CUDA_SHIM_INLINE float fdivide(float x, float y) { return x / y; }
CUDA_SHIM_INLINE double fdivide(double x, double y) { return x / y; }
CUDA_SHIM_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// ---- arithmetic with a rounding mode ------------------------------------------------------------

CUDA_SHIM_INLINE float __fadd_rn(float a, float b) { return a + b; }
CUDA_SHIM_INLINE float __fsub_rn(float a, float b) { return a - b; }
CUDA_SHIM_INLINE float __fmul_rn(float a, float b) { return a * b; }
CUDA_SHIM_INLINE float __fdiv_rn(float a, float b) { return a / b; }
CUDA_SHIM_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
CUDA_SHIM_INLINE float __frcp_rn(float a) { return 1 / a; }
CUDA_SHIM_INLINE float __fsqrt_rn(float a) { return sqrtf(a); }
CUDA_SHIM_INLINE float __frsqrt_rn(float a) { return static_cast<float>(1 / sqrt(static_cast<double>(a))); }

CUDA_SHIM_INLINE double __dadd_rn(double a, double b) { return a + b; }
CUDA_SHIM_INLINE double __dsub_rn(double a, double b) { return a - b; }
CUDA_SHIM_INLINE double __dmul_rn(double a, double b) { return a * b; }
CUDA_SHIM_INLINE double __ddiv_rn(double a, double b) { return a / b; }
CUDA_SHIM_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
CUDA_SHIM_INLINE double __drcp_rn(double a) { return 1 / a; }
CUDA_SHIM_INLINE double __dsqrt_rn(double a) { return sqrt(a); }

// A product of floats is exact in double. A sum may not be; its error is far below a float and
// affects only the direction.
#define CUDA_SHIM_DIRECTED(suffix, direction)                                                    \
    CUDA_SHIM_INLINE float __fmul_##suffix(float a, float b) {                                   \
        return emulator::to_float<emulator::Round::direction>(static_cast<double>(a) * b);    \
    }                                                                                             \
    CUDA_SHIM_INLINE float __fadd_##suffix(float a, float b) {                                   \
        return emulator::to_float<emulator::Round::direction>(emulator::to_odd_sum(a, b));  \
    }                                                                                             \
    CUDA_SHIM_INLINE float __fsub_##suffix(float a, float b) {                                   \
        return emulator::to_float<emulator::Round::direction>(emulator::to_odd_sum(a, -b)); \
    }

CUDA_SHIM_DIRECTED(rz, zero)
CUDA_SHIM_DIRECTED(ru, up)
CUDA_SHIM_DIRECTED(rd, down)
#undef CUDA_SHIM_DIRECTED

// ---- conversions --------------------------------------------------------------------------------

#define CUDA_SHIM_CONVERT(suffix, direction)                         \
    CUDA_SHIM_TO_INTEGERS(float, float, suffix, direction)           \
    CUDA_SHIM_TO_INTEGERS(double, double, suffix, direction)         \
    CUDA_SHIM_INLINE float __double2float_##suffix(double a) {       \
        return emulator::to_float<emulator::Round::direction>(a); \
    }                                                                 \
    CUDA_SHIM_FROM_INTEGER(int, int, suffix, direction)              \
    CUDA_SHIM_FROM_INTEGER(uint, unsigned int, suffix, direction)    \
    CUDA_SHIM_FROM_INTEGER(ll, long long, suffix, direction)         \
    CUDA_SHIM_FROM_INTEGER(ull, unsigned long long, suffix, direction)

#define CUDA_SHIM_TO_INTEGERS(name, type, suffix, direction)                \
    CUDA_SHIM_TO_INTEGER(name, type, int, int, suffix, direction)           \
    CUDA_SHIM_TO_INTEGER(name, type, uint, unsigned int, suffix, direction) \
    CUDA_SHIM_TO_INTEGER(name, type, ll, long long, suffix, direction)      \
    CUDA_SHIM_TO_INTEGER(name, type, ull, unsigned long long, suffix, direction)

#define CUDA_SHIM_TO_INTEGER(from, type, to, integer, suffix, direction)                             \
    CUDA_SHIM_INLINE integer __##from##2##to##_##suffix(type a) {                                    \
        return emulator::to_integer<integer>(emulator::rounded<emulator::Round::direction>(a)); \
    }

#define CUDA_SHIM_FROM_INTEGER(from, integer, suffix, direction)                                \
    CUDA_SHIM_INLINE float __##from##2float_##suffix(integer a) {                               \
        return emulator::to_float<emulator::Round::direction>(emulator::to_odd_double(a)); \
    }

CUDA_SHIM_CONVERT(rn, nearest)
CUDA_SHIM_CONVERT(rz, zero)
CUDA_SHIM_CONVERT(ru, up)
CUDA_SHIM_CONVERT(rd, down)
#undef CUDA_SHIM_CONVERT
#undef CUDA_SHIM_TO_INTEGERS
#undef CUDA_SHIM_TO_INTEGER
#undef CUDA_SHIM_FROM_INTEGER

CUDA_SHIM_INLINE double __int2double_rn(int a) { return a; }
CUDA_SHIM_INLINE double __uint2double_rn(unsigned a) { return a; }
CUDA_SHIM_INLINE double __ll2double_rn(long long a) { return static_cast<double>(a); }
CUDA_SHIM_INLINE double __ull2double_rn(unsigned long long a) { return static_cast<double>(a); }
