#error "CUDA_TRACE_REFUSED: Thrust: a library for GPUs"
