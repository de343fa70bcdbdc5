// How Python calls a function of the compiled file: its parameters by type, its arguments as plain values.
// races/cuda/source.py appends a table of Entry after the author's last line.
#pragma once

struct __half;  // their headers may not be there
struct __nv_bfloat16;

namespace cuda_trace {

struct Value {  // races/cuda/module.py fills these
    void* pointer;
    int64_t integer;
    double number;
};

struct LaunchShape {
    cuda_trace_dim grid, block;
    size_t shared;
};

struct Entry {
    const char* name;
    const char* types;  // one code for each parameter
    char result;
    void (*call)(const Value* arguments, const LaunchShape* shape, Value* result);
};

// Codes of types: 'i' integer, 'd' number, 'b' bool, 's' stream or another opaque pointer; for a pointer the code of what it
// points to in brackets: "(f)" float, "(d)" double, "(e)" half, "(g)" bfloat16, "(i)" int32, "(l)" int64, ... "(*)" anything.
template <class T>
struct Code {
    static constexpr char of() {
        if (std::is_same_v<T, float>) return 'f';
        if (std::is_same_v<T, double>) return 'd';
        if (std::is_same_v<T, bool>) return '?';
        if constexpr (std::is_integral_v<T>) {  // others may be incomplete: a stream is a pointer to one of those
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
                      "a parameter is not a pointer or a number: write a small host function with such parameters, and launch from it");
        if (std::is_same_v<T, bool>) return '?';
        if (std::is_floating_point_v<T> || !(std::is_integral_v<T> || std::is_enum_v<T>)) return 'd';
        return 'i';
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
        if (shape) {
            if constexpr (std::is_void_v<R>)
                bind(Config({shape->grid.x, shape->grid.y, shape->grid.z}, {shape->block.x, shape->block.y, shape->block.z}, shape->shared),
                     name, F, "", 0)(argument<std::remove_cv_t<P>>(arguments[I])...);
        } else if constexpr (std::is_void_v<R>) {
            F(argument<std::remove_cv_t<P>>(arguments[I])...);
        } else if constexpr (std::is_floating_point_v<R>) {
            result->number = static_cast<double>(F(argument<std::remove_cv_t<P>>(arguments[I])...));
        } else {
            result->integer = static_cast<int64_t>(F(argument<std::remove_cv_t<P>>(arguments[I])...));
        }
    }
    static void call(const Value* arguments, const LaunchShape* shape, Value* result) {
        with(arguments, shape, result, std::index_sequence_for<P...>());
    }
    static inline const char* name = "";
};

template <auto F>
Entry entry(const char* name) {
    Called<F>::name = name;
    return {name, Called<F>::types, Called<F>::result, &Called<F>::call};
}

CUDA_TRACE_INLINE void* anchor() {
    static thread_local char place;
    return &place;
}

}  // namespace cuda_trace
