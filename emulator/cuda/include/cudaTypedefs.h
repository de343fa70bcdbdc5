#error "CUDA_SHIM_REFUSED: the driver API: TMA descriptors are not covered"
