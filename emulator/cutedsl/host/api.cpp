// The rest of the runtime: one device, on which all work is done when a launch returns. What only
// host code of other kinds than kernels' launches needs is refused by name.
#include "host.h"

using namespace emulator::cutedsl;

extern "C" {

int _cudaGetDevice(int* device) { return *device = 0, SUCCESS; }
int _cudaGetDeviceCount(int* count) { return *count = 1, SUCCESS; }
int _cudaSetDevice(int device) { return device ? INVALID_VALUE : SUCCESS; }
int _cuDeviceGet(int* device, int) { return *device = 0, SUCCESS; }
int _cudaDeviceGetAttribute(int* value, int attribute, int) {
    *value = python.attribute ? python.attribute(attribute) : -1;
    return *value < 0 ? INVALID_VALUE : SUCCESS;
}
int _cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) { return *blocks = 1, SUCCESS; }

int _cudaGetLastError() { return SUCCESS; }
int _cudaDeviceSynchronize() { return SUCCESS; }
int _cudaStreamCreate(void** stream) { return *stream = nullptr, SUCCESS; }
int _cudaStreamDestroy(void*) { return SUCCESS; }
int _cudaStreamSynchronize(void*) { return SUCCESS; }
int _cudaStreamWaitEvent(void*, void*, unsigned) { return SUCCESS; }
int _cudaEventCreate(void** event) { return *event = nullptr, SUCCESS; }
int _cudaEventRecord(void*, void*) { return SUCCESS; }
int _cudaEventDestroy(void*) { return SUCCESS; }
int _cudaProfilerStart() { return SUCCESS; }
int _cudaProfilerStop() { return SUCCESS; }

#define REFUSED(name) \
    int _##name(...) { return refused(#name); }
REFUSED(cuLibraryGetGlobal)
REFUSED(cuLibraryGetKernelCount)
REFUSED(cuLibraryGetManaged)
REFUSED(cuLibraryGetModule)
REFUSED(cuLibraryGetUnifiedFunction)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuTensorMapEncodeTiled)
REFUSED(cudaEventElapsedTime)
REFUSED(cudaFree)
REFUSED(cudaFreeAsync)
REFUSED(cudaFreeHost)
REFUSED(cudaGetDeviceProperties)
REFUSED(cudaGraphDestroy)
REFUSED(cudaGraphExecDestroy)
REFUSED(cudaGraphInstantiate)
REFUSED(cudaGraphLaunch)
REFUSED(cudaLibraryGetGlobal)
REFUSED(cudaLibraryGetKernelCount)
REFUSED(cudaLibraryGetManaged)
REFUSED(cudaLibraryGetUnifiedFunction)
REFUSED(cudaLibraryLoadFromFile)
REFUSED(cudaMalloc)
REFUSED(cudaMallocAsync)
REFUSED(cudaMallocHost)
REFUSED(cudaMallocManaged)
REFUSED(cudaMemcpy)
REFUSED(cudaMemcpyAsync)
REFUSED(cudaMemset)
REFUSED(cudaMemsetAsync)
REFUSED(cudaStreamAddCallback)
REFUSED(cudaStreamBeginCapture)
REFUSED(cudaStreamEndCapture)

// ---- errors: Python has the exception that caused them -------------------------------------------

const char* cuda_dialect_get_error_name(int error) { return error == NOT_SUPPORTED ? "not covered" : "failed launch"; }
void cuda_dialect_assert_success(int) {}
void cuda_dialect_print_on_error(int) {}

using Raise = void (*)(const char* kind, const char** parts, int count);
void CuteDSLRT_TVMFFISetRaisedCudaError(Raise raise, int) {
    const char* text = "a launch in the emulator failed";
    raise("RuntimeError", &text, 1);
}
// Its other parameters describe the launch.
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(Raise raise) { CuteDSLRT_TVMFFISetRaisedCudaError(raise, 0); }

}  // extern "C"
