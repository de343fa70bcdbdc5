// Barriers that some threads of a block pass together, and at which others only arrive (bar.sync 1,
// 64; bar.arrive).
//
// They order the threads of some warps and not of others, so each thread has a clock for every
// thread of the block. The clocks are as in struct Warp; time is the number of synchronisations of
// the thread's warp.
#include "runtime.h"

#include <algorithm>
#include <cstdio>

namespace emulator {
namespace {

// A thread's actions so far happen before anything after the barrier.
void join(Block& in, NamedBarrier& barrier, unsigned thread, uint32_t syncs) {
    size_t count = in.threads.size();
    barrier.joined.resize(count);
    const uint32_t* clock = clock_of(in, thread);
    for (size_t m = 0; m < count; ++m) barrier.joined[m] = std::max(barrier.joined[m], clock[m]);
    barrier.joined[thread] = syncs;
}

bool has_arrived(const NamedBarrier& barrier, const Thread& thread) {
    return barrier.lanes.size() > thread.warp() && (barrier.lanes[thread.warp()] >> thread.lane() & 1);
}

// A thread that has returned counts as having arrived with its warp or, if all threads take part,
// with the block.
void join_returned(Block& in, NamedBarrier& barrier) {
    for (const Thread& thread : in.threads) {
        bool takes_part = !barrier.expected || barrier.lanes[thread.warp()];
        if (thread.state == State::done && takes_part && !has_arrived(barrier, thread))
            join(in, barrier, thread.linear, ++in.warps[thread.warp()].syncs);
    }
}

uint64_t result_of(const NamedBarrier& barrier, int op) {
    if (op == SYNC_AND) return barrier.holding == barrier.arrived;
    return op == SYNC_OR ? barrier.holding > 0 : barrier.holding;
}

void complete(Block& in, NamedBarrier& barrier) {
    if (gpu.launch->traced) join_returned(in, barrier);
    NamedBarrier done;
    std::swap(done, barrier);  // emptied before any thread continues
    for (unsigned number : done.waiting) {
        Thread& thread = in.threads[number];
        if (!done.joined.empty()) {
            uint32_t* clock = clock_of(in, number);
            for (size_t m = 0; m < in.threads.size(); ++m) clock[m] = std::max(clock[m], done.joined[m]);
        }
        thread.wait.result = result_of(done, thread.wait.op);
        make_ready(in, thread);
    }
}

// A warp arrives when all its threads that have not returned are there. It counts as 32 threads, as
// in PTX.
bool is_complete(const Block& in, const NamedBarrier& barrier) {
    if (!barrier.arrived) return false;
    unsigned missing[MOST_THREADS / WARP] = {}, count = 0;
    for (const Thread& thread : in.threads)
        missing[thread.warp()] += thread.state != State::done && !has_arrived(barrier, thread);
    for (unsigned warp = 0; warp < barrier.lanes.size(); ++warp) {
        if (!barrier.expected && missing[warp]) return false;
        if (barrier.lanes[warp] && !missing[warp]) count += WARP;
    }
    return count >= barrier.expected;
}

}  // namespace

uint32_t* clock_of(Block& in, unsigned thread) {
    size_t count = in.threads.size();
    if (in.clocks.empty()) in.clocks.resize(count * count);
    return in.clocks.data() + thread * count;
}

void arrive(Block& in, unsigned number, unsigned expected, const std::vector<unsigned>& threads, bool wait) {
    NamedBarrier& barrier = in.named[number];
    if (barrier.arrived && barrier.expected != expected) {
        Record& record = add_record(BARRIER, nullptr, 0, 0, 1, side_waiting(in.threads[threads[0]], in));
        snprintf(record.text, sizeof record.text, "threads arrive at barrier %u for %u threads, others for %u", number, expected,
                 barrier.expected);
    }
    barrier.expected = expected;
    barrier.lanes.resize((in.threads.size() + WARP - 1) / WARP);
    uint32_t syncs = gpu.launch->traced ? ++in.warps[threads[0] / WARP].syncs : 0;
    for (unsigned number_of : threads) {
        Thread& thread = in.threads[number_of];
        if (has_arrived(barrier, thread)) {
            Record& record = add_record(BARRIER, nullptr, 0, 0, 1, side_waiting(thread, in));
            snprintf(record.text, sizeof record.text, "a thread arrives again at barrier %u, which is not complete", number);
            continue;
        }
        if (gpu.launch->traced) join(in, barrier, number_of, syncs);
        barrier.lanes[thread.warp()] |= 1u << thread.lane();
        ++barrier.arrived;
        barrier.holding += thread.wait.value != 0;
        if (wait) barrier.waiting.push_back(number_of);
    }
    if (is_complete(in, barrier)) complete(in, barrier);
}

void forget_order(Block& in) {
    for (NamedBarrier& barrier : in.named) barrier.joined.clear();
    in.clocks.clear();
}

void complete_named(Block& in) {
    for (NamedBarrier& barrier : in.named)
        if (is_complete(in, barrier)) complete(in, barrier);
}

}  // namespace emulator
