// The table of a file of handlers: a row has a name, the types it exists for, and the function that
// it computes for one lane.
//
//     binary<uint32_t, uint64_t>(table, "add", [](auto a, auto b) { return a + b; });   // add.u32 add.u64
#pragma once

#include "machine.h"

#include <deque>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

// Inlines everything that a loop calls into it: otherwise g++ cannot vectorise it.
#define FLATTEN __attribute__((flatten))

namespace emulator::ptx {

using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

using Parts = std::initializer_list<std::string_view>;

// Not inlined: thousands of rows use it, and g++ would need a minute for them.
__attribute__((noinline, cold)) inline std::string joined(Parts parts) {
    std::string whole;
    for (auto part : parts) whole += part;
    return whole;
}

class Table {
public:
    // The first handler of a name stays: a file adds fast handlers first, then the ones that cover
    // the rest.
    __attribute__((noinline, cold)) void add(Parts name, Handler run) {
        const std::string whole = joined(name);
        if (!known.insert(whole).second) return;
        names.push_back(whole);
        handlers.push_back({names.back().c_str(), run});
    }
    Handlers view() const { return {handlers.data(), handlers.size()}; }

private:
    std::unordered_set<std::string> known;
    std::deque<std::string> names;  // a deque does not move its elements
    std::vector<NamedHandler> handlers;
};

// Turns a lambda without captures into a type: handlers are plain functions, so that g++ can inline
// their computation.
template <class F>
const F& stateless() {
    static_assert(std::is_empty_v<F>);
    static const char any = 0;
    return reinterpret_cast<const F&>(any);
}

// D = f(a, b, ...) in each lane. The types are the registers'.
template <class F, class D, class... S>
struct Lanes {
    static Flow run(Warp& warp, const Instruction& at, uint32_t mask) {
        return apply(warp, at, mask, std::index_sequence_for<S...>());
    }
    template <size_t... I>
    static Flow apply(Warp& warp, const Instruction& at, uint32_t mask, std::index_sequence<I...>) {
        D* to = warp.slot<D>(at.operand[0]);
        each(mask, to, static_cast<const S*>(warp.slot<S>(at.operand[I + 1]))...);
        return Flow::next;
    }
    FLATTEN static void each(uint32_t mask, D* to, const S*... from) {
        each_lane(mask, [=](unsigned lane) { to[lane] = static_cast<D>(stateless<F>()(from[lane]...)); });
    }
};

// Predicate = f(a, b, ...). All lanes are computed; the ones in the mask are kept.
template <class F, class... S>
struct Test {
    static Flow run(Warp& warp, const Instruction& at, uint32_t mask) {
        return apply(warp, at, mask, std::index_sequence_for<S...>());
    }
    template <size_t... I>
    static Flow apply(Warp& warp, const Instruction& at, uint32_t mask, std::index_sequence<I...>) {
        const uint32_t bits = all(static_cast<const S*>(warp.slot<S>(at.operand[I + 1]))...);
        uint32_t& to = warp.predicate(at.operand[0]);
        to = (to & ~mask) | (bits & mask);
        return Flow::next;
    }
    FLATTEN __attribute__((noinline)) static uint32_t all(const S*... from) {
        uint32_t bits = 0;
        for (unsigned lane = 0; lane < WARP; ++lane) bits |= static_cast<uint32_t>(bool(stateless<F>()(from[lane]...))) << lane;
        return bits;
    }
};

template <class T>
constexpr const char* type_name = nullptr;  // PTX's name for it
template <> constexpr const char* type_name<int8_t> = "s8";
template <> constexpr const char* type_name<uint8_t> = "u8";
template <> constexpr const char* type_name<int16_t> = "s16";
template <> constexpr const char* type_name<uint16_t> = "u16";
template <> constexpr const char* type_name<int32_t> = "s32";
template <> constexpr const char* type_name<uint32_t> = "u32";
template <> constexpr const char* type_name<int64_t> = "s64";
template <> constexpr const char* type_name<uint64_t> = "u64";
template <> constexpr const char* type_name<float> = "f32";
template <> constexpr const char* type_name<double> = "f64";

template <class T>
constexpr const char* bits_name = sizeof(T) == 2 ? "b16" : sizeof(T) == 4 ? "b32" : "b64";

// The rows of an operation on registers of one width: for each letter "add.u32", "add.s32"; without
// letters the type's own.
template <class T>
__attribute__((noinline, cold)) void spellings(Table& table, std::string_view name, const char* letters, Handler run) {
    if (!*letters) table.add({name, ".", type_name<T>}, run);
    for (; *letters; ++letters) table.add({name, ".", {letters, 1}, bits_name<T> + 1}, run);
}

// Rows of an operation for several types, with one, two or three sources of the result's type.
// Operations that do not depend on the sign are given for unsigned types, with the letters of all
// their spellings.
template <class... T, class F>
void unary(Table& table, std::string_view name, F, const char* letters = "") {
    (spellings<T>(table, name, letters, Lanes<F, T, T>::run), ...);
}
template <class... T, class F>
void binary(Table& table, std::string_view name, F, const char* letters = "") {
    (spellings<T>(table, name, letters, Lanes<F, T, T, T>::run), ...);
}
template <class... T, class F>
void ternary(Table& table, std::string_view name, F, const char* letters = "") {
    (spellings<T>(table, name, letters, Lanes<F, T, T, T, T>::run), ...);
}

// The parts of arithmetic_handlers() and floating_handlers(), one file each.
void add_integers(Table&);     // integers.cpp
void add_bits(Table&);         // bits.cpp
void add_comparisons(Table&);  // comparisons.cpp
void add_moves(Table&);        // moves.cpp
void add_approximations(Table&);  // approximations.cpp
void add_halves(Table&);          // halves.cpp

}  // namespace emulator::ptx
