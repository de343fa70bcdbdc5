// Comparisons: setp makes a predicate, set a value. Selection by a predicate or a sign.
#include "number.h"

namespace emulator::ptx {
namespace {

// ---- orders: few loops, used with sources exchanged and with results complemented ---------------

struct Equal { template <class T> bool operator()(T a, T b) const { return a == b; } };
struct Less { template <class T> bool operator()(T a, T b) const { return a < b; } };
struct LessOrEqual { template <class T> bool operator()(T a, T b) const { return a <= b; } };
struct Unequal { template <class T> bool operator()(T a, T b) const { return a < b || a > b; } };  // false for NaN
struct Numbers { template <class T> bool operator()(T a, T b) const { return a == a && b == b; } };

template <class F, bool Exchange = false, bool Complement = false>
struct Order {
    template <class T>
    static uint32_t all(const T* a, const T* b) {
        const uint32_t bits = Exchange ? Test<F, T, T>::all(b, a) : Test<F, T, T>::all(a, b);
        return Complement ? ~bits : bits;
    }
};

template <class Row>
void each_of_integers(Row row) {
    row("eq", Order<Equal>()), row("ne", Order<Equal, false, true>());
    row("lt", Order<Less>()), row("ge", Order<Less, false, true>());
    row("gt", Order<Less, true>()), row("le", Order<Less, true, true>());
}
template <class Row>
// With a NaN, the comparisons that end in u hold and the others do not.
void each_of_floats(Row row) {
    row("eq", Order<Equal>()), row("neu", Order<Equal, false, true>());
    row("ne", Order<Unequal>()), row("equ", Order<Unequal, false, true>());
    row("lt", Order<Less>()), row("geu", Order<Less, false, true>());
    row("gt", Order<Less, true>()), row("leu", Order<Less, true, true>());
    row("le", Order<LessOrEqual>()), row("gtu", Order<LessOrEqual, false, true>());
    row("ge", Order<LessOrEqual, true>()), row("ltu", Order<LessOrEqual, true, true>());
    row("num", Order<Numbers>()), row("nan", Order<Numbers, false, true>());
}

// ---- sources: a bit for each lane ---------------------------------------------------------------

// Half types, and values whose subnormals are flushed, become floats first. Part chooses a half of
// a register with two values.
template <bool Ftz, int Step, class T>
__attribute__((noinline)) void to_floats(const T* from, float* to) {
    for (unsigned lane = 0; lane < WARP; ++lane) to[lane] = widen(Ftz ? flush(from[lane * Step]) : from[lane * Step]);
}

struct AsTheyAre {
    template <class O, class T>
    static uint32_t compare(const T* a, const T* b) { return O::all(a, b); }
};
template <bool Ftz, int Step = 1>
struct AsFloats {
    template <class O, class T>
    static uint32_t compare(const T* a, const T* b) {
        float x[WARP], y[WARP];
        to_floats<Ftz, Step>(a, x), to_floats<Ftz, Step>(b, y);
        return O::all(x, y);
    }
};

void keep(uint32_t& predicate, uint32_t mask, uint32_t bits) { predicate = (predicate & ~mask) | (bits & mask); }

template <class O, class Sources, class T>
Flow setp(Warp& warp, const Instruction& at, uint32_t mask) {
    const uint32_t bits = Sources::template compare<O>(warp.slot<T>(at.operand[1]), warp.slot<T>(at.operand[2]));
    keep(warp.predicate(at.operand[0]), mask, bits);
    return Flow::next;
}

// `set` writes its true value where the comparison holds, and zeros elsewhere.
template <class D>
__attribute__((noinline)) void write_truth(D* to, uint32_t mask, uint32_t bits, D truth) {
    each_lane(mask, [=](unsigned lane) { to[lane] = bits >> lane & 1 ? truth : D(0); });
}

template <class O, class Sources, class T, class D, D Truth>
Flow set(Warp& warp, const Instruction& at, uint32_t mask) {
    const uint32_t bits = Sources::template compare<O>(warp.slot<T>(at.operand[1]), warp.slot<T>(at.operand[2]));
    write_truth(warp.slot<D>(at.operand[0]), mask, bits, Truth);
    return Flow::next;
}

// The handlers of one comparison of one type: setp, and set by its result.
struct Compared { Handler predicate, u32, f32, u16 = nullptr, half = nullptr; };

// Not a template: g++ would compile its names once for each type and comparison.
__attribute__((noinline, cold)) void add_rows(Table& table, std::string_view compare, std::string_view type, const Compared& by) {
    table.add({"setp.", compare, ".", type}, by.predicate);
    for (auto result : {"u32.", "s32."}) table.add({"set.", compare, ".", result, type}, by.u32);
    table.add({"set.", compare, ".f32.", type}, by.f32);
    if (!by.half) return;
    for (auto result : {"u16.", "s16."}) table.add({"set.", compare, ".", result, type}, by.u16);
    table.add({"set.", compare, ".", type, ".", type}, by.half);
}

template <class O, class Sources, class T>
void rows(Table& table, std::string_view compare, std::string_view type) {
    constexpr Handler u32_too = set<O, Sources, T, u32, ~0u>, f32_too = set<O, Sources, T, u32, 0x3f800000>;
    if constexpr (is_half<T>)
        add_rows(table, compare, type, {setp<O, Sources, T>, u32_too, f32_too, set<O, Sources, T, u16, 0xffff>, set<O, Sources, T, u16, one<T>>});
    else
        add_rows(table, compare, type, {setp<O, Sources, T>, u32_too, f32_too});
}

template <class T>
void of_integers(Table& table) {
    each_of_integers([&](std::string_view compare, auto order) {
        using O = decltype(order);
        rows<O, AsTheyAre, T>(table, compare, type_name<T>);
        if (std::is_signed_v<T>) return;
        if (compare == "eq" || compare == "ne") rows<O, AsTheyAre, T>(table, compare, bits_name<T>);
        for (auto [ordered, other] : {std::pair("lt", "lo"), {"le", "ls"}, {"gt", "hi"}, {"ge", "hs"}})
            if (compare == ordered) rows<O, AsTheyAre, T>(table, other, type_name<T>);
    });
}

template <class T>
void of_floats(Table& table) {
    each_of_floats([&](std::string_view compare, auto order) {
        using O = decltype(order);
        rows<O, std::conditional_t<is_half<T>, AsFloats<false>, AsTheyAre>, T>(table, compare, type_name<T>);
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, f16>)
            rows<O, AsFloats<true>, T>(table, joined({compare, ".ftz"}), type_name<T>);
    });
}

// ---- two halves at once -------------------------------------------------------------------------

template <class O, bool Ftz, class T>
Flow setp_pair(Warp& warp, const Instruction& at, uint32_t mask) {
    const T *a = warp.slot<T>(at.operand[2]), *b = warp.slot<T>(at.operand[3]);
    for (int half = 0; half < 2; ++half) {
        const uint32_t bits = AsFloats<Ftz, 2>::template compare<O>(a + half, b + half);
        if (at.operand[half] != NONE) keep(warp.predicate(at.operand[half]), mask, bits);
    }
    return Flow::next;
}

template <class O, bool Ftz, class T, u16 Truth>
Flow set_pair(Warp& warp, const Instruction& at, uint32_t mask) {
    const T *a = warp.slot<T>(at.operand[1]), *b = warp.slot<T>(at.operand[2]);
    const uint32_t low = AsFloats<Ftz, 2>::template compare<O>(a, b);
    const uint32_t high = AsFloats<Ftz, 2>::template compare<O>(a + 1, b + 1);
    u32* to = warp.slot<u32>(at.operand[0]);
    each_lane(mask, [=](unsigned lane) {
        to[lane] = (low >> lane & 1) * Truth | (high >> lane & 1) * (static_cast<u32>(Truth) << 16);
    });
    return Flow::next;
}

__attribute__((noinline, cold)) void add_pair_rows(Table& table, std::string_view compare, std::string_view type, const Compared& by) {
    table.add({"setp.", compare, type}, by.predicate);
    for (auto result : {"u32.", "s32."}) table.add({"set.", compare, result, type}, by.u32);
    table.add({"set.", compare, type, ".", type}, by.half);
}

template <class T, bool Ftz>
void of_pairs(Table& table) {
    const std::string type = joined({type_name<T>, "x2"});
    each_of_floats([&](std::string_view compare, auto order) {
        using O = decltype(order);
        constexpr Handler u32_too = set_pair<O, Ftz, T, 0xffff>, half = set_pair<O, Ftz, T, one<T>>;
        add_pair_rows(table, joined({compare, Ftz ? ".ftz." : "."}), type, {setp_pair<O, Ftz, T>, u32_too, nullptr, nullptr, half});
    });
}

// ---- selection ----------------------------------------------------------------------------------

template <class T>
Flow select(Warp& warp, const Instruction& at, uint32_t mask) {
    T* to = warp.slot<T>(at.operand[0]);
    const T *a = warp.slot<T>(at.operand[1]), *b = warp.slot<T>(at.operand[2]);
    const uint32_t chosen = warp.predicate(at.operand[3]);
    each_lane(mask, [=](unsigned lane) { to[lane] = chosen >> lane & 1 ? a[lane] : b[lane]; });
    return Flow::next;
}

template <class T>
void selections(Table& table) {
    const auto by_sign = [](T a, T b, s32 c) { return c >= 0 ? a : b; };
    const auto by_float = [](T a, T b, float c) { return c >= 0 ? a : b; };  // NaN: b
    const auto by_flushed = [](T a, T b, float c) { return flush(c) >= 0 ? a : b; };
    for (const char* letter : {"b", "u", "s", "f"}) {
        const std::string type = joined({letter, bits_name<T> + 1});
        table.add({"selp.", type}, select<T>);
        if (sizeof(T) == 2 && *letter == 'f') continue;
        table.add({"slct.", type, ".s32"}, Lanes<decltype(by_sign), T, T, T, s32>::run);
        table.add({"slct.", type, ".f32"}, Lanes<decltype(by_float), T, T, T, float>::run);
        table.add({"slct.ftz.", type, ".f32"}, Lanes<decltype(by_flushed), T, T, T, float>::run);
    }
}

}  // namespace

void add_comparisons(Table& table) {
    of_integers<s16>(table), of_integers<s32>(table), of_integers<s64>(table);
    of_integers<u16>(table), of_integers<u32>(table), of_integers<u64>(table);
    of_floats<float>(table), of_floats<double>(table), of_floats<f16>(table), of_floats<bf16>(table);
    of_pairs<f16, false>(table), of_pairs<f16, true>(table), of_pairs<bf16, false>(table);
    selections<u16>(table), selections<u32>(table), selections<u64>(table);
}

}  // namespace emulator::ptx
