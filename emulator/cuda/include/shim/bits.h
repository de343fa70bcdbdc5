// Intrinsics on the bits of integers and floats.
#pragma once

#include "inline.h"

// ---- the same bits under another type -----------------------------------------------------------

CUDA_SHIM_INLINE int __float_as_int(float a) { return emulator::bits_as<int>(a); }
CUDA_SHIM_INLINE unsigned __float_as_uint(float a) { return emulator::bits_as<unsigned>(a); }
CUDA_SHIM_INLINE float __int_as_float(int a) { return emulator::bits_as<float>(a); }
CUDA_SHIM_INLINE float __uint_as_float(unsigned a) { return emulator::bits_as<float>(a); }
CUDA_SHIM_INLINE long long __double_as_longlong(double a) { return emulator::bits_as<long long>(a); }
CUDA_SHIM_INLINE double __longlong_as_double(long long a) { return emulator::bits_as<double>(a); }
CUDA_SHIM_INLINE int __double2hiint(double a) { return static_cast<int>(__double_as_longlong(a) >> 32); }
CUDA_SHIM_INLINE int __double2loint(double a) { return static_cast<int>(__double_as_longlong(a)); }
CUDA_SHIM_INLINE double __hiloint2double(int high, int low) {
    return __longlong_as_double(static_cast<long long>(high) << 32 | static_cast<unsigned>(low));
}

// ---- counting and moving bits -------------------------------------------------------------------

CUDA_SHIM_INLINE int __popc(unsigned a) { return __builtin_popcount(a); }
CUDA_SHIM_INLINE int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
CUDA_SHIM_INLINE int __clz(int a) { return a ? __builtin_clz(static_cast<unsigned>(a)) : 32; }
CUDA_SHIM_INLINE int __clzll(long long a) { return a ? __builtin_clzll(static_cast<unsigned long long>(a)) : 64; }
CUDA_SHIM_INLINE int __ffs(int a) { return __builtin_ffs(a); }
CUDA_SHIM_INLINE int __ffsll(long long a) { return __builtin_ffsll(a); }

CUDA_SHIM_INLINE unsigned __brev(unsigned a) {
    a = __builtin_bswap32(a);
    a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    return (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
}
CUDA_SHIM_INLINE unsigned long long __brevll(unsigned long long a) {
    unsigned long long high = __brev(static_cast<unsigned>(a));
    return high << 32 | __brev(static_cast<unsigned>(a >> 32));
}

// Four of the eight bytes of y and x; the three low bits of each of the four low hex digits of
// `selector` choose one.
CUDA_SHIM_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}

// Shifts the 64 bits high:low and returns the upper or the lower half; _lc and _rc stop at 32
// instead of wrapping.
CUDA_SHIM_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
CUDA_SHIM_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift < 32 ? __funnelshift_l(low, high, shift) : low;
}
CUDA_SHIM_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
CUDA_SHIM_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}

// ---- integer arithmetic -------------------------------------------------------------------------

CUDA_SHIM_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
// The product of the 24 low bits, with their sign; its 32 low bits.
CUDA_SHIM_INLINE int __mul24(int a, int b) {
    long long left = static_cast<int>(static_cast<unsigned>(a) << 8) >> 8;
    long long right = static_cast<int>(static_cast<unsigned>(b) << 8) >> 8;
    return static_cast<int>(left * right);
}

CUDA_SHIM_INLINE int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
CUDA_SHIM_INLINE unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
CUDA_SHIM_INLINE long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
CUDA_SHIM_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// |a - b| + c
CUDA_SHIM_INLINE unsigned __sad(int a, int b, unsigned c) {
    unsigned difference = static_cast<unsigned>(a) - static_cast<unsigned>(b);
    return (a < b ? 0 - difference : difference) + c;
}
CUDA_SHIM_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }

// Averages without overflow, rounded down; __rhadd and __urhadd up.
CUDA_SHIM_INLINE int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
CUDA_SHIM_INLINE int __rhadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1); }
CUDA_SHIM_INLINE unsigned __uhadd(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<unsigned long long>(a) + b) >> 1);
}
CUDA_SHIM_INLINE unsigned __urhadd(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<unsigned long long>(a) + b + 1) >> 1);
}

// c plus the products of the four bytes of a and of b.
CUDA_SHIM_INLINE int __dp4a(int a, int b, int c) {
    unsigned sum = static_cast<unsigned>(c);
    for (int i = 0; i < 32; i += 8) {
        int product = static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
        sum += static_cast<unsigned>(product);
    }
    return static_cast<int>(sum);
}
CUDA_SHIM_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}
