// Bulk copies between global and shared memory: contiguous bytes, or a box of a tensor by its map.
//
// They are asynchronous. A copy to shared memory takes effect when no thread of the block can
// continue, the latest time that is allowed, a copy to global memory when its thread waits for its
// group. So a kernel that does not wait reads what was there before. With a seed some take effect
// at once, the others at a random time.
#include "bulk.h"
#include "access.h"
#include "number.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace emulator::ptx {
namespace {

constexpr unsigned PIECE = 16;  // bytes that are copied together

// ---- tensor maps --------------------------------------------------------------------------------

template <class T>
T field(const unsigned char* bytes, size_t at) {
    T value;
    memcpy(&value, bytes + at, sizeof value);
    return value;
}

// Bytes of an element, by the number of its type in the bytes of a map (IN_BYTES of tensor_map.py).
constexpr unsigned ELEMENT[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4};

const char* decode(const unsigned char* bytes, TensorMap& map) {
    const auto head = field<uint32_t>(bytes, 8);
    const unsigned type = head >> 7 & 15;
    if ((head & 15) != 2 || type >= sizeof ELEMENT / sizeof *ELEMENT) return "a tensor map that is not one of tiles";
    map.base = field<uint64_t>(bytes, 0);
    map.rank = (head >> 4 & 7) + 1;
    map.element = ELEMENT[type];
    map.swizzle = head >> 13 & 3;
    if (map.rank > 5) return "a tensor map of more than 5 dimensions";
    if (bytes[52] | bytes[53] | bytes[54]) return "a tensor map with element strides";
    for (unsigned i = 0; i < map.rank; ++i) {
        map.extent[i] = uint64_t(field<uint32_t>(bytes, 32 + 4 * i)) + 1;
        map.stride[i] = i ? uint64_t(field<uint32_t>(bytes, 12 + 4 * (i - 1))) * 16 : map.element;
        map.box[i] = bytes[55 + i] + 1u;
    }
    return nullptr;
}

// ---- one copy takes effect ----------------------------------------------------------------------

bool is_load(const Bulk& copy) { return copy.kind == BulkKind::load || copy.kind == BulkKind::value; }

// Whether a block's shared memory is the target of a copy to shared memory, or its source.
bool is_of_block(const Bulk& copy, unsigned rank) {
    const uintptr_t from = copy.global - shared_memory();
    return rank_at(copy.shared) == rank || (from < MOST_BLOCKS * gpu.launch->window && rank_at(from) == rank);
}

class Mover {
public:
    Mover(const Bulk& copy, const Agent& reads, const Agent& writes) : copy(copy), reads(reads), writes(writes) {}

    // Copies a piece of `whole` bytes. Only those from `first` on, `bytes` of them, are in the tensor;
    // in shared memory the others are zeros.
    void move(uint64_t global, uint32_t shared, unsigned first, unsigned bytes, unsigned whole) {
        auto* there = copy.kind == BulkKind::value ? const_cast<unsigned char*>(copy.value) : reinterpret_cast<unsigned char*>(global + first);
        unsigned char* here = emulator_dynamic_shared + shared;
        if (is_load(copy)) {
            if (bytes && copy.kind == BulkKind::load) check(reads, global + first, bytes, READ);
            check(writes, reinterpret_cast<uintptr_t>(here), whole, WRITE);
            memset(here, 0, whole);
            if (bytes) memcpy(here + first, there, bytes);
            return;
        }
        check(reads, reinterpret_cast<uintptr_t>(here), whole, READ);
        if (!bytes || (copy.repeated && !memcmp(there, here, bytes))) return;
        check(writes, global + first, bytes, copy.kind == BulkKind::add ? ATOMIC : WRITE);
        if (copy.kind == BulkKind::store) memcpy(there, here + first, bytes);
        else add(there, here + first, bytes);
    }

private:
    void check(const Agent& agent, uintptr_t address, size_t bytes, What what) {
        if (gpu.launch->traced) return check_agent(agent, address, bytes, what);
        gpu.thread = &gpu.block->threads[copy.thread];
        Region* region = region_of(address);
        if (region && address + bytes <= region->high) return;
        add_record(OUTSIDE, region ? region : region_around(address), address, bytes, 1, side_here(what, copy.site));
        stop_launch();
    }

    void add(unsigned char* to, const unsigned char* from, unsigned bytes) {
        for (unsigned i = 0; i < bytes; i += sizeof(float)) {
            float a, b;
            memcpy(&a, to + i, sizeof a), memcpy(&b, from + i, sizeof b);
            a = canonical(a + b);
            memcpy(to + i, &a, sizeof a);
        }
    }

    const Bulk& copy;
    const Agent &reads, &writes;
};

uint32_t swizzled(uint32_t address, unsigned swizzle) {
    static const uint32_t bits[] = {0, 1, 3, 7};
    return address ^ (address >> 7 & bits[swizzle]) << 4;
}

// Returns the bytes of the box in shared memory, of which complete_tx counts all.
uint32_t bytes_of(const Bulk& copy) {
    if (!copy.tiled) return copy.bytes;
    uint32_t bytes = copy.map.element;
    for (unsigned i = 0; i < copy.map.rank; ++i) bytes *= copy.map.box[i];
    return bytes;
}

void move_box(const Bulk& copy, Mover& mover) {
    const TensorMap& map = copy.map;
    const unsigned line = map.box[0] * map.element;
    uint32_t lines = 1;
    for (unsigned i = 1; i < map.rank; ++i) lines *= map.box[i];
    for (uint32_t l = 0; l < lines; ++l) {
        uint64_t from = map.base;
        bool inside = true;
        uint32_t rest = l;
        for (unsigned i = 1; i < map.rank; ++i) {
            const int64_t at = int64_t(copy.corner[i]) + rest % map.box[i];
            rest /= map.box[i];
            inside &= at >= 0 && static_cast<uint64_t>(at) < map.extent[i];
            from += static_cast<uint64_t>(at) * map.stride[i];
        }
        for (unsigned c = 0; c < line; c += PIECE) {
            const int64_t at = int64_t(copy.corner[0]) + c / map.element;
            const unsigned whole = std::min(PIECE, line - c);
            const int64_t first = std::max<int64_t>(0, -at * map.element);
            const int64_t end = std::min<int64_t>(whole, (static_cast<int64_t>(map.extent[0]) - at) * map.element);
            mover.move(from + static_cast<uint64_t>(at * map.element), swizzled(copy.shared + l * line + c, map.swizzle),
                       static_cast<unsigned>(std::min<int64_t>(first, whole)),
                       inside && end > first ? static_cast<unsigned>(end - first) : 0, whole);
        }
    }
}

// Whole warps execute the stores of CuTe DSL. By the manual each lane makes a copy, of the same
// bytes; in machine code (UTMASTG) one instruction of the warp makes one. So it is no race that
// another lane has written the same bytes.
bool same_store(const Bulk& a, const Bulk& b) {
    return a.kind == BulkKind::store && a.shared == b.shared && a.global == b.global && a.bytes == b.bytes &&
           !memcmp(a.corner, b.corner, sizeof a.corner);
}

bool is_repeated(const Bulk& copy, std::vector<Bulk>& known) {
    for (const Bulk& other : known)
        if (same_store(other, copy)) return other.thread != copy.thread;
    known.push_back(copy);
    return false;
}

uintptr_t shared_at(const Bulk& copy) { return shared_memory() + copy.shared; }

void take_effect(Block& in, Bulk copy) {
    const char* waits = is_load(copy) ? "mbarrier.try_wait" : "cp.async.bulk.wait_group";
    Agent reads = {0, 0, copy.issue, copy.thread, false, copy.site, "bulk copy", waits}, writes = reads;
    Asynchronous& all = asynchronous_of(in);
    if (gpu.launch->traced && is_load(copy)) {
        std::tie(reads.column, reads.epoch) = agents_of(all.mbarriers, copy.mbarrier);
        writes.column = reads.column, writes.epoch = reads.epoch;
    } else if (gpu.launch->traced) {
        const BulkGroups& groups = all.groups[copy.thread];
        reads.column = groups.reads, writes.column = groups.writes;
        reads.epoch = writes.epoch = copy.group;
    }
    if (copy.kind == BulkKind::store) copy.repeated = is_repeated(copy, all.made[{copy.thread / WARP, copy.at}]);
    Mover mover(copy, reads, writes);
    if (copy.tiled) move_box(copy, mover);
    else
        for (uint32_t i = 0; i < copy.bytes; i += PIECE) {
            const unsigned size = std::min(PIECE, copy.bytes - i);
            mover.move(copy.global + i, copy.shared + i, 0, size, size);
        }
    if (is_load(copy) && gpu.launch->cluster > 1) {
        const Side side = side_of(in.threads[copy.thread], in, WRITE, copy.site);
        for (unsigned rank = 0; rank < gpu.launch->cluster; ++rank)
            if (is_of_block(copy, rank)) note_use(rank, writes.column, writes.epoch, side, rank_at(copy.shared) == rank ? shared_at(copy) : copy.global, bytes_of(copy));
    }
    if (is_load(copy)) complete_bytes(all.mbarriers, copy.mbarrier, bytes_of(copy), copy.thread, copy.site);
    gpu.thread = nullptr;
}

// ---- issue --------------------------------------------------------------------------------------

void check_alignment(Warp& warp, const Instruction& at, unsigned lane, uint64_t address, unsigned to, What what) {
    if (address % to == 0) return;
    gpu.thread = &thread_of(warp, lane);
    Record& record = add_record(MISALIGNED, region_of(address), address, to, 1, side_here(what, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "a bulk copy's address must be a multiple of %u; it is %u more", to,
             static_cast<unsigned>(address % to));
    stop_launch();
}

void start(Warp& warp, const Instruction& at, unsigned lane, Bulk copy) {
    const bool load = copy.kind == BulkKind::load;
    check_alignment(warp, at, lane, copy.shared, copy.tiled ? 128 : 16, load ? WRITE : READ);
    if (!copy.tiled) {
        check_alignment(warp, at, lane, copy.global, 16, load ? READ : WRITE);
        check_alignment(warp, at, lane, copy.bytes, 16, READ);
    }
    start_bulk(warp, at, lane, copy);
}

uint64_t value_at(const Warp& warp, const int32_t* o, unsigned lane) { return address_of(warp, o[0], o[1], o[2], lane); }

uint32_t offset_at(const Warp& warp, const int32_t* o, unsigned lane) { return shared_offset(warp.first + lane, value_at(warp, o, lane)); }

// Starts a load in each block of a mask [mask], or NONE: in the block whose address is given.
void start_in_blocks(Warp& warp, const Instruction& at, unsigned lane, Bulk copy, int32_t mask) {
    if (mask == NONE) return start(warp, at, lane, copy);
    const uint32_t window = static_cast<uint32_t>(gpu.launch->window), blocks = warp.slot<uint16_t>(mask)[lane];
    const uint32_t to = copy.shared - rank_at(copy.shared) * window, mbarrier = copy.mbarrier - rank_at(copy.mbarrier) * window;
    check_ranks(warp, at, lane, blocks);
    for (unsigned rank = 0; rank < gpu.launch->cluster; ++rank) {
        if (!(blocks >> rank & 1)) continue;
        copy.shared = to + rank * window;
        copy.mbarrier = mbarrier + rank * window;
        start(warp, at, lane, copy);
    }
}

// [rank, shared address (3), map (3), coordinates (rank), mbarrier (3) of a load, its mask of blocks or NONE]
template <BulkKind KIND>
Flow copy_box(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    lanes_in(mask, [&](unsigned lane) {
        Bulk copy = {};
        copy.kind = KIND;
        copy.tiled = true;
        copy.shared = offset_at(warp, o + 1, lane);
        const auto where = copy.global = value_at(warp, o + 4, lane);
        size_t count;
        const auto parameters = reinterpret_cast<uint64_t>(parameter_bytes(&count));
        if (where - parameters >= count || where - parameters + 128 > count) not_covered(warp, at, lane, "a tensor map that is not a parameter of the kernel");
        if (const char* wrong = decode(reinterpret_cast<const unsigned char*>(where), copy.map)) not_covered(warp, at, lane, wrong);
        if (copy.map.rank != static_cast<unsigned>(o[0])) not_covered(warp, at, lane, "a tensor map of another rank than the instruction's");
        for (int i = 0; i < o[0]; ++i) copy.corner[i] = warp.slot<int32_t>(o[7 + i])[lane];
        if (KIND == BulkKind::load) copy.mbarrier = offset_at(warp, o + 7 + o[0], lane);
        start_in_blocks(warp, at, lane, copy, KIND == BulkKind::load ? o[10 + o[0]] : NONE);
    });
    gpu.thread = nullptr;
    wake_threads();
    return Flow::next;
}

// [shared address (3), global address (3), bytes, mbarrier (3) of a load, its mask of blocks or NONE]; SENDS: the
// source is in shared memory, too
template <BulkKind KIND, bool SENDS = false>
Flow copy_bytes(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    lanes_in(mask, [&](unsigned lane) {
        Bulk copy = {};
        copy.kind = KIND;
        copy.shared = offset_at(warp, o, lane);
        copy.global = value_at(warp, o + 3, lane);
        if (SENDS) copy.global = shared_place(warp.first + lane, copy.global);
        copy.bytes = warp.slot<uint32_t>(o[6])[lane];
        if (KIND == BulkKind::load) copy.mbarrier = offset_at(warp, o + 7, lane);
        start_in_blocks(warp, at, lane, copy, KIND == BulkKind::load ? o[10] : NONE);
    });
    gpu.thread = nullptr;
    wake_threads();
    return Flow::next;
}

// ---- groups -------------------------------------------------------------------------------------

Flow commit(Warp& warp, const Instruction&, uint32_t mask) {
    lanes_in(mask, [&](unsigned lane) { ++asynchronous_of(*gpu.block).groups[warp.first + lane].group; });
    return Flow::next;
}

// [groups that may still be under way]; READS: only their reads of shared memory must have ended
template <bool READS>
Flow wait(Warp& warp, const Instruction& at, uint32_t mask) {
    Block& in = *gpu.block;
    Asynchronous& all = asynchronous_of(in);
    lanes_in(mask, [&](unsigned lane) {
        BulkGroups& groups = all.groups[warp.first + lane];
        const auto most = static_cast<uint32_t>(at.operand[0]);
        const uint32_t before = groups.group > most ? groups.group - most : 0;
        for (size_t i = 0; i < all.stores.size();) {
            if (all.stores[i].thread != warp.first + lane || all.stores[i].group >= before) {
                ++i;
                continue;
            }
            const Bulk copy = all.stores[i];
            all.stores.erase(all.stores.begin() + static_cast<long>(i));
            take_effect(in, copy);
        }
        if (!groups.reads) return;
        agents_done(in, warp.first / WARP, 1u << lane, groups.reads, before);
        if (!READS) agents_done(in, warp.first / WARP, 1u << lane, groups.writes, before);
    });
    gpu.thread = nullptr;
    return Flow::next;
}

const NamedHandler TABLE[] = {
    {"bulk.tensor.load", copy_box<BulkKind::load>}, {"bulk.tensor.store", copy_box<BulkKind::store>},
    {"bulk.tensor.add.f32", copy_box<BulkKind::add>},
    {"bulk.load", copy_bytes<BulkKind::load>}, {"bulk.store", copy_bytes<BulkKind::store>},
    {"bulk.add.f32", copy_bytes<BulkKind::add>}, {"bulk.send", copy_bytes<BulkKind::load, true>},
    {"bulk.commit_group", commit}, {"bulk.wait_group", wait<false>}, {"bulk.wait_group.read", wait<true>},
};

}  // namespace

bool has_bulk(const Block& in) { return !asynchronous_of(in).loads.empty(); }

void run_bulk(Block& in) {
    auto& loads = asynchronous_of(in).loads;
    const size_t which = gpu.options.seed ? random_bits() % loads.size() : 0;
    const Bulk copy = loads[which];
    loads.erase(loads.begin() + static_cast<long>(which));
    take_effect(in, copy);
    wake_threads();
}

void end_bulk(Block& in, unsigned rank) {
    Asynchronous& all = asynchronous_of(in);
    const auto ends = [&](std::deque<Bulk>& copies, auto is_own) {
        for (size_t i = 0; i < copies.size();) {
            const Bulk copy = copies[i];
            if (!is_own(copy)) {
                ++i;
                continue;
            }
            copies.erase(copies.begin() + static_cast<long>(i));
            if (is_load(copy) && gpu.launch->cluster == 1) {
                new_access();
                const Side side = side_of(in.threads[copy.thread], in, TOUCH, copy.site);
                snprintf(add_record(BARRIER, nullptr, 0, 0, 1, side).text, sizeof(Record::text),
                         "the block ends while this copy to its shared memory may be under way: nothing has waited for it");
            }
            take_effect(in, copy);  // before its memory is gone
        }
    };
    ends(all.loads, [&](const Bulk& copy) { return is_of_block(copy, rank); });
    ends(all.stores, [&](const Bulk& copy) { return rank_of(copy.thread) == rank; });
    gpu.thread = nullptr;
}

void start_bulk(Warp& warp, const Instruction& at, unsigned lane, Bulk copy) {
    Block& in = *gpu.block;
    Asynchronous& all = asynchronous_of(in);
    copy.at = &at;
    copy.thread = warp.first + lane;
    copy.site = site_at(warp, at);
    if (gpu.launch->traced) copy.issue = issued(in, warp.first / WARP, 1u << lane);
    if (is_load(copy) && rank_at(copy.shared) != rank_at(copy.mbarrier)) {
        Record& record = add_record(BARRIER, nullptr, 0, 0, 1, side_of(in.threads[copy.thread], in, TOUCH, copy.site));
        snprintf(record.text, sizeof record.text, "the mbarrier of this copy is in another block than its target");
        stop_launch();
    }
    if (!is_load(copy)) {
        BulkGroups& groups = all.groups[copy.thread];
        copy.group = groups.group;
        if (gpu.launch->traced && !groups.reads) groups.reads = new_agents(in), groups.writes = new_agents(in);
    }
    if (gpu.options.seed && random_bits() & 1) return take_effect(in, copy);
    (is_load(copy) ? all.loads : all.stores).push_back(std::move(copy));
}

Handlers bulk_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
