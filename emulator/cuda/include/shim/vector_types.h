// char2 to double4, dim3: plain structs with CUDA's sizes and alignments.
#pragma once

#include "inline.h"

// All but dim3 are trivial, because variables in shared memory must not have a constructor. Vectors
// of 1 and 3 elements have the element's alignment; `two` and `four` are the alignments of vectors
// of 2 and 4.
#define CUDA_SHIM_VECTOR(name, element, two, four)                                                 \
    struct name##1 { element x; };                                                                  \
    struct alignas(two) name##2 { element x, y; };                                                  \
    struct name##3 { element x, y, z; };                                                            \
    struct alignas(four) name##4 { element x, y, z, w; };                                           \
    CUDA_SHIM_INLINE name##1 make_##name##1(element x) { return {x}; }                             \
    CUDA_SHIM_INLINE name##2 make_##name##2(element x, element y) { return {x, y}; }               \
    CUDA_SHIM_INLINE name##3 make_##name##3(element x, element y, element z) { return {x, y, z}; } \
    CUDA_SHIM_INLINE name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }

CUDA_SHIM_VECTOR(char, signed char, 2, 4)
CUDA_SHIM_VECTOR(uchar, unsigned char, 2, 4)
CUDA_SHIM_VECTOR(short, short, 4, 8)
CUDA_SHIM_VECTOR(ushort, unsigned short, 4, 8)
CUDA_SHIM_VECTOR(int, int, 8, 16)
CUDA_SHIM_VECTOR(uint, unsigned int, 8, 16)
CUDA_SHIM_VECTOR(long, long, 16, 16)
CUDA_SHIM_VECTOR(ulong, unsigned long, 16, 16)
CUDA_SHIM_VECTOR(longlong, long long, 16, 16)
CUDA_SHIM_VECTOR(ulonglong, unsigned long long, 16, 16)
CUDA_SHIM_VECTOR(float, float, 8, 16)
CUDA_SHIM_VECTOR(double, double, 16, 16)

#undef CUDA_SHIM_VECTOR

// The names of CUDA 13 that say how the 32 bytes are aligned.
#define CUDA_SHIM_FOUR(name, element, alignment)                                                                      \
    struct alignas(alignment) name##4_##alignment##a { element x, y, z, w; };                                          \
    CUDA_SHIM_INLINE name##4_##alignment##a make_##name##4_##alignment##a(element x, element y, element z, element w) { \
        return {x, y, z, w};                                                                                           \
    }

CUDA_SHIM_FOUR(long, long, 16)
CUDA_SHIM_FOUR(long, long, 32)
CUDA_SHIM_FOUR(ulong, unsigned long, 16)
CUDA_SHIM_FOUR(ulong, unsigned long, 32)
CUDA_SHIM_FOUR(longlong, long long, 16)
CUDA_SHIM_FOUR(longlong, long long, 32)
CUDA_SHIM_FOUR(ulonglong, unsigned long long, 16)
CUDA_SHIM_FOUR(ulonglong, unsigned long long, 32)
CUDA_SHIM_FOUR(double, double, 16)
CUDA_SHIM_FOUR(double, double, 32)

#undef CUDA_SHIM_FOUR

struct dim3 {
    unsigned int x, y, z;

    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 of) : x(of.x), y(of.y), z(of.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
