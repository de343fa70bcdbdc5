// Agents: work of the asynchronous proxy that threads issue and that goes on beside them. A wgmma
// of one warp is an agent: it reads its operands in shared memory at some time between its issue
// and the wait that covers it.
//
// What comes before an agent is what came before its issue, and what comes after it is what comes
// after the wait. It is in the asynchronous proxy, ordinary loads and stores are in the generic one,
// so a store is ordered with it only if a fence.proxy.async lies on the path between them. The rule is in
// races/rule.py.
#pragma once

#include "runtime.h"

#include <memory>

namespace emulator {

// When a thread did something, so that moments of one thread can be compared.
inline uint64_t moment(uint32_t interval, uint32_t syncs) { return uint64_t(interval) << 32 | syncs; }

struct Issue {  // what comes before an agent
    uint32_t interval;
    Order order;
};

struct Agent {
    unsigned warp;   // that issued it
    uint32_t epoch;  // its time in the column of the clocks that the warp's agents have
    std::shared_ptr<const Issue> issue;
    uintptr_t pc;
};

// Of the clocks: the columns of a block's agents follow those of its threads.
size_t columns_of(const Block& in);
size_t first_agent(const Block& in);
uint64_t* fenced_of(Block& in, unsigned thread);

// The lanes of a warp issue an agent.
std::shared_ptr<const Issue> issued(Block& in, unsigned warp, uint32_t lanes);
// The lanes have waited for all agents of their warp up to this time.
void agents_done(Block& in, unsigned warp, uint32_t lanes, uint32_t before);
// The lanes execute a fence.proxy.async.
void fence_proxies(Block& in, unsigned warp, uint32_t lanes);
// The running thread overwrites, or may overwrite, what an agent reads.
void record_overwritten(const AgentRead& read, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc);
// Checks a read of shared memory by an agent, and remembers it.
void check_agent(const Agent& agent, uintptr_t address, size_t bytes);

}  // namespace emulator
