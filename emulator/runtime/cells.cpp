// Finds the cells of an access.
#include "cells.h"
#include "happens_before.h"

namespace emulator {
namespace {

EarlierLanes* copied(const EarlierLanes* earlier) {
    if (!earlier) return nullptr;
    EarlierLanes* rest = copied(earlier->next);
    checking.earlier_lanes.push_back({earlier->syncs, earlier->lanes, earlier->site, earlier->warp, rest});
    return &checking.earlier_lanes.back();
}

void make_cells(Region& region) {
    region.own.resize(((region.high - region.low) >> region.shift) + 1);
    region.cells = region.own.data();
}

// An access outside all tensors and variables. If the memory is not the emulator's, the launch ends
// here, as on a GPU.
void record_outside(Region* near, uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    add_record(OUTSIDE, near, address, bytes, 1, side_here(what, pc));
    bool harmless = near && (near->soft ? address >= near->margin_low && address + bytes <= near->margin_high
                                    : address >= near->low && address + bytes <= near->high);
    if (near && near->space == MODULE) harmless &= what == READ;  // its other data are the emulator's and the loader's
    if (!harmless) stop_launch();
}

}  // namespace

Cell* bytes_of(Cell& cell, unsigned count) {
    if (!cell.bytes) {
        Cell each = cell;
        std::vector<Cell> parts(count, each);
        for (auto& part : parts) {  // each needs its own sets, as they change separately from here
            part.reads.earlier = copied(each.reads.earlier);
            if (!each.atomics) continue;
            checking.atomic_sets.push_back(*each.atomics);
            part.atomics = &checking.atomic_sets.back();
            part.atomics->earlier = copied(each.atomics->earlier);
        }
        checking.byte_cells.push_back(std::move(parts));
        cell.bytes = checking.byte_cells.back().data();
    }
    return cell.bytes;
}

Region* checked_region(uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    Region* region = region_of(address);
    if (!region || !region->allows(address, bytes) || (region->read_only && what != READ)) {
        if (region)  // the compiler's guards lie between the author's shared variables
            for (auto& own : region->unwatched)
                if (address >= own.first && address < own.second) return nullptr;
        if (in_stacks(address) || in_local(address))
            add_record(OUTSIDE, nullptr, address, bytes, 1, side_here(what, pc)).space = LOCAL;
        else
            record_outside(region ? region : region_around(address), address, bytes, what, pc);
        return nullptr;
    }
    if (region->space == PARAMETER || region->read_only) return nullptr;
    if (!region->cells) make_cells(*region);
    return region;
}

void note_written(Region& region, uintptr_t address, size_t bytes, What what, uintptr_t pc) {
    if (region.written.empty()) return;
    // An atomic operation on a tensor reads, too: adding to torch.empty is a common mistake.
    bool reads = what == READ || (what == ATOMIC && region.id >= 0);
    for (size_t i = address - region.low, end = i + bytes; i < end; ++i) {
        if (reads && !region.written[i]) {
            add_record(UNINITIALISED, &region, address, bytes, 1, side_here(what, pc));
            reads = false;  // once for each access
        }
        if (what != READ) region.written[i] = true;
    }
}

void note_uninitialised_read(Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    if (cell.uninitialised_in != gpu.block->serial) cell.uninitialised = 0;
    cell.uninitialised_in = gpu.block->serial;
    for (uint32_t at = cell.uninitialised; at; at = gpu.block->uninitialised[at - 1].next)
        if (gpu.block->uninitialised[at - 1].side.pc == pc) return;
    gpu.block->uninitialised.push_back({&region, address, size, side_here(what, pc), cell.uninitialised});
    cell.uninitialised = static_cast<uint32_t>(gpu.block->uninitialised.size());
}

}  // namespace emulator
