// float32 and float64: arithmetic in all rounding modes, with flushed subnormals (.ftz) and clamped
// to [0, 1] (.sat); extremes, signs, classes.
#include "extremes.h"
#include "rounding.h"

namespace emulator::ptx {
namespace {

template <class F, bool Ftz, bool Sat>
struct Float {  // an operation on values of one type
    template <class T>
    static T in(T x) {
        if constexpr (Ftz) return flush(x);
        return x;
    }
    template <class... T>
    auto operator()(T... x) const {
        auto result = canonical(stateless<F>()(in(x)...));
        if constexpr (Ftz) result = flush(result);
        if constexpr (Sat) result = saturated(result);
        return result;
    }
};

// One operation in the four rounding modes. To nearest is the default if `plain` is set, under all
// its names.
template <class T, class F, bool Ftz, bool Sat, class... S>
void four_modes(Table& table, std::string_view op, bool plain) {
    constexpr Handler nearest = Lanes<Float<F, Ftz, Sat>, T, S...>::run;
    const std::string flags = joined({Ftz ? ".ftz" : "", Sat ? ".sat." : ".", type_name<T>});
    if (plain) table.add({op, flags}, nearest);
    table.add({op, ".rn", flags}, nearest);
    table.add({op, ".rz", flags}, rounded<FE_TOWARDZERO, nearest>);
    table.add({op, ".rm", flags}, rounded<FE_DOWNWARD, nearest>);
    table.add({op, ".rp", flags}, rounded<FE_UPWARD, nearest>);
}

template <class... Float32, class F>
void with_sat(Table& table, std::string_view op, F) {
    four_modes<float, F, false, false, Float32...>(table, op, true);
    four_modes<float, F, true, false, Float32...>(table, op, true);
    four_modes<float, F, false, true, Float32...>(table, op, true);
    four_modes<float, F, true, true, Float32...>(table, op, true);
}
template <class... Float32, class F>
void without_sat(Table& table, std::string_view op, F) {
    four_modes<float, F, false, false, Float32...>(table, op, false);
    four_modes<float, F, true, false, Float32...>(table, op, false);
}
template <class... Float64, class F>
void of_doubles(Table& table, std::string_view op, F, bool plain) {
    four_modes<double, F, false, false, Float64...>(table, op, plain);
}

void add_sums(Table& table) {
    using S = float;
    using D = double;
    const auto sum = [](auto a, auto b) { return a + b; };
    const auto difference = [](auto a, auto b) { return a - b; };
    const auto product = [](auto a, auto b) { return a * b; };
    const auto quotient = [](auto a, auto b) { return a / b; };
    const auto fused = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
    const auto reciprocal = [](auto a) { return 1 / a; };
    const auto root = [](auto a) { return std::sqrt(a); };
    with_sat<S, S>(table, "add", sum), of_doubles<D, D>(table, "add", sum, true);
    with_sat<S, S>(table, "sub", difference), of_doubles<D, D>(table, "sub", difference, true);
    with_sat<S, S>(table, "mul", product), of_doubles<D, D>(table, "mul", product, true);
    with_sat<S, S, S>(table, "fma", fused), of_doubles<D, D, D>(table, "fma", fused, true);
    with_sat<S, S, S>(table, "mad", fused), of_doubles<D, D, D>(table, "mad", fused, true);
    without_sat<S, S>(table, "div", quotient), of_doubles<D, D>(table, "div", quotient, false);
    without_sat<S>(table, "rcp", reciprocal), of_doubles<D>(table, "rcp", reciprocal, false);
    without_sat<S>(table, "sqrt", root), of_doubles<D>(table, "sqrt", root, false);
}

// ---- extremes -----------------------------------------------------------------------------------

template <bool Max>
void add_extremes(Table& table) {
    const char* op = Max ? "max" : "min";
    const auto row = [&](auto type, std::string_view flags, auto plain, auto with_nan, auto magnitudes, auto both) {
        using T = decltype(type);
        const std::string name = joined({".", type_name<T>});
        table.add({op, flags, name}, Lanes<decltype(plain), T, T, T>::run);
        if constexpr (std::is_same_v<T, float>) {
            table.add({op, flags, ".NaN", name}, Lanes<decltype(with_nan), T, T, T>::run);
            table.add({op, flags, ".xorsign.abs", name}, Lanes<decltype(magnitudes), T, T, T>::run);
            table.add({op, flags, ".NaN.xorsign.abs", name}, Lanes<decltype(both), T, T, T>::run);
        }
    };
    using Plain = Extreme<Max, false, false>;
    using WithNaN = Extreme<Max, true, false>;
    using Magnitudes = Extreme<Max, false, true>;
    using Both = Extreme<Max, true, true>;
    row(0.0f, "", Float<Plain, 0, 0>(), Float<WithNaN, 0, 0>(), Float<Magnitudes, 0, 0>(), Float<Both, 0, 0>());
    row(0.0f, ".ftz", Float<Plain, 1, 0>(), Float<WithNaN, 1, 0>(), Float<Magnitudes, 1, 0>(), Float<Both, 1, 0>());
    row(0.0, "", Float<Plain, 0, 0>(), 0, 0, 0);
}

// ---- signs and classes --------------------------------------------------------------------------

template <class T>
void add_signs(Table& table) {
    using B = bits_type<T>;
    const std::string type = joined({".", type_name<T>});
    const auto absolute = [](T a) { return as<T>(static_cast<B>(as<B>(a) & ~sign_bit<T>)); };
    const auto negative = [](T a) { return as<T>(static_cast<B>(as<B>(a) ^ sign_bit<T>)); };
    const auto with_sign = [](T a, T b) { return as<T>(static_cast<B>((as<B>(a) & sign_bit<T>) | (as<B>(b) & ~sign_bit<T>))); };
    table.add({"abs", type}, Lanes<decltype(absolute), T, T>::run);
    table.add({"neg", type}, Lanes<decltype(negative), T, T>::run);
    table.add({"copysign", type}, Lanes<decltype(with_sign), T, T, T>::run);
    if (std::is_same_v<T, float>) {
        const auto flushed_absolute = [](T a) { return as<T>(static_cast<B>(as<B>(flush(a)) & ~sign_bit<T>)); };
        const auto flushed_negative = [](T a) { return as<T>(static_cast<B>(as<B>(flush(a)) ^ sign_bit<T>)); };
        table.add({"abs.ftz", type}, Lanes<decltype(flushed_absolute), T, T>::run);
        table.add({"neg.ftz", type}, Lanes<decltype(flushed_negative), T, T>::run);
    }
    const auto test = [&](const char* name, auto f) { table.add({"testp.", name, type}, Test<decltype(f), T>::run); };
    test("finite", [](T a) { return a - a == 0; });
    test("infinite", [](T a) { return a == a && a - a != 0; });
    test("number", [](T a) { return a == a; });
    test("notanumber", [](T a) { return a != a; });
    test("normal", [](T a) { return a - a == 0 && flush(a) != 0; });
    test("subnormal", [](T a) { return a != 0 && flush(a) == 0; });
}

}  // namespace

Handlers floating_handlers() {
    static const Table table = [] {
        Table table;
        add_sums(table);
        add_extremes<false>(table), add_extremes<true>(table);
        add_signs<float>(table), add_signs<double>(table);
        add_approximations(table);
        add_halves(table);
        return table;
    }();
    return table.view();
}

}  // namespace emulator::ptx
