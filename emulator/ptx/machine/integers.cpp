// Integers of 16, 32 and 64 bits: sums, products, quotients, extremes, dot products, carry chains.
#include "table.h"

namespace emulator::ptx {
namespace {

template <class T> struct Twice;
template <> struct Twice<s16> { using type = s32; };
template <> struct Twice<u16> { using type = u32; };
template <> struct Twice<s32> { using type = s64; };
template <> struct Twice<u32> { using type = u64; };
template <> struct Twice<s64> { using type = __int128; };
template <> struct Twice<u64> { using type = unsigned __int128; };
template <class T>
using twice = typename Twice<T>::type;

template <class T>
T high(T a, T b) {
    return static_cast<T>((static_cast<twice<T>>(a) * b) >> (8 * sizeof(T)));
}

s32 saturated(s64 value) { return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : static_cast<s32>(value); }

// Division by zero gives all ones, as on GPUs; its remainder is the dividend. The smallest number
// divided by -1 wraps.
template <class T>
T quotient(T a, T b) {
    if (b == 0) return static_cast<T>(~T(0));
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<u64>(a));
    return a / b;
}
template <class T>
T remainder_of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return a % b;
}

template <class T>
twice<T> low24(T a) {  // the low 24 bits, with their sign
    return std::is_signed_v<T> ? static_cast<twice<T>>(static_cast<s32>(static_cast<u32>(a) << 8) >> 8) : a & 0xffffff;
}

void add_sums(Table& table) {
    binary<u16, u32, u64>(table, "add", [](auto a, auto b) { return a + b; }, "us");
    binary<u16, u32, u64>(table, "sub", [](auto a, auto b) { return a - b; }, "us");
    binary<s32>(table, "add.sat", [](s64 a, s64 b) { return saturated(a + b); });
    binary<s32>(table, "sub.sat", [](s64 a, s64 b) { return saturated(a - b); });
    unary<u16, u32, u64>(table, "neg", [](auto a) { return 0u - a; }, "s");
    unary<s16, s32, s64>(table, "abs", [](auto a) { return a < 0 ? 0u - a : a; });
    binary<s16, s32, s64, u16, u32, u64>(table, "min", [](auto a, auto b) { return a < b ? a : b; });
    binary<s16, s32, s64, u16, u32, u64>(table, "max", [](auto a, auto b) { return a < b ? b : a; });
    binary<s32>(table, "min.relu", [](auto a, auto b) { const auto least = a < b ? a : b; return least < 0 ? 0 : least; });
    binary<s32>(table, "max.relu", [](auto a, auto b) { const auto most = a < b ? b : a; return most < 0 ? 0 : most; });
    ternary<s16, s32, s64, u16, u32, u64>(table, "sad", [](auto a, auto b, auto c) {
        return c + (a < b ? static_cast<u64>(b) - static_cast<u64>(a) : static_cast<u64>(a) - static_cast<u64>(b));
    });
}

template <class... T>
void add_wide(Table& table) {
    const auto product = [](auto a, auto b) { return static_cast<twice<decltype(a)>>(a) * b; };
    const auto sum = [](auto a, auto b, auto c) { return c + static_cast<decltype(c)>(twice<decltype(b)>(a) * b); };
    (table.add({"mul.wide.", type_name<T>}, Lanes<decltype(product), twice<T>, T, T>::run), ...);
    (table.add({"mad.wide.", type_name<T>}, Lanes<decltype(sum), twice<T>, T, T, std::make_unsigned_t<twice<T>>>::run), ...);
}

void add_products(Table& table) {
    binary<u16, u32, u64>(table, "mul.lo", [](auto a, auto b) { return a * 1u * b; }, "us");
    ternary<u16, u32, u64>(table, "mad.lo", [](auto a, auto b, auto c) { return a * 1u * b + c; }, "us");
    binary<s16, s32, s64, u16, u32, u64>(table, "mul.hi", [](auto a, auto b) { return high(a, b); });
    ternary<s16, s32, s64, u16, u32, u64>(
        table, "mad.hi", [](auto a, auto b, auto c) { return static_cast<u64>(high(a, b)) + c; });
    ternary<s32>(table, "mad.hi.sat", [](auto a, auto b, auto c) { return saturated(static_cast<s64>(high(a, b)) + c); });
    add_wide<s16, s32, u16, u32>(table);
    binary<s32, u32>(table, "mul24.lo", [](auto a, auto b) { return low24(a) * low24(b); });
    binary<s32, u32>(table, "mul24.hi", [](auto a, auto b) { return (low24(a) * low24(b)) >> 16; });
    ternary<s32, u32>(table, "mad24.lo", [](auto a, auto b, auto c) { return low24(a) * low24(b) + c; });
    ternary<s32, u32>(table, "mad24.hi", [](auto a, auto b, auto c) { return ((low24(a) * low24(b)) >> 16) + c; });
    binary<s16, s32, s64, u16, u32, u64>(table, "div", [](auto a, auto b) { return quotient(a, b); });
    binary<s16, s32, s64, u16, u32, u64>(table, "rem", [](auto a, auto b) { return remainder_of(a, b); });
}

// Two 16-bit integers in one register.
template <class T, class F>
void pairs(Table& table, std::string_view name, F) {
    const auto both = [](u32 a, u32 b) {
        const F& f = stateless<F>();
        const u16 low = f(static_cast<T>(a), static_cast<T>(b)), top = f(static_cast<T>(a >> 16), static_cast<T>(b >> 16));
        return static_cast<u32>(low) | static_cast<u32>(top) << 16;
    };
    table.add({name, ".", type_name<T>, "x2"}, Lanes<decltype(both), u32, u32, u32>::run);
}

void add_pairs(Table& table) {
    const auto sum = [](auto a, auto b) { return static_cast<u16>(a + b); };
    const auto least = [](auto a, auto b) { return static_cast<u16>(a < b ? a : b); };
    const auto most = [](auto a, auto b) { return static_cast<u16>(a < b ? b : a); };
    pairs<s16>(table, "add", sum), pairs<u16>(table, "add", sum);
    pairs<s16>(table, "min", least), pairs<u16>(table, "min", least);
    pairs<s16>(table, "max", most), pairs<u16>(table, "max", most);
    pairs<s16>(table, "min.relu", [](auto a, auto b) { const auto x = a < b ? a : b; return static_cast<u16>(x < 0 ? 0 : x); });
    pairs<s16>(table, "max.relu", [](auto a, auto b) { const auto x = a < b ? b : a; return static_cast<u16>(x < 0 ? 0 : x); });
}

// C + a dot product of `Count` parts of a and as many bytes of b, starting at byte `First`, each
// with or without a sign.
template <class A, class B, int Count, int First>
void dot(Table& table, std::string_view name) {
    const auto sum = [](u32 a, u32 b, u32 c) {
        for (int i = 0; i < Count; ++i)
            c += static_cast<u32>(static_cast<A>(a >> (8 * sizeof(A) * i)) * static_cast<B>(b >> (8 * (First + i))));
        return c;
    };
    const auto type = [](bool sign) { return sign ? ".s32" : ".u32"; };
    table.add({name, type(std::is_signed_v<A>), type(std::is_signed_v<B>)}, Lanes<decltype(sum), u32, u32, u32, u32>::run);
}

void add_dots(Table& table) {
    dot<int8_t, int8_t, 4, 0>(table, "dp4a"), dot<int8_t, uint8_t, 4, 0>(table, "dp4a");
    dot<uint8_t, int8_t, 4, 0>(table, "dp4a"), dot<uint8_t, uint8_t, 4, 0>(table, "dp4a");
    dot<s16, int8_t, 2, 0>(table, "dp2a.lo"), dot<s16, uint8_t, 2, 0>(table, "dp2a.lo");
    dot<u16, int8_t, 2, 0>(table, "dp2a.lo"), dot<u16, uint8_t, 2, 0>(table, "dp2a.lo");
    dot<s16, int8_t, 2, 2>(table, "dp2a.hi"), dot<s16, uint8_t, 2, 2>(table, "dp2a.hi");
    dot<u16, int8_t, 2, 2>(table, "dp2a.hi"), dot<u16, uint8_t, 2, 2>(table, "dp2a.hi");
}

// Carry chains. The flag is a predicate that encode.py allocates; a subtraction sets it if it
// borrows.
template <class T, class F, int Sources, bool In, bool Out>
Flow chain(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* operand = at.operand + 1 + Sources;
    const uint32_t in = In ? warp.predicate(*operand++) : 0;
    uint32_t out = 0;
    each_lane(mask, [&](unsigned lane) {
        T from[3] = {};
        for (int i = 0; i < Sources; ++i) from[i] = warp.slot<T>(at.operand[1 + i])[lane];
        const auto value = stateless<F>()(from, static_cast<T>(in >> lane & 1));
        warp.slot<T>(at.operand[0])[lane] = static_cast<T>(value);
        out |= static_cast<uint32_t>(value >> (8 * sizeof(T)) & 1) << lane;
    });
    if (Out) warp.predicate(*operand) = (warp.predicate(*operand) & ~mask) | out;
    return Flow::next;
}

template <class T, int Sources, class F>
void chains(Table& table, std::string_view op, std::string_view half, F) {
    for (const char* sign : {".u", ".s"}) {
        const std::string type = joined({half, sign, bits_name<T> + 1}), cc = joined({half, ".cc", sign, bits_name<T> + 1});
        table.add({op, cc}, chain<T, F, Sources, false, true>);
        table.add({op, "c", type}, chain<T, F, Sources, true, false>);
        table.add({op, "c", cc}, chain<T, F, Sources, true, true>);
    }
}

template <class... T>
void add_chains(Table& table) {
    const auto sum = [](const auto* x, auto carry) { return static_cast<twice<decltype(carry)>>(x[0]) + x[1] + carry; };
    const auto difference = [](const auto* x, auto carry) { return static_cast<twice<decltype(carry)>>(x[0]) - x[1] - carry; };
    const auto low = [](const auto* x, auto carry) {
        using U = decltype(carry);
        return static_cast<twice<U>>(static_cast<U>(x[0] * x[1])) + x[2] + carry;
    };
    (chains<T, 2>(table, "add", "", sum), ...);
    (chains<T, 2>(table, "sub", "", difference), ...);
    (chains<T, 3>(table, "mad", ".lo", low), ...);
}

template <class T, class Signed>
void add_high_chains(Table& table) {  // the upper half of a product depends on its sign
    const auto upper = [](const auto* x, auto carry) {
        using U = decltype(carry);
        return static_cast<twice<U>>(static_cast<U>(high(static_cast<Signed>(x[0]), static_cast<Signed>(x[1])))) + x[2] + carry;
    };
    const char* type = type_name<Signed>;
    table.add({"mad.hi.cc.", type}, chain<T, decltype(upper), 3, false, true>);
    table.add({"madc.hi.", type}, chain<T, decltype(upper), 3, true, false>);
    table.add({"madc.hi.cc.", type}, chain<T, decltype(upper), 3, true, true>);
}

}  // namespace

void add_integers(Table& table) {
    add_sums(table);
    add_products(table);
    add_pairs(table);
    add_dots(table);
    add_chains<u32, u64>(table);
    add_high_chains<u32, u32>(table), add_high_chains<u32, s32>(table);
    add_high_chains<u64, u64>(table), add_high_chains<u64, s64>(table);
}

}  // namespace emulator::ptx
