// mma.sync, ldmatrix and stmatrix. A warp holds a matrix in fragments: lane l has elements of row l / 4, and
// of the columns that follow from l % 4. So a register of all lanes is a block of 8 rows, row by
// row, 4 * (elements in a register) columns wide; B is transposed. The exception is C and D of 32
// and 64 bits: registers 2i and 2i + 1 have the even and the odd columns of a block.
#include "access.h"
#include "formats.h"

#include <algorithm>

namespace emulator::ptx {
namespace {

struct tf32 { u32 bits; };
struct e4m3 { u8 bits; };
struct e5m2 { u8 bits; };

float value(f16 x) { return widen(x); }
float value(bf16 x) { return widen(x); }
float value(tf32 x) { return as<float>(x.bits & 0xffffe000); }  // the lowest 13 bits do not count
struct Bytes {  // values of all bytes
    float of[256];
    explicit Bytes(const Format& format) {
        for (int i = 0; i < 256; ++i) of[i] = from_byte(static_cast<u8>(i), format);
    }
};
const Bytes of_e4m3(E4M3), of_e5m2(E5M2);
float value(e4m3 x) { return of_e4m3.of[x.bits]; }
float value(e5m2 x) { return of_e5m2.of[x.bits]; }
double value(double x) { return x; }
s32 value(s8 x) { return x; }
s32 value(u8 x) { return x; }

template <class Element>
constexpr int PER_REGISTER = sizeof(Element) == 8 ? 1 : 4 / sizeof(Element);
template <class Element>
constexpr int WIDTH = 4 * PER_REGISTER<Element>;  // columns of a block

// Values of a register; absent lanes count as zeros.
template <class Element, class Value>
FLATTEN void read_block(const Warp& warp, int32_t operand, uint32_t mask, Value (*rows)[WIDTH<Element>]) {
    const Element* from = warp.slot<Element>(operand);
    for (int i = 0; i < 8 * WIDTH<Element>; ++i) rows[0][i] = value(from[i]);
    for (uint32_t absent = ~mask; absent; absent &= absent - 1)
        for (int i = 0; i < PER_REGISTER<Element>; ++i) rows[0][__builtin_ctz(absent) * PER_REGISTER<Element> + i] = 0;
}

// Each product and its sum are rounded once; integers wrap.
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
inline u32 fused(s32 a, s32 b, u32 c) { return c + static_cast<u32>(a * b); }
inline int64_t fused(s32 a, s32 b, int64_t c) { return c + a * b; }

// The parts are separate functions, which products share, because g++ takes long to compile them.
#define SHARED FLATTEN __attribute__((noinline))

// A, M x K: its registers go down the rows first.
template <class A, int M, int K, class Value>
SHARED void read_a(const Warp& warp, const int32_t* operand, uint32_t mask, Value (&to)[M][K]) {
    for (int i = 0; i < M / 8 * (K / WIDTH<A>); ++i) {
        Value rows[8][WIDTH<A>];
        read_block<A>(warp, operand[i], mask, rows);
        for (int row = 0; row < 8; ++row)
            for (int k = 0; k < WIDTH<A>; ++k) to[i % (M / 8) * 8 + row][i / (M / 8) * WIDTH<A> + k] = rows[row][k];
    }
}

// B, K x 8.
template <class B, int K, class Value>
SHARED void read_b(const Warp& warp, const int32_t* operand, uint32_t mask, Value (&to)[K][8]) {
    for (int i = 0; i < K / WIDTH<B>; ++i) {
        Value columns[8][WIDTH<B>];
        read_block<B>(warp, operand[i], mask, columns);
        for (int k = 0; k < WIDTH<B>; ++k)
            for (int column = 0; column < 8; ++column) to[i * WIDTH<B> + k][column] = columns[column][k];
    }
}

// C and D, M x 8: with 16 bits a block is one register, else two.
template <class Sum, int M, class Total>
SHARED void read_c(const Warp& warp, const int32_t* operand, uint32_t mask, Total (&to)[M][8]) {
    Total* flat = to[0];
    for (int i = 0; i < M / 8; ++i, flat += 64) {
        if constexpr (sizeof(Sum) == 2) {
            const Sum* from = warp.slot<Sum>(operand[i]);
            for (int j = 0; j < 64; ++j) flat[j] = widen(from[j]);
        } else {
            const Sum *even = warp.slot<Sum>(operand[2 * i]), *odd = warp.slot<Sum>(operand[2 * i + 1]);
            for (int lane = 0; lane < 32; ++lane) {
                flat[2 * lane] = static_cast<Total>(even[lane]);
                flat[2 * lane + 1] = static_cast<Total>(odd[lane]);
            }
        }
        for (uint32_t absent = ~mask; absent; absent &= absent - 1) {
            const int lane = __builtin_ctz(absent);
            flat[2 * lane] = flat[2 * lane + 1] = 0;
        }
    }
}

template <class Sum, class Total>
Sum rounded(Total total) {
    if constexpr (std::is_same_v<Sum, float>) return canonical(total);
    else if constexpr (std::is_same_v<Total, int64_t>) return std::clamp<int64_t>(total, INT32_MIN, INT32_MAX);
    else if constexpr (sizeof(Sum) == 2) return narrow<Sum>(total);
    else return static_cast<Sum>(total);
}

template <class Sum, int M, class Total>
SHARED void write_d(const Warp& warp, const int32_t* operand, uint32_t mask, const Total (&from)[M][8]) {
    const Total* flat = from[0];
    for (int i = 0; i < M / 8; ++i, flat += 64) {
        if constexpr (sizeof(Sum) == 2) {
            auto* to = warp.slot<Pair<Sum>>(operand[i]);
            each_lane(mask, [=](unsigned lane) {
                to[lane] = {rounded<Sum>(flat[2 * lane]), rounded<Sum>(flat[2 * lane + 1])};
            });
        } else {
            Sum *even = warp.slot<Sum>(operand[2 * i]), *odd = warp.slot<Sum>(operand[2 * i + 1]);
            each_lane(mask, [=](unsigned lane) {
                even[lane] = rounded<Sum>(flat[2 * lane]);
                odd[lane] = rounded<Sum>(flat[2 * lane + 1]);
            });
        }
    }
}

template <int M, int K, class Value, class Total>
SHARED void multiply(const Value (&__restrict a)[M][K], const Value (&__restrict b)[K][8], Total (&__restrict sum)[M][8]) {
    // In the outer loop, so that the next sum need not wait for this one.
    for (int k = 0; k < K; ++k)
        for (int row = 0; row < M; ++row)
#pragma GCC unroll 1  // g++ would unroll it before it can vectorise it
            for (int column = 0; column < 8; ++column) sum[row][column] = fused(a[row][k], b[k][column], sum[row][column]);
}

// D = A B + C for M x 8 x K. `Sum` is the type of C and D in registers, Finite clamps integers
// instead of wrapping them.
template <int M, int K, class Sum, class A, class B, bool Finite>
Flow run(Warp& warp, const Instruction& at, uint32_t mask) {
    using Value = decltype(value(A()));
    using Total = std::conditional_t<std::is_same_v<Value, s32>, std::conditional_t<Finite, int64_t, u32>, Value>;
    const int32_t *d = at.operand, *a = d + M / 8 * (sizeof(Sum) == 2 ? 1 : 2);
    const int32_t *b = a + M / 8 * (K / WIDTH<A>), *c = b + K / WIDTH<B>;
    Value left[M][K], right[K][8];
    Total sum[M][8];
    read_a<A>(warp, a, mask, left);
    read_b<B>(warp, b, mask, right);
    read_c<Sum>(warp, c, mask, sum);
    multiply(left, right, sum);
    write_d<Sum>(warp, d, mask, sum);
    return Flow::next;
}

template <class T> constexpr const char* element = nullptr;
template <> constexpr const char* element<f16> = "f16";
template <> constexpr const char* element<bf16> = "bf16";
template <> constexpr const char* element<tf32> = "tf32";
template <> constexpr const char* element<e4m3> = "e4m3";
template <> constexpr const char* element<e5m2> = "e5m2";
template <> constexpr const char* element<float> = "f32";
template <> constexpr const char* element<double> = "f64";
template <> constexpr const char* element<s8> = "s8";
template <> constexpr const char* element<u8> = "u8";
template <> constexpr const char* element<s32> = "s32";

template <int M, int K, class D, class A, class B, bool Finite = false>
void product(Table& table) {
    const std::string shape = joined({"mma.m", std::to_string(M), "n8k", std::to_string(K), Finite ? ".satfinite." : "."});
    table.add({shape, element<D>, ".", element<A>, ".", element<B>, ".", element<D>}, run<M, K, D, A, B, Finite>);
}

template <int M, int K, class A, class B>
void integer_product(Table& table) {
    product<M, K, s32, A, B>(table), product<M, K, s32, A, B, true>(table);
}
template <int M, int K>
void integer_products(Table& table) {
    integer_product<M, K, s8, s8>(table), integer_product<M, K, s8, u8>(table);
    integer_product<M, K, u8, s8>(table), integer_product<M, K, u8, u8>(table);
}
template <int K, class D>
void byte_products(Table& table) {
    product<16, K, D, e4m3, e4m3>(table), product<16, K, D, e4m3, e5m2>(table);
    product<16, K, D, e5m2, e4m3>(table), product<16, K, D, e5m2, e5m2>(table);
}

void add_products(Table& table) {
    product<16, 16, float, f16, f16>(table), product<16, 8, float, f16, f16>(table);
    product<16, 16, f16, f16, f16>(table), product<16, 8, f16, f16, f16>(table);
    product<16, 16, float, bf16, bf16>(table), product<16, 8, float, bf16, bf16>(table);
    product<16, 8, float, tf32, tf32>(table), product<16, 4, float, tf32, tf32>(table);
    integer_products<16, 32>(table), integer_products<16, 16>(table), integer_products<8, 16>(table);
    byte_products<32, float>(table), byte_products<32, f16>(table);
    byte_products<16, float>(table), byte_products<16, f16>(table);
    product<8, 4, double, double, double>(table), product<16, 4, double, double, double>(table);
    product<16, 8, double, double, double>(table), product<16, 16, double, double, double>(table);
}

// ---- ldmatrix: matrices of 8 rows of 16 bytes ---------------------------------------------------

// Lanes 0-7 give the rows of the first matrix, 8-15 of the second, and so on.
template <int Count, bool Transposed>
Flow load(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t slot = at.operand[0], bytes = at.operand[1], offset = at.operand[2];
    uint16_t matrix[Count][8][8] = {};
    for (uint32_t rest = mask & static_cast<uint32_t>((uint64_t(1) << 8 * Count) - 1); rest; rest &= rest - 1) {
        const unsigned lane = __builtin_ctz(rest);
        load_lane(warp, at, lane, SHARED_SPACE, address_of(warp, slot, bytes, offset, lane), 16, matrix[lane / 8][lane % 8]);
    }
    // After all addresses have been read, as a result may be in their register.
    for (int i = 0; i < Count; ++i) {
        uint16_t* to = warp.slot<uint16_t>(at.operand[3 + i]);
        for (int row = 0; row < 8; ++row)
            for (int column = 0; column < 8; ++column)
                if (mask >> (row * 4 + column / 2) & 1)
                    to[row * 8 + column] = Transposed ? matrix[i][column][row] : matrix[i][row][column];
    }
    return Flow::next;
}

// The inverse. A lane's address is checked as its own access, though the values come from all.
template <int Count, bool Transposed>
Flow store(Warp& warp, const Instruction& at, uint32_t mask) {
    for (uint32_t rest = mask & static_cast<uint32_t>((uint64_t(1) << 8 * Count) - 1); rest; rest &= rest - 1) {
        const unsigned lane = __builtin_ctz(rest), row = lane % 8;
        const uint16_t* from = warp.slot<uint16_t>(at.operand[3 + lane / 8]);
        uint16_t line[8];
        for (int column = 0; column < 8; ++column) line[column] = Transposed ? from[column * 8 + row] : from[row * 8 + column];
        const uint64_t address = address_of(warp, at.operand[0], at.operand[1], at.operand[2], lane);
        write(warp, place_of(warp, at, lane, SHARED_SPACE, address, 16, WRITE), line, 16);
    }
    return Flow::next;
}

}  // namespace

Handlers matrix_handlers() {
    static const Table table = [] {
        Table table;
        add_products(table);
        table.add({"ldmatrix.x1"}, load<1, false>), table.add({"ldmatrix.x1.trans"}, load<1, true>);
        table.add({"ldmatrix.x2"}, load<2, false>), table.add({"ldmatrix.x2.trans"}, load<2, true>);
        table.add({"ldmatrix.x4"}, load<4, false>), table.add({"ldmatrix.x4.trans"}, load<4, true>);
        table.add({"stmatrix.x1"}, store<1, false>), table.add({"stmatrix.x1.trans"}, store<1, true>);
        table.add({"stmatrix.x2"}, store<2, false>), table.add({"stmatrix.x2.trans"}, store<2, true>);
        table.add({"stmatrix.x4"}, store<4, false>), table.add({"stmatrix.x4.trans"}, store<4, true>);
        return table;
    }();
    return table.view();
}

}  // namespace emulator::ptx
