// The end of a thread, barriers of the block, the clock.
#include "machine.h"

#include <cstdio>

namespace emulator::ptx {
namespace {

Flow end(Warp& warp, const Instruction&, uint32_t mask) { return lanes_end(warp, mask), Flow::moved; }

template <class... Values>
[[noreturn]] void trapped(Warp& warp, const Instruction& at, unsigned lane, const char* format, Values... values) {
    gpu.thread = &thread_of(warp, lane);
    Record& record = add_record(TRAP, nullptr, 0, 0, 1, side_here(TOUCH, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, format, values...);
    stop_launch();
}

Flow trap(Warp& warp, const Instruction& at, uint32_t mask) {
    trapped(warp, at, static_cast<unsigned>(__builtin_ctz(mask)), "%s", "trap");
}

// [message]: the generic address of the asserted expression
Flow assert_failed(Warp& warp, const Instruction& at, uint32_t mask) {
    auto lane = static_cast<unsigned>(__builtin_ctz(mask));
    trapped(warp, at, lane, "assert(%s)", reinterpret_cast<const char*>(warp.slot<uint64_t>(at.operand[0])[lane]));
}

Flow nothing(Warp&, const Instruction&, uint32_t) { return Flow::next; }

// [d, bytes of the register]
Flow clock(Warp& warp, const Instruction& at, uint32_t mask) {
    static uint64_t cycles;
    cycles += 100;
    lanes_in(mask, [&](unsigned lane) {
        if (at.operand[1] == 4) warp.slot<uint32_t>(at.operand[0])[lane] = static_cast<uint32_t>(cycles);
        else warp.slot<uint64_t>(at.operand[0])[lane] = cycles;
    });
    return Flow::next;
}

// ---- barriers of the block ----------------------------------------------------------------------

struct BarrierOperands {
    int32_t id, count, d, predicate, negated;
};

void wrong_number(const Warp& warp, const Instruction& at, unsigned lane, unsigned number, unsigned expected) {
    Record& record = add_record(BARRIER, nullptr, 0, 0, 1, side_of(thread_of(warp, lane), *gpu.block, WAIT, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "barrier %u for %u threads: the number is 0 to 15, the threads a multiple of 32", number,
             expected);
    stop_launch();
}

// Lanes arrive at the barrier of the first lane; PTX requires it to be the same for all.
Flow at_barrier(Warp& warp, const Instruction& at, uint32_t mask, int op, BarrierOperands o, bool waits, const char* name) {
    unsigned first = static_cast<unsigned>(__builtin_ctz(mask));
    unsigned number = warp.slot<uint32_t>(o.id)[first], expected = o.count == NONE ? 0 : warp.slot<uint32_t>(o.count)[first];
    gpu.thread = &thread_of(warp, first);
    if (number > 15 || expected % WARP) wrong_number(warp, at, first, number, expected);
    if (gpu.launch->traced) settle_value();
    Wait wait = {};
    wait.op = op;
    wait.name = name;
    wait.reduces = o.d != NONE;
    lanes_wait(warp, at, mask, State::at_barrier, wait);
    std::vector<unsigned> threads;
    lanes_in(mask, [&](unsigned lane) {
        Thread& thread = thread_of(warp, lane);
        if (o.predicate != NONE) thread.wait.value = (warp.predicate(o.predicate) >> lane & 1) != static_cast<uint32_t>(o.negated);
        threads.push_back(thread.linear);
    });
    gpu.thread = nullptr;
    if (warp.since_new < WAITING) made_progress();
    // In a cluster only clocks order, as a barrier of a block does not order the others.
    bool whole_block = number == 0 && o.count == NONE && waits && gpu.launch->cluster == 1;
    if (whole_block) {
        gpu.block->waiting += static_cast<unsigned>(threads.size());
        release_if_complete(*gpu.block);
    } else {
        if (!waits)
            for (unsigned thread : threads) make_ready(*gpu.block, gpu.block->threads[thread]);
        arrive(*gpu.block, number, expected, threads, waits);
    }
    wake_threads();
    return Flow::moved;
}

// [id, count or NONE]
Flow barrier_sync(Warp& warp, const Instruction& at, uint32_t mask) {
    return at_barrier(warp, at, mask, SYNC, {at.operand[0], at.operand[1], NONE, NONE, 0}, true, "bar.sync");
}

Flow barrier_arrive(Warp& warp, const Instruction& at, uint32_t mask) {
    return at_barrier(warp, at, mask, SYNC, {at.operand[0], at.operand[1], NONE, NONE, 0}, false, "bar.arrive");
}

// [d, id, count or NONE, predicate, negated]
template <int OP>
Flow barrier_reduce(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    return at_barrier(warp, at, mask, OP, {o[1], o[2], o[0], o[3], o[4]}, true, "bar.red");
}

const NamedHandler TABLE[] = {
    {"bra", nothing},  // the main loop executes it
    {"ret", end},
    {"exit", end},
    {"trap", trap},
    {"trap.assert", assert_failed},
    {"clock", clock},
    {"setmaxnreg", nothing},
    {"bar.sync", barrier_sync},
    {"bar.arrive", barrier_arrive},
    {"bar.red.popc", barrier_reduce<SYNC_COUNT>},
    {"bar.red.and", barrier_reduce<SYNC_AND>},
    {"bar.red.or", barrier_reduce<SYNC_OR>},
};

}  // namespace

Handlers control_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
