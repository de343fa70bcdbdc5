// What was observed, as plain structs for Python: one record for all observations of one kind, pair of sites and region.
#include "runtime.h"

#include <cstring>
#include <dlfcn.h>
#include <deque>
#include <map>
#include <tuple>

namespace emulator {
namespace {

using Key = std::tuple<int, int, int, uint64_t, uint64_t, std::string, std::string>;
std::deque<Record> records;
std::map<Key, long> numbers;
uint64_t accesses;
std::map<long, uint64_t> counted_at;

std::string place(const Side& side) {
    return side.file ? std::string(side.file) + ":" + std::to_string(side.line) : std::string();
}

void put(unsigned (&to)[3], Dim from) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
}

Dim spread(unsigned linear, Dim size) { return {linear % size.x, linear / size.x % size.y, linear / size.x / size.y}; }

}  // namespace

Side side_of(const Thread& thread, const Block& in, What what, uintptr_t pc) {
    Side side = {};
    side.what = what;
    side.pc = pc;
    put(side.thread, thread.index);
    put(side.block, in.index);
    return side;
}

Side side_waiting(const Thread& thread, const Block& in) {
    Side side = side_of(thread, in, WAIT, 0);
    side.file = thread.wait.file;
    side.line = thread.wait.line;
    return side;
}

Side side_of_earlier(uint32_t serial, unsigned thread, What what, uint32_t site) {
    Side side = {};
    side.what = what;
    side.pc = launch->code + site;
    put(side.thread, spread(thread, launch->request->block));
    put(side.block, spread(serial - launch->first_serial, launch->request->grid));
    return side;
}

void new_access() { ++accesses; }

long record_number(const Record& record) {
    for (long i = 0; i < static_cast<long>(records.size()); ++i)
        if (&records[static_cast<size_t>(i)] == &record) return i;
    return -1;
}

void note_value(long number, bool same) {
    Record& record = records[static_cast<size_t>(number)];
    record.same_value = record.same_value == 0 ? 0 : same;
}

Record& add_record(Kind kind, const Region* region, uintptr_t address, size_t size, int sides, Side first, Side second) {
    int space = region ? region->space : NOWHERE, id = region ? region->id : -1;
    // A race of two lines is one record, whichever ran first.
    bool swapped = kind == RACE && second.pc < first.pc;
    const Side &one = swapped ? second : first, &two = swapped ? first : second;
    Key key(kind, space, id, one.pc, two.pc, place(one), place(two));
    auto [entry, is_new] = numbers.try_emplace(key, static_cast<long>(records.size()));
    if (is_new) {
        Record record = {};
        record.kind = kind;
        record.space = space;
        record.region = id;
        record.same_value = -1;
        uintptr_t base = !region ? 0 : region->space == MODULE && region->id < 0 ? launch->code : region->low;
        record.offset = static_cast<int64_t>(address - base);
        record.size = size;
        record.sides = sides;
        record.first = first;
        record.second = second;
        Dl_info info;
        record.code = launch ? launch->code : 0;
        record.library = !launch ? "" : launch->request->module->name ? launch->request->module->name
                         : dladdr(launch->request->module, &info) ? info.dli_fname : "";
        records.push_back(record);
    }
    Record& record = records[static_cast<size_t>(entry->second)];
    if (is_new || counted_at[entry->second] != accesses) ++record.count;
    counted_at[entry->second] = accesses;
    return record;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

size_t emulator_records() { return records.size(); }

const Record* emulator_record(size_t number) { return &records[number]; }

void emulator_forget_records() {
    records.clear();
    numbers.clear();
    counted_at.clear();
}
}
