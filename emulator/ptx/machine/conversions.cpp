// Cvt between numbers. Frequent conversions are loops that g++ vectorises; all others go through
// float64, lane by lane.
#include "formats.h"

#include <limits>

namespace emulator::ptx {

void add_packed_conversions(Table&);  // packed.cpp

namespace {

// ---- registers: cvt's may be wider than its types. Operands: d, bytes of d, a, bytes of a -------

template <class S, class Register>
void read_from(const Register* from, S* to) {
    using B = std::conditional_t<sizeof(S) == 1, u8, bits_type<S>>;
    for (unsigned lane = 0; lane < WARP; ++lane) to[lane] = as<S>(static_cast<B>(from[lane]));
}

template <class S>
__attribute__((noinline)) void read(Warp& warp, const Instruction& at, S* to) {
    const int32_t operand = at.operand[2];
    switch (at.operand[3]) {
        case 8: return read_from(warp.slot<u64>(operand), to);
        case 4: return read_from(warp.slot<u32>(operand), to);
        default: return read_from(warp.slot<u16>(operand), to);
    }
}

// A signed integer is sign-extended, everything else is extended with zeros.
template <class D>
__attribute__((noinline)) void write(Warp& warp, const Instruction& at, uint32_t mask, const D* from) {
    using B = std::conditional_t<std::is_integral_v<D>, D, std::conditional_t<sizeof(D) == 1, u8, bits_type<D>>>;
    const auto put = [=](auto* to) {
        each_lane(mask, [=](unsigned lane) { to[lane] = static_cast<std::remove_pointer_t<decltype(to)>>(as<B>(from[lane])); });
    };
    switch (at.operand[1]) {
        case 8: return put(warp.slot<u64>(at.operand[0]));
        case 4: return put(warp.slot<u32>(at.operand[0]));
        default: return put(warp.slot<u16>(at.operand[0]));
    }
}

// ---- frequent -----------------------------------------------------------------------------------

template <class F, class D, class S>
Flow direct(Warp& warp, const Instruction& at, uint32_t mask) {
    S from[WARP];
    D to[WARP];
    read(warp, at, from);
    for (unsigned lane = 0; lane < WARP; ++lane) to[lane] = stateless<F>()(from[lane]);
    write(warp, at, mask, to);
    return Flow::next;
}

template <class D, class S, class F>
void row(Table& table, std::string_view flags, F) {
    table.add({"cvt", flags, ".", type_name<D>, ".", type_name<S>}, direct<F, D, S>);
}

// Converts a whole number to an integer. Out of range becomes the nearest; NaN becomes zero, or
// only the top bit if either side has 64 bits.
template <class I>
I to_integer(double x, bool wide) {
    constexpr I nan = static_cast<I>(std::make_unsigned_t<I>(1) << (8 * sizeof(I) - 1));
    constexpr I high = std::numeric_limits<I>::max(), low = std::numeric_limits<I>::min();
    constexpr double bound = static_cast<double>(high / 2 + 1) * 2;  // one above `high`
    const I number = x >= bound ? high : x <= low ? low : static_cast<I>(x);
    return x == x ? number : wide || sizeof(I) == 8 ? nan : 0;
}

template <class D, class... S>
void integer_rows(Table& table) {
    (row<D, S>(table, "", [](S x) { return static_cast<D>(x); }), ...);
}

template <class I>
void frequent_rows(Table& table) {
    row<float, I>(table, ".rn", [](I x) { return static_cast<float>(x); });
    row<double, I>(table, ".rn", [](I x) { return static_cast<double>(x); });
    row<I, float>(table, ".rzi", [](float x) { return to_integer<I>(x, false); });
    row<I, double>(table, ".rzi", [](double x) { return to_integer<I>(x, true); });
}

void add_frequent(Table& table) {
    integer_rows<s64, s32, u32>(table), integer_rows<u64, s32, u32>(table);
    integer_rows<s32, s8, s16, u16, s64>(table), integer_rows<u32, u8, u16, s64, u64>(table);
    frequent_rows<s32>(table), frequent_rows<u32>(table), frequent_rows<s64>(table), frequent_rows<u64>(table);
    row<float, f16>(table, "", [](f16 x) { return canonical(widen(x)); });
    row<float, bf16>(table, "", [](bf16 x) { return canonical(widen(x)); });
    row<f16, float>(table, ".rn", [](float x) { return narrow<f16>(x); });
    row<bf16, float>(table, ".rn", [](float x) { return narrow<bf16>(x); });
    row<double, float>(table, "", [](float x) { return static_cast<double>(x); });
    row<float, double>(table, ".rn", [](double x) { return canonical(static_cast<float>(x)); });
}

// ---- all others ---------------------------------------------------------------------------------

enum Type { S8, U8, S16, U16, S32, U32, S64, U64, HALF, BRAIN, SINGLE, DOUBLE, TYPES };
constexpr const char* name_of[] = {"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64"};
constexpr bool is_integer(int type) { return type <= U64; }

struct How {
    int to, from;
    Rounding rounding;
    bool ftz, sat, relu;
};

template <class F>
void with_type(int type, F f) {  // calls f with a value of the type
    switch (type) {
        case S8: return f(s8());
        case U8: return f(u8());
        case S16: return f(s16());
        case U16: return f(u16());
        case S32: return f(s32());
        case U32: return f(u32());
        case S64: return f(s64());
        case U64: return f(u64());
        case HALF: return f(f16());
        case BRAIN: return f(bf16());
        case SINGLE: return f(float());
        default: return f(double());
    }
}

// Converts an integer of 64 bits to float64. Bits that do not fit leave the last bit odd, so that a
// later rounding sees them.
double with_sticky(u64 magnitude) {
    if (magnitude >> 53 == 0) return static_cast<double>(magnitude);
    return static_cast<double>((magnitude >> 11 | ((magnitude & 0x7ff) != 0)) << 11);
}
template <class S>
double exact(S x, const How& how) {
    if constexpr (!std::is_integral_v<S>) return widen(how.ftz && std::is_same_v<S, float> ? flush(x) : x);
    // The processor converts, in the current mode.
    else if (how.to == DOUBLE) return static_cast<double>(x);
    else return x < 0 ? -with_sticky(0 - static_cast<u64>(x)) : with_sticky(static_cast<u64>(x));
}

template <class D>
D final(double x, const How& how) {
    if constexpr (std::is_integral_v<D>) {
        return to_integer<D>(x, how.from == DOUBLE);
    } else {
        if (how.sat) x = saturated(x);
        if (how.relu && x < 0) x = 0;
        if constexpr (std::is_same_v<D, double>) {
            return x;
        } else {
            const Format& format = std::is_same_v<D, f16> ? F16 : std::is_same_v<D, bf16> ? BF16 : F32;
            const Rounding rounding = how.rounding == NOT_ROUNDED ? RN : how.rounding;
            const D result = narrow<D>(static_cast<float>(to_format(x, format, rounding)));
            if constexpr (std::is_same_v<D, float>) return how.ftz ? flush(result) : result;
            return result;
        }
    }
}

// Between integers: keeps the low bits, or clamps to the range of the result.
void convert_integers(Warp& warp, const Instruction& at, uint32_t mask, const How& how) {
    u64 value[WARP];  // with the sign of the source
    with_type(how.from, [&](auto source) {
        using S = decltype(source);
        S from[WARP];
        read(warp, at, from);
        if constexpr (std::is_integral_v<S>)
            for (unsigned lane = 0; lane < WARP; ++lane) value[lane] = static_cast<u64>(from[lane]);
    });
    const bool with_sign = how.from % 2 == 0;
    with_type(how.to, [&](auto result) {
        using D = decltype(result);
        D to[WARP];
        if constexpr (std::is_integral_v<D>) {
            constexpr D low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
            for (unsigned lane = 0; lane < WARP; ++lane) {
                const bool negative = with_sign && static_cast<s64>(value[lane]) < 0;
                const bool below = negative && static_cast<s64>(value[lane]) < static_cast<s64>(low);
                const bool above = !negative && value[lane] > static_cast<u64>(high);
                to[lane] = static_cast<D>(value[lane]);
                if (how.sat && (below || (negative && !std::is_signed_v<D>))) to[lane] = low;
                if (how.sat && above) to[lane] = high;
            }
        }
        write(warp, at, mask, to);
    });
}

void convert(Warp& warp, const Instruction& at, uint32_t mask, const How& how) {
    if (is_integer(how.to) && is_integer(how.from)) return convert_integers(warp, at, mask, how);
    double value[WARP];
    constexpr int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    const bool directed = how.to == DOUBLE && is_integer(how.from);
    with_type(how.from, [&](auto source) {
        using S = decltype(source);
        S from[WARP];
        read(warp, at, from);
        if (directed) std::fesetround(modes[how.rounding]);
        for (unsigned lane = 0; lane < WARP; ++lane) value[lane] = exact(from[lane], how);
        if (directed) std::fesetround(FE_TONEAREST);
    });
    if (how.rounding >= RNI)
        for (double& x : value) x = to_whole(x, how.rounding);
    with_type(how.to, [&](auto result) {
        using D = decltype(result);
        D to[WARP];
        for (unsigned lane = 0; lane < WARP; ++lane) to[lane] = final<D>(value[lane], how);
        write(warp, at, mask, to);
    });
}

// Not a template: g++ would compile its names a thousand times.
__attribute__((noinline, cold)) void add_row(Table& table, const How& how, Handler run) {
    const char *ftz = how.ftz ? ".ftz" : "", *sat = how.sat ? ".sat." : ".", *relu = how.relu ? ".relu" : "";
    table.add({"cvt", rounding_name[how.rounding], relu, ftz, sat, name_of[how.to], ".", name_of[how.from]}, run);
}

template <int To, int From, int R, bool Ftz, bool Sat, bool Relu>
struct General {
    static constexpr How how = {To, From, static_cast<Rounding>(R), Ftz, Sat, Relu};
    static Flow run(Warp& warp, const Instruction& at, uint32_t mask) {
        convert(warp, at, mask, how);
        return Flow::next;
    }
};

template <int To, int From, int R, bool Ftz, bool Sat, bool Relu>
void general_row(Table& table) {
    using Row = General<To, From, R, Ftz, Sat, Relu>;
    add_row(table, Row::how, Row::run);
}

constexpr int digits(int type) { return type == HALF ? 11 : type == BRAIN ? 8 : type == SINGLE ? 24 : 53; }
constexpr int range(int type) { return type == HALF ? 5 : type == DOUBLE ? 11 : 8; }  // bits of the exponent

// Whether the rounding is one that the manual requires.
constexpr bool is_valid(int to, int from, int rounding) {
    const bool whole = rounding >= RNI && rounding <= RPI, directed = rounding >= RN && rounding <= RP;
    if (is_integer(to)) return is_integer(from) ? rounding == NOT_ROUNDED : whole;
    if (is_integer(from)) return directed;
    if (to == from) return rounding == NOT_ROUNDED || whole;
    const bool exact = digits(to) >= digits(from) && range(to) >= range(from);
    return exact ? rounding == NOT_ROUNDED || rounding == RN : directed;
}

template <int To, int From, int R>
void flag_rows(Table& table) {
    if constexpr (is_valid(To, From, R)) {
        constexpr bool ftz = To == SINGLE || From == SINGLE;
        constexpr bool relu = From == SINGLE && (To == HALF || To == BRAIN) && (R == RN || R == RZ);
        general_row<To, From, R, false, false, false>(table);
        general_row<To, From, R, false, true, false>(table);
        if constexpr (ftz) general_row<To, From, R, true, false, false>(table);
        if constexpr (ftz) general_row<To, From, R, true, true, false>(table);
        if constexpr (relu) general_row<To, From, R, false, false, true>(table);
    }
}

template <int To, int From, int... R>
void rounding_rows(Table& table, std::integer_sequence<int, R...>) {
    (flag_rows<To, From, R>(table), ...);
}
template <int To, int... From>
void source_rows(Table& table, std::integer_sequence<int, From...>) {
    (rounding_rows<To, From>(table, std::make_integer_sequence<int, RNA>()), ...);
}
template <int... To>
void add_general(Table& table, std::integer_sequence<int, To...> types) {
    (source_rows<To>(table, types), ...);
}

}  // namespace

Handlers conversion_handlers() {
    static const Table table = [] {
        Table table;
        add_frequent(table);
        add_general(table, std::make_integer_sequence<int, TYPES>());
        add_packed_conversions(table);
        return table;
    }();
    return table.view();
}

}  // namespace emulator::ptx
