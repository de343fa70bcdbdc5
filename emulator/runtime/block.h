// Threads, and the blocks that they form. The blocks of a cluster are one Block (clusters.h).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <ucontext.h>
#include <vector>

#include "kernel_api.h"
#include "shadow.h"

namespace emulator {

constexpr unsigned WARP = 32, MOST_THREADS = 1024;  // of a block
constexpr unsigned MOST_BLOCKS = 8;  // of a cluster: more are not portable

struct Fiber {
    ucontext_t start;
    jmp_buf resume;
    char* stack = nullptr;
    bool started = false;
};

enum class State : uint8_t { ready, at_barrier, at_warp, at_mbarrier, at_cluster, done };

struct Wait {  // the barrier or warp operation that a thread waits at
    int op;
    unsigned mask;
    uint64_t value, result;
    int argument, width;
    const char* file;
    int line;
    const char* name;  // the operation's name in messages; null: its CUDA name
    const void* operation;  // run by another engine when all have arrived
    bool reduces;  // a barrier of another engine that has a result
    bool repeats;  // another engine repeats the instruction, instead of going on after it
    int place;  // tells barriers on one line apart
};

struct Copy {  // an asynchronous copy that has not been waited for
    unsigned char* to;
    const unsigned char* from;
    unsigned bytes, filled, batch;
    uintptr_t pc;
    bool tracked;  // an mbarrier says when it has ended, so it is over before what comes after its thread's wait
};

struct Thread {
    Fiber* fiber;  // null if another engine runs it
    uintptr_t own, own_bytes;  // its local memory: a fiber's stack, or .local variables
    Dim index;
    unsigned linear;
    State state;
    // Its last action was a `return`, so it did not run past the barrier of others.
    bool left_early;
    Wait wait;
    unsigned batch;  // number of batches of asynchronous copies committed
    std::vector<Copy> copies;
    uintptr_t recent[4];  // last addresses accessed, to detect spinning
    unsigned next_recent;
    uintptr_t recent_pc;
    uint64_t since_new;  // accesses since it touched another address
    // Stores so far, if Launch::replicated: equal for lanes that execute one store together.
    uint32_t stores;

    unsigned warp() const { return linear / WARP; }
    unsigned lane() const { return linear % WARP; }
};

// Vector clocks of a warp since the last block barrier. Time is the number of __syncwarps of the
// warp. clock[l][m] > s means that lane m's actions at time s happen before lane l's next action
// (the rule is in races/rule.py).
struct Warp {
    uint32_t syncs;
    uint32_t clock[WARP][WARP];
};

// What happens before an event, if clocks have a column for each thread and agent (clocks.cpp).
struct Order {
    std::vector<uint32_t> clock;
    std::vector<uint64_t> fenced;  // if the launch has agents
};

constexpr unsigned NAMED = 16;  // barriers of a block, by number

// A barrier for some threads of the block: threads that wait at it, and threads that only arrive
// (named_barriers.cpp).
struct NamedBarrier {
    unsigned expected = 0, arrived = 0;  // threads
    unsigned first = 0;  // a thread of the block whose barrier it is
    unsigned holding = 0;  // number of arrived threads whose value is not 0
    std::vector<uint32_t> lanes;  // arrived lanes of each warp
    std::vector<uint32_t> again;  // of them, those that arrived and then wait
    std::vector<unsigned> waiting;
    Order joined;  // what all that have arrived did
};

struct Region;
struct Side {  // who did what where; plain, because Python reads it (emulator/runtime/records.py)
    int what;
    unsigned thread[3], block[3];
    uint64_t pc;  // 0 if file and line are known instead
    const char* file;
    int line;
};

// A read of shared memory before any write in its block. It is recorded when the block ends or when
// an ordered write follows. A write that races with the read cancels it: which of the two ran first
// depends on the schedule, and the race is reported.
struct UninitialisedRead {
    const Region* region;
    uintptr_t address;
    size_t size;
    Side side;
    uint32_t next;  // previous read of the same cell, as in Cell::uninitialised
};

struct MapAcquire {  // of a tensor map in memory (tensor_maps.h)
    unsigned thread;
    uint64_t moment;
    std::vector<uint64_t> released;  // for each thread, the moments before which a release lies on the path
};

struct Mbarrier;  // mbarriers.h
struct Cluster;   // clusters.h

struct Block {  // or the blocks of a cluster
    unsigned number;  // among the blocks in flight
    Dim index;  // of the first block of the cluster
    std::shared_ptr<Cluster> cluster;  // null if each block is alone
    uint32_t serial;  // unique over all blocks, or clusters, of all launches
    uint32_t interval;  // number of block barriers passed, plus 1
    unsigned alive, waiting;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<uint32_t> clocks;  // of all threads, if Launch::joins_warps (clocks.cpp)
    std::vector<uint64_t> fenced;  // the same for moments of proxy fences, if Launch::has_agents
    uint32_t raised;  // rows of `fenced` that are not zero everywhere
    std::map<uintptr_t, std::vector<MapAcquire>> map_acquires;  // by the map's address
    unsigned agents, agent_room;  // columns of agents in these clocks: used, and there
    std::vector<NamedBarrier> named;
    std::map<uint32_t, Mbarrier>* mbarriers = nullptr;  // by address, if the engine has any
    std::vector<unsigned> rank;  // of each warp, if threads run by warp
    std::vector<uint16_t> ready;
    size_t next_ready;
    std::vector<Cell> shared_static, shared_dynamic;  // shadow of the block's shared memory
    std::vector<UninitialisedRead> uninitialised;
    std::vector<unsigned char> image;  // its shared memory while another block runs
};

}  // namespace emulator
