// Libraries, their kernels, and launches.
#include "host.h"

#include <cstdint>
#include <mutex>

namespace emulator::cutedsl {

Python python;

int refused(const char* what) {
    if (python.refuse) python.refuse(what);
    return NOT_SUPPORTED;
}

namespace {

struct Dim {
    unsigned x, y, z;
};

struct Attribute {  // cudaLaunchAttribute
    int id;
    alignas(8) union {
        int number;
        Dim cluster;
        char bytes[64];
    } value;
};
enum { COOPERATIVE = 2, CLUSTER = 4 };

struct Config {  // cudaLaunchConfig_t
    Dim grid, block;
    size_t shared;
    void* stream;
    const Attribute* attributes;
    unsigned count;
};

void* handle(int number) { return reinterpret_cast<void*>(static_cast<uintptr_t>(number)); }
int number(const void* handle) { return static_cast<int>(reinterpret_cast<uintptr_t>(handle)); }

int found(void** to, int number) {
    *to = handle(number);
    return number > 0 ? SUCCESS : NOT_FOUND;
}

int launched(const void* kernel, const Dim& grid, const Dim& block, const Dim& cluster, size_t shared, void** arguments) {
    if (!python.launch) return NOT_SUPPORTED;
    int status = python.launch(number(kernel), &grid.x, &block.x, &cluster.x, shared, arguments);
    return status < 0 ? LAUNCH_FAILED : status;  // callers take -1 for an error that TVM knows
}

}  // namespace

}  // namespace emulator::cutedsl

using namespace emulator::cutedsl;

extern "C" {

void emulator_cutedsl_connect(const Python* functions) { python = *functions; }

int _cudaLibraryLoadData(void** library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
    return found(library, python.load ? python.load(image) : 0);
}
int _cuLibraryLoadData(void** library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
    return found(library, python.load ? python.load(image) : 0);
}
int _cudaLibraryGetKernel(void** kernel, void* library, const char* name) {
    return found(kernel, python.kernel ? python.kernel(number(library), name) : 0);
}
int _cuLibraryGetKernel(void** kernel, void* library, const char* name) {
    return found(kernel, python.kernel ? python.kernel(number(library), name) : 0);
}
int _cudaLibraryUnload(void*) { return SUCCESS; }
int _cuLibraryUnload(void*) { return SUCCESS; }

// The only attribute that compiled code reads is the number of bytes of static shared memory, of
// which these kernels have none.
int _cuKernelGetAttribute(int* value, int, void*, int) { return *value = 0, SUCCESS; }
// Python checks the shared memory of a launch itself.
int _cudaKernelSetAttributeForDevice(void*, int, int, int) { return SUCCESS; }
int _cudaFuncSetAttribute(void*, int, int) { return SUCCESS; }

int _cudaLaunchKernel(void* kernel, Dim grid, Dim block, void** arguments, size_t shared, void*) {
    return launched(kernel, grid, block, {}, shared, arguments);
}
int _cudaLaunchKernelEx(const Config* how, void* kernel, void** arguments) {
    Dim cluster = {};
    for (unsigned i = 0; i < how->count; ++i) {
        const auto& [id, value] = how->attributes[i];
        if (id == COOPERATIVE && value.number)
            return refused("cooperative launches: blocks run one after another, so they cannot wait for each other");
        if (id == CLUSTER) cluster = value.cluster;
    }
    return launched(kernel, how->grid, how->block, cluster, how->shared, arguments);
}

// ---- the library of a function, loaded before its first launch -----------------------------------

int cuda_dialect_init_library_once(void** library, int (*load)(void**), int (*to_device)(void**, int),
                                   void (*raise)(const char* kind, const char* message)) {
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    if (*library) return SUCCESS;
    void* loaded = nullptr;
    if (load(&loaded) || (to_device && to_device(&loaded, 0))) {
        raise("RuntimeError", "its kernels cannot be loaded into the emulator");
        return -1;
    }
    *library = loaded;
    return SUCCESS;
}
void cuda_dialect_unload_library_once(void** library) { *library = nullptr; }

}  // extern "C"
