#error "CUDA_SHIM_REFUSED: cuRAND: a library for GPUs"
