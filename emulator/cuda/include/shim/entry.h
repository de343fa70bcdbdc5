// Calls from Python into the compiled file: parameter types as codes, arguments as plain values.
// emulator/cuda/build.py appends a table of Entry after the author's last line.
#pragma once

struct __half;  // their headers may not be included
struct __nv_bfloat16;

namespace emulator {

// exit() in host code (error checks call it) ends the call, not the Python process.
struct Exit {
    int code;
};
extern "C" void emulator_cuda_threw(const char* what);

struct Value {  // emulator/cuda/module.py fills these
    void* pointer;
    int64_t integer;
    double number;
};

struct LaunchShape {
    Dim grid, block;
    size_t shared;
};

struct Entry {
    const char* name;
    const char* types;  // one code for each parameter
    char result;
    void (*call)(const Value* arguments, const LaunchShape* shape, Value* result);
};

// Codes of types: those of Code below, 'd' for any floating-point number; for a pointer the code of
// the pointee, plus 0x80.
template <class T>
struct Code {
    static constexpr char of() {
        if (std::is_same_v<T, float>) return 'f';
        if (std::is_same_v<T, double>) return 'd';
        if (std::is_same_v<T, bool>) return '?';
        // Others can be incomplete types, for example the target of a stream.
        if constexpr (std::is_integral_v<T>) {
            constexpr const char* codes[2] = {" BH I   L", " bh i   l"};
            return codes[std::is_signed_v<T>][sizeof(T)];
        }
        if (std::is_same_v<T, __half>) return 'e';
        if (std::is_same_v<T, __nv_bfloat16>) return 'g';
        return '*';
    }
};

template <class T>
constexpr char parameter_code() {
    if constexpr (std::is_pointer_v<T>) {
        return static_cast<char>(Code<std::remove_cv_t<std::remove_pointer_t<T>>>::of() | 0x80);
    } else {
        static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<double, T>,
                      "a parameter is neither a pointer nor a number: "
                      "write a small host function that takes pointers and numbers, and launch from it");
        if (std::is_integral_v<T>) return Code<T>::of();
        return std::is_enum_v<T> ? 'i' : 'd';
    }
}

template <class T>
T argument(const Value& value) {
    if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(value.pointer);
    else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) return static_cast<T>(value.integer);
    else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value.number);
    else return T(static_cast<float>(value.number));
}

template <auto F>
struct Called;

template <class R, class... P, R (*F)(P...)>
struct Called<F> {
    static constexpr char types[] = {parameter_code<std::remove_cv_t<P>>()..., 0};
    static constexpr char result = std::is_void_v<R> ? 'v' : std::is_floating_point_v<R> ? 'd' : 'i';

    template <size_t... I>
    static void with(const Value* arguments, const LaunchShape* shape, Value* result, std::index_sequence<I...>) {
        R (*function)(P...) = F;  // nvcc does not compile a call F(...), because F may be a kernel
        if (shape) {
            if constexpr (std::is_void_v<R>)
                bind(Config({shape->grid.x, shape->grid.y, shape->grid.z},
                            {shape->block.x, shape->block.y, shape->block.z}, shape->shared),
                     name, function, function, "", 0)(argument<std::remove_cv_t<P>>(arguments[I])...);
        } else if constexpr (std::is_void_v<R>) {
            function(argument<std::remove_cv_t<P>>(arguments[I])...);
        } else if constexpr (std::is_floating_point_v<R>) {
            result->number = static_cast<double>(function(argument<std::remove_cv_t<P>>(arguments[I])...));
        } else {
            result->integer = static_cast<int64_t>(function(argument<std::remove_cv_t<P>>(arguments[I])...));
        }
    }
    static void call(const Value* arguments, const LaunchShape* shape, Value* result) {
        try {
            with(arguments, shape, result, std::index_sequence_for<P...>());
        } catch (const std::exception& error) {
            emulator_cuda_threw(error.what());
        } catch (const Exit& exit) {
            char text[32];
            snprintf(text, sizeof text, "exit(%d)", exit.code);
            emulator_cuda_threw(text);
        } catch (...) {
            emulator_cuda_threw("something other than a std::exception");
        }
    }
    static inline const char* name = "";
};

template <auto F>
Entry entry(const char* name) {
    Called<F>::name = name;
    return {name, Called<F>::types, Called<F>::result, &Called<F>::call};
}

CUDA_SHIM_INLINE void* anchor() {
    static thread_local char place;
    return &place;
}

}  // namespace emulator

[[noreturn]] inline void emulator_cuda_exit(int code) { throw ::emulator::Exit{code}; }
namespace std {
using ::emulator_cuda_exit;
}
#define exit emulator_cuda_exit
