// Functions of the shim over arrays, for tests/emulator/cuda/test_numbers.py: out[i] = f(x[i],
// y[i], z[i]). 16-bit floats are passed and returned as their bits.
#include "shim/vector_types.h"
#include "shim/device_math.h"
#include "cuda_bf16.h"

typedef unsigned short u16;
typedef unsigned u32;
typedef long long i64;
typedef unsigned long long u64;
static u16 bits(half a) { return __half_as_ushort(a); }
static u16 bits(__nv_bfloat16 a) { return __bfloat16_as_ushort(a); }
static int bits(bool a) { return a; }

#define EACH(name, Out, In, ...)                                                    \
    extern "C" void name(Out* out, const In* x, const In* y, const In* z, long n) { \
        auto one = [](In a, In b, In c) { return (void)b, (void)c, __VA_ARGS__; };  \
        for (long i = 0; i < n; ++i) out[i] = one(x[i], y[i], z[i]);                \
    }
#define OVER(name, T, read, ...)                                                         \
    static u16 one_##name(T a, T b, T c) { return (void)b, (void)c, bits(__VA_ARGS__); } \
    EACH(name, u16, u16, one_##name(read(a), read(b), read(c)))
#define TWINS(name, ...)                                   \
    OVER(half_##name, half, __ushort_as_half, __VA_ARGS__) \
    OVER(bfloat16_##name, __nv_bfloat16, __ushort_as_bfloat16, __VA_ARGS__)

TWINS(add, a + b)
TWINS(sub, __hsub(a, b))
TWINS(mul, a * b)
TWINS(div, __hdiv(a, b))
TWINS(fma, __hfma(a, b, c))
TWINS(neg, -a)
TWINS(abs, __habs(a))
TWINS(max, __hmax(a, b))
TWINS(min, __hmin(a, b))
TWINS(max_nan, __hmax_nan(a, b))
TWINS(sqrt, hsqrt(a))
TWINS(add_sat, __hadd_sat(a, b))
TWINS(rint, hrint(a))
TWINS(eq, __heq(a, b))
TWINS(ne, __hne(a, b))
TWINS(neu, a != b)
TWINS(lt, a < b)
TWINS(ltu, __hltu(a, b))
TWINS(ge, __hge(a, b))
TWINS(isnan, __hisnan(a))

EACH(half_wide, float, u16, __half2float(__ushort_as_half(a)))
EACH(bfloat16_wide, float, u16, __bfloat162float(__ushort_as_bfloat16(a)))
EACH(half_to_int, int, u16, __half2int_rn(__ushort_as_half(a)))
#define NARROW(suffix)                                            \
    EACH(half##suffix, u16, float, bits(__float2half##suffix(a))) \
    EACH(bfloat16##suffix, u16, float, bits(__float2bfloat16##suffix(a)))
NARROW(_rn) NARROW(_rz) NARROW(_ru) NARROW(_rd)
EACH(half_double, u16, double, bits(half(a)))
EACH(bfloat16_double, u16, double, bits(__double2bfloat16(a)))
EACH(half_ll, u16, i64, bits(__ll2half_rn(a)))
EACH(bfloat16_ll, u16, i64, bits(__ll2bfloat16_rn(a)))
EACH(bfloat16_ull, u16, u64, bits(__ull2bfloat16_rn(a)))
EACH(bfloat16_int_rz, u16, int, bits(__int2bfloat16_rz(a)))
EACH(half_pairs, u32, float, __heq2_mask(__floats2half2_rn(a, b), __half2half2(half(a))))

#define ROUNDED(suffix)                                                                                                \
    EACH(f2i##suffix, int, float, __float2int##suffix(a)) EACH(f2u##suffix, u32, float, __float2uint##suffix(a))       \
    EACH(d2ll##suffix, i64, double, __double2ll##suffix(a)) EACH(d2f##suffix, float, double, __double2float##suffix(a)) \
    EACH(ll2f##suffix, float, i64, __ll2float##suffix(a))
ROUNDED(_rn) ROUNDED(_rz) ROUNDED(_ru) ROUNDED(_rd)
EACH(fadd_rz, float, float, __fadd_rz(a, b))
EACH(fadd_ru, float, float, __fadd_ru(a, b))
EACH(fadd_rd, float, float, __fadd_rd(a, b))
EACH(fmul_rz, float, float, __fmul_rz(a, b))
EACH(fmul_ru, float, float, __fmul_ru(a, b))
EACH(fmul_rd, float, float, __fmul_rd(a, b))
EACH(powf_, float, float, __powf(a, b))
EACH(fdividef_, float, float, __fdividef(a, b))
EACH(saturatef, float, float, __saturatef(a))
EACH(maxf, float, float, max(a, b))

EACH(popc, int, u32, __popc(a))
EACH(clz, int, u32, __clz(a))
EACH(ffs, int, u32, __ffs(a))
EACH(brev, u32, u32, __brev(a))
EACH(perm, u32, u32, __byte_perm(a, b, c))
EACH(shift_l, u32, u32, __funnelshift_l(a, b, c))
EACH(shift_r, u32, u32, __funnelshift_r(a, b, c))
EACH(shift_lc, u32, u32, __funnelshift_lc(a, b, c))
EACH(shift_rc, u32, u32, __funnelshift_rc(a, b, c))
EACH(umulhi, u32, u32, __umulhi(a, b))
EACH(mulhi, int, int, __mulhi(a, b))
EACH(mul24, int, int, __mul24(a, b))
EACH(umul24, u32, u32, __umul24(a, b))
EACH(usad, u32, u32, __usad(a, b, c))
EACH(sad, u32, int, __sad(a, b, c))
EACH(hadd, int, int, __hadd(a, b))
EACH(dp4a, int, int, __dp4a(a, b, c))
EACH(udp4a, u32, u32, __dp4a(a, b, c))
EACH(min_mixed, u32, int, min(a, 7u))
EACH(popcll, int, u64, __popcll(a))
EACH(clzll, int, u64, __clzll(a))
EACH(ffsll, int, u64, __ffsll(a))
EACH(brevll, u64, u64, __brevll(a))
EACH(umul64hi, u64, u64, __umul64hi(a, b))
EACH(d_parts, double, double, __hiloint2double(__double2hiint(a), __double2loint(a)))

template <class T> static constexpr bool trivial = __is_trivial(T);
static_assert(trivial<half> && trivial<half2> && trivial<__nv_bfloat16> && trivial<__nv_bfloat162>, "for shared memory");
static_assert(trivial<float4> && trivial<uint3> && trivial<double2> && trivial<char3>, "for shared memory");
