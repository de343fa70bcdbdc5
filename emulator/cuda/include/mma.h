#error "CUDA_SHIM_REFUSED: wmma: the matrix fragments of tensor cores are not modelled; trace the same kernel without them"
