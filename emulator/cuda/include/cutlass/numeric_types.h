#error "CUDA_SHIM_REFUSED: CUTLASS: it is written in inline PTX, which a CPU does not run"
