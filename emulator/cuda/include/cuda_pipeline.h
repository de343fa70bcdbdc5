// cp.async in its C++ form. The copy lands when its thread waits for it; until then the memory is nobody's to touch.
#pragma once

extern "C" {
void cuda_trace_copy_async(void* to, const void* from, unsigned bytes, unsigned filled, const char* file, int line);
void cuda_trace_copy_commit();
void cuda_trace_copy_wait(unsigned batches);
}

CUDA_TRACE_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t filled = 0, CUDA_TRACE_HERE) {
    asm volatile("" ::: "memory");
    cuda_trace_copy_async(to, from, static_cast<unsigned>(bytes), static_cast<unsigned>(filled), file, line);
    asm volatile("" ::: "memory");
}
CUDA_TRACE_INLINE void __pipeline_commit() {
    cuda_trace_copy_commit();
    asm volatile("" ::: "memory");
}
CUDA_TRACE_INLINE void __pipeline_wait_prior(size_t batches) {
    asm volatile("" ::: "memory");
    cuda_trace_copy_wait(static_cast<unsigned>(batches));
    asm volatile("" ::: "memory");
}
