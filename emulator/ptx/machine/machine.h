// A machine for PTX: it executes one instruction at a time for all lanes of a warp that have
// reached it.
//
// A register is a slot of a warp's register file: the values of the 32 lanes lie next to each
// other, so that g++ turns an operation's loop into vector instructions. A predicate is one
// uint32_t with a bit for each lane. Python decodes PTX text into the arrays of a Program
// (emulator/ptx/encode.py); nothing is compiled for a kernel.
#pragma once

#include "../../runtime/runtime.h"

#include <cstring>
#include <vector>

namespace emulator::ptx {

constexpr uint32_t ALL = ~0u;
constexpr int32_t NONE = INT32_MIN;  // an operand that an instruction does not have

struct Warp;
struct Instruction;
struct Products;

enum class Flow : uint8_t {
    next,   // the lanes continue with the next instruction
    moved,  // the handler has set the program counters, or the lanes wait or have ended
};

// Executes an instruction for the lanes in `mask`, which is never 0: the lanes that have reached it
// and whose guard holds.
using Handler = Flow (*)(Warp& warp, const Instruction& at, uint32_t mask);

enum class Role : uint8_t {
    plain,
    branch,
    access,      // threads may be switched after it
    collective,  // all lanes of the warp execute it together: mma, ldmatrix, wgmma, tensormap.cp_fenceproxy
};

struct Instruction {
    Handler run;
    const int32_t* operand;
    int32_t guard;  // slot of its predicate, or NONE
    bool negated;   // @!p
    Role role;
};

// The predefined registers of PTX: the first slots of every register file, in this order (SPECIAL
// in encode.py). 32 bits each.
enum Special : int {
    TID_X, TID_Y, TID_Z, NTID_X, NTID_Y, NTID_Z, CTAID_X, CTAID_Y, CTAID_Z, NCTAID_X, NCTAID_Y, NCTAID_Z, LANEID, WARPID,
    NWARPID, LANEMASK_EQ, LANEMASK_LE, LANEMASK_LT, LANEMASK_GE, LANEMASK_GT,
    DYNAMIC_SMEM_SIZE, CLUSTERID_X, CLUSTERID_Y, CLUSTERID_Z, NCLUSTERID_X, NCLUSTERID_Y, NCLUSTERID_Z, CLUSTER_CTAID_X,
    CLUSTER_CTAID_Y, CLUSTER_CTAID_Z, CLUSTER_NCTAID_X, CLUSTER_NCTAID_Y, CLUSTER_NCTAID_Z, CLUSTER_CTARANK, CLUSTER_NCTARANK,
    IS_EXPLICIT_CLUSTER, SPECIALS,
};

enum AddressSpace : int { GENERIC, GLOBAL_SPACE, SHARED_SPACE, LOCAL_SPACE, CONST_SPACE, PARAM_SPACE };  // SPACES in encode.py

struct Program {  // one kernel
    std::vector<Instruction> instructions;
    std::vector<int32_t> operands;
    std::vector<unsigned char> constants;  // slots that never change: each immediate, for 32 lanes
    std::vector<const char*> files;        // file of each instruction, with its line
    std::vector<int> lines;
    // Accessible parts of its own shared memory.
    std::vector<std::pair<size_t, size_t>> shared_variables;
    size_t register_bytes;                 // size of one warp's register file
    size_t local_bytes;                    // size of one thread's .local variables
    // Size of its own .shared variables, which precede dynamic shared memory.
    size_t shared_bytes;
    bool joins_warps;                      // it has barriers for some warps only
    bool has_agents;                       // it has instructions whose work goes on beside threads
    bool makes_maps;                       // it makes tensor maps, or has fences for them
    bool waits_relaxed;                    // some of its waits on mbarriers do not acquire
    bool meets_clusters;                   // it has barriers of a cluster
    bool replicated;                       // see Launch
};

struct Warp {
    unsigned char* registers;
    const unsigned char* constants;
    const Instruction* begin;  // of the program
    uint32_t pc[WARP];         // of each lane: an index in Program::instructions
    uint32_t alive;            // lanes that exist and have not ended
    uint32_t ready;            // alive lanes that do not wait
    unsigned first;            // linear index of lane 0 in its block
    unsigned passed;           // backward branches since another group of lanes ran
    uintptr_t recent[4];       // last addresses read, to detect spinning
    // Accesses since it accessed another address or changed memory.
    unsigned next_recent, since_new;
    uintptr_t recent_site;
    Products* products;  // its wgmmas under way (warpgroup.h)

    // An operand's 32 values. They may be written only if the operand is a register.
    template <class T>
    T* slot(int32_t operand) const {
        return reinterpret_cast<T*>(operand >= 0 ? registers + operand : const_cast<unsigned char*>(constants) + ~operand);
    }
    uint32_t& predicate(int32_t operand) const { return *slot<uint32_t>(operand); }

    uint32_t index_of(const Instruction& at) const { return static_cast<uint32_t>(&at - begin); }
    void go(uint32_t lanes, uint32_t to) {
        for (; lanes; lanes &= lanes - 1) pc[__builtin_ctz(lanes)] = to;
    }
};

// Calls f(lane) for the lanes in mask. The full loop is vectorised: f must touch only its own
// lane's values.
template <class F>
inline __attribute__((always_inline)) void each_lane(uint32_t mask, F f) {
    if (mask == ALL) {
#pragma GCC ivdep
        for (unsigned lane = 0; lane < WARP; ++lane) f(lane);
    } else {
        for (uint32_t rest = mask; rest; rest &= rest - 1) f(static_cast<unsigned>(__builtin_ctz(rest)));
    }
}

struct NamedHandler {
    const char* name;  // as encode.py spells it
    Handler run;
};

struct Handlers {
    const NamedHandler* begin;
    size_t count;
};

// One table for each file of handlers.
Handlers arithmetic_handlers();   // arithmetic.cpp: integers, bits, comparisons, selection, moves
Handlers floating_handlers();     // floating.cpp: float32, float64, half types, approximations
Handlers conversion_handlers();   // conversions.cpp
Handlers matrix_handlers();       // matrix.cpp: mma, ldmatrix, stmatrix
Handlers warpgroup_handlers();    // warpgroup.cpp: wgmma, fence.proxy.async
Handlers bulk_handlers();         // bulk.cpp: bulk copies
Handlers tensor_map_handlers();   // tensor_maps.cpp: tensormap.replace, fence.proxy.tensormap
Handlers mbarrier_handlers();     // mbarriers.cpp
Handlers cluster_handlers();      // clusters.cpp: addresses in other blocks, barrier.cluster
Handlers memory_handlers();       // memory.cpp: ld, st, cp.async, cvta
Handlers atomic_handlers();       // atomics.cpp
Handlers control_handlers();      // control.cpp: branches, the end, barriers of the block
Handlers printing_handlers();     // printing.cpp: vprintf
Handlers exchange_handlers();     // exchanges.cpp: shuffles, votes, matches, reductions, bar.warp.sync

template <class F>
void lanes_in(uint32_t mask, F f) {
    for (; mask; mask &= mask - 1) f(static_cast<unsigned>(__builtin_ctz(mask)));
}

inline Thread& thread_of(const Warp& warp, unsigned lane) { return gpu.block->threads[warp.first + lane]; }

const Engine* engine_of(const Program& program);  // engine for the next launch
const unsigned char* parameter_bytes(size_t* count);            // of this launch
uintptr_t site_at(const Warp& warp, const Instruction& at);     // site for the records
void lanes_end(Warp& warp, uint32_t mask);
void end_copies(Thread& thread, unsigned before_batch);  // mbarriers.cpp: cp.async of batches with a lower number
void lanes_wait(Warp& warp, const Instruction& at, uint32_t mask, State state, const Wait& wait);  // file and line are added
// exchanges.cpp: completes this lane's operation if all lanes of its mask are there
void complete_exchange(Warp& warp, unsigned lane);
// Retries operations that wait for all lanes of the warp, after some have ended.
void retry(Warp& warp);
// Threads that the runtime made ready continue after the operation that they waited for.
void wake_threads();

}  // namespace emulator::ptx
