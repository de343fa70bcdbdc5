#error "CUDA_TRACE_REFUSED: CUTLASS: it is written in inline PTX, which a CPU does not run"
