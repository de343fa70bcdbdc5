// Runs the warps of a block.
//
// Lanes of a warp at the same instruction run together, starting with the lanes at the lowest
// instruction, so that lanes that took different branches meet again. With a seed, groups of lanes
// and warps run in a random order.
#include "bulk.h"
#include "machine.h"
#include "warpgroup.h"

#include <cstdio>
#include <memory>

namespace emulator::ptx {
namespace {

constexpr unsigned LONG = 20000;   // backward branches of a warp after which another warp runs
// Backward branches of a group of lanes after which another group of the warp runs.
constexpr unsigned UNFAIR = 1000;

struct BlockState {  // state in addition to a Block
    std::vector<Warp> warps;
    std::vector<Products> products;  // of each warp
    Asynchronous asynchronous;
    std::vector<unsigned char> registers, local;
    std::vector<unsigned> order;  // order in which warps run
    unsigned next;
};

const Program* program;  // program of the launch in progress, or of the next one
std::vector<std::unique_ptr<BlockState>> states;  // by Block::number
BlockState& state_of(const Block& in) { return *states[in.number]; }
Warp& warp_of(unsigned thread) { return state_of(*gpu.block).warps[thread / WARP]; }

template <class T>
void fill(Warp& warp, int special, T value_of_lane) {
    auto* values = warp.slot<uint32_t>(special * static_cast<int>(WARP * sizeof(uint32_t)));
    for (unsigned lane = 0; lane < WARP; ++lane) values[lane] = value_of_lane(lane);
}

void set_specials(Warp& warp, const Block& in) {
    const Dim &size = gpu.launch->request->block, &grid = gpu.launch->request->grid;
    const unsigned first = in_block(warp.first);
    const Dim own = block_of(in.index, warp.first);
    auto x = [&](unsigned lane) { return (first + lane) % size.x; };
    auto y = [&](unsigned lane) { return (first + lane) / size.x % size.y; };
    auto z = [&](unsigned lane) { return (first + lane) / size.x / size.y; };
    auto same = [&](int special, unsigned value) { fill(warp, special, [=](unsigned) { return value; }); };
    fill(warp, TID_X, x), fill(warp, TID_Y, y), fill(warp, TID_Z, z);
    same(NTID_X, size.x), same(NTID_Y, size.y), same(NTID_Z, size.z);
    same(CTAID_X, own.x), same(CTAID_Y, own.y), same(CTAID_Z, own.z);
    same(NCTAID_X, grid.x), same(NCTAID_Y, grid.y), same(NCTAID_Z, grid.z);
    same(WARPID, first / WARP), same(NWARPID, (size.x * size.y * size.z + WARP - 1) / WARP);
    same(DYNAMIC_SMEM_SIZE, static_cast<unsigned>(gpu.launch->request->shared - program->shared_bytes));
    const Dim& cluster = gpu.launch->request->cluster;
    const bool explicitly = cluster.x != 0;
    const Dim blocks = explicitly ? cluster : Dim{1, 1, 1};
    same(CLUSTERID_X, own.x / blocks.x), same(CLUSTERID_Y, own.y / blocks.y), same(CLUSTERID_Z, own.z / blocks.z);
    same(NCLUSTERID_X, grid.x / blocks.x), same(NCLUSTERID_Y, grid.y / blocks.y), same(NCLUSTERID_Z, grid.z / blocks.z);
    same(CLUSTER_CTAID_X, own.x % blocks.x), same(CLUSTER_CTAID_Y, own.y % blocks.y), same(CLUSTER_CTAID_Z, own.z % blocks.z);
    same(CLUSTER_NCTAID_X, blocks.x), same(CLUSTER_NCTAID_Y, blocks.y), same(CLUSTER_NCTAID_Z, blocks.z);
    same(CLUSTER_CTARANK, rank_of(warp.first)), same(CLUSTER_NCTARANK, gpu.launch->cluster);
    same(IS_EXPLICIT_CLUSTER, explicitly ? ALL : 0);
    fill(warp, LANEID, [](unsigned lane) { return lane; });
    fill(warp, LANEMASK_EQ, [](unsigned lane) { return 1u << lane; });
    fill(warp, LANEMASK_LT, [](unsigned lane) { return (1u << lane) - 1; });
    fill(warp, LANEMASK_LE, [](unsigned lane) { return (2u << lane) - 1; });
    fill(warp, LANEMASK_GE, [](unsigned lane) { return ~((1u << lane) - 1); });
    fill(warp, LANEMASK_GT, [](unsigned lane) { return ~((2u << lane) - 1); });
}

void start() {
    gpu.launch->by_barrier = true;
    gpu.launch->replicated = program->replicated;
    gpu.launch->has_agents = gpu.launch->traced && (program->has_agents || gpu.launch->cluster > 1);
    gpu.launch->waits_relaxed = gpu.launch->has_agents && program->waits_relaxed;
    gpu.launch->makes_maps = gpu.launch->has_agents && program->makes_maps;
    gpu.launch->joins_warps = gpu.launch->traced && (program->joins_warps || program->meets_clusters || gpu.launch->has_agents);
    auto spans = program->shared_variables;
    if (!spans.empty()) spans.push_back({program->shared_bytes, gpu.launch->request->shared});
    limit_dynamic(spans);
}

void begin(Block& in) {
    while (states.size() <= in.number) states.push_back(std::make_unique<BlockState>());
    BlockState& state = state_of(in);
    size_t threads = in.threads.size(), warps = (threads + WARP - 1) / WARP;
    const unsigned size = in.alive / gpu.launch->cluster;  // of a block
    state.warps.resize(warps);
    state.products.assign(warps, {});
    state.asynchronous = {};
    in.mbarriers = &state.asynchronous.mbarriers;
    if (program->meets_clusters && !in.cluster) in.cluster = new_cluster(size, threads);
    state.registers.resize(warps * program->register_bytes + 64);
    auto aligned = (reinterpret_cast<uintptr_t>(state.registers.data()) + 63) / 64 * 64;
    state.local.assign(threads * program->local_bytes, POISON);
    state.order = order_of(static_cast<unsigned>(warps));
    state.next = 0;
    in.ready.clear();
    for (size_t i = 0; i < threads; ++i) {
        in.threads[i].own = reinterpret_cast<uintptr_t>(state.local.data()) + i * program->local_bytes;
        in.threads[i].own_bytes = program->local_bytes;
    }
    for (unsigned i = 0; i < warps; ++i) {
        Warp& warp = state.warps[i];
        warp.registers = reinterpret_cast<unsigned char*>(aligned) + i * program->register_bytes;
        warp.constants = program->constants.data();
        warp.begin = program->instructions.data();
        warp.first = i * WARP;
        warp.products = &state.products[i];
        const unsigned there = size - std::min(size, in_block(warp.first));  // from its first lane on
        warp.alive = there >= WARP ? ALL : (1u << there) - 1;
        warp.ready = warp.alive;
        warp.passed = warp.since_new = 0;
        warp.go(ALL, 0);
        set_specials(warp, in);
    }
}

bool has_ready(const Block& in) {
    for (const Warp& warp : state_of(in).warps)
        if (warp.ready) return true;
    return has_bulk(in);
}

// ---- one warp -----------------------------------------------------------------------------------

struct Group {  // lanes at one instruction, which run until `meets`, where others wait to join them
    uint32_t lanes, pc, meets;
};

Group choose(Warp& warp) {
    bool any = gpu.options.seed != 0 || warp.passed > UNFAIR;
    uint32_t from = warp.ready;
    if (any)  // a random lane, and the others at its instruction
        for (unsigned skip = static_cast<unsigned>(random_bits() % static_cast<unsigned>(__builtin_popcount(from))); skip; --skip)
            from &= from - 1;
    uint32_t least = ALL;
    if (any) least = warp.pc[__builtin_ctz(from)];
    else
        for (uint32_t rest = from; rest; rest &= rest - 1) least = std::min(least, warp.pc[__builtin_ctz(rest)]);
    Group group = {0, least, ALL};
    for (uint32_t rest = warp.ready; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        if (warp.pc[lane] == least) group.lanes |= 1u << lane;
        else if (warp.pc[lane] > least) group.meets = std::min(group.meets, warp.pc[lane]);
    }
    warp.passed = 0;
    // Only some of them, which run ahead until they must wait.
    if (gpu.options.seed && random_bits() % 8 == 0)
        if (uint32_t some = group.lanes & static_cast<uint32_t>(random_bits())) group = {some, least, ALL};
    return group;
}

bool is_stopping(Warp& warp, const Instruction& at) {
    if (gpu.launch->interrupted) return gpu.launch->stopped = true;
    if (!gpu.launch->expired) return false;
    gpu.thread = &thread_of(warp, static_cast<unsigned>(__builtin_ctz(warp.ready)));
    Record& record = add_record(DEADLOCK, nullptr, 0, 0, 1, side_here(TOUCH, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "the launch had not ended after %g s; this thread was running",
             gpu.options.limit);
    gpu.thread = nullptr;
    return gpu.launch->stopped = true;
}

bool switches() { return gpu.launch->switched && (random_bits() >> 11) * 0x1p-53 < gpu.options.switch_chance; }

// Lanes of a collective instruction wait until all that have not ended have arrived, and run it
// together.
void run_if_all_are_at(Warp& warp, const Instruction& at) {
    uint32_t index = warp.index_of(at);
    for (uint32_t rest = warp.alive; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        if ((warp.ready >> lane & 1) || warp.pc[lane] != index) return;
    }
    at.run(warp, at, warp.alive);
    lanes_in(warp.alive, [&](unsigned lane) { make_ready(*gpu.block, thread_of(warp, lane)); });
    wake_threads();
}

void meet(Warp& warp, const Instruction& at, uint32_t lanes) {
    Wait wait = {};
    wait.mask = warp.alive;
    wait.name = "an instruction of the whole warp (mma, ldmatrix, wgmma, tensormap.cp_fenceproxy)";
    lanes_wait(warp, at, lanes, State::at_warp, wait);
    run_if_all_are_at(warp, at);
}

// Runs a group of lanes until it meets others, splits, waits or ends. Returns false if the warp has
// run for long.
bool run_group(Warp& warp, Group group, unsigned& budget) {
    uint32_t pc = group.pc;
    const uint32_t lanes = group.lanes;
    for (;;) {
        if (pc >= group.meets) return warp.go(lanes, pc), true;
        const Instruction& at = warp.begin[pc];
        uint32_t mask = lanes;
        // Lanes whose guard is false skip the instruction.
        if (at.guard != NONE) {
            uint32_t holds = warp.predicate(at.guard);
            mask &= at.negated ? ~holds : holds;
            if (!mask) {
                ++pc;
                continue;
            }
        }
        // A branch splits the group if only some lanes take it. Backward branches use up the budget.
        if (at.role == Role::branch) {
            auto target = static_cast<uint32_t>(at.operand[0]);
            bool parts = mask != lanes;
            if (parts) warp.go(lanes & ~mask, pc + 1);
            if (target <= pc) {
                ++warp.passed;
                if (!--budget || is_stopping(warp, at)) return warp.go(mask, target), false;
            }
            if (parts || (warp.passed > UNFAIR && lanes != warp.ready)) return warp.go(mask, target), true;
            pc = target;
            continue;
        }
        // A collective instruction waits for all lanes of the warp.
        if (at.role == Role::collective && mask != warp.alive) {
            warp.go(lanes & ~mask, pc + 1);
            return meet(warp, at, mask), true;
        }
        if (at.run(warp, at, mask) == Flow::moved) return warp.go(lanes & ~mask, pc + 1), true;
        ++pc;
        if (at.role == Role::access && switches()) return warp.go(lanes, pc), false;
    }
}

void run_warp(Warp& warp) {
    unsigned budget = LONG;
    while (warp.ready && !gpu.launch->stopped)
        if (!run_group(warp, choose(warp), budget)) return;
}

Warp* next_warp(BlockState& state) {
    size_t count = state.warps.size();
    if (gpu.options.seed) state.next = static_cast<unsigned>(random_bits() % count);
    for (size_t attempts = 0; attempts < count; ++attempts) {
        Warp& warp = state.warps[state.order[state.next]];
        state.next = (state.next + 1) % static_cast<unsigned>(count);
        if (warp.ready) return &warp;
    }
    return nullptr;
}

void run(Block& in) {
    enter_block(in);
    BlockState& state = state_of(in);
    set_local(reinterpret_cast<uintptr_t>(state.local.data()), state.local.size());
    static Warp* warp;
    auto spins = [](Thread& thread) {
        thread.since_new = warp->since_new;
        thread.recent_pc = warp->recent_site;
    };
    warp = next_warp(state);
    if (has_bulk(in) && (!warp || (gpu.options.seed && random_bits() % 4 == 0))) {
        if (!run_stoppable([] { run_bulk(*gpu.block); })) gpu.launch->stopped = true;
        if (gpu.launch->traced) settle_value();
        gpu.thread = nullptr;
        return;
    }
    if (!run_stoppable([] { run_warp(*warp); })) gpu.launch->stopped = true;
    // Also lanes at a barrier, which may wait inside an operation.
    for (uint32_t lanes = warp->alive; lanes; lanes &= lanes - 1)
        spins(in.threads[warp->first + static_cast<unsigned>(__builtin_ctz(lanes))]);
    if (gpu.launch->traced) settle_value();
    gpu.thread = nullptr;
}

}  // namespace

const Engine* engine_of(const Program& of) {
    static const Engine engine = {start, begin, has_ready, run};
    program = &of;
    return &engine;
}

Asynchronous& asynchronous_of(const Block& in) { return state_of(in).asynchronous; }

const unsigned char* parameter_bytes(size_t* count) {
    *count = gpu.launch->request->params_bytes;
    return static_cast<const unsigned char*>(gpu.launch->request->params);
}

uintptr_t site_at(const Warp& warp, const Instruction& at) { return gpu.launch->code + warp.index_of(at) + 1; }

void lanes_wait(Warp& warp, const Instruction& at, uint32_t mask, State state, const Wait& wait) {
    uint32_t index = warp.index_of(at);
    warp.go(mask, index);
    warp.ready &= ~mask;
    lanes_in(mask, [&](unsigned lane) {
        Thread& thread = thread_of(warp, lane);
        thread.wait = wait;
        thread.wait.file = program->files.empty() ? "" : program->files[index];
        thread.wait.line = program->files.empty() ? 0 : program->lines[index];
        thread.state = state;
        thread.since_new = 0;
    });
}

void wake_threads() {
    for (uint16_t number : gpu.block->ready) {
        Warp& warp = warp_of(number);
        unsigned lane = number % WARP;
        const Wait& wait = gpu.block->threads[number].wait;
        if (wait.reduces) {
            int32_t d = warp.begin[warp.pc[lane]].operand[0];
            if (wait.op == SYNC_COUNT) warp.slot<uint32_t>(d)[lane] = static_cast<uint32_t>(wait.result);
            else warp.predicate(d) = (warp.predicate(d) & ~(1u << lane)) | uint32_t(wait.result != 0) << lane;
        }
        warp.ready |= 1u << lane;
        warp.pc[lane] += !wait.repeats;
    }
    gpu.block->ready.clear();
}

void lanes_end(Warp& warp, uint32_t mask) {
    warp.alive &= ~mask;
    warp.ready &= ~mask;
    bool ended = !gpu.block->cluster && gpu.block->alive == static_cast<unsigned>(__builtin_popcount(mask));  // its block
    lanes_in(mask, [&](unsigned lane) {
        gpu.thread = &thread_of(warp, lane);
        end_copies(*gpu.thread, ~0u);
        gpu.thread->state = State::done;
        --gpu.block->alive;
        ended |= gpu.block->cluster && left_cluster(*gpu.block, gpu.thread->linear);
    });
    if (!warp.alive && program->has_agents) {
        std::vector<Warp>& warps = state_of(*gpu.block).warps;
        const unsigned group = warp.first / WARP / WARPGROUP * WARPGROUP;
        end_products(&warps[group], std::min<size_t>(WARPGROUP, warps.size() - group));
    }
    if (ended) end_bulk(*gpu.block, rank_of(warp.first));
    if (ended && gpu.launch->traced) check_repurposed(state_of(*gpu.block).asynchronous.mbarriers);
    if (ended && gpu.launch->cluster > 1) end_block_of_cluster(*gpu.block, rank_of(warp.first));
    gpu.thread = nullptr;
    made_progress();
    release_if_complete(*gpu.block);
    complete_named(*gpu.block);
    if (gpu.block->cluster) complete_cluster(*gpu.block);
    retry(warp);
    wake_threads();
}

void retry(Warp& warp) {
    for (uint32_t rest = warp.alive & ~warp.ready; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        if (warp.ready >> lane & 1 || thread_of(warp, lane).state != State::at_warp) continue;
        const Instruction& at = warp.begin[warp.pc[lane]];
        if (at.role == Role::collective) run_if_all_are_at(warp, at);
        else complete_exchange(warp, lane);
    }
}

}  // namespace emulator::ptx
