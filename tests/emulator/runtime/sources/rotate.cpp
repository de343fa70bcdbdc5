// A kernel of no family: plain C++ on kernel_api.h. x (threads,) float32; each thread writes its
// element, then reads the next.
#include "emulator/runtime/kernel_api.h"

using namespace emulator;

struct Params {
    float *x, *out;
    int barrier;
};

static void* anchor() {
    static thread_local char place;
    return &place;
}
static const Module module = {1, anchor};

__attribute__((noinline)) static void announce(const void* place, What what) {
    emulator_access(place, sizeof(float), what, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}

static void rotate(void* data) {
    auto* p = static_cast<Params*>(data);
    unsigned i = emulator_thread_index().x, next = (i + 1) % emulator_block_size().x;
    announce(p->x + i, WRITE);
    p->x[i] = static_cast<float>(i);
    if (p->barrier) emulator_barrier(SYNC, 0, __FILE__, __LINE__, 0);
    announce(p->x + next, READ);
    float value = p->x[next];
    announce(p->out + i, WRITE);
    p->out[i] = value;
}

// Returns the LaunchStatus, with the reason in text (256 bytes).
extern "C" int run(float* x, float* out, unsigned threads, int barrier, char* text) {
    Params params = {x, out, barrier};
    Request request = {&module, "rotate", "", 0, nullptr, {1, 1, 1}, {threads, 1, 1}, {}, 0, 48 * 1024, rotate,
                       &params, sizeof params};
    return emulator_launch(&request, text, 256);
}
