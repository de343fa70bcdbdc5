// Checks every access of a traced kernel: is it inside a tensor, and does every conflicting access
// happen before it?
#include "cells.h"
#include "happens_before.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>

namespace emulator {
namespace {

bool executed_together(const LastWrite& last, What what, uint32_t site) {
    return gpu.launch->replicated && what == WRITE && !checking.in_copy && last.serial == gpu.block->serial &&
           last.thread / WARP == gpu.thread->warp() && last.site == site && last.step == gpu.thread->stores;
}

// Whether two values can be copies of one sum that each lane added up in its own order: a warp
// stores one of them.
bool are_close(const unsigned char* a, const unsigned char* b, unsigned size) {
    for (unsigned i = 0; i + 4 <= size; i += 4) {
        float x, y;
        memcpy(&x, a + i, 4);
        memcpy(&y, b + i, 4);
        if (memcmp(a + i, b + i, 4) && !(std::fabs(x - y) <= 0x1p-6f * std::max(std::fabs(x), std::fabs(y)))) return false;
    }
    int16_t x, y;
    if (size != 2) return size >= 4 || *a == *b;
    memcpy(&x, a, 2);
    memcpy(&y, b, 2);
    return std::abs(x - y) <= 8;
}

void race(const Region& region, Conflict with, What was, uintptr_t address, size_t size, What what, uintptr_t pc) {
    Record& record = add_record(RACE, &region, address, size, 2, side_of_earlier(with.serial, with.thread, was, with.site),
                                side_here(what, pc));
    if (with.narrow) snprintf(record.text, sizeof record.text, "%s", NARROW);
    compare_value(record, with.serial, was, address, size, what);
}

bool is_same_thread(const Side& a, const Side& b) {
    return !memcmp(a.thread, b.thread, sizeof a.thread) && !memcmp(a.block, b.block, sizeof a.block);
}

void record_read(UninitialisedRead& read) {
    if (read.region) add_record(UNINITIALISED, read.region, read.address, read.size, 1, read.side);
    read.region = nullptr;
}

// A write to a cell that was read before. If the two race, the reads are dropped; if they are
// ordered, the reads are recorded. A write by the reading thread decides nothing, because another
// thread's write may follow.
void settle_uninitialised_reads(Cell& cell, bool raced, What what) {
    bool own = true;
    for (uint32_t at = cell.uninitialised; at; at = gpu.block->uninitialised[at - 1].next)
        own &= is_same_thread(gpu.block->uninitialised[at - 1].side, side_here(what, 0));
    if (own && !raced) return;
    for (uint32_t at = cell.uninitialised; at; at = gpu.block->uninitialised[at - 1].next) {
        if (raced) gpu.block->uninitialised[at - 1].region = nullptr;
        record_read(gpu.block->uninitialised[at - 1]);
    }
    cell.uninitialised = 0;
}

// Checks one access of the running thread against one cell, then remembers it there.
void check_cell(Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    uint32_t site = site_of(pc);
    AccessSet& reads = cell.reads;
    if (what == READ && reads.serial == gpu.block->serial && reads.interval == gpu.block->interval &&
        reads.first / WARP == gpu.thread->warp() && reads.syncs == syncs_now() &&
        (reads.lanes >> gpu.thread->lane() & 1) && !cell.copying && !cell.agents)
        return;  // the same read was checked before, and nothing has changed since
    if (cell.copying == gpu.block->serial)
        add_record(ASYNC, &region, address, size, 1, side_here(what, pc));
    if (what != WRITE && is_shared(region) && cell.write.serial != gpu.block->serial &&
        !(cell.atomics && cell.atomics->serial == gpu.block->serial) && cell.copying != gpu.block->serial)
        note_uninitialised_read(cell, region, address, size, what, pc);
    bool raced = false;
    auto check = [&](Conflict with, What was) {
        if (with.found) race(region, with, was, address, size, what, pc);
        raced |= with.found;
    };
    // The access conflicts with the last write, with atomics unless it is one, and with reads
    // unless it is one.
    checking.together = executed_together(cell.write, what, site);
    check(conflict_with(cell.write), WRITE);
    checking.together = false;
    if (what != ATOMIC && cell.atomics) check(conflict_with(*cell.atomics, true), ATOMIC);
    if (what != READ) check(conflict_with(reads), READ);
    if (cell.agents) raced |= conflicts_with_agents(cell, region, address, size, what, pc);
    if (what != READ && cell.uninitialised && cell.uninitialised_in == gpu.block->serial)
        settle_uninitialised_reads(cell, raced, what);
    if (what == READ) {
        add_access(reads, site);
    } else if (what == ATOMIC) {
        if (!cell.atomics) {
            checking.atomic_sets.push_back({});
            checking.atomic_sets.back().before = NOBODY;
            cell.atomics = &checking.atomic_sets.back();
        }
        add_access(*cell.atomics, site, true);
    } else {
        cell.write = {gpu.block->serial, gpu.block->interval, syncs_now(), site, self(), gpu.thread->stores};
        // Earlier accesses are forgotten: they are ordered before this write, or the race has been
        // recorded.
        reads.serial = 0;
        cell.agents = nullptr;
        if (cell.atomics) cell.atomics->serial = 0;
    }
}

}  // namespace

// A thread that keeps accessing the same few addresses may be waiting for another thread. Here it
// lets the others run now and then; the scheduler ends the launch if every thread waits or spins.
void detect_spinning(uintptr_t address, uintptr_t pc) {
    for (uintptr_t seen : gpu.thread->recent)
        if (seen == address) {
            gpu.thread->recent_pc = pc;
            if ((++gpu.thread->since_new & 0x3FFF) == 0) yield_now();
            return;
        }
    gpu.thread->recent[gpu.thread->next_recent++ & 3] = address;
    gpu.thread->since_new = 0;
}

void record_uninitialised_reads(Block& of) {
    for (UninitialisedRead& read : of.uninitialised) record_read(read);
    of.uninitialised.clear();
}

void compare_value(Record& record, uint32_t serial, What was, uintptr_t address, size_t size, What what) {
    if (what != WRITE || was == ATOMIC || checking.in_copy || size > sizeof checking.unsettled.was) return;
    record.copies = gpu.launch->replicated && was == WRITE && serial == gpu.block->serial && (record.count == 1 || record.copies);
    if (record.copies ? record.same_value == 0 : record.count > 64) return;
    settle_value();
    auto& write = checking.unsettled;
    write.record = record_number(record);
    write.place = reinterpret_cast<const unsigned char*>(address);
    write.size = static_cast<unsigned>(size);
    write.together = checking.together;
    memcpy(write.was, write.place, size);
}

void settle_value() {
    auto& write = checking.unsettled;
    if (write.record < 0) return;
    bool same = write.together ? are_close(write.was, write.place, write.size)
                               : memcmp(write.was, write.place, write.size) == 0;
    note_value(write.record, same);
    write.record = -1;
}

void switch_at_random() {
    if (!gpu.launch->switched || (random_bits() >> 11) * 0x1p-53 >= gpu.options.switch_chance) return;
    bool saved = checking.in_copy;
    checking.in_copy = false;
    yield_now();
    checking.in_copy = saved;
}

// Counts down to the next switch, because drawing a random number for each access would take most
// of the time.
void pass_access(uintptr_t address, uintptr_t pc) {
    if (gpu.launch->until_switch--) return;
    gpu.launch->until_switch = random_bits() % static_cast<uint64_t>(2 / gpu.options.switch_chance + 1);
    stop_if_requested(pc);
    bool own = address - gpu.thread->own < gpu.thread->own_bytes;  // the thread's local memory
    if (!own) yield_now();
}

void check_access(uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    if (!bytes) return;
    if (address - gpu.thread->own < gpu.thread->own_bytes) return;  // the thread's own local memory
    settle_value();  // a write that raced has happened by now
    if (gpu.thread->fiber) {  // another engine does the same for a whole warp
        stop_if_requested(pc);
        gpu.thread->left_early = false;
        switch_at_random();
        detect_spinning(address, pc);
    }
    Region* region = checked_region(address, bytes, what, pc);
    if (!region) return;
    checking.in_shared = is_shared(*region);
    new_access();
    note_written(*region, address, bytes, what, pc);
    each_cell(*region, address, bytes, [&](Cell& cell) { check_cell(cell, *region, address, bytes, what, pc); });
}

void check_copy(const Copy& copy, bool begins) {
    auto to = reinterpret_cast<uintptr_t>(copy.to);
    if (begins) {
        check_access(reinterpret_cast<uintptr_t>(copy.from), copy.bytes - copy.filled, READ, copy.pc);
        checking.in_copy = true;
        check_access(to, copy.bytes, WRITE, copy.pc);
        checking.in_copy = false;
    }
    Region* region = region_of(to);
    if (!region || !region->cells || !region->allows(to, copy.bytes)) return;
    each_cell(*region, to, copy.bytes, [&](Cell& cell) {
        if (cell.copying != gpu.block->serial) cell.copies = 0;
        cell.copies = begins ? cell.copies + 1 : cell.copies ? cell.copies - 1 : 0;
        cell.copying = cell.copies ? gpu.block->serial : 0;
    });
    if (begins || copy.tracked) return;
    check_access(reinterpret_cast<uintptr_t>(copy.from), copy.bytes - copy.filled, READ, copy.pc);
    check_access(to, copy.bytes, WRITE, copy.pc);
}

void forget_shadows() {
    checking.atomic_sets.clear();
    checking.earlier_lanes.clear();
    checking.agent_accesses.clear();
    checking.byte_cells.clear();
}

}  // namespace emulator

using namespace emulator;

extern "C" void emulator_access(const void* place, size_t bytes, What what, uintptr_t pc) {
    if (!gpu.thread) return;
    if (gpu.launch->traced) check_access(reinterpret_cast<uintptr_t>(place), bytes, what, pc);
    else if (gpu.launch->switched) pass_access(reinterpret_cast<uintptr_t>(place), pc);
}
