#include "clusters.h"
#include "mbarriers.h"

#include <algorithm>
#include <cstdio>

namespace emulator {
namespace {

unsigned threads_of_block() {
    const Dim& size = gpu.launch->request->block;
    return size.x * size.y * size.z;
}

Record& at_barrier(const Block& in, unsigned thread) {
    new_access();
    return add_record(BARRIER, nullptr, 0, 0, 1, side_waiting(in.threads[thread], in));
}

// Other threads may use an mbarrier whose init comes before a fence and an arrival at barrier.cluster, even
// if the arrival is relaxed.
void publish_inits(Block& in) {
    for (auto& [address, of] : *in.mbarriers)
        if (of.live && !of.published && in.cluster->announced[of.made.thread] > of.made.syncs) of.published = in.cluster->phase;
}

void record_late(const RemoteUse& use, const Region* region, unsigned rank) {
    new_access();
    const Dim index = block_of(gpu.block->index, rank * gpu.launch->apart);
    Record& record = add_record(BARRIER, region, use.address, use.size, 1, use.side);
    snprintf(record.text, sizeof record.text,
             "used though block %s may have ended: no barrier between this access and the end of the block whose memory it is",
             in_words(index).c_str());
}

}  // namespace

bool is_there(unsigned thread) { return in_block(thread) < threads_of_block(); }

Dim first_block(unsigned number) {
    const Dim &grid = gpu.launch->request->grid, &of = gpu.launch->request->cluster;
    const Dim size = gpu.launch->cluster > 1 ? of : Dim{1, 1, 1};
    const unsigned x = grid.x / size.x, y = grid.y / size.y;
    return {number % x * size.x, number / x % y * size.y, number / x / y * size.z};
}

Dim block_of(Dim first, unsigned thread) {
    if (gpu.launch->cluster == 1) return first;
    const Dim& size = gpu.launch->request->cluster;
    const unsigned rank = rank_of(thread);
    return {first.x + rank % size.x, first.y + rank / size.x % size.y, first.z + rank / size.x / size.y};
}

std::shared_ptr<Cluster> new_cluster(unsigned threads, size_t numbers) {
    auto made = std::make_shared<Cluster>();
    made->alive.assign(gpu.launch->cluster, threads);
    for (auto* each : {&made->arrivals, &made->waits, &made->initialised, &made->announced}) each->assign(numbers, 0);
    made->published.resize(numbers);
    return made;
}

void arrive_at_cluster(Block& in, const std::vector<unsigned>& threads, bool releases) {
    Cluster& of = *in.cluster;
    const uint32_t syncs = gpu.launch->traced ? ++in.warps[threads[0] / WARP].syncs : 0;
    for (unsigned thread : threads) {
        if (of.arrivals[thread] > of.waits[thread]) {
            snprintf(at_barrier(in, thread).text, sizeof(Record::text), "a thread arrives again at barrier.cluster, and has not waited since");
            continue;
        }
        ++of.arrivals[thread];
        ++of.arrived;
        if (!gpu.launch->traced) continue;
        of.announced[thread] = of.initialised[thread];
        if (releases) join(of.joining, in, thread, syncs);
        else raise(of.joining, of.published[thread]);
    }
    complete_cluster(in);
}

void complete_cluster(Block& in) {
    Cluster& of = *in.cluster;
    if (!of.arrived || of.arrived < in.alive) return;
    if (gpu.launch->traced)  // a thread that has returned counts as having arrived
        for (const Thread& thread : in.threads)
            if (thread.state == State::done && is_there(thread.linear)) join(of.joining, in, thread.linear, ++in.warps[thread.warp()].syncs);
    of.completed = std::move(of.joining);
    of.joining = {};
    of.arrived = 0;
    ++of.phase;
    if (gpu.launch->traced) publish_inits(in);
    std::vector<unsigned> waiting;
    waiting.swap(of.waiting);
    for (unsigned thread : waiting) {
        wait_at_cluster(in, thread);
        make_ready(in, in.threads[thread]);
    }
    made_progress();
}

bool wait_at_cluster(Block& in, unsigned thread) {
    Cluster& of = *in.cluster;
    if (of.waits[thread] >= of.arrivals[thread]) {
        snprintf(at_barrier(in, thread).text, sizeof(Record::text), "a thread waits at barrier.cluster, and has not arrived");
        return true;
    }
    if (of.arrivals[thread] > of.phase) return of.waiting.push_back(thread), false;
    ++of.waits[thread];
    if (gpu.launch->traced) follow(in, thread, of.completed);
    return true;
}

void fence_cluster(Block& in, const std::vector<unsigned>& threads, bool of_inits) {
    const uint32_t syncs = ++in.warps[threads[0] / WARP].syncs;
    for (unsigned thread : threads) {
        in.cluster->initialised[thread] = syncs;
        if (!of_inits) join(in.cluster->published[thread], in, thread, syncs);
    }
}

void forget_before_barrier(Cluster& of) {
    of.joining = of.completed = {};
    for (Order& order : of.published) order = {};
    for (auto* each : {&of.initialised, &of.announced}) std::fill(each->begin(), each->end(), 0u);
}

std::string missing_at_cluster(const Block& in) {
    const Cluster& of = *in.cluster;
    std::string text = "barrier.cluster.wait, which";
    for (unsigned rank = 0; rank < gpu.launch->cluster; ++rank) {
        unsigned missing = 0;
        for (unsigned i = 0; i < threads_of_block(); ++i) {
            const unsigned thread = rank * gpu.launch->apart + i;
            missing += in.threads[thread].state != State::done && of.arrivals[thread] <= of.phase;
        }
        if (missing)
            text += (text.back() == 'h' ? " " : " and ") + std::to_string(missing) + (missing == 1 ? " thread" : " threads") + " of block " +
                    in_words(block_of(in.index, rank * gpu.launch->apart));
    }
    return text + " have not reached";
}

void note_use(unsigned rank, unsigned column, uint32_t time, const Side& side, uintptr_t address, size_t size) {
    const RemoteUse use = {time, side, address, size};
    if (!gpu.block->cluster->alive[rank]) record_late(use, region_of(address), rank);
    else if (gpu.launch->traced) gpu.block->cluster->uses[rank][column] = use;
}

bool left_cluster(Block& in, unsigned thread) {
    Cluster& of = *in.cluster;
    of.arrived -= of.arrivals[thread] > of.phase;
    return !--of.alive[rank_of(thread)];
}

void end_block_of_cluster(Block& in, unsigned rank) {
    Cluster& of = *in.cluster;
    const unsigned first = rank * gpu.launch->apart;
    for (const auto& [column, use] : of.uses[rank]) {
        bool before = false;  // before the end of some thread, and so of the block
        for (unsigned i = 0; i < threads_of_block() && !before; ++i) before = clock_of(in, first + i)[column] > use.time;
        if (!before) record_late(use, region_of(use.address), rank);
    }
}

}  // namespace emulator
