#error "CUDA_TRACE_REFUSED: CuTe: it is written in inline PTX, which a CPU does not run"
