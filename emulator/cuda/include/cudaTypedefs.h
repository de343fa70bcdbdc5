#error "CUDA_TRACE_REFUSED: the driver API: TMA descriptors are not covered"
