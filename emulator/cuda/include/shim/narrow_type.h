// The struct of a 16-bit float and the struct of a pair. Included once for each type:
// CUDA_SHIM_TYPE, CUDA_SHIM_PAIR and their _RAW forms name the structs, CUDA_SHIM_OTHER the other
// 16-bit float, CUDA_SHIM_FROM and CUDA_SHIM_TO the conversions.
//
// They are trivial to construct and to copy, as shared memory requires, and so that a copy is one
// access on the author's line. The conversions are CUDA's, so the same expressions are ambiguous
// (half * float, for example).

struct CUDA_SHIM_TYPE_RAW {
    unsigned short x;
};

struct alignas(4) CUDA_SHIM_PAIR_RAW {
    unsigned short x, y;
};

struct CUDA_SHIM_OTHER;

struct CUDA_SHIM_TYPE {
    unsigned short __x;

    CUDA_SHIM_TYPE() = default;
    CUDA_SHIM_INLINE constexpr CUDA_SHIM_TYPE(const CUDA_SHIM_TYPE_RAW& raw) : __x(raw.x) {}
    CUDA_SHIM_INLINE operator CUDA_SHIM_TYPE_RAW() const { return {__x}; }
    explicit CUDA_SHIM_TYPE(CUDA_SHIM_OTHER other);

#ifndef CUDA_SHIM_NO_CONVERSIONS
    CUDA_SHIM_INLINE CUDA_SHIM_TYPE(float value) : __x(CUDA_SHIM_FROM(value)) {}
    CUDA_SHIM_INLINE CUDA_SHIM_TYPE(double value) : __x(CUDA_SHIM_FROM(emulator::to_odd_float(value))) {}
    CUDA_SHIM_INLINE operator float() const { return CUDA_SHIM_TO(__x); }
    CUDA_SHIM_INLINE operator bool() const { return __x & 0x7fff; }

// An integer above 2^53 does not fit a double; to_odd_double marks the lost digits, so that ties of
// a 16-bit float are right.
#define CUDA_SHIM_INTEGER(integer)                                                           \
    CUDA_SHIM_INLINE CUDA_SHIM_TYPE(integer value)                                          \
        : __x(CUDA_SHIM_FROM(emulator::to_odd_float(emulator::to_odd_double(value)))) {} \
    CUDA_SHIM_INLINE operator integer() const { return emulator::to_integer<integer>(CUDA_SHIM_TO(__x)); }
    CUDA_SHIM_INTEGER(short)
    CUDA_SHIM_INTEGER(unsigned short)
    CUDA_SHIM_INTEGER(int)
    CUDA_SHIM_INTEGER(unsigned int)
    CUDA_SHIM_INTEGER(long)
    CUDA_SHIM_INTEGER(unsigned long)
    CUDA_SHIM_INTEGER(long long)
    CUDA_SHIM_INTEGER(unsigned long long)
#undef CUDA_SHIM_INTEGER

    CUDA_SHIM_INLINE operator char() const { return emulator::to_integer<char>(CUDA_SHIM_TO(__x)); }
    CUDA_SHIM_INLINE operator signed char() const { return emulator::to_integer<signed char>(CUDA_SHIM_TO(__x)); }
    CUDA_SHIM_INLINE operator unsigned char() const { return emulator::to_integer<unsigned char>(CUDA_SHIM_TO(__x)); }
#endif
};

struct alignas(4) CUDA_SHIM_PAIR {
    CUDA_SHIM_TYPE x, y;

    CUDA_SHIM_PAIR() = default;
    CUDA_SHIM_INLINE constexpr CUDA_SHIM_PAIR(const CUDA_SHIM_TYPE& x, const CUDA_SHIM_TYPE& y) : x(x), y(y) {}
    CUDA_SHIM_INLINE CUDA_SHIM_PAIR(const CUDA_SHIM_PAIR_RAW& raw)
        : x(CUDA_SHIM_TYPE_RAW{raw.x}), y(CUDA_SHIM_TYPE_RAW{raw.y}) {}
    CUDA_SHIM_INLINE operator CUDA_SHIM_PAIR_RAW() const { return {x.__x, y.__x}; }
};
