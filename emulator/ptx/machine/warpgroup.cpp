// wgmma: D = A B + D for 64 x N x 32 bytes, by the four warps of a warpgroup. Each makes 16 rows.
//
// It is asynchronous: a warp reads its operands in shared memory and writes its accumulators when
// it waits for the group of the wgmma, the latest time that is allowed. So a kernel that does not
// wait long enough computes something else. With a seed some take effect at once. A in registers,
// the descriptors and scale-d are taken at the issue.
//
// Shared memory is described by a matrix descriptor (PTX ISA, Asynchronous Warpgroup Level Matrix
// Shared Memory Layout): start, two strides and a swizzle.
#include "warpgroup.h"
#include "access.h"
#include "number.h"
#include "table.h"

#include <cmath>
#include <cstdio>

namespace emulator::ptx {

struct Numbers {  // of a wgmma's registers: the accumulators' and A's
    const int32_t *sums, *left;
    unsigned sum_count, left_count;
};

namespace {

// [n, A is in registers, transposed A, transposed B, -A, -B, scale-d, A (4 slots, or a descriptor in
// the first), B, accumulators..., their numbers..., numbers of A's registers...]
enum Operand { N, IN_REGISTERS, TRANSPOSED_A, TRANSPOSED_B, SIGN_A, SIGN_B, SCALE_D, LEFT, RIGHT = LEFT + 4, SUMS };

constexpr int ROWS = 16, MOST_COLUMNS = 256, BYTES = 32;  // of A: 32 bytes of a row are one step of k

struct tf32 { u32 bits; };
float value(f16 x) { return widen(x); }
float value(bf16 x) { return widen(x); }
float value(tf32 x) { return as<float>(x.bits & 0xffffe000); }  // the lowest 13 bits do not count

template <class Element> constexpr int PIECE = 16 / sizeof(Element);  // elements in 16 bytes
template <class Element> constexpr int K = BYTES / sizeof(Element);

// ---- shared memory ------------------------------------------------------------------------------

class Descriptor {
public:
    explicit Descriptor(uint64_t bits)
        : start((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4), stride((bits >> 32 & 0x3fff) << 4),
          mode(static_cast<unsigned>(bits >> 62)), base_offset(bits >> 49 & 7) {}

    bool is_covered() const { return base_offset == 0; }

    // Address of the 16 bytes with element (mn, k) of a matrix whose rows are contiguous in k; k is
    // in bytes.
    uint32_t along_k(unsigned mn, unsigned k) const {
        return mode ? swizzled(mn % 8 * width() + mn / 8 * stride + k) : swizzled(mn % 8 * 16 + mn / 8 * stride + k / 16 * leading);
    }
    // The same if they are contiguous in mn; elements have two bytes.
    uint32_t along_mn(unsigned mn, unsigned k) const {
        const unsigned line = width() / 2;
        return mode ? swizzled(mn % line * 2 + mn / line * leading + k % 8 * width() + k / 8 * stride)
                    : swizzled(mn / 8 * stride + k % 8 * 16 + k / 8 * leading);
    }

private:
    unsigned width() const { return 256u >> mode; }  // bytes of a line: 128, 64, 32
    uint32_t swizzled(uint32_t offset) const {
        static const uint32_t bits[] = {0, 7, 3, 1};
        const uint32_t address = start + offset;
        return address ^ (address >> 7 & bits[mode]) << 4;
    }

    uint32_t start, leading, stride;
    unsigned mode;
    uint64_t base_offset;
};

class Reader {  // of one wgmma's operands
public:
    Reader(Warp& warp, const Product& product)
        : warp(warp), at(*product.at), agent{warp.products->column, product.group, product.issue, warp.first, true, site_at(warp, *product.at),
                "wgmma", "wgmma.wait_group"} {}

    void read(uint32_t address, void* to) {
        const uintptr_t host = shared_place(warp.first, address);
        if (!gpu.launch->traced) return load_lane(warp, at, lane++ % WARP, SHARED_SPACE, address, 16, to);
        check_agent(agent, host, 16, READ);
        memcpy(to, reinterpret_cast<const void*>(host), 16);
    }

private:
    Warp& warp;
    const Instruction& at;
    Agent agent;
    unsigned lane = 0;
};

// Reads `count` rows of a matrix: to[k][row - first].
template <class Element, int COLUMNS>
void read_matrix(Reader& reader, uint64_t bits, unsigned first, unsigned count, bool transposed, float (&to)[K<Element>][COLUMNS]) {
    const Descriptor from(bits);
    Element piece[PIECE<Element>];
    if (!transposed) {
        for (unsigned row = 0; row < count; ++row)
            for (unsigned k = 0; k < K<Element>; k += PIECE<Element>) {
                reader.read(from.along_k(first + row, k * sizeof(Element)), piece);
                for (unsigned i = 0; i < PIECE<Element>; ++i) to[k + i][row] = value(piece[i]);
            }
    } else {
        for (unsigned k = 0; k < K<Element>; ++k)
            for (unsigned row = 0; row < count; row += PIECE<Element>) {
                reader.read(from.along_mn(first + row, k), piece);
                for (unsigned i = 0; i < PIECE<Element>; ++i) to[k][row + i] = value(piece[i]);
            }
    }
}

// A in registers has the fragments of mma's A, 16 rows of 32 bytes.
template <class Element>
void read_registers(const Product& product, float (&to)[K<Element>][ROWS]) {
    constexpr unsigned EACH = 4 / sizeof(Element);
    for (unsigned r = 0; r < 4; ++r)
        for (unsigned lane = 0; lane < WARP; ++lane) {
            Element parts[EACH];
            memcpy(parts, &product.registers[r][lane], sizeof parts);
            for (unsigned i = 0; i < EACH; ++i)
                to[r / 2 * 4 * EACH + lane % 4 * EACH + i][lane / 4 + r % 2 * 8] = value(parts[i]);
        }
}

// ---- accumulators: as C and D of mma, for each 8 columns ----------------------------------------

template <class Sum>
struct Accumulators {
    static constexpr unsigned FOR_8_COLUMNS = sizeof(Sum) == 4 ? 4 : 2;  // registers

    template <class F>
    static void each(const Warp& warp, const int32_t* slots, unsigned n, F f) {
        for (unsigned j = 0; j < n / 8; ++j)
            for (unsigned r = 0; r < FOR_8_COLUMNS; ++r) {
                Sum* of = warp.slot<Sum>(slots[FOR_8_COLUMNS * j + r]);
                constexpr unsigned EACH = 4 / sizeof(Sum);
                for (unsigned lane = 0; lane < WARP; ++lane)
                    for (unsigned i = 0; i < EACH; ++i) {
                        const unsigned row = lane / 4 + (EACH == 2 ? r : r / 2) * 8;
                        f(of[EACH * lane + i], row, 8 * j + lane % 4 * 2 + (EACH == 2 ? i : r % 2));
                    }
            }
    }
};

float widened(float x) { return x; }
float widened(f16 x) { return widen(x); }
void put(float& to, float x) { to = canonical(x); }
void put(f16& to, float x) { to = narrow<f16>(x); }

FLATTEN __attribute__((noinline)) void multiply(const float* a, const float (*b)[MOST_COLUMNS], unsigned k, unsigned n,
                                                float (*d)[MOST_COLUMNS]) {
    for (unsigned i = 0; i < k; ++i)
        for (unsigned row = 0; row < ROWS; ++row) {
            const float left = a[i * ROWS + row];
            for (unsigned column = 0; column < n; ++column) d[row][column] = std::fma(left, b[i][column], d[row][column]);
        }
}

// Reads, multiplies and writes.
template <class Element, class Sum>
void finish(Warp& warp, const Product& product) {
    const int32_t* o = product.at->operand;
    const auto n = static_cast<unsigned>(o[N]);
    float a[K<Element>][ROWS], b[K<Element>][MOST_COLUMNS], d[ROWS][MOST_COLUMNS];
    Reader reader(warp, product);
    if (o[IN_REGISTERS]) read_registers<Element>(product, a);
    else read_matrix<Element>(reader, product.left, warp.first / WARP % 4 * ROWS, ROWS, o[TRANSPOSED_A], a);
    read_matrix<Element>(reader, product.right, 0, n, o[TRANSPOSED_B], b);
    if (o[SIGN_A] * o[SIGN_B] < 0)
        for (auto& line : a)
            for (float& x : line) x = -x;
    Accumulators<Sum>::each(warp, o + SUMS, n, [&](Sum& sum, unsigned row, unsigned column) {
        d[row][column] = product.adds ? widened(sum) : 0;
    });
    multiply(a[0], b, K<Element>, n, d);
    Accumulators<Sum>::each(warp, o + SUMS, n, [&](Sum& sum, unsigned row, unsigned column) { put(sum, d[row][column]); });
}

// ---- registers ----------------------------------------------------------------------------------

Owned& owned(Products& products, int32_t number) {
    Owned unused = {};
    unused.touched = !products.fenced;
    if (products.registers.size() <= static_cast<size_t>(number)) products.registers.resize(number + 1, unused);
    return products.registers[static_cast<size_t>(number)];
}

Record& misused(Warp& warp, const Instruction& at, uintptr_t other) {
    Thread& thread = thread_of(warp, 0);
    const Side here = side_of(thread, *gpu.block, TOUCH, site_at(warp, at)), there = side_of(thread, *gpu.block, TOUCH, other);
    new_access();
    return add_record(REGISTER, nullptr, 0, 0, other ? 2 : 1, other ? there : here, here);
}

template <class Sum>
Numbers numbers_of(const int32_t* o) {
    const unsigned count = static_cast<unsigned>(o[N]) / 8 * Accumulators<Sum>::FOR_8_COLUMNS;
    return {o + SUMS + count, o + SUMS + 2 * count, count, o[IN_REGISTERS] ? 4u : 0u};
}

void check_registers(Warp& warp, const Instruction& at, const Numbers& numbers) {
    Products& products = *warp.products;
    auto check = [&](int32_t number, bool sum) {
        Owned& of = owned(products, number);
        if (of.owners && of.sums && !sum)
            snprintf(misused(warp, at, of.owner).text, 1024, "A is the accumulator of a wgmma that has not been waited for");
        else if (of.touched)
            snprintf(misused(warp, at, of.toucher).text, 1024, "no wgmma.fence between an instruction on a register and the wgmma that uses it");
        else if (sum && of.shape && of.shape != at.operand[N])
            snprintf(misused(warp, at, of.owner).text, 1024, "no wgmma.fence between two wgmmas of different shapes that accumulate in a register");
        ++of.owners;
        of.owner = site_at(warp, at);
        if (sum) of.sums = true, of.shape = at.operand[N];
    };
    for (unsigned i = 0; i < numbers.sum_count; ++i) check(numbers.sums[i], true);
    for (unsigned i = 0; i < numbers.left_count; ++i) check(numbers.left[i], false);
}

void release_registers(Products& products, const Numbers& numbers) {
    auto release = [&](int32_t number) {
        Owned& of = owned(products, number);
        if (!--of.owners) of.sums = false;
    };
    for (unsigned i = 0; i < numbers.sum_count; ++i) release(numbers.sums[i]);
    for (unsigned i = 0; i < numbers.left_count; ++i) release(numbers.left[i]);
}

// [count, whether it only copies, numbers...]: another instruction uses these registers
Flow touch(Warp& warp, const Instruction& at, uint32_t) {
    if (!gpu.launch->traced) return Flow::next;
    for (int32_t i = 0; i < at.operand[0]; ++i) {
        Owned& of = owned(*warp.products, at.operand[2 + i]);
        if (of.owners) snprintf(misused(warp, at, of.owner).text, 1024, "used before the wgmma that owns it has been waited for");
        if (at.operand[1]) continue;
        of.touched = true;
        of.toucher = site_at(warp, at);
    }
    return Flow::next;
}

Flow fence(Warp& warp, const Instruction&, uint32_t) {
    warp.products->fenced = true;
    for (Owned& of : warp.products->registers) of.touched = false, of.shape = 0;
    return Flow::next;
}

// ---- issue and wait -----------------------------------------------------------------------------

// All that are under way take effect.
void finish_all(Warp& warp) {
    for (Product& product : warp.products->under_way) {
        if (!product.done) product.kind->finish(warp, product);
        product.done = true;
    }
}

template <class Element, class Sum>
Flow issue(Warp& warp, const Instruction& at, uint32_t) {
    const int32_t* o = at.operand;
    Products& products = *warp.products;
    static const ProductKind kind = {finish<Element, Sum>, numbers_of<Sum>};
    Product product = {&at, &kind, products.group, (warp.predicate(o[SCALE_D]) & 1) != 0, false, 0, warp.slot<uint64_t>(o[RIGHT])[0], {}, nullptr};
    if (o[IN_REGISTERS])
        for (unsigned r = 0; r < 4; ++r) memcpy(product.registers[r], warp.slot<uint32_t>(o[LEFT + r]), sizeof product.registers[r]);
    else
        product.left = warp.slot<uint64_t>(o[LEFT])[0];
    if (!Descriptor(product.left).is_covered() || !Descriptor(product.right).is_covered())
        not_covered(warp, at, 0, "a matrix descriptor with a base offset");
    products.executed = products.executed * 31 + warp.index_of(at) + 1;
    products.last = site_at(warp, at);
    if (gpu.launch->traced) {
        if (!products.column) products.column = new_agents(*gpu.block);
        product.issue = issued(*gpu.block, warp.first / WARP, warp.alive);
        check_registers(warp, at, numbers_of<Sum>(o));
    }
    products.under_way.push_back(product);
    if (gpu.options.seed && random_bits() & 1) finish_all(warp);
    gpu.thread = nullptr;
    return Flow::next;
}

Flow commit(Warp& warp, const Instruction&, uint32_t) { return ++warp.products->group, Flow::next; }

// [groups that may still be under way]
Flow wait(Warp& warp, const Instruction& at, uint32_t) {
    Products& products = *warp.products;
    const auto most = static_cast<uint32_t>(at.operand[0]);
    const uint32_t before = products.group > most ? products.group - most : 0;
    while (!products.under_way.empty() && products.under_way.front().group < before) {
        const Product& first = products.under_way.front();
        if (!first.done) first.kind->finish(warp, first);
        // Until here they belong to the wgmma, whenever it has taken effect.
        if (gpu.launch->traced) release_registers(products, first.kind->numbers(first.at->operand));
        products.under_way.pop_front();
    }
    if (products.column) agents_done(*gpu.block, warp.first / WARP, warp.alive, products.column, before);
    gpu.thread = nullptr;
    return Flow::next;
}

// The generic proxy's accesses before it come before the asynchronous proxy's after it.
template <bool GLOBAL, bool SHARED, bool OTHERS = false>
Flow fence_proxy(Warp& warp, const Instruction&, uint32_t mask) {
    if (gpu.launch->has_agents) fence_proxies(*gpu.block, warp.first / WARP, mask, {GLOBAL, SHARED, OTHERS});
    return Flow::next;
}

}  // namespace

void end_products(Warp* warps, size_t count) {
    bool differ = false;
    const Warp* with = nullptr;  // has executed a wgmma
    for (size_t i = 0; i < count; ++i) {
        if (warps[i].alive) return;
        finish_all(warps[i]);  // nobody has waited for them
        warps[i].products->under_way.clear();
        differ |= warps[i].products->executed != warps[0].products->executed;
        if (warps[i].products->last) with = &warps[i];
    }
    if (!with || (count == WARPGROUP && !differ) || !gpu.launch->traced) return;
    const Side side = side_of(thread_of(*with, 0), *gpu.block, TOUCH, with->products->last);
    snprintf(add_record(BARRIER, nullptr, 0, 0, 1, side).text, 1024,
             count < WARPGROUP ? "a warpgroup has four warps, which execute each wgmma together; here it has fewer"
                               : "the four warps of a warpgroup do not execute the same wgmmas");
}

Handlers warpgroup_handlers() {
    static const Table table = [] {
        Table table;
        table.add({"wgmma.f32.f16"}, issue<f16, float>), table.add({"wgmma.f16.f16"}, issue<f16, f16>);
        table.add({"wgmma.f32.bf16"}, issue<bf16, float>), table.add({"wgmma.f32.tf32"}, issue<tf32, float>);
        table.add({"wgmma.touch"}, touch), table.add({"wgmma.fence"}, fence);
        table.add({"wgmma.commit_group"}, commit), table.add({"wgmma.wait_group"}, wait);
        table.add({"fence.proxy.async"}, fence_proxy<true, true, true>);
        table.add({"fence.proxy.async.shared"}, fence_proxy<false, true>);
        table.add({"fence.proxy.async.shared::cluster"}, fence_proxy<false, true, true>);
        table.add({"fence.proxy.async.global"}, fence_proxy<true, false>);
        return table;
    }();
    return table.view();
}

}  // namespace emulator::ptx
