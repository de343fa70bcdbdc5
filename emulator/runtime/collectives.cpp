// Operations of several threads: block barriers, warp operations, atomics, asynchronous copies.
#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace emulator {
namespace {

bool same_place(const Wait& a, const Wait& b) {
    return a.line == b.line && a.place == b.place && !strcmp(a.file, b.file);
}

std::string threads_of(const Block& in, bool (*member)(const Thread&)) {
    std::string text;
    size_t count = 0, first = 0;
    for (size_t i = 0; i < in.threads.size(); ++i)
        if (member(in.threads[i]) && !count++) first = i;
    text = std::to_string(count) + (count == 1 ? " thread" : " threads") + " (the first is " + std::to_string(first) + ")";
    return text;
}

// All threads that have not returned wait at a block barrier: records a mistake if they wait at
// different ones, or if some ran past it.
void check_barrier(const Block& in) {
    const Thread *first = nullptr, *other = nullptr, *past = nullptr;
    for (const Thread& thread : in.threads) {
        if (thread.state == State::at_barrier) {
            if (!first) first = &thread;
            else if (!other && !same_place(first->wait, thread.wait) &&
                     (!gpu.launch->by_barrier || first->warp() == thread.warp())) other = &thread;
            if (gpu.launch->by_barrier && thread.warp() != first->warp()) first = &thread;
        } else if (thread.state == State::done && !thread.left_early && !gpu.launch->by_barrier && !past) {
            past = &thread;
        }
    }
    if (other) {
        Record& record = add_record(BARRIER, nullptr, 0, 0, 2, side_waiting(*first, in), side_waiting(*other, in));
        snprintf(record.text, sizeof record.text, "threads of one block wait at different barriers");
    }
    if (past) {
        Record& record = add_record(BARRIER, nullptr, 0, 0, 1, side_waiting(*first, in));
        std::string who = threads_of(in, [](const Thread& t) { return t.state == State::done && !t.left_early; });
        snprintf(record.text, sizeof record.text, "%s ran past it to the end of the kernel", who.c_str());
    }
}

uint64_t shuffled(const Block& in, const Thread& thread) {
    const Wait& wait = thread.wait;
    unsigned lane = thread.lane(), base = thread.warp() * WARP, width = static_cast<unsigned>(wait.width);
    unsigned segment = lane & ~(width - 1);
    int source = static_cast<int>(lane);
    switch (wait.op) {
        case SHFL: source = static_cast<int>(segment + (static_cast<unsigned>(wait.argument) & (width - 1))); break;
        case SHFL_UP: source -= wait.argument; break;
        case SHFL_DOWN: source += wait.argument; break;
        default: source ^= wait.argument; break;
    }
    bool inside = source >= static_cast<int>(segment) && source < static_cast<int>(segment + width);
    if (wait.op == SHFL_XOR && source < static_cast<int>(segment)) inside = source >= 0;  // an earlier segment can be read
    if (!inside) source = static_cast<int>(lane);
    size_t from = base + static_cast<unsigned>(source);
    bool takes_part = from < in.threads.size() && (wait.mask >> source & 1) && in.threads[from].state == State::at_warp;
    return takes_part ? in.threads[from].wait.value : ~uint64_t(0);  // undefined on a GPU; poison here
}

uint64_t reduced(int op, uint32_t a, uint32_t b) {
    auto sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
    switch (op) {
        case REDUCE_ADD: return a + b;
        case REDUCE_MIN_S: return static_cast<uint32_t>(sa < sb ? sa : sb);
        case REDUCE_MAX_S: return static_cast<uint32_t>(sa > sb ? sa : sb);
        case REDUCE_MIN_U: return a < b ? a : b;
        case REDUCE_MAX_U: return a > b ? a : b;
        case REDUCE_AND: return a & b;
        case REDUCE_OR: return a | b;
        default: return a ^ b;
    }
}

struct Lanes {  // lanes that take part in one warp operation
    Thread* member[WARP];
    unsigned count = 0;
    uint32_t everybody = 0, ballot = 0, total = 0;

    void add(Thread& thread) {
        auto value = static_cast<uint32_t>(thread.wait.value);
        total = count ? static_cast<uint32_t>(reduced(thread.wait.op, total, value)) : value;
        everybody |= 1u << thread.lane();
        if (thread.wait.value) ballot |= 1u << thread.lane();
        member[count++] = &thread;
    }
};

uint64_t result_of(const Block& in, const Lanes& lanes, const Thread& thread) {
    uint32_t same = 0;
    switch (thread.wait.op) {
        case SYNCWARP: return 0;
        case SHFL: case SHFL_UP: case SHFL_DOWN: case SHFL_XOR: return shuffled(in, thread);
        case ALL: return lanes.ballot == lanes.everybody;
        case ANY: return lanes.ballot != 0;
        case BALLOT: return lanes.ballot;
        case MATCH_ANY: case MATCH_ALL:
            for (unsigned i = 0; i < lanes.count; ++i)
                if (lanes.member[i]->wait.value == thread.wait.value) same |= 1u << lanes.member[i]->lane();
            return thread.wait.op == MATCH_ANY ? same : same == lanes.everybody ? same : 0;
        default: return lanes.total;
    }
}

// The same for the clocks of all threads of the block.
void order_among_all(Block& in, unsigned first, Warp& warp, uint32_t mask, uint32_t lanes) {
    Order joined;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned thread = first + static_cast<unsigned>(__builtin_ctz(rest));
        if (thread < in.threads.size()) join(joined, in, thread, warp.syncs);
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        follow(in, first + static_cast<unsigned>(__builtin_ctz(rest)), joined);
}

}  // namespace

void release_if_complete(Block& in) {
    if (!in.waiting || in.waiting != in.alive) return;
    check_barrier(in);
    int count = 0;
    for (const Thread& thread : in.threads)
        if (thread.state == State::at_barrier) count += thread.wait.value != 0;
    for (Thread& thread : in.threads) {
        if (thread.state != State::at_barrier) continue;
        int op = thread.wait.op;
        bool all = count == static_cast<int>(in.waiting);
        thread.wait.result = static_cast<uint64_t>(op == SYNC_AND ? all : op == SYNC_OR ? count > 0 : count);
        make_ready(in, thread);
    }
    in.waiting = 0;
    ++in.interval;
    for (Warp& warp : in.warps)
        if (warp.syncs) warp = Warp{};
    if (gpu.launch->joins_warps) forget_order(in);
}

void complete_warp_op(Block& in, const Thread& arrived) {
    // The lanes of its mask that have not returned must all wait at the same operation; the last to
    // arrive completes it. Lanes mostly arrive in order, so searching from the highest lane down
    // finds a missing one soonest.
    const Wait wait = arrived.wait;
    const unsigned first = arrived.linear - arrived.lane();
    auto missing = [&](const Thread& thread) {
        return thread.state != State::done &&
               !(thread.state == State::at_warp && thread.wait.op == wait.op && thread.wait.mask == wait.mask);
    };
    for (uint32_t rest = wait.mask; rest;) {
        unsigned lane = 31 - static_cast<unsigned>(__builtin_clz(rest));
        rest &= ~(1u << lane);
        if (first + lane < in.threads.size() && missing(in.threads[first + lane])) return;
    }
    Lanes lanes;
    for (uint32_t rest = wait.mask; rest; rest &= rest - 1) {
        size_t at = first + static_cast<unsigned>(__builtin_ctz(rest));
        if (at < in.threads.size() && in.threads[at].state != State::done) lanes.add(in.threads[at]);
    }
    if (wait.op == SYNCWARP && !in.warps.empty()) order_warp(in, arrived.warp(), wait.mask, lanes.everybody);
    for (unsigned i = 0; i < lanes.count; ++i) lanes.member[i]->wait.result = result_of(in, lanes, *lanes.member[i]);
    for (unsigned i = 0; i < lanes.count; ++i) make_ready(in, *lanes.member[i]);
}

// __syncwarp joins the clocks of its lanes: their actions so far, and anything that happens before
// them, happen before their next actions. A lane that has returned counts as having arrived.
void order_warp(Block& in, unsigned warp_number, uint32_t mask, uint32_t lanes) {
    Warp& warp = in.warps[warp_number];
    uint32_t joined[WARP] = {};
    ++warp.syncs;
    if (gpu.launch->joins_warps) return order_among_all(in, warp_number * WARP, warp, mask, lanes);
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1) || warp_number * WARP + lane >= in.threads.size()) continue;
        for (unsigned m = 0; m < WARP; ++m) joined[m] = std::max(joined[m], warp.clock[lane][m]);
        joined[lane] = warp.syncs;
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1) memcpy(warp.clock[__builtin_ctz(rest)], joined, sizeof joined);
}

void complete_without(Block& in, const Thread& gone) {
    size_t first = gone.linear - gone.lane(), end = std::min(first + WARP, in.threads.size());
    for (size_t i = first; i < end; ++i) {
        const Thread& thread = in.threads[i];
        if (thread.state == State::at_warp && (thread.wait.mask >> gone.lane() & 1)) complete_warp_op(in, thread);
    }
}

void finish_copies(Thread& thread, unsigned before_batch) {
    size_t count = 0;  // batches come in order
    while (count < thread.copies.size() && thread.copies[count].batch < before_batch) ++count;
    finish_first_copies(thread, count);
}

void finish_first_copies(Thread& thread, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const Copy& copy = thread.copies[i];
        if (gpu.launch->traced) check_copy(copy, false);
        memcpy(copy.to, copy.from, copy.bytes - copy.filled);
        memset(copy.to + copy.bytes - copy.filled, 0, copy.filled);
    }
    thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<long>(count));
}

}  // namespace emulator

using namespace emulator;

extern "C" {

int emulator_barrier(int op, int value, const char* file, int line, int place) {
    if (!gpu.thread) return 0;
    if (gpu.launch->traced) settle_value();
    gpu.thread->wait = {op, 0, static_cast<uint64_t>(value != 0), 0, 0, 0, file, line};
    gpu.thread->wait.place = place;
    stop_if_requested(0, file, line);
    gpu.thread->left_early = false;
    gpu.thread->state = State::at_barrier;
    gpu.thread->since_new = 0;
    ++gpu.block->waiting;
    release_if_complete(*gpu.block);
    wait_here();
    return static_cast<int>(gpu.thread->wait.result);
}

uint64_t emulator_warp(int op, unsigned mask, uint64_t value, int argument, int width, const char* file, int line) {
    if (!gpu.thread) return value;
    if (gpu.launch->traced) settle_value();
    gpu.thread->wait = {op, mask, value, 0, argument, width, file, line};
    gpu.thread->since_new = 0;
    stop_if_requested(0, file, line);
    gpu.thread->left_early = false;
    if (!(mask >> gpu.thread->lane() & 1)) {
        Record& record = add_record(MASK, nullptr, 0, 0, 1, side_waiting(*gpu.thread, *gpu.block));
        snprintf(record.text, sizeof record.text, "lane %u calls it with mask 0x%08x, which does not include it",
                 gpu.thread->lane(), mask);
        gpu.thread->wait.mask |= 1u << gpu.thread->lane();
    }
    gpu.thread->state = State::at_warp;
    complete_warp_op(*gpu.block, *gpu.thread);
    wait_here();
    return gpu.thread->wait.result;
}

void emulator_atomic(void* place, unsigned bytes, void* old) {
    auto pc = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    if (gpu.thread && gpu.launch->traced)
        check_access(reinterpret_cast<uintptr_t>(place), bytes, ATOMIC, pc);
    else if (gpu.thread) {
        stop_if_requested(pc);
        gpu.thread->left_early = false;
        detect_spinning(reinterpret_cast<uintptr_t>(place), pc);
    }
    memcpy(old, place, bytes);
}

void emulator_put(void* place, unsigned bytes, const void* value) { memcpy(place, value, bytes); }

void emulator_copy_async(void* to, const void* from, unsigned bytes, unsigned filled, const char* file, int line) {
    if (!gpu.thread) return;
    auto target = reinterpret_cast<uintptr_t>(to), source = reinterpret_cast<uintptr_t>(from);
    if (!(bytes == 4 || bytes == 8 || bytes == 16) || target % bytes || source % bytes) {
        Side side = side_here(WRITE, 0);
        side.file = file;
        side.line = line;
        Record& record = add_record(MISALIGNED, region_of(target), target, bytes, 1, side);
        snprintf(record.text, sizeof record.text,
                 "an asynchronous copy has 4, 8 or 16 bytes, aligned to as many: this one has %u", bytes);
        stop_launch();
    }
    Copy copy = {static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes, filled, gpu.thread->batch,
                 reinterpret_cast<uintptr_t>(__builtin_return_address(0))};
    if (gpu.launch->traced) check_copy(copy, true);
    gpu.thread->copies.push_back(copy);
}

void emulator_copy_commit() {
    if (gpu.thread) ++gpu.thread->batch;
}

void emulator_copy_wait(unsigned batches) {
    if (gpu.thread) finish_copies(*gpu.thread, gpu.thread->batch > batches ? gpu.thread->batch - batches : 0);
}
}
