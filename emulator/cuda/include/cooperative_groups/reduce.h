#error "CUDA_SHIM_REFUSED: cooperative groups: use the shuffles with a mask instead"
