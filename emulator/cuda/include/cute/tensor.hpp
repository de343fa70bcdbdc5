#error "CUDA_SHIM_REFUSED: CuTe: it is written in inline PTX, which a CPU does not run"
