// float16 and bfloat16, one or two in a register: sums and products rounded once, extremes, signs.
#include "extremes.h"

namespace emulator::ptx {
namespace {

// Rounds a float32 or float64 result, which stands for the exact one, to the half type.
template <class T>
T narrowed(float x) { return narrow<T>(x); }
template <class T>
T narrowed(double x) { return narrow<T>(to_odd_float(x)); }

// A sum or a product of two halves can be rounded twice, first to float32, because that has more
// than twice the digits. A product with a sum is rounded to odd in float64: two bfloat16 can be so
// far apart that a plain sum would lose the smaller one in a tie.
double fused(double a, double b, double c) {
    const double product = a * b, sum = product + c;  // the product is exact
    const double part = sum - product, error = (product - (sum - part)) + (c - part);
    return to_odd(sum, error);
}

enum Flags { PLAIN, FTZ = 1, SAT = 2, RELU = 4 };

template <class T, class F, int Flag>
struct Half {  // an operation on values of a half type, computed in the wider type
    static T in(T x) { return Flag & FTZ ? flush(x) : x; }
    template <class... S>
    T operator()(S... x) const {
        auto wide = stateless<F>()(widen(in(x))...);
        if (Flag & SAT) wide = saturated(wide);
        if (Flag & RELU) wide = wide < 0 ? 0 : wide;
        const T result = narrowed<T>(wide);
        return Flag & FTZ ? flush(result) : result;
    }
};

// One register holds one value or two. With all lanes, the two halves of the warp are processed in
// two loops.
template <class F, class T, class... S>
struct Halves {
    static Flow one(Warp& warp, const Instruction& at, uint32_t mask) {
        return apply(warp, at, mask, false, std::index_sequence_for<S...>());
    }
    static Flow two(Warp& warp, const Instruction& at, uint32_t mask) {
        return apply(warp, at, mask, true, std::index_sequence_for<S...>());
    }
    template <size_t... I>
    static Flow apply(Warp& warp, const Instruction& at, uint32_t mask, bool pairs, std::index_sequence<I...>) {
        if (mask == ALL)
            for (unsigned first = 0; first < (pairs ? 2 * WARP : WARP); first += WARP)
                all(warp.slot<T>(at.operand[0]) + first, static_cast<const S*>(warp.slot<S>(at.operand[I + 1]) + first)...);
        else
            some(mask, pairs, warp.slot<T>(at.operand[0]), static_cast<const S*>(warp.slot<S>(at.operand[I + 1]))...);
        return Flow::next;
    }
    FLATTEN __attribute__((noinline)) static void all(T* to, const S*... from) {
        each_lane(ALL, [=](unsigned lane) { to[lane] = stateless<F>()(from[lane]...); });
    }
    __attribute__((noinline)) static void some(uint32_t mask, bool pairs, T* to, const S*... from) {
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            const unsigned lane = __builtin_ctz(rest);
            for (unsigned i = lane << pairs; i <= (lane << pairs) + pairs; ++i) to[i] = stateless<F>()(from[i]...);
        }
    }
};

template <class T, class F, class... S>
void rows(Table& table, std::string_view name) {
    const std::string type = joined({".", type_name<T>});
    table.add({name, type}, Halves<F, T, S...>::one);
    table.add({name, type, "x2"}, Halves<F, T, S...>::two);
}

// Both spellings, with and without .rn; .ftz and .sat exist for float16.
template <class T, class... S, class F>
void sums(Table& table, std::string_view op, F) {
    for (const char* rounding : {"", ".rn"}) {
        rows<T, Half<T, F, PLAIN>, S...>(table, joined({op, rounding}));
        if constexpr (std::is_same_v<T, f16>) {
            rows<T, Half<T, F, FTZ>, S...>(table, joined({op, rounding, ".ftz"}));
            rows<T, Half<T, F, SAT>, S...>(table, joined({op, rounding, ".sat"}));
            rows<T, Half<T, F, FTZ | SAT>, S...>(table, joined({op, rounding, ".ftz.sat"}));
        }
        if constexpr (sizeof...(S) == 3) {
            rows<T, Half<T, F, RELU>, S...>(table, joined({op, rounding, ".relu"}));
            if constexpr (std::is_same_v<T, f16>)
                rows<T, Half<T, F, FTZ | RELU>, S...>(table, joined({op, rounding, ".ftz.relu"}));
        }
    }
}

template <class T>
void add_sums(Table& table) {
    const auto sum = [](float a, float b) { return a + b; };
    const auto difference = [](float a, float b) { return a - b; };
    const auto product = [](float a, float b) { return a * b; };
    const auto product_and_sum = [](double a, double b, double c) { return fused(a, b, c); };
    sums<T, T, T>(table, "add", sum);
    sums<T, T, T>(table, "sub", difference);
    sums<T, T, T>(table, "mul", product);
    sums<T, T, T, T>(table, "fma", product_and_sum);
}

template <class T, class E, bool Ftz>
struct HalfExtreme {
    T operator()(T a, T b) const { return narrow<T>(E()(widen(Ftz ? flush(a) : a), widen(Ftz ? flush(b) : b))); }
};

template <class T, bool Max>
void add_extremes(Table& table) {
    const auto row = [&](std::string_view flags, auto extreme) {
        using E = decltype(extreme);
        const char* op = Max ? "max" : "min";
        rows<T, HalfExtreme<T, E, false>, T, T>(table, joined({op, flags}));
        if constexpr (std::is_same_v<T, f16>) rows<T, HalfExtreme<T, E, true>, T, T>(table, joined({op, ".ftz", flags}));
    };
    row("", Extreme<Max, false, false>()), row(".NaN", Extreme<Max, true, false>());
    row(".xorsign.abs", Extreme<Max, false, true>()), row(".NaN.xorsign.abs", Extreme<Max, true, true>());
}

template <class T, class F>
void sign_row(Table& table, std::string_view op, F) {
    rows<T, F, T>(table, op);
}

template <class T>
void add_signs(Table& table) {
    sign_row<T>(table, "abs", [](T a) { return T{static_cast<uint16_t>(a.bits & 0x7fff)}; });
    sign_row<T>(table, "neg", [](T a) { return T{static_cast<uint16_t>(a.bits ^ 0x8000)}; });
    if (!std::is_same_v<T, f16>) return;
    sign_row<T>(table, "abs.ftz", [](T a) { return T{static_cast<uint16_t>(flush(a).bits & 0x7fff)}; });
    sign_row<T>(table, "neg.ftz", [](T a) { return T{static_cast<uint16_t>(flush(a).bits ^ 0x8000)}; });
}

template <class T>
void add_all(Table& table) {
    add_sums<T>(table);
    add_extremes<T, false>(table), add_extremes<T, true>(table);
    add_signs<T>(table);
}

}  // namespace

void add_halves(Table& table) {
    add_all<f16>(table), add_all<bf16>(table);
}

}  // namespace emulator::ptx
