// Bulk copies between global and shared memory: contiguous bytes, or a box of a tensor by its map.
//
// They are asynchronous. A copy to shared memory takes effect (bulk_effect.cpp) when no thread of
// the block can continue, the latest time that is allowed, a copy to global memory when its thread
// waits for its group. So a kernel that does not wait reads what was there before. With a seed some
// take effect at once, the others at a random time.
#include "bulk.h"
#include "access.h"

#include <cstdio>

namespace emulator::ptx {
namespace {

// ---- issue --------------------------------------------------------------------------------------

void check_alignment(Warp& warp, const Instruction& at, unsigned lane, uint64_t address, unsigned to, What what,
                     const char* of = "a bulk copy's address") {
    if (address % to == 0) return;
    gpu.thread = &thread_of(warp, lane);
    Record& record = add_record(MISALIGNED, region_of(address), address, to, 1, side_here(what, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "%s must be a multiple of %u; it is %u more", of, to,
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
        copy.rank = static_cast<unsigned>(o[0]);
        size_t count;
        const auto parameters = reinterpret_cast<uint64_t>(parameter_bytes(&count));
        copy.map_in_memory = where - parameters >= count || where - parameters + MAP_BYTES > count;
        if (!copy.map_in_memory) {
            const char* wrong = decode(reinterpret_cast<const unsigned char*>(where), copy.rank, copy.map);
            if (wrong) not_covered(warp, at, lane, wrong);
        } else {
            check_alignment(warp, at, lane, where, MAP_ALIGNMENT, READ, "the address of a tensor map");
            const Region* region = region_of(where);
            if (region && region->space != GLOBAL && region->space != MODULE) not_covered(warp, at, lane, "a tensor map outside of global and constant memory");
        }
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

bool has_bulk(const Block& in) {
    const Asynchronous& all = asynchronous_of(in);
    return !all.loads.empty() || !all.copy_arrivals.empty();
}

void run_bulk(Block& in) {
    auto& loads = asynchronous_of(in).loads;
    const size_t all = loads.size() + asynchronous_of(in).copy_arrivals.size();
    const size_t which = gpu.options.seed ? random_bits() % all : 0;
    if (which >= loads.size()) {
        finish_arrival(in, which - loads.size());
        return wake_threads();
    }
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
