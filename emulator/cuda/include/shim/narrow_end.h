// Undefines the parameters and the helper macros of narrow_type.h, narrow_convert.h and
// narrow_math.h.

#undef CUDA_SHIM_NAME
#undef CUDA_SHIM_TYPE
#undef CUDA_SHIM_TYPE_RAW
#undef CUDA_SHIM_PAIR
#undef CUDA_SHIM_PAIR_RAW
#undef CUDA_SHIM_OTHER
#undef CUDA_SHIM_FROM
#undef CUDA_SHIM_TO
#undef CUDA_SHIM_NO_CONVERSIONS
#undef CUDA_SHIM_NO_OPERATORS
#undef CUDA_SHIM_NO_PAIR_OPERATORS

#undef CUDA_SHIM_N
#undef CUDA_SHIM_T
#undef CUDA_SHIM_P
#undef CUDA_SHIM_NARROW
#undef CUDA_SHIM_ROUND
#undef CUDA_SHIM_WIDE
#undef CUDA_SHIM_UNARY
#undef CUDA_SHIM_BINARY
#undef CUDA_SHIM_TERNARY
#undef CUDA_SHIM_FUNCTION
#undef CUDA_SHIM_PREDICATE
#undef CUDA_SHIM_COMPARE
#undef CUDA_SHIM_OPERATOR
#undef CUDA_SHIM_STEP
