#error "CUDA_SHIM_REFUSED: Thrust: a library for GPUs"
