// The CUDA runtime library of a file that nvcc compiled. It is linked into the file's own library,
// hidden, so that its host code never calls a real libcudart in the process. The state is in
// emulator/cuda/host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace emulator {

struct Kernel {
    const void* stub;  // host function of the same name, by which the host code knows a kernel
    const char* name;  // in the PTX
};

struct Variable {  // __device__, __constant__ or __managed__
    const void* shadow;  // host variable of the same name
    const char* name;    // in the PTX
    size_t bytes;
    void** managed;  // where the host code reads its address, if it is __managed__
    void* address;   // address of the emulator's memory for it, once Python has connected it
};

const Kernel* kernel_of(const void* stub);  // null if it is not a kernel
Variable* variable_of(const void* shadow);

}  // namespace emulator

extern "C" {
// emulator/cuda/host
cudaError_t emulator_cuda_last_error(int reset);
cudaError_t emulator_cuda_synchronize();
cudaError_t emulator_cuda_returned(cudaError_t error);
const char* emulator_cuda_error_name(cudaError_t error);
const char* emulator_cuda_error_string(cudaError_t error);
cudaError_t emulator_cuda_malloc(void** base, size_t bytes, int host_writes);
cudaError_t emulator_cuda_free(void* base);
cudaError_t emulator_cuda_memory_info(size_t* available, size_t* total);
cudaError_t emulator_cuda_copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                               int kind);
cudaError_t emulator_cuda_set(void* to, size_t pitch, int value, size_t width, size_t rows);
cudaError_t emulator_cuda_to_symbol(void* symbol, size_t size, const void* from, size_t bytes, size_t offset);
cudaError_t emulator_cuda_from_symbol(void* to, const void* symbol, size_t size, size_t bytes, size_t offset);
cudaError_t emulator_cuda_device(int device);
cudaError_t emulator_cuda_device_attribute(int* value, int attribute, int device);
cudaError_t emulator_cuda_new_handle(void** handle);
cudaError_t emulator_cuda_delete_handle(void* handle);
cudaError_t emulator_cuda_event_record(cudaEvent_t event);
cudaError_t emulator_cuda_event_elapsed(float* milliseconds, cudaEvent_t first, cudaEvent_t last);
cudaError_t emulator_cuda_set_function_attribute(const void* function, int attribute, int value);
cudaError_t emulator_cuda_launch_by(const void* function, int (*start)(void* data, size_t limit, char* text, size_t bytes),
                                    void* data);
}
