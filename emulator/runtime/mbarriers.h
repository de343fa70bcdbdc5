// mbarriers: objects in shared memory that count arrivals and bytes, phase by phase (PTX ISA,
// mbarrier).
#pragma once

#include "clusters.h"

#include <map>

namespace emulator {

struct Mbarrier {
    unsigned expected = 0, pending = 0;  // arrivals in each phase; those still to come
    int64_t bytes = 0;                   // expected and not yet copied
    uint32_t phase = 0;                  // number of phases completed
    uint32_t observed = 0;               // how many of these a wait has returned true for, at least the last one
    bool live = false, used = false;
    LastWrite made = {};                 // the mbarrier.init
    uint32_t published = 0;              // the phase of barrier.cluster behind which all threads of a cluster know it
    // For bulk copies that complete on it: a column of the clocks, and their time there.
    unsigned column = 0;
    uint32_t epoch = 1;
    // What the arrivals of this phase did, and of the last completed one: threads of its own block, and of others.
    Order joining, completed, joining_of_others, completed_of_others;
    std::vector<unsigned> waiting;
};

// Of the blocks of a cluster, by their addresses in shared memory, counted from the first block.
using Mbarriers = std::map<uint32_t, Mbarrier>;

struct Arrival {
    unsigned count;
    int64_t bytes;  // that are expected in addition
    bool releases;
    bool wide;  // at the scope of the cluster
    const Order* before = nullptr;  // what comes before it, if it is not all that the thread has done so far
};

// Each is an operation of the running thread on the mbarrier at an address. Mistakes are recorded.
void init_mbarrier(Mbarriers& all, uint32_t address, unsigned count, uintptr_t pc);
void invalidate_mbarrier(Mbarriers& all, uint32_t address, uintptr_t pc);
void check_repurposed(Mbarriers& all);  // at the end of a block: whether memory was overwritten without mbarrier.inval
uint32_t arrive_at(Mbarriers& all, uint32_t address, const Arrival& arrival, uintptr_t pc);  // the phase it arrives in
void expect_arrival(Mbarriers& all, uint32_t address, uintptr_t pc);  // one more in this phase
void expect_bytes(Mbarriers& all, uint32_t address, int64_t bytes, uintptr_t pc);
// Whether the phase has completed; if not, the thread is kept to be made ready when it has.
struct PhaseWait {
    uint32_t phase;
    bool is_parity, acquires, wide, parks;
};
bool wait_at(Mbarriers& all, uint32_t address, const PhaseWait& wait, uintptr_t pc);
// Bytes that a thread, or its copy, completes.
void complete_bytes(Mbarriers& all, uint32_t address, int64_t bytes, unsigned thread, uintptr_t pc);
// The column and time of a copy that completes on it.
std::pair<unsigned, uint32_t> agents_of(Mbarriers& all, uint32_t address);
std::string state_of(const Mbarriers& all, uint32_t address);  // in words, for deadlocks

}  // namespace emulator
