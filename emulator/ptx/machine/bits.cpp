// Bits: logic, shifts, counting, fields, permutations of bytes; predicates' logic.
#include "table.h"

#include <algorithm>

namespace emulator::ptx {
namespace {

template <class T>
constexpr u32 bits_of = 8 * sizeof(T);

// ---- logic --------------------------------------------------------------------------------------

template <class F>
Flow predicates(Warp& warp, const Instruction& at, uint32_t mask) {
    const uint32_t bits = stateless<F>()(warp.predicate(at.operand[1]), warp.predicate(at.operand[2]));
    uint32_t& to = warp.predicate(at.operand[0]);
    to = (to & ~mask) | (bits & mask);
    return Flow::next;
}

template <class F>
Flow one_predicate(Warp& warp, const Instruction& at, uint32_t mask) {
    const uint32_t bits = stateless<F>()(warp.predicate(at.operand[1]));
    uint32_t& to = warp.predicate(at.operand[0]);
    to = (to & ~mask) | (bits & mask);
    return Flow::next;
}

template <class F>
void logic(Table& table, std::string_view name, F f) {
    binary<u16, u32, u64>(table, name, f, "b");
    table.add({name, ".pred"}, predicates<F>);
}

void add_logic(Table& table) {
    logic(table, "and", [](auto a, auto b) { return a & b; });
    logic(table, "or", [](auto a, auto b) { return a | b; });
    logic(table, "xor", [](auto a, auto b) { return a ^ b; });
    const auto complement = [](auto a) { return ~a; };
    const auto same = [](auto a) { return a; };
    unary<u16, u32, u64>(table, "not", complement, "b");
    unary<u16, u32, u64>(table, "cnot", [](auto a) { return a == 0; }, "b");
    table.add({"not.pred"}, one_predicate<decltype(complement)>);
    table.add({"mov.pred"}, one_predicate<decltype(same)>);
    const auto any = [](u32 a, u32 b, u32 c, u32 lut) {  // bit 4a+2b+c of the table
        u32 result = 0;
        for (u32 i = 0; i < 8; ++i)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c) & (0u - (lut >> i & 1));
        return result;
    };
    table.add({"lop3.b32"}, Lanes<decltype(any), u32, u32, u32, u32, u32>::run);
}

// ---- shifts: an amount of at least the width shifts everything out ------------------------------

template <class... T, class F>
void shift(Table& table, std::string_view name, F, const char* letters) {
    (spellings<T>(table, name, letters, Lanes<F, T, T, u32>::run), ...);
}

u64 both(u32 low, u32 high) { return static_cast<u64>(high) << 32 | low; }

void add_shifts(Table& table) {
    shift<u16, u32, u64>(table, "shl", [](auto a, u32 by) { return by < bits_of<decltype(a)> ? a << by : 0; }, "b");
    shift<u16, u32, u64>(table, "shr", [](auto a, u32 by) { return by < bits_of<decltype(a)> ? a >> by : 0; }, "bu");
    shift<s16, s32, s64>(table, "shr", [](auto a, u32 by) { return a >> std::min(by, bits_of<decltype(a)> - 1); }, "s");
    // The funnel shifts of b:a: the upper half shifted left, the lower half shifted right.
    ternary<u32>(table, "shf.l.wrap", [](u32 a, u32 b, u32 c) { return (both(a, b) << (c & 31)) >> 32; }, "b");
    ternary<u32>(table, "shf.r.wrap", [](u32 a, u32 b, u32 c) { return both(a, b) >> (c & 31); }, "b");
    ternary<u32>(table, "shf.l.clamp", [](u32 a, u32 b, u32 c) { return (both(a, b) << std::min(c, 32u)) >> 32; }, "b");
    ternary<u32>(table, "shf.r.clamp", [](u32 a, u32 b, u32 c) { return both(a, b) >> std::min(c, 32u); }, "b");
}

// ---- counting -----------------------------------------------------------------------------------

u32 leading(u32 a) { return a ? __builtin_clz(a) : 32; }
u32 leading(u64 a) { return a ? __builtin_clzll(a) : 64; }

// The position of the most significant bit that differs from the sign, or all ones.
template <class T>
u32 leading_bit(T a) {
    using U = std::make_unsigned_t<T>;
    return bits_of<T> - 1 - leading(static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a));
}

template <class T>
T reversed(T a) {
    T result = 0;
    for (u32 i = 0; i < bits_of<T>; ++i) result |= (a >> i & 1) << (bits_of<T> - 1 - i);
    return result;
}

template <class... T, class F>
void count(Table& table, std::string_view name, F, const char* letters = "") {
    (spellings<T>(table, name, letters, Lanes<F, u32, T>::run), ...);
}

u32 nth_set(u32 mask, u32 base, s32 offset) {
    if (offset == 0) return base < 32 && mask >> base & 1 ? base : ~0u;
    s64 rest = offset < 0 ? -static_cast<s64>(offset) : offset;
    for (s64 place = base; place >= 0 && place < 32; place += offset < 0 ? -1 : 1)
        if (mask >> place & 1 && --rest == 0) return static_cast<u32>(place);
    return ~0u;
}

void add_counts(Table& table) {
    count<u32, u64>(table, "popc", [](auto a) { return __builtin_popcountll(a); }, "b");
    count<u32, u64>(table, "clz", [](auto a) { return leading(a); }, "b");
    count<s32, s64, u32, u64>(table, "bfind", [](auto a) { return leading_bit(a); });
    count<s32, s64, u32, u64>(table, "bfind.shiftamt", [](auto a) {
        const u32 place = leading_bit(a);
        return place == ~0u ? place : bits_of<decltype(a)> - 1 - place;
    });
    unary<u32, u64>(table, "brev", [](auto a) { return reversed(a); }, "b");
    ternary<u32>(table, "fns", [](u32 mask, u32 base, s32 offset) { return nth_set(mask, base, offset); }, "b");
}

// ---- fields: a position and a length, of which the low byte counts ------------------------------

template <class T>
T ones(u32 count) {  // the lowest bits
    return count >= bits_of<T> ? static_cast<T>(~T(0)) : static_cast<T>((T(1) << count) - 1);
}

template <class T>
T extracted(T a, u32 from, u32 length) {
    from &= 0xff, length &= 0xff;
    if constexpr (std::is_unsigned_v<T>) return (from < bits_of<T> ? a >> from : 0) & ones<T>(length);
    if (length == 0) return 0;
    constexpr u32 top = bits_of<T> - 1;
    const T moved = a >> (from < top ? from : top);  // the sign fills the bits above
    if (from + length > top) return moved;
    const u32 up = bits_of<T> - length;
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(moved) << up) >> up;
}

template <class T>
T inserted(T a, T b, u32 from, u32 length) {
    from &= 0xff, length &= 0xff;
    if (from >= bits_of<T>) return b;
    const T field = static_cast<T>(ones<T>(length) << from);
    return (b & ~field) | (static_cast<T>(a << from) & field);
}

u32 field_mask(u32 a, u32 b, bool clamp) {
    const u32 from = a & 31, length = b & 31;
    const u32 low = clamp && a > 31 ? 0 : ~0u << from;
    const bool over = from + length > 31 || (clamp && (a > 31 || b > 31));
    return low & ~(over ? 0 : ~0u << (from + length));
}

template <class T>
T extended(T a, u32 length, bool clamp) {  // the low bits, with their sign
    if (clamp && length > 31) return a;
    length &= 31;
    if (length == 0) return 0;
    return static_cast<T>(static_cast<u32>(a) << (32 - length)) >> (32 - length);
}

void add_fields(Table& table) {
    const auto extract = [](auto a, u32 from, u32 length) { return extracted(a, from, length); };
    const auto insert = [](auto a, auto b, u32 from, u32 length) { return inserted(a, b, from, length); };
    table.add({"bfe.u32"}, Lanes<decltype(extract), u32, u32, u32, u32>::run);
    table.add({"bfe.s32"}, Lanes<decltype(extract), s32, s32, u32, u32>::run);
    table.add({"bfe.u64"}, Lanes<decltype(extract), u64, u64, u32, u32>::run);
    table.add({"bfe.s64"}, Lanes<decltype(extract), s64, s64, u32, u32>::run);
    table.add({"bfi.b32"}, Lanes<decltype(insert), u32, u32, u32, u32, u32>::run);
    table.add({"bfi.b64"}, Lanes<decltype(insert), u64, u64, u64, u32, u32>::run);
    binary<u32>(table, "bmsk.clamp", [](u32 a, u32 b) { return field_mask(a, b, true); }, "b");
    binary<u32>(table, "bmsk.wrap", [](u32 a, u32 b) { return field_mask(a, b, false); }, "b");
    binary<u32, s32>(table, "szext.clamp", [](auto a, u32 b) { return extended(a, b, true); });
    binary<u32, s32>(table, "szext.wrap", [](auto a, u32 b) { return extended(a, b, false); });
}

// ---- bytes --------------------------------------------------------------------------------------

// `which(i, c)` chooses which of the eight bytes of b:a becomes byte i; bit 3 repeats its sign.
template <class F>
void permute(Table& table, std::string_view name, F) {
    ternary<u32>(table, name, [](u32 a, u32 b, u32 c) {
        const u64 bytes = static_cast<u64>(b) << 32 | a;
        u32 result = 0;
        for (u32 i = 0; i < 4; ++i) {
            const u32 from = stateless<F>()(i, c);
            const u8 byte = static_cast<u8>(bytes >> (8 * (from & 7)));
            result |= static_cast<u32>(from & 8 ? static_cast<u8>(byte & 0x80 ? 0xff : 0) : byte) << (8 * i);
        }
        return result;
    }, "b");
}

void add_permutations(Table& table) {
    permute(table, "prmt", [](u32 i, u32 c) { return c >> (4 * i) & 15; });
    const auto mode = [&](const char* suffix, auto which) {
        Table one;
        permute(one, "prmt", which);
        table.add({"prmt.b32.", suffix}, one.view().begin->run);
    };
    mode("f4e", [](u32 i, u32 c) { return ((c & 3) + i) & 7; });
    mode("b4e", [](u32 i, u32 c) { return ((c & 3) - i) & 7; });
    mode("rc8", [](u32 i, u32 c) { return c & 3; });
    mode("ecl", [](u32 i, u32 c) { return (c & 3) > i ? c & 3 : i; });
    mode("ecr", [](u32 i, u32 c) { return (c & 3) < i ? c & 3 : i; });
    mode("rc16", [](u32 i, u32 c) { return (c & 1) * 2 + (i & 1); });
}

}  // namespace

void add_bits(Table& table) {
    add_logic(table);
    add_shifts(table);
    add_counts(table);
    add_fields(table);
    add_permutations(table);
}

}  // namespace emulator::ptx
