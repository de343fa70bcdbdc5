// Barriers that some threads of a block pass together, and at which others only arrive (bar.sync 1,
// 64; bar.arrive).
//
// They order the threads of some warps and not of others, so each thread has a clock for every
// thread of the block (clocks.cpp).
#include "clusters.h"

#include <cstdio>

namespace emulator {
namespace {

bool is_in(const std::vector<uint32_t>& lanes, const Thread& thread) {
    return lanes.size() > thread.warp() && (lanes[thread.warp()] >> thread.lane() & 1);
}

bool has_arrived(const NamedBarrier& barrier, const Thread& thread) { return is_in(barrier.lanes, thread); }

// A thread that has returned counts as having arrived with its warp or, if all threads take part,
// with the block.
void join_returned(Block& in, NamedBarrier& barrier) {
    for (const Thread& thread : in.threads) {
        if (rank_of(thread.linear) != rank_of(barrier.first) || !is_there(thread.linear)) continue;
        bool takes_part = !barrier.expected || barrier.lanes[thread.warp()];
        if (thread.state == State::done && takes_part && !has_arrived(barrier, thread))
            join(barrier.joined, in, thread.linear, ++in.warps[thread.warp()].syncs);
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
        follow(in, number, done.joined);
        thread.wait.result = result_of(done, thread.wait.op);
        make_ready(in, thread);
    }
}

// A warp arrives when all its threads that have not returned are there. It counts as 32 threads, as
// in PTX, and again if it then waits.
bool is_complete(const Block& in, const NamedBarrier& barrier) {
    if (!barrier.arrived) return false;
    unsigned missing[MOST_BLOCKS * MOST_THREADS / WARP] = {}, not_again[MOST_BLOCKS * MOST_THREADS / WARP] = {}, count = 0;
    for (const Thread& thread : in.threads) {
        if (thread.state == State::done || rank_of(thread.linear) != rank_of(barrier.first)) continue;
        missing[thread.warp()] += !has_arrived(barrier, thread);
        not_again[thread.warp()] += !is_in(barrier.again, thread);
    }
    for (unsigned warp = 0; warp < barrier.lanes.size(); ++warp) {
        if (!barrier.expected && missing[warp]) return false;
        if (barrier.lanes[warp] && !missing[warp]) count += WARP;
        if (barrier.again[warp] && !not_again[warp]) count += WARP;
    }
    return count >= barrier.expected;
}

}  // namespace

void arrive(Block& in, unsigned number, unsigned expected, const std::vector<unsigned>& threads, bool wait) {
    NamedBarrier& barrier = in.named[rank_of(threads[0]) * NAMED + number];
    barrier.first = threads[0];
    if (barrier.arrived && barrier.expected != expected) {
        Record& record = add_record(BARRIER, nullptr, 0, 0, 1, side_waiting(in.threads[threads[0]], in));
        snprintf(record.text, sizeof record.text, "threads arrive at barrier %u for %u threads, others for %u", number, expected,
                 barrier.expected);
    }
    barrier.expected = expected;
    barrier.lanes.resize((in.threads.size() + WARP - 1) / WARP);
    barrier.again.resize(barrier.lanes.size());
    uint32_t syncs = gpu.launch->traced ? ++in.warps[threads[0] / WARP].syncs : 0;
    for (unsigned number_of : threads) {
        Thread& thread = in.threads[number_of];
        // A warp may arrive at the barrier at which it waits next, to pass it the first time: each
        // instruction counts. FlashAttention-3 and -4 let their warpgroups take turns like that.
        bool again = has_arrived(barrier, thread);
        if (again && (!wait || barrier.expected == 0)) {
            Record& record = add_record(BARRIER, nullptr, 0, 0, 1, side_waiting(thread, in));
            snprintf(record.text, sizeof record.text, "a thread arrives again at barrier %u, which is not complete", number);
            continue;
        }
        // Its actions so far happen before anything after the barrier.
        if (gpu.launch->traced) join(barrier.joined, in, number_of, syncs);
        (again ? barrier.again : barrier.lanes)[thread.warp()] |= 1u << thread.lane();
        ++barrier.arrived;
        barrier.holding += thread.wait.value != 0;
        if (wait) barrier.waiting.push_back(number_of);
    }
    if (is_complete(in, barrier)) complete(in, barrier);
}

void complete_named(Block& in) {
    for (NamedBarrier& barrier : in.named)
        if (is_complete(in, barrier)) complete(in, barrier);
}

}  // namespace emulator
