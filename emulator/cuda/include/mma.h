#error "CUDA_TRACE_REFUSED: wmma: the matrix fragments of tensor cores are not modelled; trace the same kernel without them"
