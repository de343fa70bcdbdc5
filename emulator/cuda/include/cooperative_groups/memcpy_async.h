#error "CUDA_SHIM_REFUSED: cooperative groups: use __pipeline_memcpy_async of cuda_pipeline.h instead"
