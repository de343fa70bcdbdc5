// The cells of an access, and the part of a check that does not depend on who makes the access.
#pragma once

#include "runtime.h"

namespace emulator {

inline bool is_shared(const Region& region) { return region.space == SHARED_STATIC || region.space == SHARED_DYNAMIC; }

// Returns the region of an access by the running thread, with cells; null if nothing else is to be
// checked. An access outside is recorded, and ends the launch as on a GPU if it does harm.
Region* checked_region(uintptr_t address, size_t bytes, What what, uintptr_t pc);

// An access to memory that counts as unwritten at first.
void note_written(Region& region, uintptr_t address, size_t bytes, What what, uintptr_t pc);

// A write that races with another access will change the value, or not, which is seen when the next
// access is checked.
void compare_value(Record& record, uint32_t serial, What was, uintptr_t address, size_t size, What what);

// A read of shared memory that no thread of the block has written so far.
void note_uninitialised_read(Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc);

Cell* bytes_of(Cell& cell, unsigned count);  // its cells for each byte

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

}  // namespace emulator
