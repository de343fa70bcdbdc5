// mma.sync and ldmatrix. A warp holds a matrix in fragments: lane l has elements of row l / 4, and of the columns that follow from
// l % 4. So a register of all lanes is a block of 8 rows, row by row, 4 * (elements in a register) columns wide; B lies transposed.
// Only C and D of 32 and 64 bits are otherwise: registers 2i and 2i + 1 have the even and the odd columns of a block of 8 columns.
#include "access.h"
#include "formats.h"

namespace emulator::ptx {
namespace {

using s8 = int8_t;
using u8 = uint8_t;
using s32 = int32_t;
using u32 = uint32_t;

struct tf32 { u32 bits; };
struct e4m3 { u8 bits; };
struct e5m2 { u8 bits; };

float value(f16 x) { return widen(x); }
float value(bf16 x) { return widen(x); }
float value(tf32 x) { return as<float>(x.bits & 0xffffe000); }  // the lowest 13 bits do not count
struct Bytes {  // the values of all bytes
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

// Values of a register: lanes that are absent count as zeros.
template <class Element, class Value>
FLATTEN void read_block(const Warp& warp, int32_t operand, uint32_t mask, Value (*rows)[WIDTH<Element>]) {
    const Element* from = warp.slot<Element>(operand);
    for (int i = 0; i < 8 * WIDTH<Element>; ++i) rows[0][i] = value(from[i]);
    for (uint32_t absent = ~mask; absent; absent &= absent - 1)
        for (int i = 0; i < PER_REGISTER<Element>; ++i) rows[0][__builtin_ctz(absent) * PER_REGISTER<Element> + i] = 0;
}

// One rounding for each product with its sum; integers wrap.
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
inline u32 fused(s32 a, s32 b, u32 c) { return c + static_cast<u32>(a * b); }
inline int64_t fused(s32 a, s32 b, int64_t c) { return c + a * b; }

// D = A B + C for M x N x K. `Sum` is the type of C and D in registers, Finite clamps integers instead of wrapping them.
template <int M, int N, int K, class Sum, class A, class B, bool Finite>
struct Product {
    using Value = decltype(value(A()));
    using Total = std::conditional_t<std::is_same_v<Value, s32>, std::conditional_t<Finite, int64_t, u32>, Value>;
    static constexpr int BLOCKS = M / 8, DEPTHS = K / WIDTH<A>;
    static constexpr int A_COUNT = BLOCKS * DEPTHS, B_COUNT = DEPTHS, C_COUNT = BLOCKS * (sizeof(Sum) == 2 ? 1 : 2);

    FLATTEN static Flow run(Warp& warp, const Instruction& at, uint32_t mask) {
        const int32_t *d = at.operand, *a = d + C_COUNT, *b = a + A_COUNT, *c = b + B_COUNT;
        Value left[M][K], right[K][N];
        Total sum[M][N];
        read_a(warp, a, mask, left);
        read_b(warp, b, mask, right);
        read_c(warp, c, mask, sum);
        for (int k = 0; k < K; ++k)  // in the outer loop: the next sum need not wait for this one
            for (int row = 0; row < M; ++row)
#pragma GCC unroll 1
                for (int column = 0; column < N; ++column) sum[row][column] = fused(left[row][k], right[k][column], sum[row][column]);
        write(warp, d, mask, sum);
        return Flow::next;
    }

    // The registers of A go down the rows first.
    static void read_a(const Warp& warp, const int32_t* operand, uint32_t mask, Value (&to)[M][K]) {
        for (int i = 0; i < A_COUNT; ++i) {
            Value rows[8][WIDTH<A>];
            read_block<A>(warp, operand[i], mask, rows);
            for (int row = 0; row < 8; ++row)
                for (int k = 0; k < WIDTH<A>; ++k) to[i % BLOCKS * 8 + row][i / BLOCKS * WIDTH<A> + k] = rows[row][k];
        }
    }
    static void read_b(const Warp& warp, const int32_t* operand, uint32_t mask, Value (&to)[K][N]) {
        for (int i = 0; i < B_COUNT; ++i) {
            Value columns[8][WIDTH<B>];
            read_block<B>(warp, operand[i], mask, columns);
            for (int k = 0; k < WIDTH<B>; ++k)
                for (int column = 0; column < 8; ++column) to[i * WIDTH<B> + k][column] = columns[column][k];
        }
    }
    static void read_c(const Warp& warp, const int32_t* operand, uint32_t mask, Total (&to)[M][N]) {
        Total* flat = to[0];
        for (int i = 0; i < BLOCKS; ++i, flat += 64) {
            if constexpr (sizeof(Sum) == 2) {
                const Sum* from = warp.slot<Sum>(operand[i]);
                for (int j = 0; j < 64; ++j) flat[j] = widen(from[j]);
            } else {
                const Sum *even = warp.slot<Sum>(operand[2 * i]), *odd = warp.slot<Sum>(operand[2 * i + 1]);
                for (int lane = 0; lane < 32; ++lane) flat[2 * lane] = as_total(even[lane]), flat[2 * lane + 1] = as_total(odd[lane]);
            }
            for (uint32_t absent = ~mask; absent; absent &= absent - 1) flat[2 * __builtin_ctz(absent)] = flat[2 * __builtin_ctz(absent) + 1] = 0;
        }
    }
    static void write(const Warp& warp, const int32_t* operand, uint32_t mask, const Total (&from)[M][N]) {
        const Total* flat = from[0];
        for (int i = 0; i < BLOCKS; ++i, flat += 64) {
            if constexpr (sizeof(Sum) == 2) {
                auto* to = warp.slot<Pair<Sum>>(operand[i]);
                each_lane(mask, [=](unsigned lane) { to[lane] = {narrow<Sum>(flat[2 * lane]), narrow<Sum>(flat[2 * lane + 1])}; });
            } else {
                Sum *even = warp.slot<Sum>(operand[2 * i]), *odd = warp.slot<Sum>(operand[2 * i + 1]);
                each_lane(mask, [=](unsigned lane) { even[lane] = result(flat[2 * lane]), odd[lane] = result(flat[2 * lane + 1]); });
            }
        }
    }
    static Total as_total(Sum x) { return static_cast<Total>(x); }
    static Sum result(Total total) {
        if constexpr (std::is_same_v<Sum, float>) return canonical(total);
        if constexpr (Finite) return total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
        return static_cast<Sum>(total);
    }
};

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

template <int M, int N, int K, class D, class A, class B, bool Finite = false>
void product(Table& table) {
    const std::string shape = joined({"mma.m", std::to_string(M), "n", std::to_string(N), "k", std::to_string(K), Finite ? ".satfinite." : "."});
    table.add({shape, element<D>, ".", element<A>, ".", element<B>, ".", element<D>}, Product<M, N, K, D, A, B, Finite>::run);
}

template <int M, int K, class A, class B>
void integer_product(Table& table) {
    product<M, 8, K, s32, A, B>(table), product<M, 8, K, s32, A, B, true>(table);
}
template <int M, int K>
void integer_products(Table& table) {
    integer_product<M, K, s8, s8>(table), integer_product<M, K, s8, u8>(table);
    integer_product<M, K, u8, s8>(table), integer_product<M, K, u8, u8>(table);
}
template <int K, class D>
void byte_products(Table& table) {
    product<16, 8, K, D, e4m3, e4m3>(table), product<16, 8, K, D, e4m3, e5m2>(table);
    product<16, 8, K, D, e5m2, e4m3>(table), product<16, 8, K, D, e5m2, e5m2>(table);
}

void add_products(Table& table) {
    product<16, 8, 16, float, f16, f16>(table), product<16, 8, 8, float, f16, f16>(table);
    product<16, 8, 16, f16, f16, f16>(table), product<16, 8, 8, f16, f16, f16>(table);
    product<16, 8, 16, float, bf16, bf16>(table), product<16, 8, 8, float, bf16, bf16>(table);
    product<16, 8, 8, float, tf32, tf32>(table), product<16, 8, 4, float, tf32, tf32>(table);
    integer_products<16, 32>(table), integer_products<16, 16>(table), integer_products<8, 16>(table);
    byte_products<32, float>(table), byte_products<32, f16>(table), byte_products<16, float>(table), byte_products<16, f16>(table);
    product<8, 8, 4, double, double, double>(table), product<16, 8, 4, double, double, double>(table);
    product<16, 8, 8, double, double, double>(table), product<16, 8, 16, double, double, double>(table);
}

// ---- ldmatrix: matrices of 8 rows of 16 bytes; lanes 0-7 give the rows of the first, 8-15 of the second, ... --------------------

template <int Count, bool Transposed>
Flow load(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t slot = at.operand[0], bytes = at.operand[1], offset = at.operand[2];
    uint16_t matrix[Count][8][8] = {};
    for (uint32_t left = mask & static_cast<uint32_t>((uint64_t(1) << 8 * Count) - 1); left; left &= left - 1) {
        const unsigned lane = __builtin_ctz(left);
        load_lane(warp, at, lane, SHARED_SPACE, address_of(warp, slot, bytes, offset, lane), 16, matrix[lane / 8][lane % 8]);
    }
    for (int i = 0; i < Count; ++i) {  // after all addresses were read: a result may be their register
        uint16_t* to = warp.slot<uint16_t>(at.operand[3 + i]);
        for (int row = 0; row < 8; ++row)
            for (int column = 0; column < 8; ++column)
                if (mask >> (row * 4 + column / 2) & 1) to[row * 8 + column] = Transposed ? matrix[i][column][row] : matrix[i][row][column];
    }
    return Flow::next;
}

}  // namespace

Handlers matrix_handlers() {
    static const Table table = [] {
        Table made;
        add_products(made);
        made.add({"ldmatrix.x1"}, load<1, false>), made.add({"ldmatrix.x1.trans"}, load<1, true>);
        made.add({"ldmatrix.x2"}, load<2, false>), made.add({"ldmatrix.x2.trans"}, load<2, true>);
        made.add({"ldmatrix.x4"}, load<4, false>), made.add({"ldmatrix.x4.trans"}, load<4, true>);
        return made;
    }();
    return table.view();
}

}  // namespace emulator::ptx
