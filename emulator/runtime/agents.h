// Agents: work of the asynchronous proxy that threads issue and that goes on beside them. A wgmma
// of one warp is an agent, and a bulk copy: it reads and writes at some time between its issue and
// the wait that covers it.
//
// What comes before an agent is what came before its issue, and what comes after it is what comes
// after the wait. It is in the asynchronous proxy, ordinary loads and stores are in the generic one,
// so a store is ordered with it only if a fence.proxy.async lies on the path between them. The rule
// is in races/rule.py.
#pragma once

#include "runtime.h"

#include <memory>

namespace emulator {

// When a thread did something, so that moments of one thread can be compared.
inline uint64_t moment(uint32_t interval, uint32_t syncs) { return uint64_t(interval) << 32 | syncs; }

// Rows of moments of a thread, up to which a proxy fence lies on a path: one of global memory, or of the
// shared memory of the block with rank r (OF_SHARED + r). In a cluster that is a path of any scope, which orders what
// has been read. A write is ordered by paths that have .cluster scope from block to block: behind these rows are the
// moments up to which such a path comes, so that the thread sees what was written, and the rows of fences on such
// paths. The last row, if Launch::makes_maps, is one of releases of tensor maps on such paths.
enum ProxyRow : unsigned { OF_GLOBAL, OF_SHARED };
inline unsigned proxy_rows() { return OF_SHARED + gpu.launch->cluster; }
inline unsigned seen_row() { return proxy_rows(); }  // in a cluster
inline unsigned wide_rows() { return gpu.launch->cluster > 1 ? seen_row() + 1 : 0; }  // a block alone has one scope
inline unsigned maps_row() { return wide_rows() + proxy_rows(); }

struct Issue {  // what comes before an agent
    uint32_t interval;
    Order order;
};

// Whether a thread's action at that moment comes before an agent on a path of .cluster scope from block to block.
inline bool is_seen(const Issue& issue, unsigned thread, uint64_t then) {
    if (gpu.launch->cluster == 1) return then < moment(issue.interval, issue.order.clock[thread]);
    return then < issue.order.fenced[seen_row() * gpu.block->threads.size() + thread];
}

struct Agent {
    unsigned column;  // of the clocks
    uint32_t epoch;   // its time there
    std::shared_ptr<const Issue> issue;
    unsigned thread;  // that issued it
    bool by_warp;     // all lanes of its warp did
    uintptr_t pc;
    const char* name, *waits;  // in messages: what it is, and what waits for it
    uintptr_t map = 0;  // the address of its tensor map, if it is this that it reads
};

unsigned first_agent(const Block& in);  // column of the first agent, behind those of threads
unsigned new_agents(Block& in);         // a new column, for agents that end together or in order
uint64_t* fenced_of(Block& in, unsigned thread, unsigned row);  // a row as above
// The thread executes, at the time syncs, a fence to which this row belongs: it is raised to all that comes before.
void raise_row(Block& in, unsigned thread, unsigned row, uint32_t syncs);

// The lanes of a warp issue an agent.
std::shared_ptr<const Issue> issued(Block& in, unsigned warp, uint32_t lanes);
// The lanes have waited for all agents of the column before this time.
void agents_done(Block& in, unsigned warp, uint32_t lanes, unsigned column, uint32_t before);
// The lanes execute a fence.proxy.async. others: also for the shared memory of other blocks of the cluster.
struct FenceOf {
    bool global, shared, others;
};
void fence_proxies(Block& in, unsigned warp, uint32_t lanes, const FenceOf& of);
// Checks an access of an agent, and remembers it.
void check_agent(const Agent& agent, uintptr_t address, size_t bytes, What what);
// Checks an access of the running thread against the reads of agents, and records races.
bool conflicts_with_agents(const Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc);

}  // namespace emulator
