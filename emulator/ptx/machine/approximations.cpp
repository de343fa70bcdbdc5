// Approximations: computed in float64 and rounded once, which is inside every bound of the PTX
// manual. Infinities, zeros, NaN and subnormals follow its tables.
#include "number.h"

namespace emulator::ptx {
namespace {

// 2**x by its series around the nearest whole number, without calls, so that g++ vectorises it. The
// relative error is below 1e-15.
inline double power_of_two(double x) {
    const double limited = x > 1000 ? 1000 : x < -1000 ? -1000 : x;
    constexpr double shift = 0x1.8p52;  // a sum with it has the whole number in its low bits
    const double shifted = limited + shift, rest = (limited - (shifted - shift)) * 0.69314718055994530942;
    constexpr double factors[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                  1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1,          1};
    double sum = 1.0 / 479001600;
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sum = sum * rest + factors[i];
    const double power = as<double>(as<uint64_t>(sum) + (as<uint64_t>(shifted) << 52));
    return x != x ? x : power;
}

// A float32 operation from a function of float64.
template <class F, bool Ftz>
struct Approximate {
    template <class... T>
    float operator()(T... x) const {
        if constexpr (Ftz) return flush(canonical(static_cast<float>(stateless<F>()(static_cast<double>(flush(x))...))));
        return canonical(static_cast<float>(stateless<F>()(static_cast<double>(x)...)));
    }
};

template <class... S, class F>
void approximation(Table& table, std::string_view op, F) {
    table.add({op, ".f32"}, Lanes<Approximate<F, false>, float, S...>::run);
    table.add({op, ".ftz.f32"}, Lanes<Approximate<F, true>, float, S...>::run);
}

// Half types: a pair in one register, or one value.
template <class T, bool Ftz, class F>
void approximation_of_halves(Table& table, std::string_view op, F) {
    const auto one = [](T x) {
        const T result = narrow<T>(static_cast<float>(stateless<F>()(static_cast<double>(widen(Ftz ? flush(x) : x)))));
        return Ftz ? flush(result) : result;
    };
    const auto two = [](Pair<T> x) { return Pair<T>{stateless<decltype(one)>()(x.low), stateless<decltype(one)>()(x.high)}; };
    table.add({op, Ftz ? ".ftz." : ".", type_name<T>}, Lanes<decltype(one), T, T>::run);
    table.add({op, Ftz ? ".ftz." : ".", type_name<T>, "x2"}, Lanes<decltype(two), Pair<T>, Pair<T>>::run);
}

// float64 approximations use the upper half of their source and leave the lower half of the result
// zero.
double upper_half(double x) { return as<double>(as<uint64_t>(x) & 0xffffffff00000000); }

template <class F>
void approximation_of_doubles(Table& table, std::string_view op, F) {
    const auto value = [](double x) {
        const double result = stateless<F>()(flush(upper_half(x)));
        return result != result ? as<double>(0x7fffffff00000000) : flush(upper_half(result));
    };
    table.add({op, ".f64"}, Lanes<decltype(value), double, double>::run);
}

}  // namespace

void add_approximations(Table& table) {
    const auto power = [](double x) { return power_of_two(x); };
    const auto root_of_reciprocal = [](double x) { return 1 / std::sqrt(x); };
    const auto hyperbolic = [](double x) { return std::tanh(x); };
    approximation<float>(table, "ex2.approx", power);
    approximation<float>(table, "lg2.approx", [](double x) { return std::log2(x); });
    approximation<float>(table, "sin.approx", [](double x) { return std::sin(x); });
    approximation<float>(table, "cos.approx", [](double x) { return std::cos(x); });
    approximation<float>(table, "rcp.approx", [](double x) { return 1 / x; });
    approximation<float>(table, "sqrt.approx", [](double x) { return std::sqrt(x); });
    approximation<float>(table, "rsqrt.approx", root_of_reciprocal);
    table.add({"tanh.approx.f32"}, Lanes<Approximate<decltype(hyperbolic), false>, float, float>::run);
    // A divisor above 2**126 gives 0, or NaN for an infinite dividend, because its reciprocal is
    // flushed.
    approximation<float, float>(table, "div.approx", [](double a, double b) {
        return std::fabs(b) > 0x1p126 && b - b == 0 ? a * std::copysign(0.0, b) : a / b;
    });
    approximation<float, float>(table, "div.full", [](double a, double b) { return a / b; });
    approximation_of_halves<f16, false>(table, "ex2.approx", power);
    approximation_of_halves<f16, true>(table, "ex2.approx", power);
    approximation_of_halves<bf16, true>(table, "ex2.approx", power);
    approximation_of_halves<f16, false>(table, "tanh.approx", hyperbolic);
    approximation_of_halves<bf16, false>(table, "tanh.approx", hyperbolic);
    approximation_of_doubles(table, "rcp.approx.ftz", [](double x) { return 1 / x; });
    approximation_of_doubles(table, "rsqrt.approx.ftz", root_of_reciprocal);
    table.add({"rsqrt.approx.f64"}, Lanes<decltype(root_of_reciprocal), double, double>::run);
}

}  // namespace emulator::ptx
