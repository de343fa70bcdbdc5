// __nv_bfloat16 and __nv_bfloat162: the upper half of a float, 8 bits of precision.
#pragma once

#include "cuda_fp16.h"

#define CUDA_TRACE_NAME bfloat16
#define CUDA_TRACE_TYPE __nv_bfloat16
#define CUDA_TRACE_TYPE_RAW __nv_bfloat16_raw
#define CUDA_TRACE_PAIR __nv_bfloat162
#define CUDA_TRACE_PAIR_RAW __nv_bfloat162_raw
#define CUDA_TRACE_OTHER __half
#define CUDA_TRACE_FROM cuda_trace::float_to_bfloat16
#define CUDA_TRACE_TO cuda_trace::bfloat16_to_float
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define CUDA_TRACE_NO_CONVERSIONS
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define CUDA_TRACE_NO_OPERATORS
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define CUDA_TRACE_NO_PAIR_OPERATORS
#endif

#include "shim/narrow_type.h"
#include "shim/narrow_convert.h"
#include "shim/narrow_math.h"
#include "shim/narrow_end.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

// Either goes through float, which holds both; to a half it is rounded, as it is to a bfloat16.
CUDA_TRACE_INLINE __half::__half(__nv_bfloat16 other) : __x(cuda_trace::float_to_half(cuda_trace::wide(other))) {}
CUDA_TRACE_INLINE __nv_bfloat16::__nv_bfloat16(__half other)
    : __x(cuda_trace::float_to_bfloat16(cuda_trace::wide(other))) {}
