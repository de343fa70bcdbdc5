// The addresses that a kernel may access: tensors, device allocations, local memory, and a module's
// memory (modules.cpp).
#include "runtime.h"

#include <algorithm>
#include <map>

namespace emulator {
namespace {

constexpr size_t ALLOCATION_MARGIN = 64 * 1024;

std::vector<Region*> regions;  // by margin_low; margins do not overlap other regions
// Region of the last access, as most accesses are in the same region as the one before.
Region* last = nullptr;
std::map<void*, Region> allocations;  // by address
// Local memory of all threads of the block, if they have no fibers.
uintptr_t local_low = 0, local_high = 0;

Region* find(uintptr_t address) {
    auto at = std::upper_bound(regions.begin(), regions.end(), address,
                               [](uintptr_t a, Region* region) { return a < region->low; });
    return at == regions.begin() ? nullptr : *(at - 1);
}

}  // namespace

void add_region(Region* region) {
    auto at = std::lower_bound(regions.begin(), regions.end(), region,
                               [](Region* a, Region* b) { return a->low < b->low; });
    regions.insert(at, region);
    last = nullptr;
}

void remove_region(Region* region) {
    auto at = std::find(regions.begin(), regions.end(), region);
    if (at != regions.end()) regions.erase(at);
    last = nullptr;
}

Region* region_of(uintptr_t address) {
    if (last && address - last->low < last->high - last->low) return last;
    Region* region = find(address);
    if (!region || address >= region->high) return nullptr;
    return last = region;
}

Region* region_around(uintptr_t address) {
    for (Region* region : regions)
        if (address >= region->margin_low && address < region->margin_high) return region;
    return nullptr;
}

void forget_regions() {
    for (Region* region : regions) region->forget();
}

bool in_local(uintptr_t address) { return address - local_low < local_high - local_low; }

void set_local(uintptr_t low, size_t bytes) {
    local_low = low;
    local_high = low + bytes;
}

void allocation_added(void* base, size_t bytes) {
    Region& region = allocations[base] = Region{};
    region.low = reinterpret_cast<uintptr_t>(base);
    region.high = region.low + bytes;
    region.margin_low = region.low - ALLOCATION_MARGIN;
    region.margin_high = region.high + ALLOCATION_MARGIN;
    region.soft = true;
    region.space = GLOBAL;
    region.shift = 2;
    region.id = -1;
    region.written.assign(bytes, false);
    add_region(&region);
}

void allocation_removed(void* base) {
    auto entry = allocations.find(base);
    if (entry == allocations.end()) return;
    remove_region(&entry->second);
    allocations.erase(entry);
}

void written_by_host(const void* base, size_t bytes) {
    auto low = reinterpret_cast<uintptr_t>(base);
    Region* region = region_of(low);
    if (!region || region->written.empty() || low + bytes > region->high) return;
    std::fill_n(region->written.begin() + static_cast<long>(low - region->low), bytes, true);
}

bool is_device_memory(const void* base, size_t bytes) {
    Region* region = region_of(reinterpret_cast<uintptr_t>(base));
    return region && region->allows(reinterpret_cast<uintptr_t>(base), bytes);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

// A tensor's storage, with `margin` bytes on both sides and `width` bytes per cell. Python chooses
// the id.
void* emulator_add_storage(void* base, size_t bytes, size_t margin, int id, unsigned width) {
    auto* region = new Region{};
    region->low = reinterpret_cast<uintptr_t>(base);
    region->high = region->low + bytes;
    region->margin_low = region->low - margin;
    region->margin_high = region->high + margin;
    region->soft = true;
    region->space = GLOBAL;
    region->id = id;
    region->shift = width >= 4 ? 2 : width == 2 ? 1 : 0;
    region->spans.push_back({region->low, region->low});  // nothing is accessible until add_span
    add_region(region);
    return region;
}

void emulator_add_span(void* storage, size_t from, size_t to) {
    auto* region = static_cast<Region*>(storage);
    region->spans.insert(region->spans.begin(), {region->low + from, region->low + to});
}

// Which bytes of a storage have been written: reads of the others are recorded.
void emulator_set_written(void* storage, const unsigned char* written) {
    auto* region = static_cast<Region*>(storage);
    region->written.assign(written, written + (region->high - region->low));
}

void emulator_get_written(void* storage, unsigned char* written) {
    auto* region = static_cast<Region*>(storage);
    std::copy(region->written.begin(), region->written.end(), written);
}

void emulator_remove_storage(void* storage) {
    remove_region(static_cast<Region*>(storage));
    delete static_cast<Region*>(storage);
}
}
