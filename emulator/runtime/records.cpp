// Observations as plain structs for Python: one record for all observations of one kind, region, pair
// of sites, and what each of them did.
#include "clusters.h"

#include <cstring>
#include <dlfcn.h>
#include <deque>
#include <map>
#include <tuple>

namespace emulator {
namespace {

using Key = std::tuple<int, int, int, uint64_t, uint64_t, std::string, std::string, int, int>;
struct {
    // All records, by number. A deque does not move its elements, and callers hold references.
    std::deque<Record> records;

    // The number of each record, by what it is one for.
    std::map<Key, long> numbers;

    // The number of accesses checked so far.
    uint64_t accesses = 0;

    // The access at which each record was last counted: an access that conflicts in several cells
    // counts once.
    std::map<long, uint64_t> counted_at;
} recorded;

std::string place(const Side& side) {
    return side.file ? std::string(side.file) + ":" + std::to_string(side.line) : std::string();
}

void put(unsigned (&to)[3], Dim from) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
}

// Notes which block of a cluster owns the shared memory.
void note_owner(Record& record, const Region* region) {
    if (!gpu.launch || gpu.launch->cluster == 1 || !region || region->space != SHARED_DYNAMIC) return;
    record.owned = 1;
    const auto offset = region->low - shared_memory();
    put(record.owner, block_of(gpu.block->index, rank_at(offset) * gpu.launch->apart));
}

uintptr_t base_of(const Region* region) {
    if (!region) return 0;
    return region->space == MODULE && region->id < 0 ? gpu.launch->code : region->low;
}

unsigned linear(const unsigned (&thread)[3]) {
    const Dim& size = gpu.launch->request->block;
    return thread[0] + size.x * (thread[1] + size.y * thread[2]);
}

Apart apart_of(const Side& a, const Side& b) {
    if (memcmp(a.block, b.block, sizeof a.block)) return BLOCKS;
    return linear(a.thread) / WARP == linear(b.thread) / WARP ? LANES : WARPS;
}

Dim spread(unsigned linear, Dim size) { return {linear % size.x, linear / size.x % size.y, linear / size.x / size.y}; }

}  // namespace

std::string in_words(Dim index) {
    if (!index.y && !index.z) return std::to_string(index.x);
    return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

Side side_of(const Thread& thread, const Block& in, What what, uintptr_t pc) {
    Side side = {};
    side.what = what;
    side.pc = pc;
    put(side.thread, thread.index);
    put(side.block, block_of(in.index, thread.linear));
    return side;
}

Side side_here(What what, uintptr_t pc) { return side_of(*gpu.thread, *gpu.block, what, pc); }

Side side_waiting(const Thread& thread, const Block& in) {
    Side side = side_of(thread, in, WAIT, 0);
    side.file = thread.wait.file;
    side.line = thread.wait.line;
    return side;
}

Side side_of_earlier(uint32_t serial, unsigned thread, What what, uint32_t site) {
    Side side = {};
    side.what = what;
    side.pc = gpu.launch->code + site;
    put(side.thread, spread(in_block(thread), gpu.launch->request->block));
    put(side.block, block_of(first_block(serial - gpu.launch->first_serial), thread));
    return side;
}

void new_access() { ++recorded.accesses; }

long record_number(const Record& record) {
    for (long i = 0; i < static_cast<long>(recorded.records.size()); ++i)
        if (&recorded.records[static_cast<size_t>(i)] == &record) return i;
    return -1;
}

void note_value(long number, bool same) {
    Record& record = recorded.records[static_cast<size_t>(number)];
    record.same_value = record.same_value == 0 ? 0 : same;
}

Record& add_record(Kind kind, const Region* region, uintptr_t address, size_t size, int sides, Side first, Side second) {
    int space = region ? region->space : NOWHERE, id = region ? region->id : -1;
    // A race of two lines is one record, whichever line ran first.
    bool swapped = kind == RACE && second.pc < first.pc;
    const Side &one = swapped ? second : first, &two = swapped ? first : second;
    // Each of two copies may read what the other one writes: two races.
    Key key(kind, space, id, one.pc, two.pc, place(one), place(two), one.what, two.what);
    auto [entry, is_new] = recorded.numbers.try_emplace(key, static_cast<long>(recorded.records.size()));
    if (is_new) {
        Record record = {};
        record.kind = kind;
        record.space = space;
        record.region = id;
        record.same_value = -1;
        record.offset = static_cast<int64_t>(address - base_of(region));
        note_owner(record, region);
        record.size = size;
        record.sides = sides;
        record.first = first;
        record.second = second;
        Dl_info info;
        record.code = gpu.launch ? gpu.launch->code : 0;
        record.library = !gpu.launch ? "" : gpu.launch->request->module->name ? gpu.launch->request->module->name
                         : dladdr(gpu.launch->request->module, &info) ? info.dli_fname : "";
        recorded.records.push_back(record);
    }
    Record& record = recorded.records[static_cast<size_t>(entry->second)];
    if (int apart = kind == RACE ? apart_of(first, second) : 0; apart > record.apart) {
        // A race of two lanes reads as harmless, so the record shows threads as far apart as any.
        record.apart = apart;
        record.first = first;
        record.second = second;
        record.offset = static_cast<int64_t>(address - base_of(region));
        note_owner(record, region);
        record.size = size;
    }
    if (is_new || recorded.counted_at[entry->second] != recorded.accesses) ++record.count;
    recorded.counted_at[entry->second] = recorded.accesses;
    return record;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

size_t emulator_records() { return recorded.records.size(); }

const Record* emulator_record(size_t number) { return &recorded.records[number]; }

void emulator_forget_records() {
    recorded.records.clear();
    recorded.numbers.clear();
    recorded.counted_at.clear();
}
}
