#error "CUDA_SHIM_REFUSED: CUB: it is written in inline PTX, which a CPU does not run"
