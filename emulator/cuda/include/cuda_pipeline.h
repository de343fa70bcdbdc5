// cp.async in its C++ form. The copy is made when its thread waits for it; until then no thread may
// access the memory.
#pragma once

#include "../../runtime/kernel_api.h"

CUDA_SHIM_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t filled = 0, CUDA_SHIM_HERE) {
    asm volatile("" ::: "memory");
    emulator_copy_async(to, from, static_cast<unsigned>(bytes), static_cast<unsigned>(filled), file, line);
    asm volatile("" ::: "memory");
}
CUDA_SHIM_INLINE void __pipeline_commit() {
    emulator_copy_commit();
    asm volatile("" ::: "memory");
}
CUDA_SHIM_INLINE void __pipeline_wait_prior(size_t batches) {
    asm volatile("" ::: "memory");
    emulator_copy_wait(static_cast<unsigned>(batches));
    asm volatile("" ::: "memory");
}
