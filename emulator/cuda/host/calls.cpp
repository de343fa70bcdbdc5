// A call of host code from Python: its launches, the exceptions that it throws, and failed launches
// that it did not check.
#include "../../runtime/runtime.h"
#include "../include/shim/host_types.h"
#include "host.h"

#include <cstdio>
#include <cstring>
#include <string>

namespace {

std::string thrown;

cudaError_t error_of(emulator::LaunchStatus status) {
    switch (status) {
        case emulator::LAUNCH_DONE: return cudaSuccess;
        case emulator::LAUNCH_NESTED: return cudaErrorNotSupported;
        case emulator::LAUNCH_INVALID: return cudaErrorInvalidConfiguration;
        case emulator::LAUNCH_STATIC_SHARED: case emulator::LAUNCH_DYNAMIC_SHARED: return cudaErrorInvalidValue;
        default: return cudaErrorLaunchFailure;
    }
}

}  // namespace

using namespace emulator;

extern "C" {

// Runs a launch through `start`, which receives the kernel's limit of shared memory, and remembers
// a failure. function: the kernel as in cudaFuncSetAttribute.
cudaError_t emulator_cuda_launch_by(const void* function, int (*start)(void* data, size_t limit, char* text, size_t bytes),
                                    void* data) {
    char text[512] = "";
    size_t limit = dynamic_shared_limit(function);
    auto status = static_cast<LaunchStatus>(start(data, limit, text, sizeof text));
    if (status == LAUNCH_DONE) return cudaSuccess;
    if (status == LAUNCH_DYNAMIC_SHARED && limit < LARGEST_SHARED) {
        size_t end = strlen(text);
        snprintf(text + end, sizeof text - end, " without cudaFuncSetAttribute");
    }
    launch_failed(error_of(status), text);
    return error_of(status);
}

void emulator_cuda_launch(Request* request) {
    emulator_cuda_launch_by(request->function, [](void* data, size_t limit, char* text, size_t bytes) -> int {
        auto* request = static_cast<Request*>(data);
        request->shared_limit = limit;
        return emulator_launch(request, text, bytes);
    }, request);
}

void emulator_cuda_begin_call() {
    thrown.clear();
    clear_errors();
}

void emulator_cuda_end_call() {
    if (!has_unchecked_error() || call_was_stopped()) return;
    snprintf(add_record(LAUNCH, nullptr, 0, 0, 0, Side{}).text, sizeof(Record::text), "%s", unchecked_error_text());
}

void emulator_cuda_threw(const char* what) { thrown = what; }

const char* emulator_cuda_thrown() { return thrown.c_str(); }  // "" if this call threw nothing

}  // extern "C"
