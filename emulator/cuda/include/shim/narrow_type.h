// The struct of a 16-bit float and that of a pair. Included once for each: CUDA_TRACE_TYPE, CUDA_TRACE_PAIR and their
// _RAW forms name the structs, CUDA_TRACE_OTHER the other 16-bit float, CUDA_TRACE_FROM and CUDA_TRACE_TO what converts.
//
// Trivial to construct and to copy, as shared memory needs, and so that a copy is one access on the author's line. The
// conversions are CUDA's, and so is what is ambiguous because of them (half * float, for one).

struct CUDA_TRACE_TYPE_RAW {
    unsigned short x;
};

struct alignas(4) CUDA_TRACE_PAIR_RAW {
    unsigned short x, y;
};

struct CUDA_TRACE_OTHER;

struct CUDA_TRACE_TYPE {
    unsigned short __x;

    CUDA_TRACE_TYPE() = default;
    CUDA_TRACE_INLINE constexpr CUDA_TRACE_TYPE(const CUDA_TRACE_TYPE_RAW& raw) : __x(raw.x) {}
    CUDA_TRACE_INLINE operator CUDA_TRACE_TYPE_RAW() const { return {__x}; }
    explicit CUDA_TRACE_TYPE(CUDA_TRACE_OTHER other);

#ifndef CUDA_TRACE_NO_CONVERSIONS
    CUDA_TRACE_INLINE CUDA_TRACE_TYPE(float value) : __x(CUDA_TRACE_FROM(value)) {}
    CUDA_TRACE_INLINE CUDA_TRACE_TYPE(double value) : __x(CUDA_TRACE_FROM(cuda_trace::to_odd_float(value))) {}
    CUDA_TRACE_INLINE operator float() const { return CUDA_TRACE_TO(__x); }
    CUDA_TRACE_INLINE operator bool() const { return __x & 0x7fff; }

// An integer above 2^53 is no double: what is lost there is below every tie of a 16-bit float only if it is marked.
#define CUDA_TRACE_INTEGER(integer)                                                           \
    CUDA_TRACE_INLINE CUDA_TRACE_TYPE(integer value)                                          \
        : __x(CUDA_TRACE_FROM(cuda_trace::to_odd_float(cuda_trace::to_odd_double(value)))) {} \
    CUDA_TRACE_INLINE operator integer() const { return cuda_trace::to_integer<integer>(CUDA_TRACE_TO(__x)); }
    CUDA_TRACE_INTEGER(short)
    CUDA_TRACE_INTEGER(unsigned short)
    CUDA_TRACE_INTEGER(int)
    CUDA_TRACE_INTEGER(unsigned int)
    CUDA_TRACE_INTEGER(long)
    CUDA_TRACE_INTEGER(unsigned long)
    CUDA_TRACE_INTEGER(long long)
    CUDA_TRACE_INTEGER(unsigned long long)
#undef CUDA_TRACE_INTEGER

    CUDA_TRACE_INLINE operator char() const { return cuda_trace::to_integer<char>(CUDA_TRACE_TO(__x)); }
    CUDA_TRACE_INLINE operator signed char() const { return cuda_trace::to_integer<signed char>(CUDA_TRACE_TO(__x)); }
    CUDA_TRACE_INLINE operator unsigned char() const { return cuda_trace::to_integer<unsigned char>(CUDA_TRACE_TO(__x)); }
#endif
};

struct alignas(4) CUDA_TRACE_PAIR {
    CUDA_TRACE_TYPE x, y;

    CUDA_TRACE_PAIR() = default;
    CUDA_TRACE_INLINE constexpr CUDA_TRACE_PAIR(const CUDA_TRACE_TYPE& x, const CUDA_TRACE_TYPE& y) : x(x), y(y) {}
    CUDA_TRACE_INLINE CUDA_TRACE_PAIR(const CUDA_TRACE_PAIR_RAW& raw)
        : x(CUDA_TRACE_TYPE_RAW{raw.x}), y(CUDA_TRACE_TYPE_RAW{raw.y}) {}
    CUDA_TRACE_INLINE operator CUDA_TRACE_PAIR_RAW() const { return {x.__x, y.__x}; }
};
