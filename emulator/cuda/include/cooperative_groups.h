#error "CUDA_SHIM_REFUSED: cooperative groups: its groups are objects that hide which threads wait for which; use __syncthreads, __syncwarp and the shuffles with a mask"
