// Clusters: addresses in the shared memory of other blocks, barrier.cluster, stores that complete on an mbarrier.
#include "../../runtime/clusters.h"
#include "access.h"
#include "bulk.h"

#include <cstdio>

namespace emulator::ptx {
namespace {

constexpr unsigned RANK = 24;  // the bit of an address where its rank plus 1 begins
constexpr uint32_t OFFSET = (1u << RANK) - 1;

// The rank of the block in whose shared memory a generic address lies, or MOST_BLOCKS.
unsigned rank_of_generic(uint64_t address) {
    const uint64_t offset = address - shared_memory();
    if (gpu.launch->cluster == 1) return offset < gpu.launch->request->shared ? 0 : MOST_BLOCKS;
    const uint64_t rank = offset / gpu.launch->window;
    return rank < gpu.launch->cluster && offset - rank * gpu.launch->window < gpu.launch->request->shared ? static_cast<unsigned>(rank) : MOST_BLOCKS;
}

// [d, a, bytes, whether a is generic, rank]: the address of the same place in another block
Flow mapa(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    lanes_in(mask, [&](unsigned lane) {
        const uint32_t rank = warp.slot<uint32_t>(o[4])[lane];
        const uint64_t address = o[2] == 4 ? warp.slot<uint32_t>(o[1])[lane] : warp.slot<uint64_t>(o[1])[lane];
        if (rank >= gpu.launch->cluster) check_ranks(warp, at, lane, rank < 32 ? 1u << rank : 1u << 31);
        uint64_t to = address;
        if (gpu.launch->cluster > 1)
            to = !o[3] ? (address & OFFSET) | (rank + 1) << RANK : shared_memory() + (address - shared_memory()) % gpu.launch->window + rank * gpu.launch->window;
        if (o[2] == 4) warp.slot<uint32_t>(o[0])[lane] = static_cast<uint32_t>(to);
        else warp.slot<uint64_t>(o[0])[lane] = to;
    });
    return Flow::next;
}

// [d, a, bytes, whether a is generic]: the rank of the block in whose shared memory it is
Flow getctarank(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    lanes_in(mask, [&](unsigned lane) {
        const uint64_t address = o[2] == 4 ? warp.slot<uint32_t>(o[1])[lane] : warp.slot<uint64_t>(o[1])[lane];
        warp.slot<uint32_t>(o[0])[lane] = o[3] ? rank_of_generic(address) : rank_at(shared_offset(warp.first + lane, address));
    });
    return Flow::next;
}

enum Window : int { OF_CLUSTER, OF_BLOCK, OF_THREAD, OF_DEVICE };  // WINDOWS in clusters.py

// [predicate, generic address, Window]
Flow isspacep(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    uint32_t is = 0;
    lanes_in(mask, [&](unsigned lane) {
        const uint64_t address = warp.slot<uint64_t>(o[1])[lane];
        const unsigned rank = rank_of_generic(address);
        const bool shared = rank < MOST_BLOCKS, local = in_local(address);
        const bool in[] = {shared, shared && rank == rank_of(warp.first), local, !shared && !local};
        is |= static_cast<uint32_t>(in[o[2]]) << lane;
    });
    uint32_t& to = warp.predicate(o[0]);
    to = (to & ~mask) | is;
    return Flow::next;
}

// ---- barrier.cluster ----------------------------------------------------------------------------

std::vector<unsigned> threads_in(const Warp& warp, uint32_t mask) {
    std::vector<unsigned> threads;
    lanes_in(mask, [&](unsigned lane) { threads.push_back(warp.first + lane); });
    return threads;
}

void reach(Warp& warp, const Instruction& at, uint32_t mask) {
    gpu.thread = &thread_of(warp, static_cast<unsigned>(__builtin_ctz(mask)));
    if (gpu.launch->traced) settle_value();
    lanes_wait(warp, at, mask, State::at_cluster, {});
    gpu.thread = nullptr;
    if (warp.since_new < WAITING) made_progress();
}

template <bool RELEASES>
Flow arrive(Warp& warp, const Instruction& at, uint32_t mask) {
    reach(warp, at, mask);
    const std::vector<unsigned> threads = threads_in(warp, mask);
    for (unsigned thread : threads) make_ready(*gpu.block, gpu.block->threads[thread]);
    arrive_at_cluster(*gpu.block, threads, RELEASES);
    wake_threads();
    return Flow::moved;
}

Flow wait(Warp& warp, const Instruction& at, uint32_t mask) {
    reach(warp, at, mask);
    for (unsigned thread : threads_in(warp, mask))
        if (wait_at_cluster(*gpu.block, thread)) make_ready(*gpu.block, gpu.block->threads[thread]);
    wake_threads();
    return Flow::moved;
}

template <bool OF_INITS>
Flow fence(Warp& warp, const Instruction&, uint32_t mask) {
    if (gpu.block->cluster && gpu.launch->traced) fence_cluster(*gpu.block, threads_in(warp, mask), OF_INITS);
    return Flow::next;
}

// [address (3), mbarrier (3), bytes of an element, count, Reduction, whether the values are signed, registers...]
Flow store_async(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    lanes_in(mask, [&](unsigned lane) {
        Bulk copy = {};
        copy.kind = BulkKind::value;
        copy.shared = shared_offset(warp.first + lane, address_of(warp, o[0], o[1], o[2], lane));
        copy.mbarrier = shared_offset(warp.first + lane, address_of(warp, o[3], o[4], o[5], lane));
        copy.bytes = static_cast<uint32_t>(o[6] * o[7]);
        copy.reduction = static_cast<Reduction>(o[8]);
        copy.is_signed = o[9] != 0;
        for (int32_t i = 0; i < o[7]; ++i) {
            if (o[6] == 4) memcpy(copy.value + 4 * i, warp.slot<uint32_t>(o[10 + i]) + lane, 4);
            else memcpy(copy.value + 8 * i, warp.slot<uint64_t>(o[10 + i]) + lane, 8);
        }
        start_bulk(warp, at, lane, copy);
    });
    gpu.thread = nullptr;
    wake_threads();
    return Flow::next;
}

const NamedHandler TABLE[] = {
    {"mapa", mapa},
    {"getctarank", getctarank},
    {"isspacep", isspacep},
    {"cluster.arrive", arrive<true>},
    {"cluster.arrive.relaxed", arrive<false>},
    {"cluster.wait", wait},
    {"fence.cluster", fence<false>},
    {"fence.mbarrier_init", fence<true>},
    {"st.async", store_async},
    {"red.async", store_async},
};

}  // namespace

uint32_t offset_in_cluster(unsigned thread, uint32_t address) {
    const uint32_t rank = address >> RANK ? (address >> RANK) - 1 : rank_of(thread);
    if (rank >= gpu.launch->cluster) return MOST_BLOCKS * (LARGEST_SHARED + 64 * 1024) - 16;  // where no memory is
    return static_cast<uint32_t>(rank * gpu.launch->window) + (address & OFFSET);
}

uint64_t shared_address(unsigned thread, uint64_t generic) {
    const uint64_t offset = generic - shared_memory();
    if (gpu.launch->cluster == 1 || offset >= gpu.launch->cluster * gpu.launch->window) return offset;
    const unsigned rank = rank_at(offset);
    return offset % gpu.launch->window | (rank == rank_of(thread) ? 0 : uint64_t(rank + 1) << RANK);
}

void check_ranks(Warp& warp, const Instruction& at, unsigned lane, uint32_t blocks) {
    const uint32_t missing = blocks >> gpu.launch->cluster << gpu.launch->cluster;
    if (!missing) return;
    gpu.thread = &thread_of(warp, lane);
    Record& record = add_record(OUTSIDE, nullptr, 0, 0, 1, side_here(TOUCH, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "rank %d, in a cluster of %u", __builtin_ctz(missing), gpu.launch->cluster);
    stop_launch();
}

void note_shared(uintptr_t host, unsigned bytes, What what, uintptr_t site, bool ordered) {
    const unsigned rank = rank_of_generic(host);
    if (rank == MOST_BLOCKS || rank == rank_of(gpu.thread->linear)) return;
    if (!ordered && gpu.block->cluster->alive[rank]) return;
    const uint32_t time = gpu.launch->traced ? gpu.block->warps[gpu.thread->warp()].syncs : 0;
    note_use(rank, gpu.thread->linear, time, side_here(what, site), host, bytes);
}

Handlers cluster_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
