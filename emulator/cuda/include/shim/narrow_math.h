// Arithmetic and comparison of a 16-bit float and of its pairs. Included once for each, behind narrow_convert.h.
//
// Each operation is that of float, rounded: a float has more than twice the bits, so that rounding twice is rounding
// once. Only x * y + z needs more than a float.

#define CUDA_TRACE_WIDE(...) cuda_trace::wide(__VA_ARGS__)

namespace cuda_trace {

// Into [0, 1]; a NaN is 0.
CUDA_TRACE_INLINE CUDA_TRACE_T saturated(CUDA_TRACE_T a) {
    float value = wide(a);
    return CUDA_TRACE_NARROW(value > 0 ? (value < 1 ? value : 1.0f) : 0.0f);
}

CUDA_TRACE_INLINE CUDA_TRACE_T above_zero(CUDA_TRACE_T a) { return wide(a) < 0 ? CUDA_TRACE_NARROW(0.0f) : a; }

CUDA_TRACE_INLINE bool either_nan(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __builtin_isunordered(wide(a), wide(b)); }

}  // namespace cuda_trace

// ---- arithmetic ---------------------------------------------------------------------------------------------------

// One function on elements and its twin on pairs, __h<name> and __h<name>2.
#define CUDA_TRACE_UNARY(one, two, ...)                                        \
    CUDA_TRACE_INLINE CUDA_TRACE_T one(CUDA_TRACE_T a) { return __VA_ARGS__; } \
    CUDA_TRACE_INLINE CUDA_TRACE_P two(CUDA_TRACE_P a) { return {one(a.x), one(a.y)}; }

#define CUDA_TRACE_BINARY(one, two, ...)                                                       \
    CUDA_TRACE_INLINE CUDA_TRACE_T one(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __VA_ARGS__; } \
    CUDA_TRACE_INLINE CUDA_TRACE_P two(CUDA_TRACE_P a, CUDA_TRACE_P b) { return {one(a.x, b.x), one(a.y, b.y)}; }

#define CUDA_TRACE_TERNARY(one, two, ...)                                                                      \
    CUDA_TRACE_INLINE CUDA_TRACE_T one(CUDA_TRACE_T a, CUDA_TRACE_T b, CUDA_TRACE_T c) { return __VA_ARGS__; } \
    CUDA_TRACE_INLINE CUDA_TRACE_P two(CUDA_TRACE_P a, CUDA_TRACE_P b, CUDA_TRACE_P c) {                       \
        return {one(a.x, b.x, c.x), one(a.y, b.y, c.y)};                                                       \
    }

CUDA_TRACE_BINARY(__hadd, __hadd2, CUDA_TRACE_NARROW(CUDA_TRACE_WIDE(a) + CUDA_TRACE_WIDE(b)))
CUDA_TRACE_BINARY(__hsub, __hsub2, CUDA_TRACE_NARROW(CUDA_TRACE_WIDE(a) - CUDA_TRACE_WIDE(b)))
CUDA_TRACE_BINARY(__hmul, __hmul2, CUDA_TRACE_NARROW(CUDA_TRACE_WIDE(a) * CUDA_TRACE_WIDE(b)))
CUDA_TRACE_BINARY(__hdiv, __h2div, CUDA_TRACE_NARROW(CUDA_TRACE_WIDE(a) / CUDA_TRACE_WIDE(b)))
CUDA_TRACE_TERNARY(__hfma, __hfma2,
    CUDA_TRACE_NARROW(cuda_trace::to_odd_fma(CUDA_TRACE_WIDE(a), CUDA_TRACE_WIDE(b), CUDA_TRACE_WIDE(c))))

// _rn: never contracted to a fused operation, as here none is.
CUDA_TRACE_BINARY(__hadd_rn, __hadd2_rn, __hadd(a, b))
CUDA_TRACE_BINARY(__hsub_rn, __hsub2_rn, __hsub(a, b))
CUDA_TRACE_BINARY(__hmul_rn, __hmul2_rn, __hmul(a, b))
CUDA_TRACE_BINARY(__hadd_sat, __hadd2_sat, cuda_trace::saturated(__hadd(a, b)))
CUDA_TRACE_BINARY(__hsub_sat, __hsub2_sat, cuda_trace::saturated(__hsub(a, b)))
CUDA_TRACE_BINARY(__hmul_sat, __hmul2_sat, cuda_trace::saturated(__hmul(a, b)))
CUDA_TRACE_TERNARY(__hfma_sat, __hfma2_sat, cuda_trace::saturated(__hfma(a, b, c)))
CUDA_TRACE_TERNARY(__hfma_relu, __hfma2_relu, cuda_trace::above_zero(__hfma(a, b, c)))

CUDA_TRACE_UNARY(__hneg, __hneg2, CUDA_TRACE_TYPE_RAW{static_cast<unsigned short>(a.__x ^ 0x8000)})
CUDA_TRACE_UNARY(__habs, __habs2, CUDA_TRACE_TYPE_RAW{static_cast<unsigned short>(a.__x & 0x7fff)})

CUDA_TRACE_BINARY(__hmax, __hmax2, CUDA_TRACE_NARROW(cuda_trace::greater_of(CUDA_TRACE_WIDE(a), CUDA_TRACE_WIDE(b))))
CUDA_TRACE_BINARY(__hmin, __hmin2, __hneg(__hmax(__hneg(a), __hneg(b))))
CUDA_TRACE_BINARY(__hmax_nan, __hmax2_nan,
    cuda_trace::either_nan(a, b) ? CUDA_TRACE_NARROW(__builtin_nanf("")) : __hmax(a, b))
CUDA_TRACE_BINARY(__hmin_nan, __hmin2_nan,
    cuda_trace::either_nan(a, b) ? CUDA_TRACE_NARROW(__builtin_nanf("")) : __hmin(a, b))

// Complex multiplication and addition: x is the real part.
CUDA_TRACE_INLINE CUDA_TRACE_P __hcmadd(CUDA_TRACE_P a, CUDA_TRACE_P b, CUDA_TRACE_P c) {
    CUDA_TRACE_T real = __hfma(a.x, b.x, c.x), imaginary = __hfma(a.x, b.y, c.y);
    return {__hfma(__hneg(a.y), b.y, real), __hfma(a.y, b.x, imaginary)};
}

// ---- functions ----------------------------------------------------------------------------------------------------

#define CUDA_TRACE_FUNCTION(name, ...) CUDA_TRACE_UNARY(h##name, h2##name, CUDA_TRACE_NARROW(__VA_ARGS__))

CUDA_TRACE_FUNCTION(exp, __builtin_expf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(exp2, __builtin_exp2f(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(exp10, __builtin_exp10f(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(log, __builtin_logf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(log2, __builtin_log2f(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(log10, __builtin_log10f(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(sin, __builtin_sinf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(cos, __builtin_cosf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(tanh, __builtin_tanhf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(tanh_approx, __builtin_tanhf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(sqrt, __builtin_sqrtf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(rsqrt, 1.0f / __builtin_sqrtf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(rcp, 1.0f / CUDA_TRACE_WIDE(a))
CUDA_TRACE_FUNCTION(ceil, __builtin_ceilf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(floor, __builtin_floorf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(trunc, __builtin_truncf(CUDA_TRACE_WIDE(a)))
CUDA_TRACE_FUNCTION(rint, __builtin_rintf(CUDA_TRACE_WIDE(a)))

// ---- comparison ---------------------------------------------------------------------------------------------------

// <name>: false where a NaN is met, also for "not equal"; <name>u: true there. On pairs as 1 and 0, as masks, and (hb)
// for both elements at once.
#define CUDA_TRACE_PREDICATE(one, two, mask, both, ...)                                                          \
    CUDA_TRACE_INLINE bool one(CUDA_TRACE_T left, CUDA_TRACE_T right) {                                          \
        float a = CUDA_TRACE_WIDE(left), b = CUDA_TRACE_WIDE(right);                                             \
        return __VA_ARGS__;                                                                                      \
    }                                                                                                            \
    CUDA_TRACE_INLINE CUDA_TRACE_P two(CUDA_TRACE_P a, CUDA_TRACE_P b) {                                         \
        return {CUDA_TRACE_NARROW(one(a.x, b.x) ? 1.0f : 0.0f), CUDA_TRACE_NARROW(one(a.y, b.y) ? 1.0f : 0.0f)}; \
    }                                                                                                            \
    CUDA_TRACE_INLINE unsigned mask(CUDA_TRACE_P a, CUDA_TRACE_P b) {                                            \
        return (one(a.x, b.x) ? 0xffffu : 0u) | (one(a.y, b.y) ? 0xffff0000u : 0u);                              \
    }                                                                                                            \
    CUDA_TRACE_INLINE bool both(CUDA_TRACE_P a, CUDA_TRACE_P b) { return one(a.x, b.x) && one(a.y, b.y); }

#define CUDA_TRACE_COMPARE(name, ...)                                                     \
    CUDA_TRACE_PREDICATE(__h##name, __h##name##2, __h##name##2_mask, __hb##name##2,       \
                         !__builtin_isunordered(a, b) && __VA_ARGS__)                     \
    CUDA_TRACE_PREDICATE(__h##name##u, __h##name##u2, __h##name##u2_mask, __hb##name##u2, \
                         __builtin_isunordered(a, b) || __VA_ARGS__)

CUDA_TRACE_COMPARE(eq, a == b)
CUDA_TRACE_COMPARE(ne, a != b)
CUDA_TRACE_COMPARE(lt, __builtin_isless(a, b))
CUDA_TRACE_COMPARE(le, __builtin_islessequal(a, b))
CUDA_TRACE_COMPARE(gt, __builtin_isgreater(a, b))
CUDA_TRACE_COMPARE(ge, __builtin_isgreaterequal(a, b))

CUDA_TRACE_INLINE bool __hisnan(CUDA_TRACE_T a) { return CUDA_TRACE_WIDE(a) != CUDA_TRACE_WIDE(a); }
CUDA_TRACE_INLINE CUDA_TRACE_P __hisnan2(CUDA_TRACE_P a) {
    return {CUDA_TRACE_NARROW(__hisnan(a.x) ? 1.0f : 0.0f), CUDA_TRACE_NARROW(__hisnan(a.y) ? 1.0f : 0.0f)};
}

// 1, -1 or 0
CUDA_TRACE_INLINE int __hisinf(CUDA_TRACE_T a) {
    float value = CUDA_TRACE_WIDE(a);
    return (value == __builtin_inff()) - (value == -__builtin_inff());
}

// ---- operators ----------------------------------------------------------------------------------------------------

// By value, not by reference: what an operand reads is then read on the author's line itself.
#define CUDA_TRACE_OPERATOR(what, symbol, function)                                   \
    CUDA_TRACE_INLINE what operator symbol(what a, what b) { return function(a, b); } \
    CUDA_TRACE_INLINE what& operator symbol##=(what& a, what b) { return a = function(a, b); }

#define CUDA_TRACE_STEP(what, symbol, function, one)                                  \
    CUDA_TRACE_INLINE what& operator symbol(what& a) { return a = function(a, one); } \
    CUDA_TRACE_INLINE what operator symbol(what& a, int) {                            \
        what before = a;                                                              \
        a = function(before, one);                                                    \
        return before;                                                                \
    }

#ifndef CUDA_TRACE_NO_OPERATORS
CUDA_TRACE_OPERATOR(CUDA_TRACE_T, +, __hadd)
CUDA_TRACE_OPERATOR(CUDA_TRACE_T, -, __hsub)
CUDA_TRACE_OPERATOR(CUDA_TRACE_T, *, __hmul)
CUDA_TRACE_OPERATOR(CUDA_TRACE_T, /, __hdiv)
CUDA_TRACE_STEP(CUDA_TRACE_T, ++, __hadd, CUDA_TRACE_NARROW(1.0f))
CUDA_TRACE_STEP(CUDA_TRACE_T, --, __hsub, CUDA_TRACE_NARROW(1.0f))
CUDA_TRACE_INLINE CUDA_TRACE_T operator+(CUDA_TRACE_T a) { return a; }
CUDA_TRACE_INLINE CUDA_TRACE_T operator-(CUDA_TRACE_T a) { return __hneg(a); }
CUDA_TRACE_INLINE bool operator==(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __heq(a, b); }
CUDA_TRACE_INLINE bool operator!=(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __hneu(a, b); }
CUDA_TRACE_INLINE bool operator<(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __hlt(a, b); }
CUDA_TRACE_INLINE bool operator<=(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __hle(a, b); }
CUDA_TRACE_INLINE bool operator>(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __hgt(a, b); }
CUDA_TRACE_INLINE bool operator>=(CUDA_TRACE_T a, CUDA_TRACE_T b) { return __hge(a, b); }
#endif

#ifndef CUDA_TRACE_NO_PAIR_OPERATORS
#define CUDA_TRACE_ONES (CUDA_TRACE_P{CUDA_TRACE_NARROW(1.0f), CUDA_TRACE_NARROW(1.0f)})
CUDA_TRACE_OPERATOR(CUDA_TRACE_P, +, __hadd2)
CUDA_TRACE_OPERATOR(CUDA_TRACE_P, -, __hsub2)
CUDA_TRACE_OPERATOR(CUDA_TRACE_P, *, __hmul2)
CUDA_TRACE_OPERATOR(CUDA_TRACE_P, /, __h2div)
CUDA_TRACE_STEP(CUDA_TRACE_P, ++, __hadd2, CUDA_TRACE_ONES)
CUDA_TRACE_STEP(CUDA_TRACE_P, --, __hsub2, CUDA_TRACE_ONES)
CUDA_TRACE_INLINE CUDA_TRACE_P operator+(CUDA_TRACE_P a) { return a; }
CUDA_TRACE_INLINE CUDA_TRACE_P operator-(CUDA_TRACE_P a) { return __hneg2(a); }
CUDA_TRACE_INLINE bool operator==(CUDA_TRACE_P a, CUDA_TRACE_P b) { return __hbeq2(a, b); }
CUDA_TRACE_INLINE bool operator!=(CUDA_TRACE_P a, CUDA_TRACE_P b) { return __hbneu2(a, b); }
CUDA_TRACE_INLINE bool operator<(CUDA_TRACE_P a, CUDA_TRACE_P b) { return __hblt2(a, b); }
CUDA_TRACE_INLINE bool operator<=(CUDA_TRACE_P a, CUDA_TRACE_P b) { return __hble2(a, b); }
CUDA_TRACE_INLINE bool operator>(CUDA_TRACE_P a, CUDA_TRACE_P b) { return __hbgt2(a, b); }
CUDA_TRACE_INLINE bool operator>=(CUDA_TRACE_P a, CUDA_TRACE_P b) { return __hbge2(a, b); }
#undef CUDA_TRACE_ONES
#endif
