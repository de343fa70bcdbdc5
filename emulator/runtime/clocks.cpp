// Clocks of the threads of a block, if barriers may join only some of its warps or if agents work
// beside its threads.
//
// A clock has a column for each thread, as in struct Warp: time is the number of synchronisations
// of the thread's warp. Behind these are the columns of agents (agents.h), whose time is the number
// of a group of work. Beside its clock a thread has the moments up to which a proxy fence lies on a
// path from each other thread to it.
#include "agents.h"

#include <algorithm>
#include <cstring>

namespace emulator {
namespace {

void raise_to(uint32_t* to, const uint32_t* from, size_t count) {
    for (size_t m = 0; m < count; ++m) to[m] = std::max(to[m], from[m]);
}
void raise_to(uint64_t* to, const uint64_t* from, size_t count) {
    for (size_t m = 0; m < count; ++m) to[m] = std::max(to[m], from[m]);
}

}  // namespace

size_t first_agent(const Block& in) { return (in.threads.size() + WARP - 1) / WARP * WARP; }

size_t columns_of(const Block& in) {
    return gpu.launch->has_agents ? first_agent(in) + in.warps.size() : in.threads.size();
}

uint32_t* clock_of(Block& in, unsigned thread) {
    size_t columns = columns_of(in);
    if (in.clocks.empty()) in.clocks.resize(in.threads.size() * columns);
    return in.clocks.data() + thread * columns;
}

uint64_t* fenced_of(Block& in, unsigned thread) {
    size_t count = in.threads.size();
    if (in.fenced.empty()) in.fenced.resize(count * count);
    return in.fenced.data() + thread * count;
}

void join(Order& to, Block& in, unsigned thread, uint32_t syncs) {
    to.clock.resize(columns_of(in));
    raise_to(to.clock.data(), clock_of(in, thread), to.clock.size());
    to.clock[thread] = syncs;
    if (!gpu.launch->has_agents) return;
    to.fenced.resize(in.threads.size());
    raise_to(to.fenced.data(), fenced_of(in, thread), to.fenced.size());
}

void follow(Block& in, unsigned thread, const Order& order) {
    if (!order.clock.empty()) raise_to(clock_of(in, thread), order.clock.data(), order.clock.size());
    if (!order.fenced.empty()) raise_to(fenced_of(in, thread), order.fenced.data(), order.fenced.size());
}

// A barrier of the whole block orders everything that threads did before it, so their columns start
// again. An agent may be at work beyond the barrier.
void forget_order(Block& in) {
    for (NamedBarrier& barrier : in.named) barrier.joined = {};
    if (!gpu.launch->has_agents) return in.clocks.clear();
    Order all;
    for (unsigned thread = 0; thread < in.threads.size(); ++thread) join(all, in, thread, 0);
    std::fill(all.clock.begin(), all.clock.begin() + static_cast<long>(first_agent(in)), 0u);
    for (unsigned thread = 0; thread < in.threads.size(); ++thread) {
        memcpy(clock_of(in, thread), all.clock.data(), all.clock.size() * sizeof(uint32_t));
        memcpy(fenced_of(in, thread), all.fenced.data(), all.fenced.size() * sizeof(uint64_t));
    }
}

}  // namespace emulator
