// Barriers that some threads of a block pass together, and that others only arrive at (bar.sync 1, 64; bar.arrive).
//
// They order the threads of some warps and not of others, so each thread has a clock for every thread of the block: clocks as in
// struct Warp, a time being the number of synchronisations of the thread's warp.
#include "runtime.h"

#include <algorithm>
#include <cstdio>

namespace emulator {
namespace {

// What each of them did so far happens before what comes after the barrier.
void join(Block& in, NamedBarrier& barrier, const std::vector<unsigned>& threads) {
    size_t count = in.threads.size();
    barrier.joined.resize(count);
    uint32_t syncs = ++in.warps[threads[0] / WARP].syncs;
    for (unsigned thread : threads) {
        const uint32_t* clock = clock_of(in, thread);
        for (size_t m = 0; m < count; ++m) barrier.joined[m] = std::max(barrier.joined[m], clock[m]);
        barrier.joined[thread] = syncs;
    }
}

void complete(Block& in, NamedBarrier& barrier) {
    NamedBarrier done;
    std::swap(done, barrier);  // empty again before anybody goes on
    for (unsigned number : done.waiting) {
        Thread& thread = in.threads[number];
        if (!done.joined.empty()) {
            uint32_t* clock = clock_of(in, number);
            for (size_t m = 0; m < in.threads.size(); ++m) clock[m] = std::max(clock[m], done.joined[m]);
        }
        thread.wait.result = done.holding;
        thread.wait.width = static_cast<int>(done.arrived);
        make_ready(in, thread);
    }
}

bool is_complete(const Block& in, const NamedBarrier& barrier) {
    return barrier.arrived && barrier.arrived >= (barrier.expected ? barrier.expected : in.alive);
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
    if (launch->traced) join(in, barrier, threads);
    for (unsigned thread : threads) {
        ++barrier.arrived;
        barrier.holding += in.threads[thread].wait.value != 0;
        if (wait) barrier.waiting.push_back(thread);
    }
    if (is_complete(in, barrier)) complete(in, barrier);
}

void complete_named(Block& in) {
    for (NamedBarrier& barrier : in.named)
        if (!barrier.expected && is_complete(in, barrier)) complete(in, barrier);
}

}  // namespace emulator
