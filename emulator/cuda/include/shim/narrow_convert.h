// The named conversions of a 16-bit float. Included once for each type, like narrow_type.h.
// CUDA_SHIM_NAME is the type's part of the names: __float2 half _rn, __float2 bfloat16 _rn.

#define CUDA_SHIM_N CUDA_SHIM_NAME
#define CUDA_SHIM_T CUDA_SHIM_TYPE
#define CUDA_SHIM_P CUDA_SHIM_PAIR

namespace emulator {

CUDA_SHIM_INLINE float wide(CUDA_SHIM_T value) { return CUDA_SHIM_TO(value.__x); }

template <>
CUDA_SHIM_INLINE CUDA_SHIM_T narrow<CUDA_SHIM_T>(float value) {
    return CUDA_SHIM_TYPE_RAW{CUDA_SHIM_FROM(value)};
}

template <Round DIRECTION>
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(to_, CUDA_SHIM_N, )(float value) {
    unsigned short nearest = CUDA_SHIM_FROM(value);
    return CUDA_SHIM_TYPE_RAW{redirect<DIRECTION>(nearest, CUDA_SHIM_TO(nearest), value)};
}

}  // namespace emulator

#define CUDA_SHIM_NARROW(...) emulator::narrow<CUDA_SHIM_T>(__VA_ARGS__)
#define CUDA_SHIM_ROUND(direction, ...) \
    emulator::CUDA_SHIM_JOIN(to_, CUDA_SHIM_N, )<emulator::Round::direction>(__VA_ARGS__)

// ---- float and double ---------------------------------------------------------------------------

CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__float2, CUDA_SHIM_N, )(float a) { return CUDA_SHIM_NARROW(a); }
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__float2, CUDA_SHIM_N, _rn)(float a) { return CUDA_SHIM_NARROW(a); }
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__float2, CUDA_SHIM_N, _rz)(float a) { return CUDA_SHIM_ROUND(zero, a); }
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__float2, CUDA_SHIM_N, _ru)(float a) { return CUDA_SHIM_ROUND(up, a); }
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__float2, CUDA_SHIM_N, _rd)(float a) { return CUDA_SHIM_ROUND(down, a); }

CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__double2, CUDA_SHIM_N, )(double a) {
    return CUDA_SHIM_NARROW(emulator::to_odd_float(a));
}

CUDA_SHIM_INLINE float CUDA_SHIM_JOIN(__, CUDA_SHIM_N, 2float)(CUDA_SHIM_T a) { return emulator::wide(a); }

// ---- integers -----------------------------------------------------------------------------------

#define CUDA_SHIM_INTEGER_AT(integer, short_name, suffix, direction)                                                  \
    CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__##short_name##2, CUDA_SHIM_N, suffix)(integer a) {               \
        return CUDA_SHIM_ROUND(direction, emulator::to_odd_float(emulator::to_odd_double(a)));                    \
    }                                                                                                                  \
    CUDA_SHIM_INLINE integer CUDA_SHIM_JOIN(__, CUDA_SHIM_N, 2##short_name##suffix)(CUDA_SHIM_T a) {               \
        return emulator::to_integer<integer>(emulator::rounded<emulator::Round::direction>(emulator::wide(a))); \
    }

#define CUDA_SHIM_INTEGER(integer, short_name)              \
    CUDA_SHIM_INTEGER_AT(integer, short_name, _rn, nearest) \
    CUDA_SHIM_INTEGER_AT(integer, short_name, _rz, zero)    \
    CUDA_SHIM_INTEGER_AT(integer, short_name, _ru, up)      \
    CUDA_SHIM_INTEGER_AT(integer, short_name, _rd, down)

CUDA_SHIM_INTEGER(short, short)
CUDA_SHIM_INTEGER(unsigned short, ushort)
CUDA_SHIM_INTEGER(int, int)
CUDA_SHIM_INTEGER(unsigned int, uint)
CUDA_SHIM_INTEGER(long long, ll)
CUDA_SHIM_INTEGER(unsigned long long, ull)

#undef CUDA_SHIM_INTEGER
#undef CUDA_SHIM_INTEGER_AT

CUDA_SHIM_INLINE signed char CUDA_SHIM_JOIN(__, CUDA_SHIM_N, 2char_rz)(CUDA_SHIM_T a) {
    return emulator::to_integer<signed char>(emulator::wide(a));
}
CUDA_SHIM_INLINE unsigned char CUDA_SHIM_JOIN(__, CUDA_SHIM_N, 2uchar_rz)(CUDA_SHIM_T a) {
    return emulator::to_integer<unsigned char>(emulator::wide(a));
}

// ---- bits ---------------------------------------------------------------------------------------

CUDA_SHIM_INLINE short CUDA_SHIM_JOIN(__, CUDA_SHIM_N, _as_short)(CUDA_SHIM_T a) { return static_cast<short>(a.__x); }
CUDA_SHIM_INLINE unsigned short CUDA_SHIM_JOIN(__, CUDA_SHIM_N, _as_ushort)(CUDA_SHIM_T a) { return a.__x; }
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__short_as_, CUDA_SHIM_N, )(short a) {
    return CUDA_SHIM_TYPE_RAW{static_cast<unsigned short>(a)};
}
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__ushort_as_, CUDA_SHIM_N, )(unsigned short a) {
    return CUDA_SHIM_TYPE_RAW{a};
}

// ---- pairs --------------------------------------------------------------------------------------

CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__float2, CUDA_SHIM_N, 2_rn)(float a) {
    return {CUDA_SHIM_NARROW(a), CUDA_SHIM_NARROW(a)};
}
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__floats2, CUDA_SHIM_N, 2_rn)(float a, float b) {
    return {CUDA_SHIM_NARROW(a), CUDA_SHIM_NARROW(b)};
}
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__float22, CUDA_SHIM_N, 2_rn)(float2 a) {
    return {CUDA_SHIM_NARROW(a.x), CUDA_SHIM_NARROW(a.y)};
}
CUDA_SHIM_INLINE float2 CUDA_SHIM_JOIN(__, CUDA_SHIM_N, 22float2)(CUDA_SHIM_P a) {
    return {emulator::wide(a.x), emulator::wide(a.y)};
}
CUDA_SHIM_INLINE float __low2float(CUDA_SHIM_P a) { return emulator::wide(a.x); }
CUDA_SHIM_INLINE float __high2float(CUDA_SHIM_P a) { return emulator::wide(a.y); }
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__halves2, CUDA_SHIM_N, 2)(CUDA_SHIM_T a, CUDA_SHIM_T b) {
    return {a, b};
}
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(make_, CUDA_SHIM_N, 2)(CUDA_SHIM_T a, CUDA_SHIM_T b) { return {a, b}; }
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__low2, CUDA_SHIM_N, )(CUDA_SHIM_P a) { return a.x; }
CUDA_SHIM_INLINE CUDA_SHIM_T CUDA_SHIM_JOIN(__high2, CUDA_SHIM_N, )(CUDA_SHIM_P a) { return a.y; }
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__low2, CUDA_SHIM_N, 2)(CUDA_SHIM_P a) { return {a.x, a.x}; }
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__high2, CUDA_SHIM_N, 2)(CUDA_SHIM_P a) { return {a.y, a.y}; }
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__lows2, CUDA_SHIM_N, 2)(CUDA_SHIM_P a, CUDA_SHIM_P b) {
    return {a.x, b.x};
}
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(__highs2, CUDA_SHIM_N, 2)(CUDA_SHIM_P a, CUDA_SHIM_P b) {
    return {a.y, b.y};
}
CUDA_SHIM_INLINE CUDA_SHIM_P __lowhigh2highlow(CUDA_SHIM_P a) { return {a.y, a.x}; }
CUDA_SHIM_INLINE CUDA_SHIM_P CUDA_SHIM_JOIN(CUDA_SHIM_JOIN(__, CUDA_SHIM_N, 2), CUDA_SHIM_N, 2)(CUDA_SHIM_T a) {
    return {a, a};
}
