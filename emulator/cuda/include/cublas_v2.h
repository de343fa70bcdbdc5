#error "CUDA_TRACE_REFUSED: cuBLAS: a library for GPUs"
