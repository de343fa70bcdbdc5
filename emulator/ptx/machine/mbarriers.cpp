// The instructions on mbarriers.
#include "bulk.h"
#include "access.h"

#include <algorithm>
#include <cstdio>

namespace emulator::ptx {
namespace {

// The address in shared memory of a lane's mbarrier, after checking that it is one of the block's, or of its cluster's.
// RELEASES: the operation is ordered by a wait for its phase.
template <bool RELEASES = false>
uint32_t object_at(Warp& warp, const Instruction& at, const int32_t* o, unsigned lane) {
    const uint32_t address = shared_offset(warp.first + lane, address_of(warp, o[0], o[1], o[2], lane));
    const uintptr_t host = shared_memory() + address;
    gpu.thread = &thread_of(warp, lane);
    Region* region = region_of(host);
    const bool outside = !region || host + sizeof(uint64_t) > region->high;
    if (!outside && address % sizeof(uint64_t) == 0) {
        if (gpu.launch->cluster > 1) note_shared(host, sizeof(uint64_t), ATOMIC, site_at(warp, at), RELEASES);
        return address;
    }
    Record& record = add_record(outside ? OUTSIDE : MISALIGNED, outside ? region_around(host) : region, host, sizeof(uint64_t), 1,
                                side_here(ATOMIC, site_at(warp, at)));
    if (!outside) snprintf(record.text, sizeof record.text, "an mbarrier's address must be a multiple of 8; it is %u more", address % 8);
    stop_launch();
}

Mbarriers& all() { return asynchronous_of(*gpu.block).mbarriers; }

template <bool RELEASES = false, class F>
Flow each(Warp& warp, const Instruction& at, uint32_t mask, F f) {
    lanes_in(mask, [&](unsigned lane) { f(lane, object_at<RELEASES>(warp, at, at.operand, lane), site_at(warp, at)); });
    gpu.thread = nullptr;
    wake_threads();
    return Flow::next;
}

// [address (3), arrivals]
Flow init(Warp& warp, const Instruction& at, uint32_t mask) {
    return each(warp, at, mask, [&](unsigned lane, uint32_t address, uintptr_t pc) {
        init_mbarrier(all(), address, warp.slot<uint32_t>(at.operand[3])[lane], pc);
    });
}

Flow invalidate(Warp& warp, const Instruction& at, uint32_t mask) {
    return each(warp, at, mask, [&](unsigned, uint32_t address, uintptr_t pc) { invalidate_mbarrier(all(), address, pc); });
}

// [address (3), arrivals or NONE, bytes or NONE, state or NONE, whether it is at the scope of the cluster]
template <bool RELEASES>
Flow arrive(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    return each<RELEASES>(warp, at, mask, [&](unsigned lane, uint32_t address, uintptr_t pc) {
        const Arrival arrival = {o[3] == NONE ? 1 : warp.slot<uint32_t>(o[3])[lane],
                                 o[4] == NONE ? 0 : static_cast<int64_t>(warp.slot<uint32_t>(o[4])[lane]), RELEASES, o[6] != 0};
        const uint32_t phase = arrive_at(all(), address, arrival, pc);
        if (o[5] != NONE) warp.slot<uint64_t>(o[5])[lane] = phase;
    });
}

// [address (3), bytes]
Flow expect(Warp& warp, const Instruction& at, uint32_t mask) {
    return each(warp, at, mask, [&](unsigned lane, uint32_t address, uintptr_t pc) {
        expect_bytes(all(), address, warp.slot<uint32_t>(at.operand[3])[lane], pc);
    });
}

// [address (3), bytes]
Flow complete(Warp& warp, const Instruction& at, uint32_t mask) {
    return each(warp, at, mask, [&](unsigned lane, uint32_t address, uintptr_t pc) {
        complete_bytes(all(), address, warp.slot<uint32_t>(at.operand[3])[lane], warp.first + lane, pc);
    });
}

// Copies of a thread, the first ones, have ended: arrivals come that have waited for them.
void arrive_behind(Block& in, Thread& thread, size_t ended) {
    auto& arrivals = asynchronous_of(in).copy_arrivals;
    for (size_t i = 0; i < arrivals.size();) {
        CopyArrival& of = arrivals[i];
        if (of.thread == thread.linear) of.copies -= std::min(of.copies, ended);
        if (of.thread != thread.linear || of.copies) {
            ++i;
            continue;
        }
        CopyArrival now = std::move(of);
        arrivals.erase(arrivals.begin() + static_cast<long>(i));
        if (now.interval != in.interval) forget_threads(now.before, in);
        gpu.thread = &thread;
        arrive_at(all(), now.mbarrier, {1, 0, true, false, &now.before}, now.site);
    }
}

// After the thread's cp.async, as late as may be [address (3)]; INCREMENTS: the arrival is not among those expected.
template <bool INCREMENTS>
Flow arrive_after_copies(Warp& warp, const Instruction& at, uint32_t mask) {
    return each(warp, at, mask, [&](unsigned, uint32_t address, uintptr_t pc) {
        Block& in = *gpu.block;
        Thread& thread = *gpu.thread;
        if (INCREMENTS) expect_arrival(all(), address, pc);
        CopyArrival arrival = {thread.linear, thread.copies.size(), address, in.interval, {}, pc};
        if (gpu.launch->has_agents) join(arrival.before, in, thread.linear, ++in.warps[thread.warp()].syncs);
        for (Copy& copy : thread.copies) copy.tracked = true;
        asynchronous_of(in).copy_arrivals.push_back(std::move(arrival));
        if (thread.copies.empty()) arrive_behind(in, thread, 0);
        else if (gpu.options.seed && random_bits() & 1) finish_arrival(in, asynchronous_of(in).copy_arrivals.size() - 1);
    });
}

// [predicate, address (3), state or parity, whether it is at the scope of the cluster]. Lanes whose phase has not completed wait at the
// instruction, which may take as long as it likes; only if nothing else can happen would it fail.
template <bool PARITY, bool ACQUIRES, bool PARKS>
Flow wait(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    uint32_t done = 0, parked = 0;
    lanes_in(mask, [&](unsigned lane) {
        const uint32_t address = object_at(warp, at, o + 1, lane);
        const uint32_t phase = PARITY ? warp.slot<uint32_t>(o[4])[lane] : static_cast<uint32_t>(warp.slot<uint64_t>(o[4])[lane]);
        gpu.thread->wait.value = address;
        (wait_at(all(), address, {phase, PARITY, ACQUIRES, o[5] != 0, PARKS}, site_at(warp, at)) ? done : parked) |= 1u << lane;
    });
    gpu.thread = nullptr;
    warp.predicate(o[0]) = (warp.predicate(o[0]) & ~mask) | done;
    if (!parked) return Flow::next;
    if (!PARKS) {  // a kernel that asks again and again lets the copies that it waits for take effect
        if (has_bulk(*gpu.block)) run_bulk(*gpu.block);
        return Flow::next;
    }
    warp.go(done, warp.index_of(at) + 1);
    lanes_in(parked, [&](unsigned lane) {
        Wait wait = {};
        wait.value = shared_offset(warp.first + lane, address_of(warp, o[1], o[2], o[3], lane));
        wait.repeats = true;
        lanes_wait(warp, at, 1u << lane, State::at_mbarrier, wait);
    });
    return Flow::moved;
}

const NamedHandler TABLE[] = {
    {"mbarrier.init", init},
    {"mbarrier.inval", invalidate},
    {"mbarrier.arrive", arrive<true>},
    {"mbarrier.arrive.relaxed", arrive<false>},
    {"mbarrier.expect_tx", expect},
    {"mbarrier.complete_tx", complete},
    {"mbarrier.copies.arrive", arrive_after_copies<true>},
    {"mbarrier.copies.arrive.noinc", arrive_after_copies<false>},
    {"mbarrier.try_wait", wait<false, true, true>},
    {"mbarrier.try_wait.relaxed", wait<false, false, true>},
    {"mbarrier.try_wait.parity", wait<true, true, true>},
    {"mbarrier.try_wait.parity.relaxed", wait<true, false, true>},
    {"mbarrier.test_wait", wait<false, true, false>},
    {"mbarrier.test_wait.relaxed", wait<false, false, false>},
    {"mbarrier.test_wait.parity", wait<true, true, false>},
    {"mbarrier.test_wait.parity.relaxed", wait<true, false, false>},
};

}  // namespace

void finish_arrival(Block& in, size_t which) {
    const CopyArrival& arrival = asynchronous_of(in).copy_arrivals[which];
    Thread& thread = in.threads[arrival.thread];
    const size_t count = arrival.copies;
    gpu.thread = &thread;
    finish_first_copies(thread, count);
    arrive_behind(in, thread, count);
    gpu.thread = nullptr;
}

void end_copies(Thread& thread, unsigned before_batch) {
    const size_t before = thread.copies.size();
    finish_copies(thread, before_batch);
    const size_t ended = before - thread.copies.size();
    if (!ended || asynchronous_of(*gpu.block).copy_arrivals.empty()) return;
    arrive_behind(*gpu.block, thread, ended);
    wake_threads();
}

Handlers mbarrier_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
