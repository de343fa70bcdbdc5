#error "CUDA_SHIM_REFUSED: cuBLAS: a library for GPUs"
