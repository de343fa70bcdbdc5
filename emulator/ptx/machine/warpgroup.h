// The wgmmas of a warp that are under way, and the registers that they own.
#pragma once

#include "../../runtime/agents.h"
#include "machine.h"

#include <deque>

namespace emulator::ptx {

constexpr unsigned WARPGROUP = 4;  // warps that execute a wgmma together

struct Product;
struct Numbers;

struct ProductKind {  // of the element types of a wgmma
    void (*finish)(Warp&, const Product&);  // reads, multiplies and writes
    Numbers (*numbers)(const int32_t* operands);
};

struct Product {  // one wgmma of one warp: it makes 16 of the 64 rows
    const Instruction* at;
    const ProductKind* kind;
    uint32_t group;
    bool adds;             // to the accumulators; else they start at 0
    bool done;             // it has taken effect, though nothing has waited for it
    uint64_t left, right;  // descriptors of the operands in shared memory
    uint32_t registers[4][WARP];  // A, if it is in registers
    std::shared_ptr<const Issue> issue;  // if traced
};

struct Owned {  // a register of some wgmma, by its number in the operands
    uint16_t owners = 0;  // wgmmas under way that use it
    bool sums = false;    // one of them as an accumulator
    bool touched;         // by another instruction since the last wgmma.fence, or there was none
    int32_t shape = 0;    // of the wgmma that accumulated in it since then
    uintptr_t owner = 0, toucher = 0;  // sites
};

struct Products {
    std::deque<Product> under_way;
    uint32_t group = 0;       // number of groups committed
    unsigned column = 0;      // of the clocks, once it has executed a wgmma that is traced
    bool fenced = false;      // there was a wgmma.fence
    uint64_t executed = 0;    // a hash of the wgmmas that the warp has executed
    uintptr_t last = 0;       // site of the last one
    std::vector<Owned> registers;
};

// Called when a warp has ended, with the warps of its warpgroup.
void end_products(Warp* warps, size_t count);

}  // namespace emulator::ptx
