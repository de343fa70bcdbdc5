#error "CUDA_TRACE_REFUSED: cuRAND: a library for GPUs"
