#error "CUDA_TRACE_REFUSED: cooperative groups: use the shuffles with a mask instead"
