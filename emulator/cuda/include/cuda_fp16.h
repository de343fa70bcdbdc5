// __half and __half2: 5 bits of exponent, 11 of precision.
#pragma once

#include "shim/narrow_bits.h"
#include "shim/vector_types.h"

#define CUDA_SHIM_NAME half
#define CUDA_SHIM_TYPE __half
#define CUDA_SHIM_TYPE_RAW __half_raw
#define CUDA_SHIM_PAIR __half2
#define CUDA_SHIM_PAIR_RAW __half2_raw
#define CUDA_SHIM_OTHER __nv_bfloat16
#define CUDA_SHIM_FROM emulator::float_to_half
#define CUDA_SHIM_TO emulator::half_to_float
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define CUDA_SHIM_NO_CONVERSIONS
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define CUDA_SHIM_NO_OPERATORS
#endif
#ifdef __CUDA_NO_HALF2_OPERATORS__
#define CUDA_SHIM_NO_PAIR_OPERATORS
#endif

#include "shim/narrow_type.h"
#include "shim/narrow_convert.h"
#include "shim/narrow_math.h"
#include "shim/narrow_end.h"

#ifndef CUDA_NO_HALF
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
#endif
typedef __half __nv_half;
typedef __half2 __nv_half2;
typedef __half_raw __nv_half_raw;
typedef __half2_raw __nv_half2_raw;
