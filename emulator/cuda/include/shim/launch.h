// kernel<<<grid, block, shared, stream>>>(arguments)
// becomes bind(Config(grid, block, shared, stream), "kernel", kernel)(arguments).
#pragma once

#include "../../../runtime/kernel_api.h"

namespace emulator {

extern const Module this_module;  // emulator/cuda/build.py appends it to the file
extern "C" void emulator_cuda_launch(Request*);

struct Config {
    dim3 grid, block;
    size_t shared;
    Config(dim3 grid, dim3 block, size_t shared = 0, const void* = nullptr) : grid(grid), block(block), shared(shared) {}
};

template <class F, class Tuple, size_t... I>
CUDA_SHIM_INLINE void unpack(F& function, Tuple& arguments, std::index_sequence<I...>) {
    function(std::get<I>(arguments)...);
}

template <class F, class... P>
void run(const Config& config, const char* kernel, const void* identity, F function, std::tuple<P...> arguments,
         const char* file, int line) {
    struct Call {
        F function;
        std::tuple<P...> arguments;
    } call{function, std::move(arguments)};
    auto entry = [](void* data) {
        Call& call = *static_cast<Call*>(data);
        unpack(call.function, call.arguments, std::index_sequence_for<P...>());
    };
    Request request = {&this_module, kernel, file, line, identity, {config.grid.x, config.grid.y, config.grid.z},
                       {config.block.x, config.block.y, config.block.z}, {}, config.shared, 0, entry, &call, sizeof call};
    emulator_cuda_launch(&request);
}

// A kernel of known type: arguments convert as in a call. `call` is a lambda that calls the kernel
// by name, for a launch that omits default arguments.
template <class Call, class... P>
struct Bound {
    Config config;
    const char* kernel;
    void (*function)(P...);
    Call call;
    const char* file;
    int line;
    void operator()(P... arguments) const {
        run(config, kernel, reinterpret_cast<const void*>(function), function, std::tuple<P...>(arguments...), file, line);
    }
    template <class... A, std::enable_if_t<sizeof...(A) != sizeof...(P), int> = 0>
    void operator()(A... arguments) const {
        run(config, kernel, reinterpret_cast<const void*>(function), call, std::tuple<A...>(arguments...), file, line);
    }
};

template <class Call, class... P>
Bound<Call, P...> bind(Config config, const char* kernel, void (*function)(P...), Call call, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    return {config, kernel, function, call, file, line};
}

// A kernel template with deduced arguments is given as a lambda that calls it.
template <class F>
struct BoundTemplate {
    Config config;
    const char* kernel;
    F function;
    const char* file;
    int line;
    template <class... A>
    void operator()(A... arguments) const {
        run(config, kernel, nullptr, function, std::tuple<A...>(arguments...), file, line);
    }
};

template <class F>
BoundTemplate<F> bind_template(Config config, const char* kernel, F function, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
    return {config, kernel, function, file, line};
}

}  // namespace emulator
