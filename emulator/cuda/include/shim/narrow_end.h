// Forgets the parameters of narrow_type.h, narrow_convert.h and narrow_math.h, and what they defined for themselves.

#undef CUDA_TRACE_NAME
#undef CUDA_TRACE_TYPE
#undef CUDA_TRACE_TYPE_RAW
#undef CUDA_TRACE_PAIR
#undef CUDA_TRACE_PAIR_RAW
#undef CUDA_TRACE_OTHER
#undef CUDA_TRACE_FROM
#undef CUDA_TRACE_TO
#undef CUDA_TRACE_NO_CONVERSIONS
#undef CUDA_TRACE_NO_OPERATORS
#undef CUDA_TRACE_NO_PAIR_OPERATORS

#undef CUDA_TRACE_N
#undef CUDA_TRACE_T
#undef CUDA_TRACE_P
#undef CUDA_TRACE_NARROW
#undef CUDA_TRACE_ROUND
#undef CUDA_TRACE_WIDE
#undef CUDA_TRACE_UNARY
#undef CUDA_TRACE_BINARY
#undef CUDA_TRACE_TERNARY
#undef CUDA_TRACE_FUNCTION
#undef CUDA_TRACE_PREDICATE
#undef CUDA_TRACE_COMPARE
#undef CUDA_TRACE_OPERATOR
#undef CUDA_TRACE_STEP
