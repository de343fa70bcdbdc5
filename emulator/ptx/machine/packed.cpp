// Cvt to and from pairs in one register (f16x2, bf16x2, e4m3x2, e5m2x2), to tf32, and cvt.pack.
// Operands: d, a, b; the first source is the upper half.
#include "formats.h"

#include <limits>

namespace emulator::ptx {

namespace {

template <class T>
constexpr const Format& format_of = F16;
template <>
constexpr const Format& format_of<bf16> = BF16;

template <bool Relu>
float not_negative(float x) { return Relu && x < 0 ? 0 : x; }

template <class T, Rounding How, bool Relu, bool Finite>
struct Narrow {
    u16 operator()(float x) const {
        x = not_negative<Relu>(x);
        if constexpr (How == RN && !Finite) return narrow<T>(x).bits;
        return narrow<T>(static_cast<float>(to_format(x, format_of<T>, How, Finite))).bits;
    }
};

template <class T, Rounding How, bool Relu, bool Finite>
void pair_row(Table& table) {
    const auto both = [](float a, float b) {
        const Narrow<T, How, Relu, Finite> narrowed;
        return static_cast<u32>(narrowed(a)) << 16 | narrowed(b);
    };
    const char *relu = Relu ? ".relu" : "", *finite = Finite ? ".satfinite." : ".";
    table.add({"cvt", rounding_name[How], relu, finite, type_name<T>, "x2.f32"}, Lanes<decltype(both), u32, float, float>::run);
}

template <class T>
void pair_rows(Table& table) {
    pair_row<T, RN, false, false>(table), pair_row<T, RZ, false, false>(table);
    pair_row<T, RN, true, false>(table), pair_row<T, RZ, true, false>(table);
    pair_row<T, RN, false, true>(table), pair_row<T, RZ, false, true>(table);
    pair_row<T, RN, true, true>(table), pair_row<T, RZ, true, true>(table);
}

// ---- tf32: a float32 with 10 significant bits of fraction; the others are zero ------------------

template <Rounding How, bool Relu, bool Finite>
void tf32_row(Table& table) {
    const auto value = [](float x) {
        x = not_negative<Relu>(x);
        constexpr Format format = {11, -136, 0x1.ffcp127, true};
        return canonical(static_cast<float>(to_format(x, format, How, Finite)));
    };
    const char *relu = Relu ? ".relu" : "", *finite = Finite ? ".satfinite" : "";
    table.add({"cvt", rounding_name[How], finite, relu, ".tf32.f32"}, Lanes<decltype(value), float, float>::run);
}

void add_tf32(Table& table) {
    tf32_row<RNA, false, false>(table), tf32_row<RNA, false, true>(table);
    tf32_row<RN, false, false>(table), tf32_row<RN, false, true>(table);
    tf32_row<RN, true, false>(table), tf32_row<RN, true, true>(table);
    tf32_row<RZ, false, false>(table), tf32_row<RZ, false, true>(table);
    tf32_row<RZ, true, false>(table), tf32_row<RZ, true, true>(table);
}

// ---- eight bits ---------------------------------------------------------------------------------

struct E4m3 { static constexpr const Format& format = E4M3; static constexpr const char* name = "e4m3x2"; };
struct E5m2 { static constexpr const Format& format = E5M2; static constexpr const char* name = "e5m2x2"; };

template <class E, bool Relu>
u8 narrowed(float x) {
    return to_byte(to_format(not_negative<Relu>(x), E::format, RN, true), E::format);
}

template <class E, bool Relu>
void byte_rows(Table& table) {
    const auto from_floats = [](float a, float b) -> u16 { return narrowed<E, Relu>(a) << 8 | narrowed<E, Relu>(b); };
    const auto from_pair = [](Pair<f16> x) -> u16 {
        return narrowed<E, Relu>(widen(x.high)) << 8 | narrowed<E, Relu>(widen(x.low));
    };
    const auto to_pair = [](u16 x) {
        const float low = from_byte(static_cast<u8>(x), E::format), high = from_byte(static_cast<u8>(x >> 8), E::format);
        return Pair<f16>{narrow<f16>(not_negative<Relu>(low)), narrow<f16>(not_negative<Relu>(high))};
    };
    const char* relu = Relu ? ".relu." : ".";
    table.add({"cvt.rn.satfinite", relu, E::name, ".f32"}, Lanes<decltype(from_floats), u16, float, float>::run);
    table.add({"cvt.rn.satfinite", relu, E::name, ".f16x2"}, Lanes<decltype(from_pair), u16, Pair<f16>>::run);
    table.add({"cvt.rn", relu, "f16x2.", E::name}, Lanes<decltype(to_pair), Pair<f16>, u16>::run);
}

// ---- cvt.pack: two integers, clamped, below the lower half of a third ---------------------------

template <class D>
void pack_row(Table& table) {
    const auto clamped = [](s32 x) {
        constexpr s32 high = std::numeric_limits<D>::max(), low = std::numeric_limits<D>::min();
        return static_cast<std::make_unsigned_t<D>>(x > high ? high : x < low ? low : x);
    };
    using C = decltype(clamped);
    constexpr int bits = 8 * sizeof(D);
    if constexpr (bits == 16) {
        const auto two = [](s32 a, s32 b) { return static_cast<u32>(stateless<C>()(a)) << bits | stateless<C>()(b); };
        table.add({"cvt.pack.sat.", type_name<D>, ".s32"}, Lanes<decltype(two), u32, s32, s32>::run);
    } else {
        const auto three = [](s32 a, s32 b, u32 c) {
            return c << 2 * bits | static_cast<u32>(stateless<C>()(a)) << bits | stateless<C>()(b);
        };
        table.add({"cvt.pack.sat.", type_name<D>, ".s32.b32"}, Lanes<decltype(three), u32, s32, s32, u32>::run);
    }
}

}  // namespace

void add_packed_conversions(Table& table) {
    pair_rows<f16>(table), pair_rows<bf16>(table);
    add_tf32(table);
    byte_rows<E4m3, false>(table), byte_rows<E4m3, true>(table), byte_rows<E5m2, false>(table), byte_rows<E5m2, true>(table);
    pack_row<int8_t>(table), pack_row<uint8_t>(table), pack_row<int16_t>(table), pack_row<uint16_t>(table);
}

}  // namespace emulator::ptx
