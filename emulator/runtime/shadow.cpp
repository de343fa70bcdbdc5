// Checks every access of a traced kernel: is it inside a tensor, and does every conflicting access happen before it?
#include "happens_before.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

namespace emulator {
namespace {

std::deque<AccessSet> atomic_sets;
std::deque<std::vector<Cell>> byte_cells;

bool in_copy;  // the write being checked is that of an asynchronous copy, which is made later

struct {  // the last write that raced, until it is known whether it changed the value
    long record = -1;
    const unsigned char* place;
    unsigned size;
    unsigned char was[16];
    bool together;
} unsettled;

bool together;  // the write being checked and the one before it are one store of a warp

bool executed_together(const LastWrite& last, What what, uint32_t site) {
    return launch->replicated && what == WRITE && !in_copy && last.serial == block->serial &&
           last.thread / WARP == now->warp() && last.site == site && last.step == now->stores;
}

// Whether two values can be copies of one sum, to which each lane added in an order of its own: a warp stores one of them.
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

bool is_shared(const Region& region) { return region.space == SHARED_STATIC || region.space == SHARED_DYNAMIC; }

void race(const Region& region, Conflict with, What was, uintptr_t address, size_t size, What what, uintptr_t pc) {
    Record& record = add_record(RACE, &region, address, size, 2, side_of_earlier(with.serial, with.thread, was, with.site),
                                side_of(*now, *block, what, pc));
    if (what != WRITE || was == ATOMIC || in_copy || size > sizeof unsettled.was) return;
    record.copies = launch->replicated && was == WRITE && with.serial == block->serial && (record.count == 1 || record.copies);
    if (record.copies ? record.same_value == 0 : record.count > 64) return;
    settle_value();
    unsettled.record = record_number(record);
    unsettled.place = reinterpret_cast<const unsigned char*>(address);
    unsettled.size = static_cast<unsigned>(size);
    unsettled.together = together;
    memcpy(unsettled.was, unsettled.place, size);
}

void note_uninitialised_read(Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    if (cell.uninitialised_in != block->serial) cell.uninitialised = 0;
    cell.uninitialised_in = block->serial;
    for (uint32_t at = cell.uninitialised; at; at = block->uninitialised[at - 1].next)
        if (block->uninitialised[at - 1].side.pc == pc) return;
    block->uninitialised.push_back({&region, address, size, side_of(*now, *block, what, pc), cell.uninitialised});
    cell.uninitialised = static_cast<uint32_t>(block->uninitialised.size());
}

void record_read(UninitialisedRead& read) {
    if (read.region) add_record(UNINITIALISED, read.region, read.address, read.size, 1, read.side);
    read.region = nullptr;
}

// A write to a cell that was read before. If the two race, the reads are dropped; if they are ordered, they are recorded. A
// write by the reading thread decides nothing, because another thread's write may follow.
void settle_uninitialised_reads(Cell& cell, bool raced) {
    bool own = true;
    for (uint32_t at = cell.uninitialised; at; at = block->uninitialised[at - 1].next)
        own &= !memcmp(block->uninitialised[at - 1].side.thread, &now->index, sizeof now->index);
    if (own && !raced) return;
    for (uint32_t at = cell.uninitialised; at; at = block->uninitialised[at - 1].next) {
        if (raced) block->uninitialised[at - 1].region = nullptr;
        record_read(block->uninitialised[at - 1]);
    }
    cell.uninitialised = 0;
}

// Checks one access of the running thread against one cell, then remembers it there.
void check_cell(Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    uint32_t site = site_of(pc);
    AccessSet& reads = cell.reads;
    if (what == READ && reads.serial == block->serial && reads.interval == block->interval &&
        reads.first / WARP == now->warp() && reads.syncs == syncs_now() && (reads.lanes >> now->lane() & 1) && !cell.copying)
        return;  // the same read was checked before, and nothing has changed since
    if (cell.copying == block->serial)
        add_record(ASYNC, &region, address, size, 1, side_of(*now, *block, what, pc));
    if (what != WRITE && is_shared(region) && cell.write.serial != block->serial &&
        !(cell.atomics && cell.atomics->serial == block->serial) && cell.copying != block->serial)
        note_uninitialised_read(cell, region, address, size, what, pc);
    bool raced = false;
    auto check = [&](Conflict with, What was) {
        if (with.found) race(region, with, was, address, size, what, pc);
        raced |= with.found;
    };
    together = executed_together(cell.write, what, site);
    check(conflict_with(cell.write), WRITE);
    together = false;
    if (what != ATOMIC && cell.atomics) check(conflict_with(*cell.atomics), ATOMIC);
    if (what != READ) check(conflict_with(reads), READ);
    if (what != READ && cell.uninitialised && cell.uninitialised_in == block->serial) settle_uninitialised_reads(cell, raced);
    if (what == READ) {
        add_access(reads, site);
    } else if (what == ATOMIC) {
        if (!cell.atomics) {
            atomic_sets.push_back({});
            atomic_sets.back().before = NOBODY;
            cell.atomics = &atomic_sets.back();
        }
        add_access(*cell.atomics, site);
    } else {
        cell.write = {block->serial, block->interval, syncs_now(), site, self(), now->stores};
        reads.serial = 0;
        if (cell.atomics) cell.atomics->serial = 0;
    }
}

EarlierLanes* copied(const EarlierLanes* earlier) {
    if (!earlier) return nullptr;
    EarlierLanes* rest = copied(earlier->next);
    earlier_lanes.push_back({earlier->syncs, earlier->lanes, earlier->site, earlier->warp, rest});
    return &earlier_lanes.back();
}

Cell* bytes_of(Cell& cell, unsigned count) {
    if (!cell.bytes) {
        Cell each = cell;
        std::vector<Cell> parts(count, each);
        for (auto& part : parts) {  // each needs sets of its own, as they change separately from here
            part.reads.earlier = copied(each.reads.earlier);
            if (!each.atomics) continue;
            atomic_sets.push_back(*each.atomics);
            part.atomics = &atomic_sets.back();
            part.atomics->earlier = copied(each.atomics->earlier);
        }
        byte_cells.push_back(std::move(parts));
        cell.bytes = byte_cells.back().data();
    }
    return cell.bytes;
}

template <class See>
void each_cell(Region& region, uintptr_t address, size_t bytes, See see) {
    uintptr_t at = address - region.low, end = at + bytes;
    const uintptr_t width = uintptr_t(1) << region.shift;
    while (at < end) {
        Cell& cell = region.cells[at >> region.shift];
        uintptr_t low = at & ~(width - 1), next = low + width;
        uintptr_t stop = next < end ? next : end;
        if (!cell.bytes && at == low && stop == next)
            see(cell);
        else
            for (uintptr_t i = at; i < stop; ++i) see(bytes_of(cell, static_cast<unsigned>(width))[i - low]);
        at = stop;
    }
}

void make_cells(Region& region) {
    region.own.resize(((region.high - region.low) >> region.shift) + 1);
    region.cells = region.own.data();
}

// An access outside of all tensors and variables. If the memory is not the emulator's, the launch ends here, as on a GPU.
void record_outside(Region* near, uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    add_record(OUTSIDE, near, address, bytes, 1, side_of(*now, *block, what, pc));
    bool harmless = near && (near->soft ? address >= near->margin_low && address + bytes <= near->margin_high
                                    : address >= near->low && address + bytes <= near->high);
    if (near && near->space == MODULE) harmless &= what == READ;  // its other data are the emulator's and the loader's
    if (!harmless) stop_launch();
}

}  // namespace

// A thread that keeps accessing the same few addresses may be waiting for another thread. It lets the others run now and
// then; the scheduler ends the launch if every thread waits or spins.
void detect_spinning(uintptr_t address, uintptr_t pc) {
    for (uintptr_t seen : now->recent)
        if (seen == address) {
            now->recent_pc = pc;
            if ((++now->since_new & 0x3FFF) == 0) yield_now();
            return;
        }
    now->recent[now->next_recent++ & 3] = address;
    now->since_new = 0;
}

void record_uninitialised_reads(Block& of) {
    for (UninitialisedRead& read : of.uninitialised) record_read(read);
    of.uninitialised.clear();
}

void settle_value() {
    if (unsettled.record < 0) return;
    bool same = unsettled.together ? are_close(unsettled.was, unsettled.place, unsettled.size)
                                   : memcmp(unsettled.was, unsettled.place, unsettled.size) == 0;
    note_value(unsettled.record, same);
    unsettled.record = -1;
}

void switch_at_random() {
    if (!launch->switched || (random_bits() >> 11) * 0x1p-53 >= options.switch_chance) return;
    bool saved = in_copy;
    in_copy = false;
    yield_now();
    in_copy = saved;
}

// Counts down to the next switch, as a random number for each access would take most of the time.
void pass_access(uintptr_t address, uintptr_t pc) {
    if (launch->until_switch--) return;
    launch->until_switch = random_bits() % static_cast<uint64_t>(2 / options.switch_chance + 1);
    stop_if_requested(pc);
    bool own = address - now->own < now->own_bytes;  // the thread's local memory
    if (!own) yield_now();
}

void check_access(uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    if (!bytes) return;
    if (address - now->own < now->own_bytes) return;  // the thread's own local memory
    settle_value();
    if (now->fiber) {  // another engine does the same for a whole warp
        stop_if_requested(pc);
        now->left_early = false;
        switch_at_random();
        detect_spinning(address, pc);
    }
    Region* region = region_of(address);
    if (!region || !region->allows(address, bytes) || (region->read_only && what != READ)) {
        if (region)
            for (auto& own : region->unwatched)
                if (address >= own.first && address < own.second) return;
        if (in_stacks(address) || in_local(address)) {
            add_record(OUTSIDE, nullptr, address, bytes, 1, side_of(*now, *block, what, pc)).space = LOCAL;
            return;
        }
        return record_outside(region ? region : region_around(address), address, bytes, what, pc);
    }
    if (region->space == PARAMETER || region->read_only) return;
    if (!region->cells) make_cells(*region);
    in_shared = is_shared(*region);
    new_access();
    if (!region->written.empty()) {
        for (size_t i = address - region->low, end = i + bytes; i < end; ++i) {
            if (what == READ && !region->written[i]) {
                add_record(UNINITIALISED, region, address, bytes, 1, side_of(*now, *block, what, pc));
                break;
            }
            if (what != READ) region->written[i] = true;
        }
    }
    each_cell(*region, address, bytes, [&](Cell& cell) { check_cell(cell, *region, address, bytes, what, pc); });
}

void check_copy(const Copy& copy, bool begins) {
    auto to = reinterpret_cast<uintptr_t>(copy.to);
    if (begins) {
        check_access(reinterpret_cast<uintptr_t>(copy.from), copy.bytes - copy.filled, READ, copy.pc);
        in_copy = true;
        check_access(to, copy.bytes, WRITE, copy.pc);
        in_copy = false;
    }
    Region* region = region_of(to);
    if (!region || !region->cells || !region->allows(to, copy.bytes)) return;
    each_cell(*region, to, copy.bytes, [&](Cell& cell) {
        if (cell.copying != block->serial) cell.copies = 0;
        cell.copies = begins ? cell.copies + 1 : cell.copies ? cell.copies - 1 : 0;
        cell.copying = cell.copies ? block->serial : 0;
    });
    if (begins) return;
    check_access(reinterpret_cast<uintptr_t>(copy.from), copy.bytes - copy.filled, READ, copy.pc);
    check_access(to, copy.bytes, WRITE, copy.pc);
}

void forget_shadows() {
    atomic_sets.clear();
    earlier_lanes.clear();
    byte_cells.clear();
}

}  // namespace emulator

using namespace emulator;

extern "C" void emulator_access(const void* place, size_t bytes, What what, uintptr_t pc) {
    if (!now) return;
    if (launch->traced) check_access(reinterpret_cast<uintptr_t>(place), bytes, what, pc);
    else if (launch->switched) pass_access(reinterpret_cast<uintptr_t>(place), pc);
}
