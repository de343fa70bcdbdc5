// Memory that a kernel may access (regions.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "shadow.h"

namespace emulator {

enum Space : int { NOWHERE, GLOBAL, SHARED_STATIC, SHARED_DYNAMIC, MODULE, LOCAL, PARAMETER };

struct Region {
    uintptr_t low, high;
    uintptr_t margin_low, margin_high;  // an access in a margin is recorded as beside this region
    bool soft;  // the margins belong to the emulator, so such an access is harmless
    Space space;
    int id;
    unsigned shift;  // a shadow cell covers 1 << shift bytes
    bool read_only;
    Cell* cells;  // null until the first access
    std::vector<Cell> own;
    std::vector<bool> written;  // by byte, for device allocations and torch.empty; else empty
    std::vector<std::pair<uintptr_t, uintptr_t>> spans;  // accessible parts; empty: all of it
    std::vector<std::pair<uintptr_t, uintptr_t>> unwatched;  // variables that the compiler added

    bool allows(uintptr_t from, size_t bytes) const {
        if (spans.empty()) return from >= low && from + bytes <= high;
        for (auto& span : spans)
            if (from >= span.first && from + bytes <= span.second) return true;
        return false;
    }

    void forget() {  // forgets all accesses to it
        cells = nullptr;
        own.clear();
    }
};

Region* region_of(uintptr_t address);  // or null
Region* region_around(uintptr_t address);  // including margins
void add_region(Region* region);
void remove_region(Region* region);
void forget_regions();  // forgets all accesses to them
bool in_local(uintptr_t address);  // whether it is local memory of a thread without a fiber
void set_local(uintptr_t low, size_t bytes);

// Device memory that host code allocates.
void allocation_added(void* base, size_t bytes);  // its contents count as unwritten
void allocation_removed(void* base);
void written_by_host(const void* base, size_t bytes);
bool is_device_memory(const void* base, size_t bytes);  // whether a kernel may access all of it

}  // namespace emulator
