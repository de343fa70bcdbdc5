// Arithmetic and comparison of a 16-bit float and of its pairs. Included once for each type, after
// narrow_convert.h.
//
// Each operation is float's, rounded: a float has more than twice the bits, so rounding twice gives
// the same as rounding once. Only x * y + z needs more than a float.

#define CUDA_SHIM_WIDE(...) emulator::wide(__VA_ARGS__)

namespace emulator {

// Clamps to [0, 1]; a NaN becomes 0.
CUDA_SHIM_INLINE CUDA_SHIM_T saturated(CUDA_SHIM_T a) {
    float value = wide(a);
    return CUDA_SHIM_NARROW(value > 0 ? (value < 1 ? value : 1.0f) : 0.0f);
}

CUDA_SHIM_INLINE CUDA_SHIM_T above_zero(CUDA_SHIM_T a) { return wide(a) < 0 ? CUDA_SHIM_NARROW(0.0f) : a; }

CUDA_SHIM_INLINE bool either_nan(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __builtin_isunordered(wide(a), wide(b)); }

}  // namespace emulator

// ---- arithmetic ---------------------------------------------------------------------------------

// A function on elements and the one on pairs: __h<name> and __h<name>2.
#define CUDA_SHIM_UNARY(one, two, ...)                                        \
    CUDA_SHIM_INLINE CUDA_SHIM_T one(CUDA_SHIM_T a) { return __VA_ARGS__; } \
    CUDA_SHIM_INLINE CUDA_SHIM_P two(CUDA_SHIM_P a) { return {one(a.x), one(a.y)}; }

#define CUDA_SHIM_BINARY(one, two, ...)                                                       \
    CUDA_SHIM_INLINE CUDA_SHIM_T one(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __VA_ARGS__; } \
    CUDA_SHIM_INLINE CUDA_SHIM_P two(CUDA_SHIM_P a, CUDA_SHIM_P b) { return {one(a.x, b.x), one(a.y, b.y)}; }

#define CUDA_SHIM_TERNARY(one, two, ...)                                                                      \
    CUDA_SHIM_INLINE CUDA_SHIM_T one(CUDA_SHIM_T a, CUDA_SHIM_T b, CUDA_SHIM_T c) { return __VA_ARGS__; } \
    CUDA_SHIM_INLINE CUDA_SHIM_P two(CUDA_SHIM_P a, CUDA_SHIM_P b, CUDA_SHIM_P c) {                       \
        return {one(a.x, b.x, c.x), one(a.y, b.y, c.y)};                                                       \
    }

CUDA_SHIM_BINARY(__hadd, __hadd2, CUDA_SHIM_NARROW(CUDA_SHIM_WIDE(a) + CUDA_SHIM_WIDE(b)))
CUDA_SHIM_BINARY(__hsub, __hsub2, CUDA_SHIM_NARROW(CUDA_SHIM_WIDE(a) - CUDA_SHIM_WIDE(b)))
CUDA_SHIM_BINARY(__hmul, __hmul2, CUDA_SHIM_NARROW(CUDA_SHIM_WIDE(a) * CUDA_SHIM_WIDE(b)))
CUDA_SHIM_BINARY(__hdiv, __h2div, CUDA_SHIM_NARROW(CUDA_SHIM_WIDE(a) / CUDA_SHIM_WIDE(b)))
CUDA_SHIM_TERNARY(__hfma, __hfma2,
    CUDA_SHIM_NARROW(emulator::to_odd_fma(CUDA_SHIM_WIDE(a), CUDA_SHIM_WIDE(b), CUDA_SHIM_WIDE(c))))

// _rn: never contracted to a fused operation. Here no operation is ever contracted.
CUDA_SHIM_BINARY(__hadd_rn, __hadd2_rn, __hadd(a, b))
CUDA_SHIM_BINARY(__hsub_rn, __hsub2_rn, __hsub(a, b))
CUDA_SHIM_BINARY(__hmul_rn, __hmul2_rn, __hmul(a, b))
CUDA_SHIM_BINARY(__hadd_sat, __hadd2_sat, emulator::saturated(__hadd(a, b)))
CUDA_SHIM_BINARY(__hsub_sat, __hsub2_sat, emulator::saturated(__hsub(a, b)))
CUDA_SHIM_BINARY(__hmul_sat, __hmul2_sat, emulator::saturated(__hmul(a, b)))
CUDA_SHIM_TERNARY(__hfma_sat, __hfma2_sat, emulator::saturated(__hfma(a, b, c)))
CUDA_SHIM_TERNARY(__hfma_relu, __hfma2_relu, emulator::above_zero(__hfma(a, b, c)))

CUDA_SHIM_UNARY(__hneg, __hneg2, CUDA_SHIM_TYPE_RAW{static_cast<unsigned short>(a.__x ^ 0x8000)})
CUDA_SHIM_UNARY(__habs, __habs2, CUDA_SHIM_TYPE_RAW{static_cast<unsigned short>(a.__x & 0x7fff)})

CUDA_SHIM_BINARY(__hmax, __hmax2, CUDA_SHIM_NARROW(emulator::greater_of(CUDA_SHIM_WIDE(a), CUDA_SHIM_WIDE(b))))
CUDA_SHIM_BINARY(__hmin, __hmin2, __hneg(__hmax(__hneg(a), __hneg(b))))
CUDA_SHIM_BINARY(__hmax_nan, __hmax2_nan,
    emulator::either_nan(a, b) ? CUDA_SHIM_NARROW(__builtin_nanf("")) : __hmax(a, b))
CUDA_SHIM_BINARY(__hmin_nan, __hmin2_nan,
    emulator::either_nan(a, b) ? CUDA_SHIM_NARROW(__builtin_nanf("")) : __hmin(a, b))

// Complex multiplication and addition; x is the real part.
CUDA_SHIM_INLINE CUDA_SHIM_P __hcmadd(CUDA_SHIM_P a, CUDA_SHIM_P b, CUDA_SHIM_P c) {
    CUDA_SHIM_T real = __hfma(a.x, b.x, c.x), imaginary = __hfma(a.x, b.y, c.y);
    return {__hfma(__hneg(a.y), b.y, real), __hfma(a.y, b.x, imaginary)};
}

// ---- functions ----------------------------------------------------------------------------------

#define CUDA_SHIM_FUNCTION(name, ...) CUDA_SHIM_UNARY(h##name, h2##name, CUDA_SHIM_NARROW(__VA_ARGS__))

CUDA_SHIM_FUNCTION(exp, __builtin_expf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(exp2, __builtin_exp2f(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(exp10, __builtin_exp10f(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(log, __builtin_logf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(log2, __builtin_log2f(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(log10, __builtin_log10f(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(sin, __builtin_sinf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(cos, __builtin_cosf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(tanh, __builtin_tanhf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(tanh_approx, __builtin_tanhf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(sqrt, __builtin_sqrtf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(rsqrt, 1.0f / __builtin_sqrtf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(rcp, 1.0f / CUDA_SHIM_WIDE(a))
CUDA_SHIM_FUNCTION(ceil, __builtin_ceilf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(floor, __builtin_floorf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(trunc, __builtin_truncf(CUDA_SHIM_WIDE(a)))
CUDA_SHIM_FUNCTION(rint, __builtin_rintf(CUDA_SHIM_WIDE(a)))

// ---- comparison ---------------------------------------------------------------------------------

// <name>: false if an operand is NaN, also for "not equal"; <name>u: true then. For pairs, results
// are 1 and 0, masks, or (hb) one for both elements.
#define CUDA_SHIM_PREDICATE(one, two, mask, both, ...)                                                          \
    CUDA_SHIM_INLINE bool one(CUDA_SHIM_T left, CUDA_SHIM_T right) {                                          \
        float a = CUDA_SHIM_WIDE(left), b = CUDA_SHIM_WIDE(right);                                             \
        return __VA_ARGS__;                                                                                      \
    }                                                                                                            \
    CUDA_SHIM_INLINE CUDA_SHIM_P two(CUDA_SHIM_P a, CUDA_SHIM_P b) {                                         \
        return {CUDA_SHIM_NARROW(one(a.x, b.x) ? 1.0f : 0.0f), CUDA_SHIM_NARROW(one(a.y, b.y) ? 1.0f : 0.0f)}; \
    }                                                                                                            \
    CUDA_SHIM_INLINE unsigned mask(CUDA_SHIM_P a, CUDA_SHIM_P b) {                                            \
        return (one(a.x, b.x) ? 0xffffu : 0u) | (one(a.y, b.y) ? 0xffff0000u : 0u);                              \
    }                                                                                                            \
    CUDA_SHIM_INLINE bool both(CUDA_SHIM_P a, CUDA_SHIM_P b) { return one(a.x, b.x) && one(a.y, b.y); }

#define CUDA_SHIM_COMPARE(name, ...)                                                     \
    CUDA_SHIM_PREDICATE(__h##name, __h##name##2, __h##name##2_mask, __hb##name##2,       \
                         !__builtin_isunordered(a, b) && __VA_ARGS__)                     \
    CUDA_SHIM_PREDICATE(__h##name##u, __h##name##u2, __h##name##u2_mask, __hb##name##u2, \
                         __builtin_isunordered(a, b) || __VA_ARGS__)

CUDA_SHIM_COMPARE(eq, a == b)
CUDA_SHIM_COMPARE(ne, a != b)
CUDA_SHIM_COMPARE(lt, __builtin_isless(a, b))
CUDA_SHIM_COMPARE(le, __builtin_islessequal(a, b))
CUDA_SHIM_COMPARE(gt, __builtin_isgreater(a, b))
CUDA_SHIM_COMPARE(ge, __builtin_isgreaterequal(a, b))

CUDA_SHIM_INLINE bool __hisnan(CUDA_SHIM_T a) { return CUDA_SHIM_WIDE(a) != CUDA_SHIM_WIDE(a); }
CUDA_SHIM_INLINE CUDA_SHIM_P __hisnan2(CUDA_SHIM_P a) {
    return {CUDA_SHIM_NARROW(__hisnan(a.x) ? 1.0f : 0.0f), CUDA_SHIM_NARROW(__hisnan(a.y) ? 1.0f : 0.0f)};
}

// 1, -1 or 0
CUDA_SHIM_INLINE int __hisinf(CUDA_SHIM_T a) {
    float value = CUDA_SHIM_WIDE(a);
    return (value == __builtin_inff()) - (value == -__builtin_inff());
}

// ---- operators ----------------------------------------------------------------------------------

// By value, not by reference, so that an operand is read on the author's line.
#define CUDA_SHIM_OPERATOR(what, symbol, function)                                   \
    CUDA_SHIM_INLINE what operator symbol(what a, what b) { return function(a, b); } \
    CUDA_SHIM_INLINE what& operator symbol##=(what& a, what b) { return a = function(a, b); }

#define CUDA_SHIM_STEP(what, symbol, function, one)                                  \
    CUDA_SHIM_INLINE what& operator symbol(what& a) { return a = function(a, one); } \
    CUDA_SHIM_INLINE what operator symbol(what& a, int) {                            \
        what before = a;                                                              \
        a = function(before, one);                                                    \
        return before;                                                                \
    }

#ifndef CUDA_SHIM_NO_OPERATORS
CUDA_SHIM_OPERATOR(CUDA_SHIM_T, +, __hadd)
CUDA_SHIM_OPERATOR(CUDA_SHIM_T, -, __hsub)
CUDA_SHIM_OPERATOR(CUDA_SHIM_T, *, __hmul)
CUDA_SHIM_OPERATOR(CUDA_SHIM_T, /, __hdiv)
CUDA_SHIM_STEP(CUDA_SHIM_T, ++, __hadd, CUDA_SHIM_NARROW(1.0f))
CUDA_SHIM_STEP(CUDA_SHIM_T, --, __hsub, CUDA_SHIM_NARROW(1.0f))
CUDA_SHIM_INLINE CUDA_SHIM_T operator+(CUDA_SHIM_T a) { return a; }
CUDA_SHIM_INLINE CUDA_SHIM_T operator-(CUDA_SHIM_T a) { return __hneg(a); }
CUDA_SHIM_INLINE bool operator==(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __heq(a, b); }
CUDA_SHIM_INLINE bool operator!=(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __hneu(a, b); }
CUDA_SHIM_INLINE bool operator<(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __hlt(a, b); }
CUDA_SHIM_INLINE bool operator<=(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __hle(a, b); }
CUDA_SHIM_INLINE bool operator>(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __hgt(a, b); }
CUDA_SHIM_INLINE bool operator>=(CUDA_SHIM_T a, CUDA_SHIM_T b) { return __hge(a, b); }
#endif

#ifndef CUDA_SHIM_NO_PAIR_OPERATORS
#define CUDA_SHIM_ONES (CUDA_SHIM_P{CUDA_SHIM_NARROW(1.0f), CUDA_SHIM_NARROW(1.0f)})
CUDA_SHIM_OPERATOR(CUDA_SHIM_P, +, __hadd2)
CUDA_SHIM_OPERATOR(CUDA_SHIM_P, -, __hsub2)
CUDA_SHIM_OPERATOR(CUDA_SHIM_P, *, __hmul2)
CUDA_SHIM_OPERATOR(CUDA_SHIM_P, /, __h2div)
CUDA_SHIM_STEP(CUDA_SHIM_P, ++, __hadd2, CUDA_SHIM_ONES)
CUDA_SHIM_STEP(CUDA_SHIM_P, --, __hsub2, CUDA_SHIM_ONES)
CUDA_SHIM_INLINE CUDA_SHIM_P operator+(CUDA_SHIM_P a) { return a; }
CUDA_SHIM_INLINE CUDA_SHIM_P operator-(CUDA_SHIM_P a) { return __hneg2(a); }
CUDA_SHIM_INLINE bool operator==(CUDA_SHIM_P a, CUDA_SHIM_P b) { return __hbeq2(a, b); }
CUDA_SHIM_INLINE bool operator!=(CUDA_SHIM_P a, CUDA_SHIM_P b) { return __hbneu2(a, b); }
CUDA_SHIM_INLINE bool operator<(CUDA_SHIM_P a, CUDA_SHIM_P b) { return __hblt2(a, b); }
CUDA_SHIM_INLINE bool operator<=(CUDA_SHIM_P a, CUDA_SHIM_P b) { return __hble2(a, b); }
CUDA_SHIM_INLINE bool operator>(CUDA_SHIM_P a, CUDA_SHIM_P b) { return __hbgt2(a, b); }
CUDA_SHIM_INLINE bool operator>=(CUDA_SHIM_P a, CUDA_SHIM_P b) { return __hbge2(a, b); }
#undef CUDA_SHIM_ONES
#endif
