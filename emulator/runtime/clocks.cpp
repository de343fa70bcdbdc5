// Clocks of the threads of a block, if barriers may join only some of its warps or if agents work
// beside its threads.
//
// A clock has a column for each thread, as in struct Warp: time is the number of synchronisations
// of the thread's warp. Behind these are the columns of agents (agents.h), which share one if they
// end together. Beside its clock a thread has the moments up to which a proxy fence lies on a
// path from each other thread to it, and in a cluster more of them (ProxyRow).
#include "mbarriers.h"

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

// The first rows of moments of a thread or an order.
void raise_rows(const Block& in, uint64_t* to, const uint64_t* from, size_t rows) {
    const size_t count = in.threads.size();
    for (size_t row = 0; row < rows; ++row)
        if (in.raised >> row & 1) raise_to(to + row * count, from + row * count, count);
}

size_t rows() { return maps_row() + gpu.launch->makes_maps; }  // of moments of one thread

size_t columns_of(const Block& in) { return gpu.launch->has_agents ? first_agent(in) + in.agent_room : in.threads.size(); }

}  // namespace

unsigned first_agent(const Block& in) { return static_cast<unsigned>((in.threads.size() + WARP - 1) / WARP * WARP); }

unsigned new_agents(Block& in) {
    if (in.agents == in.agent_room) {
        const size_t before = columns_of(in), threads = in.threads.size();
        in.agent_room = std::max(16u, 2 * in.agent_room);
        if (!in.clocks.empty()) {
            std::vector<uint32_t> wider(threads * columns_of(in));
            for (size_t thread = 0; thread < threads; ++thread)
                memcpy(wider.data() + thread * columns_of(in), in.clocks.data() + thread * before, before * sizeof(uint32_t));
            in.clocks = std::move(wider);
        }
    }
    return first_agent(in) + in.agents++;
}

uint32_t* clock_of(Block& in, unsigned thread) {
    size_t columns = columns_of(in);
    if (in.clocks.empty()) in.clocks.resize(in.threads.size() * columns);
    return in.clocks.data() + thread * columns;
}

uint64_t* fenced_of(Block& in, unsigned thread, unsigned row) {
    size_t count = in.threads.size();
    if (in.fenced.empty()) in.fenced.resize(rows() * count * count);
    return in.fenced.data() + (rows() * thread + row) * count;
}

void raise_row(Block& in, unsigned thread, unsigned row, uint32_t syncs) {
    const size_t count = in.threads.size();
    uint64_t* fenced = fenced_of(in, thread, row);
    in.raised |= 1u << row;
    if (gpu.launch->cluster > 1 && row >= wide_rows()) {
        raise_to(fenced, fenced_of(in, thread, seen_row()), count);
    } else {
        const uint32_t* clock = clock_of(in, thread);
        for (size_t m = 0; m < count; ++m) fenced[m] = std::max(fenced[m], moment(in.interval, clock[m]));
    }
    fenced[thread] = moment(in.interval, syncs);
}

void join(Order& to, Block& in, unsigned thread, uint32_t syncs, bool wide) {
    to.clock.resize(columns_of(in));
    raise_to(to.clock.data(), clock_of(in, thread), to.clock.size());
    to.clock[thread] = syncs;
    if (!gpu.launch->has_agents) return;
    const size_t count = in.threads.size();
    to.fenced.resize(rows() * count);
    raise_rows(in, to.fenced.data(), fenced_of(in, thread, 0), wide ? rows() : proxy_rows());
    if (!wide || gpu.launch->cluster == 1) return;
    to.fenced[seen_row() * count + thread] = moment(in.interval, syncs);
    in.raised |= 1u << seen_row();
}

void raise(Order& to, const Order& from) {
    to.clock.resize(std::max(to.clock.size(), from.clock.size()));
    raise_to(to.clock.data(), from.clock.data(), from.clock.size());
    to.fenced.resize(std::max(to.fenced.size(), from.fenced.size()));
    raise_to(to.fenced.data(), from.fenced.data(), from.fenced.size());
}

void follow(Block& in, unsigned thread, const Order& order, bool wide) {
    if (!order.clock.empty()) raise_to(clock_of(in, thread), order.clock.data(), order.clock.size());
    if (order.fenced.empty()) return;
    raise_rows(in, fenced_of(in, thread, 0), order.fenced.data(), wide ? rows() : proxy_rows());
}

void forget_threads(Order& order, const Block& in) {
    const size_t count = std::min<size_t>(order.clock.size(), first_agent(in));
    std::fill_n(order.clock.begin(), count, 0u);
}

// A barrier of the whole block orders everything that threads did before it, so their columns start
// again. An agent may be at work beyond the barrier.
void forget_order(Block& in) {
    for (NamedBarrier& barrier : in.named) barrier.joined = {};
    if (in.cluster) forget_before_barrier(*in.cluster);
    if (!gpu.launch->has_agents) return in.clocks.clear();
    if (in.mbarriers)
        for (auto& [address, of] : *in.mbarriers)
            for (Order* order : {&of.joining, &of.completed, &of.joining_of_others, &of.completed_of_others}) forget_threads(*order, in);
    Order all;
    for (unsigned thread = 0; thread < in.threads.size(); ++thread) join(all, in, thread, 0);
    forget_threads(all, in);
    for (unsigned thread = 0; thread < in.threads.size(); ++thread) {
        memcpy(clock_of(in, thread), all.clock.data(), all.clock.size() * sizeof(uint32_t));
        memcpy(fenced_of(in, thread, 0), all.fenced.data(), all.fenced.size() * sizeof(uint64_t));
    }
}

}  // namespace emulator
