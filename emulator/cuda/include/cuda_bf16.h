// __nv_bfloat16 and __nv_bfloat162: the upper half of a float, 8 bits of precision.
#pragma once

#include "cuda_fp16.h"

#define CUDA_SHIM_NAME bfloat16
#define CUDA_SHIM_TYPE __nv_bfloat16
#define CUDA_SHIM_TYPE_RAW __nv_bfloat16_raw
#define CUDA_SHIM_PAIR __nv_bfloat162
#define CUDA_SHIM_PAIR_RAW __nv_bfloat162_raw
#define CUDA_SHIM_OTHER __half
#define CUDA_SHIM_FROM emulator::float_to_bfloat16
#define CUDA_SHIM_TO emulator::bfloat16_to_float
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define CUDA_SHIM_NO_CONVERSIONS
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define CUDA_SHIM_NO_OPERATORS
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define CUDA_SHIM_NO_PAIR_OPERATORS
#endif

#include "shim/narrow_type.h"
#include "shim/narrow_convert.h"
#include "shim/narrow_math.h"
#include "shim/narrow_end.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

// Conversions between the two go through float, which holds both exactly, and round once.
CUDA_SHIM_INLINE __half::__half(__nv_bfloat16 other) : __x(emulator::float_to_half(emulator::wide(other))) {}
CUDA_SHIM_INLINE __nv_bfloat16::__nv_bfloat16(__half other)
    : __x(emulator::float_to_bfloat16(emulator::wide(other))) {}
