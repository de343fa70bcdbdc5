// The named conversions of a 16-bit float. Included once for each, as narrow_type.h; CUDA_TRACE_NAME is the part of the
// names that stands for it: __float2 half _rn, __float2 bfloat16 _rn.

#define CUDA_TRACE_N CUDA_TRACE_NAME
#define CUDA_TRACE_T CUDA_TRACE_TYPE
#define CUDA_TRACE_P CUDA_TRACE_PAIR

namespace cuda_trace {

CUDA_TRACE_INLINE float wide(CUDA_TRACE_T value) { return CUDA_TRACE_TO(value.__x); }

template <>
CUDA_TRACE_INLINE CUDA_TRACE_T narrow<CUDA_TRACE_T>(float value) {
    return CUDA_TRACE_TYPE_RAW{CUDA_TRACE_FROM(value)};
}

template <Round DIRECTION>
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(to_, CUDA_TRACE_N, )(float value) {
    unsigned short nearest = CUDA_TRACE_FROM(value);
    return CUDA_TRACE_TYPE_RAW{redirect<DIRECTION>(nearest, CUDA_TRACE_TO(nearest), value)};
}

}  // namespace cuda_trace

#define CUDA_TRACE_NARROW(...) cuda_trace::narrow<CUDA_TRACE_T>(__VA_ARGS__)
#define CUDA_TRACE_ROUND(direction, ...) \
    cuda_trace::CUDA_TRACE_JOIN(to_, CUDA_TRACE_N, )<cuda_trace::Round::direction>(__VA_ARGS__)

// ---- float and double ---------------------------------------------------------------------------------------------

CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__float2, CUDA_TRACE_N, )(float a) { return CUDA_TRACE_NARROW(a); }
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__float2, CUDA_TRACE_N, _rn)(float a) { return CUDA_TRACE_NARROW(a); }
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__float2, CUDA_TRACE_N, _rz)(float a) { return CUDA_TRACE_ROUND(zero, a); }
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__float2, CUDA_TRACE_N, _ru)(float a) { return CUDA_TRACE_ROUND(up, a); }
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__float2, CUDA_TRACE_N, _rd)(float a) { return CUDA_TRACE_ROUND(down, a); }

CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__double2, CUDA_TRACE_N, )(double a) {
    return CUDA_TRACE_NARROW(cuda_trace::to_odd_float(a));
}

CUDA_TRACE_INLINE float CUDA_TRACE_JOIN(__, CUDA_TRACE_N, 2float)(CUDA_TRACE_T a) { return cuda_trace::wide(a); }

// ---- integers -----------------------------------------------------------------------------------------------------

#define CUDA_TRACE_INTEGER_AT(integer, short_name, suffix, direction)                                                  \
    CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__##short_name##2, CUDA_TRACE_N, suffix)(integer a) {               \
        return CUDA_TRACE_ROUND(direction, cuda_trace::to_odd_float(cuda_trace::to_odd_double(a)));                    \
    }                                                                                                                  \
    CUDA_TRACE_INLINE integer CUDA_TRACE_JOIN(__, CUDA_TRACE_N, 2##short_name##suffix)(CUDA_TRACE_T a) {               \
        return cuda_trace::to_integer<integer>(cuda_trace::rounded<cuda_trace::Round::direction>(cuda_trace::wide(a))); \
    }

#define CUDA_TRACE_INTEGER(integer, short_name)              \
    CUDA_TRACE_INTEGER_AT(integer, short_name, _rn, nearest) \
    CUDA_TRACE_INTEGER_AT(integer, short_name, _rz, zero)    \
    CUDA_TRACE_INTEGER_AT(integer, short_name, _ru, up)      \
    CUDA_TRACE_INTEGER_AT(integer, short_name, _rd, down)

CUDA_TRACE_INTEGER(short, short)
CUDA_TRACE_INTEGER(unsigned short, ushort)
CUDA_TRACE_INTEGER(int, int)
CUDA_TRACE_INTEGER(unsigned int, uint)
CUDA_TRACE_INTEGER(long long, ll)
CUDA_TRACE_INTEGER(unsigned long long, ull)

#undef CUDA_TRACE_INTEGER
#undef CUDA_TRACE_INTEGER_AT

CUDA_TRACE_INLINE signed char CUDA_TRACE_JOIN(__, CUDA_TRACE_N, 2char_rz)(CUDA_TRACE_T a) {
    return cuda_trace::to_integer<signed char>(cuda_trace::wide(a));
}
CUDA_TRACE_INLINE unsigned char CUDA_TRACE_JOIN(__, CUDA_TRACE_N, 2uchar_rz)(CUDA_TRACE_T a) {
    return cuda_trace::to_integer<unsigned char>(cuda_trace::wide(a));
}

// ---- bits ---------------------------------------------------------------------------------------------------------

CUDA_TRACE_INLINE short CUDA_TRACE_JOIN(__, CUDA_TRACE_N, _as_short)(CUDA_TRACE_T a) { return static_cast<short>(a.__x); }
CUDA_TRACE_INLINE unsigned short CUDA_TRACE_JOIN(__, CUDA_TRACE_N, _as_ushort)(CUDA_TRACE_T a) { return a.__x; }
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__short_as_, CUDA_TRACE_N, )(short a) {
    return CUDA_TRACE_TYPE_RAW{static_cast<unsigned short>(a)};
}
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__ushort_as_, CUDA_TRACE_N, )(unsigned short a) {
    return CUDA_TRACE_TYPE_RAW{a};
}

// ---- pairs --------------------------------------------------------------------------------------------------------

CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__float2, CUDA_TRACE_N, 2_rn)(float a) {
    return {CUDA_TRACE_NARROW(a), CUDA_TRACE_NARROW(a)};
}
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__floats2, CUDA_TRACE_N, 2_rn)(float a, float b) {
    return {CUDA_TRACE_NARROW(a), CUDA_TRACE_NARROW(b)};
}
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__float22, CUDA_TRACE_N, 2_rn)(float2 a) {
    return {CUDA_TRACE_NARROW(a.x), CUDA_TRACE_NARROW(a.y)};
}
CUDA_TRACE_INLINE float2 CUDA_TRACE_JOIN(__, CUDA_TRACE_N, 22float2)(CUDA_TRACE_P a) {
    return {cuda_trace::wide(a.x), cuda_trace::wide(a.y)};
}
CUDA_TRACE_INLINE float __low2float(CUDA_TRACE_P a) { return cuda_trace::wide(a.x); }
CUDA_TRACE_INLINE float __high2float(CUDA_TRACE_P a) { return cuda_trace::wide(a.y); }
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__halves2, CUDA_TRACE_N, 2)(CUDA_TRACE_T a, CUDA_TRACE_T b) {
    return {a, b};
}
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(make_, CUDA_TRACE_N, 2)(CUDA_TRACE_T a, CUDA_TRACE_T b) { return {a, b}; }
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__low2, CUDA_TRACE_N, )(CUDA_TRACE_P a) { return a.x; }
CUDA_TRACE_INLINE CUDA_TRACE_T CUDA_TRACE_JOIN(__high2, CUDA_TRACE_N, )(CUDA_TRACE_P a) { return a.y; }
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__low2, CUDA_TRACE_N, 2)(CUDA_TRACE_P a) { return {a.x, a.x}; }
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__high2, CUDA_TRACE_N, 2)(CUDA_TRACE_P a) { return {a.y, a.y}; }
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__lows2, CUDA_TRACE_N, 2)(CUDA_TRACE_P a, CUDA_TRACE_P b) {
    return {a.x, b.x};
}
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(__highs2, CUDA_TRACE_N, 2)(CUDA_TRACE_P a, CUDA_TRACE_P b) {
    return {a.y, b.y};
}
CUDA_TRACE_INLINE CUDA_TRACE_P __lowhigh2highlow(CUDA_TRACE_P a) { return {a.y, a.x}; }
CUDA_TRACE_INLINE CUDA_TRACE_P CUDA_TRACE_JOIN(CUDA_TRACE_JOIN(__, CUDA_TRACE_N, 2), CUDA_TRACE_N, 2)(CUDA_TRACE_T a) {
    return {a, a};
}
