#error "CUDA_TRACE_REFUSED: asynchronous barriers: barriers in shared memory (mbarrier) are not covered; use __syncthreads"
