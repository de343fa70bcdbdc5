// Atomic operations: executed for one lane at a time, so that nothing comes between.
#include "access.h"

namespace emulator::ptx {
namespace {

float from_half(uint16_t bits) {
    _Float16 value;
    memcpy(&value, &bits, 2);
    return static_cast<float>(value);
}
uint16_t to_half(float value) {
    auto rounded = static_cast<_Float16>(value);
    uint16_t bits;
    memcpy(&bits, &rounded, 2);
    return bits;
}
float from_bfloat(uint16_t bits) {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
uint16_t to_bfloat(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
uint16_t add_half(uint16_t a, uint16_t b) { return to_half(from_half(a) + from_half(b)); }
uint16_t add_bfloat(uint16_t a, uint16_t b) { return to_bfloat(from_bfloat(a) + from_bfloat(b)); }
template <uint16_t (*ADD)(uint16_t, uint16_t)>
uint32_t add_both(uint32_t a, uint32_t b) {
    return ADD(static_cast<uint16_t>(a), static_cast<uint16_t>(b)) |
           uint32_t(ADD(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))) << 16;
}

template <class T> T sum(T a, T b, T) { return a + b; }
template <class T> T least(T a, T b, T) { return b < a ? b : a; }
template <class T> T most(T a, T b, T) { return a < b ? b : a; }
template <class T> T both(T a, T b, T) { return a & b; }
template <class T> T either(T a, T b, T) { return a | b; }
template <class T> T differ(T a, T b, T) { return a ^ b; }
template <class T> T given(T, T b, T) { return b; }
template <class T> T swapped(T a, T b, T c) { return a == b ? c : a; }
uint32_t up(uint32_t a, uint32_t b, uint32_t) { return a >= b ? 0 : a + 1; }
uint32_t down(uint32_t a, uint32_t b, uint32_t) { return a == 0 || a > b ? b : a - 1; }
template <uint16_t (*ADD)(uint16_t, uint16_t)> uint16_t sum16(uint16_t a, uint16_t b, uint16_t) { return ADD(a, b); }
template <uint16_t (*ADD)(uint16_t, uint16_t)> uint32_t sum16x2(uint32_t a, uint32_t b, uint32_t) { return add_both<ADD>(a, b); }

// [space, address, its bytes, offset, d or NONE, b, c or NONE]
template <class T, T (*OPERATION)(T, T, T)>
Flow atomic(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        uint64_t address = address_of(warp, o[1], o[2], o[3], lane);
        unsigned char* place = place_of(warp, at, lane, o[0], address, sizeof(T), ATOMIC);
        if (rest == mask) detect_spinning(warp, at, place);
        T was, b = warp.slot<T>(o[5])[lane], c = o[6] == NONE ? T{} : warp.slot<T>(o[6])[lane];
        memcpy(&was, place, sizeof was);
        T is = OPERATION(was, b, c);
        write(warp, place, &is, sizeof is);
        if (o[4] != NONE) warp.slot<T>(o[4])[lane] = was;
    }
    return Flow::next;
}

#define INTEGERS(NAME, OPERATION, SUFFIX32, SUFFIX64, T32, T64) \
    {"atom." NAME "." SUFFIX32, atomic<T32, OPERATION<T32>>}, {"atom." NAME "." SUFFIX64, atomic<T64, OPERATION<T64>>}

const NamedHandler TABLE[] = {
    INTEGERS("add", sum, "u32", "u64", uint32_t, uint64_t),
    INTEGERS("min", least, "u32", "u64", uint32_t, uint64_t),
    INTEGERS("min", least, "s32", "s64", int32_t, int64_t),
    INTEGERS("max", most, "u32", "u64", uint32_t, uint64_t),
    INTEGERS("max", most, "s32", "s64", int32_t, int64_t),
    INTEGERS("and", both, "b32", "b64", uint32_t, uint64_t),
    INTEGERS("or", either, "b32", "b64", uint32_t, uint64_t),
    INTEGERS("xor", differ, "b32", "b64", uint32_t, uint64_t),
    INTEGERS("exch", given, "b32", "b64", uint32_t, uint64_t),
    INTEGERS("cas", swapped, "b32", "b64", uint32_t, uint64_t),
    {"atom.cas.b16", atomic<uint16_t, swapped<uint16_t>>},
    {"atom.inc.u32", atomic<uint32_t, up>},
    {"atom.dec.u32", atomic<uint32_t, down>},
    {"atom.add.f32", atomic<float, sum<float>>},
    {"atom.add.f64", atomic<double, sum<double>>},
    {"atom.add.f16", atomic<uint16_t, sum16<add_half>>},
    {"atom.add.bf16", atomic<uint16_t, sum16<add_bfloat>>},
    {"atom.add.f16x2", atomic<uint32_t, sum16x2<add_half>>},
    {"atom.add.bf16x2", atomic<uint32_t, sum16x2<add_bfloat>>},
};

}  // namespace

Handlers atomic_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
