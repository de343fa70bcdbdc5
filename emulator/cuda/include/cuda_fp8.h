#error "CUDA_SHIM_REFUSED: 8-bit floats: only __half and __nv_bfloat16 are covered"
