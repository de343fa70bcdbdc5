// Every access of a traced kernel comes through here: is it inside a tensor, is it ordered after what it conflicts with?
#include "order.h"

#include <cstring>
#include <deque>

namespace cuda_trace {
namespace {

std::deque<Crowd> crowds;
std::deque<std::vector<Cell>> split;

bool in_copy;  // the write that is seen now is that of an asynchronous copy, and comes later

struct {  // a write that raced: did it change what was there?
    long record = -1;
    const unsigned char* place;
    unsigned size;
    unsigned char was[16];
} unsettled;

bool is_shared(const Region& region) { return region.space == SHARED_STATIC || region.space == SHARED_DYNAMIC; }

void race(const Region& region, Conflict with, What was, uintptr_t address, size_t size, What what, uintptr_t pc) {
    Record& record = add_record(RACE, &region, address, size, 2, side_of_past(with.serial, with.thread, was, with.site),
                                side_of(*now, *block, what, pc));
    if (what != WRITE || was == ATOMIC || in_copy || record.count > 64 || size > sizeof unsettled.was) return;
    settle_value();
    unsettled.record = record_number(record);
    unsettled.place = reinterpret_cast<const unsigned char*>(address);
    unsettled.size = static_cast<unsigned>(size);
    memcpy(unsettled.was, unsettled.place, size);
}

void read_early(Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    if (cell.early_in != block->serial) cell.early = 0;
    cell.early_in = block->serial;
    for (uint32_t at = cell.early; at; at = block->early[at - 1].next)
        if (block->early[at - 1].side.pc == pc) return;
    block->early.push_back({&region, address, size, side_of(*now, *block, what, pc), cell.early});
    cell.early = static_cast<uint32_t>(block->early.size());
}

void tell(Early& early) {
    if (early.region) add_record(UNINITIALISED, early.region, early.address, early.size, 1, early.side);
    early.region = nullptr;
}

// The cell is written: by chance late, if that raced; too late, if it was in order. A thread's own write decides nothing, as
// another's may still come.
void settle_early(Cell& cell, bool raced) {
    bool own = true;
    for (uint32_t at = cell.early; at; at = block->early[at - 1].next)
        own &= !memcmp(block->early[at - 1].side.thread, &now->index, sizeof now->index);
    if (own && !raced) return;
    for (uint32_t at = cell.early; at; at = block->early[at - 1].next) {
        if (raced) block->early[at - 1].region = nullptr;
        tell(block->early[at - 1]);
    }
    cell.early = 0;
}

// One cell, one access of the running thread: judged against what is remembered, then remembered itself.
void see_cell(Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    uint32_t site = site_of(pc);
    Crowd& reads = cell.reads;
    if (what == READ && reads.serial == block->serial && reads.interval == block->interval &&
        reads.first / WARP == now->warp() && reads.syncs == syncs_now() && (reads.lanes >> now->lane() & 1) && !cell.copying)
        return;  // it has read this before, and nothing has happened since that was not judged then
    if (cell.copying == block->serial)
        add_record(ASYNC, &region, address, size, 1, side_of(*now, *block, what, pc));
    if (what != WRITE && is_shared(region) && cell.write.serial != block->serial &&
        !(cell.atomics && cell.atomics->serial == block->serial) && cell.copying != block->serial)
        read_early(cell, region, address, size, what, pc);
    bool raced = false;
    auto judge = [&](Conflict with, What was) {
        if (with.found) race(region, with, was, address, size, what, pc);
        raced |= with.found;
    };
    judge(conflict_with(cell.write), WRITE);
    if (what != ATOMIC && cell.atomics) judge(conflict_with(*cell.atomics), ATOMIC);
    if (what != READ) judge(conflict_with(reads), READ);
    if (what != READ && cell.early && cell.early_in == block->serial) settle_early(cell, raced);
    if (what == READ) {
        join(reads, site);
    } else if (what == ATOMIC) {
        if (!cell.atomics) {
            crowds.push_back({});
            crowds.back().before = NOBODY;
            cell.atomics = &crowds.back();
        }
        join(*cell.atomics, site);
    } else {
        cell.write = {block->serial, block->interval, syncs_now(), site, me()};
        reads.serial = 0;
        if (cell.atomics) cell.atomics->serial = 0;
    }
}

Older* copied(const Older* older) {
    if (!older) return nullptr;
    Older* rest = copied(older->next);
    olders.push_back({older->syncs, older->lanes, older->site, rest});
    return &olders.back();
}

Cell* bytes_of(Cell& cell, unsigned count) {
    if (!cell.bytes) {
        Cell each = cell;
        std::vector<Cell> parts(count, each);
        for (auto& part : parts) {  // what each remembers goes its own way from here
            part.reads.older = copied(each.reads.older);
            if (!each.atomics) continue;
            crowds.push_back(*each.atomics);
            part.atomics = &crowds.back();
            part.atomics->older = copied(each.atomics->older);
        }
        split.push_back(std::move(parts));
        cell.bytes = split.back().data();
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

// Outside of all that may be touched. Where no memory of ours is, the launch ends here, as it would on a GPU.
void stray(Region* near, uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    add_record(OUTSIDE, near, address, bytes, 1, side_of(*now, *block, what, pc));
    bool ours = near && (near->soft ? address >= near->margin_low && address + bytes <= near->margin_high
                                    : address >= near->low && address + bytes <= near->high);
    if (!ours) stop_launch();
}

}  // namespace

// A thread that touches the same few places for ever, while all others wait, waits for something that never comes.
// It lets the others run now and then; the scheduler ends what goes on for too long.
void watch_spinning(uintptr_t address, uintptr_t pc) {
    for (uintptr_t seen : now->recent)
        if (seen == address) {
            now->recent_pc = pc;
            if ((++now->since_new & 0x3FFF) == 0) yield_now();
            return;
        }
    now->recent[now->next_recent++ & 3] = address;
    now->since_new = 0;
}

void tell_early(Block& of) {
    for (Early& early : of.early) tell(early);
    of.early.clear();
}

void settle_value() {
    if (unsettled.record < 0) return;
    bool same = memcmp(unsettled.was, unsettled.place, unsettled.size) == 0;
    note_value(unsettled.record, same);
    unsettled.record = -1;
}

void see_access(uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    if (!bytes) return;
    if (address - reinterpret_cast<uintptr_t>(now->fiber->stack) < STACK) return;  // its own local memory
    settle_value();
    stop_if_told(pc);
    now->left_early = false;
    if (options.switch_chance > 0 && (random_bits() >> 11) * 0x1p-53 < options.switch_chance) {
        bool mine = in_copy;
        in_copy = false;
        yield_now();
        in_copy = mine;
    }
    watch_spinning(address, pc);
    Region* region = region_of(address);
    if (!region || !region->allows(address, bytes)) {
        if (region)
            for (auto& own : region->unwatched)
                if (address >= own.first && address < own.second) return;
        if (in_stacks(address)) {
            add_record(OUTSIDE, nullptr, address, bytes, 1, side_of(*now, *block, what, pc)).space = LOCAL;
            return;
        }
        return stray(region ? region : region_around(address), address, bytes, what, pc);
    }
    if (region->space == PARAMETER || region->read_only) return;
    if (!region->cells) make_cells(*region);
    shared = is_shared(*region);
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
    each_cell(*region, address, bytes, [&](Cell& cell) { see_cell(cell, *region, address, bytes, what, pc); });
}

void see_copy(const Copy& copy, bool begins) {
    auto to = reinterpret_cast<uintptr_t>(copy.to);
    if (begins) {
        see_access(reinterpret_cast<uintptr_t>(copy.from), copy.bytes - copy.filled, READ, copy.pc);
        in_copy = true;
        see_access(to, copy.bytes, WRITE, copy.pc);
        in_copy = false;
    }
    Region* region = region_of(to);
    if (!region || !region->cells || !region->allows(to, copy.bytes)) return;
    uint32_t mark = begins ? block->serial : 0;
    each_cell(*region, to, copy.bytes, [&](Cell& cell) { cell.copying = mark; });
    if (!begins) see_access(to, copy.bytes, WRITE, copy.pc);
}

void forget_shadows() {
    crowds.clear();
    olders.clear();
    split.clear();
}

}  // namespace cuda_trace
