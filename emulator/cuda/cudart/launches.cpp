// Kernels, their launches, and device variables: nvcc's host code registers them when its library
// is loaded.
#include "cudart.h"

#include <cstdint>
#include <vector>

namespace emulator {
namespace {

// A Python function (emulator/cuda/compiled.py) that runs a launch. arguments: the address of each
// parameter.
using Launcher = int (*)(const char* kernel, const unsigned* grid, const unsigned* block, size_t shared, size_t shared_limit,
                         void** arguments, char* text, size_t text_bytes);
// A Python function that makes the call raise NotCovered, whatever the host code does with the
// error.
using Refuser = void (*)(const char* what);

struct Shape {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

// Created at first use, because constructors of the library fill it.
std::vector<Kernel>& kernels() {
    static std::vector<Kernel> all;
    return all;
}

std::vector<Variable>& variables() {
    static std::vector<Variable> all;
    return all;
}

Launcher launcher = nullptr;
Refuser refuser = nullptr;
thread_local std::vector<Shape> configured;  // set between <<<...>>> and the call of the stub

struct Launch {
    const Kernel* kernel;
    Shape shape;
    void** arguments;
};

int start(void* data, size_t limit, char* text, size_t text_bytes) {
    auto& launch = *static_cast<Launch*>(data);
    unsigned grid[3] = {launch.shape.grid.x, launch.shape.grid.y, launch.shape.grid.z};
    unsigned block[3] = {launch.shape.block.x, launch.shape.block.y, launch.shape.block.z};
    return launcher(launch.kernel->name, grid, block, launch.shape.shared, limit, launch.arguments, text, text_bytes);
}

cudaError_t launched(const void* stub, Shape shape, void** arguments) {
    Launch launch = {kernel_of(stub), shape, arguments};
    if (!launch.kernel || !launcher) return emulator_cuda_returned(cudaErrorInvalidDeviceFunction);
    return emulator_cuda_launch_by(stub, start, &launch);
}

cudaError_t refused(const char* what) {
    if (refuser) refuser(what);
    return emulator_cuda_returned(cudaErrorNotSupported);
}

cudaError_t refused_cooperative() {
    return refused("cooperative launches: blocks run one after another, so they cannot wait for each other");
}

}  // namespace

const Kernel* kernel_of(const void* stub) {
    for (auto& kernel : kernels())
        if (kernel.stub == stub) return &kernel;
    return nullptr;
}

bool is_kernel(const void* function) { return kernel_of(function) != nullptr; }

Variable* variable_of(const void* shadow) {
    for (auto& variable : variables())
        if (variable.shadow == shadow) return &variable;
    return nullptr;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

// ---- called by Python ---------------------------------------------------------------------------

__attribute__((visibility("default"))) void emulator_cuda_connect(Launcher launch, Refuser refuse) {
    launcher = launch, refuser = refuse;
}

// The name of the n-th variable, "" after the last.
__attribute__((visibility("default"))) const char* emulator_cuda_variable(size_t n) {
    return n < variables().size() ? variables()[n].name : "";
}

__attribute__((visibility("default"))) void emulator_cuda_place(size_t n, void* address) {
    Variable& variable = variables()[n];
    variable.address = address;
    if (variable.managed) *variable.managed = address;
}

// ---- called by nvcc's code ----------------------------------------------------------------------

void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, void*, void*, void*, void*, int*) {
    kernels().push_back({stub, name});
}
void __cudaRegisterVar(void**, char* shadow, char*, const char* name, int, size_t bytes, int, int) {
    variables().push_back({shadow, name, bytes, nullptr, nullptr});
}
void __cudaRegisterManagedVar(void**, void** pointer, char*, const char* name, int, size_t bytes, int, int) {
    variables().push_back({pointer, name, bytes, pointer, nullptr});
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configured.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (configured.empty()) return cudaErrorMissingConfiguration;
    Shape shape = configured.back();
    configured.pop_back();
    *grid = shape.grid, *block = shape.block, *shared = shape.shared;
    *static_cast<cudaStream_t*>(stream) = shape.stream;
    return cudaSuccess;
}

// The handle of a kernel is its stub. Before CUDA 13 nvcc's code calls cudaLaunchKernel.
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* stub) {
    *handle = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t) {
    return launched(kernel, {grid, block, shared, nullptr}, arguments);
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t) {
    return launched(stub, {grid, block, shared, nullptr}, arguments);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* stub, void** arguments) {
    for (unsigned i = 0; i < how->numAttrs; ++i) {
        const auto& attribute = how->attrs[i];
        if (attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative) return refused_cooperative();
        const auto& cluster = attribute.val.clusterDim;
        if (attribute.id == cudaLaunchAttributeClusterDimension && cluster.x * cluster.y * cluster.z > 1)
            return refused("clusters of blocks");
    }
    return launched(stub, {how->gridDim, how->blockDim, how->dynamicSmemBytes, nullptr}, arguments);
}
cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
    return refused_cooperative();
}

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
    return emulator_cuda_set_function_attribute(stub, attribute, value);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 80;
    return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
    return *blocks = 1, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
    return *blocks = 1, cudaSuccess;
}

}  // extern "C"
