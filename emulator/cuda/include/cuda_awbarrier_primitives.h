#error "CUDA_SHIM_REFUSED: asynchronous barriers: barriers in shared memory (mbarrier) are not covered; use __syncthreads"
