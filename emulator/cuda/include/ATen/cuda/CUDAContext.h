#error "CUDA_SHIM_REFUSED: PyTorch's headers: keep kernels and bindings in files of their own, and load the one with the kernels"
