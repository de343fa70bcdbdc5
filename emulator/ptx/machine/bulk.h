// Bulk copies that a block has under way, and its mbarriers.
#pragma once

#include "../../runtime/mbarriers.h"
#include "machine.h"
#include "tensor_maps.h"

#include <deque>

namespace emulator::ptx {

// To shared memory; registers to shared memory; to global memory; added to it.
enum class BulkKind : uint8_t { load, value, store, add };

// What red.async does with the value in shared memory, in the order of REDUCTIONS in clusters.py.
enum class Reduction : uint8_t { none, add, min, max, inc, dec, and_, or_, xor_ };

struct Bulk {  // one bulk copy
    const Instruction* at;
    unsigned thread;
    BulkKind kind;
    bool tiled;                    // by a tensor map; else bytes that are contiguous
    bool repeated;                 // a store that another lane of the warp has made with the same instruction
    uint32_t shared;               // address, counted from the first block of a cluster
    uint64_t global;               // address, of the map if tiled
    uint32_t bytes;
    bool map_in_memory;            // not among the parameters: it is read when the copy takes effect
    TensorMap map;                 // else
    unsigned rank;                 // of the instruction, if tiled
    int32_t corner[5];
    uint32_t mbarrier;             // of a load, as shared
    unsigned char value[16];       // of a store of registers
    Reduction reduction;           // of such a store: of one value
    bool is_signed;                // this value
    uint32_t group;                // of a store
    std::shared_ptr<const Issue> issue;  // if traced
    uintptr_t site;
};

struct CopyArrival {  // cp.async.mbarrier.arrive: an arrival that comes when earlier cp.async of its thread have ended
    unsigned thread;
    size_t copies;      // of its thread, the first ones, that have not ended
    uint32_t mbarrier;  // address, counted from the first block of a cluster
    uint32_t interval;
    Order before;       // what comes before it, if traced
    uintptr_t site;
};

struct BulkGroups {  // of one thread
    uint32_t group = 0;  // number of groups committed
    unsigned reads = 0, writes = 0;  // columns of the clocks, if traced
};

struct Asynchronous {  // of a block
    Mbarriers mbarriers;
    std::deque<Bulk> loads, stores;
    std::deque<CopyArrival> copy_arrivals;
    std::map<unsigned, BulkGroups> groups;  // of threads
    std::map<std::pair<unsigned, const Instruction*>, std::vector<Bulk>> made;  // different stores of a warp
};

Asynchronous& asynchronous_of(const Block& in);  // machine.cpp
bool has_bulk(const Block& in);   // loads are under way, or arrivals behind cp.async
void run_bulk(Block& in);         // one of them takes effect
void finish_arrival(Block& in, size_t which);  // mbarriers.cpp: the copies end, and then the arrival comes
void end_bulk(Block& in, unsigned rank);  // all threads of the block have ended
inline bool is_load(const Bulk& copy) { return copy.kind == BulkKind::load || copy.kind == BulkKind::value; }
// Whether a block's shared memory is the target of a copy to shared memory, or its source.
bool is_of_block(const Bulk& copy, unsigned rank);
void take_effect(Block& in, Bulk copy);  // bulk_effect.cpp
void start_bulk(Warp& warp, const Instruction& at, unsigned lane, Bulk copy);

}  // namespace emulator::ptx
