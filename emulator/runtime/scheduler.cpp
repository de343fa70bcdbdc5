// Runs a launch: block after block, and in a block thread after thread, each until it waits,
// returns, or is stopped.
#include "clusters.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>

namespace emulator {

Gpu gpu;

namespace {

constexpr unsigned SIDE_BY_SIDE = 4;  // blocks in flight if threads are switched at random
constexpr unsigned MOST_IN_FLIGHT = 32;  // if a block may wait for one that has not started
// Accesses to the same few addresses after which a thread counts as waiting for ever.
constexpr uint64_t SPINNING = 1 << 20;

struct {
    // Held during a whole launch: all state of the runtime belongs to one launch at a time.
    std::mutex launch_lock;

    // The serial of the next launch's first block. Cells name a block by its serial; when serials
    // run out, the cells are forgotten.
    uint32_t next_serial = 1;

    // The number of launches since emulator_configure. Each has its own random order, the same in
    // every run with this seed.
    uint64_t launches = 0;

    // How often a thread returned or reached a barrier. While it grows, spinning threads may still
    // get what they wait for.
    uint64_t progress = 0;

    // A launch of this call was stopped: as on a GPU, nothing more can be launched until the next
    // call (call_was_stopped).
    bool dead = false;

    // Why the thread that ran last was abandoned, for record_fault. A signal handler writes it;
    // signal 0: stop_launch.
    Fault fault;
} schedule;

void body() { gpu.launch->request->entry(gpu.launch->request->params); }

// Runs in a signal handler: the launch ends here, and record_fault says where.
void on_fault(int signal, uintptr_t address, uintptr_t pc) {
    schedule.fault = {signal, address, pc + 1, nullptr, 0};
    gpu.launch->stopped = true;
    abandon_fiber();
}

// ---- one block ----------------------------------------------------------------------------------

void begin_block(Block& in, unsigned number) {  // or the blocks of a cluster
    const Request& request = *gpu.launch->request;
    const unsigned size = request.block.x * request.block.y * request.block.z, blocks = gpu.launch->cluster;
    const unsigned count = blocks > 1 ? blocks * gpu.launch->apart : size;
    in.index = first_block(number);
    in.serial = gpu.launch->first_serial + number;
    in.interval = 1;
    in.alive = blocks * size;
    in.cluster = blocks > 1 ? new_cluster(size, count) : nullptr;
    in.waiting = 0;
    in.threads.resize(count);
    if (gpu.launch->traced) in.warps.assign((count + WARP - 1) / WARP, Warp{});
    in.clocks.clear();
    in.fenced.clear();
    in.raised = 0;
    in.map_acquires.clear();
    in.agents = in.agent_room = 0;
    in.named.assign(blocks * NAMED, {});
    in.ready.clear();
    in.next_ready = 0;
    in.image.clear();
    for (unsigned i = 0; i < count; ++i) {
        Thread& thread = in.threads[i];
        thread.fiber = request.engine ? nullptr : fiber(in.number * count + i);
        thread.own = thread.fiber ? reinterpret_cast<uintptr_t>(thread.fiber->stack) : 0;
        thread.own_bytes = thread.fiber ? STACK : 0;
        const unsigned own = in_block(i);
        thread.index = {own % request.block.x, own / request.block.x % request.block.y, own / request.block.x / request.block.y};
        thread.linear = i;
        thread.state = own < size ? State::ready : State::done;
        thread.left_early = false;
        thread.batch = 0;
        thread.copies.clear();
        thread.since_new = 0;
        thread.stores = 0;
    }
    for (unsigned i : order_of(count)) in.ready.push_back(static_cast<uint16_t>(i));
    if (gpu.options.by_warp) in.rank = order_of((count + WARP - 1) / WARP);
    if (request.engine) request.engine->begin(in);
}

bool has_ready(const Block& in) {
    return gpu.launch->request->engine ? gpu.launch->request->engine->has_ready(in) : in.next_ready < in.ready.size();
}

void run_thread(Block& in, Thread& thread) {
    enter_block(in);
    gpu.thread = &thread;
    run_fiber(thread.fiber, [] {
        body();
        finish_copies(*gpu.thread, ~0u);
        gpu.thread->state = State::done;
    });
    if (gpu.launch->stopped && schedule.fault.signal && !gpu.launch->interrupted) record_fault(schedule.fault);
    if (gpu.launch->traced) settle_value();
    gpu.thread = nullptr;
    if (gpu.launch->stopped) return;
    schedule.progress += thread.state != State::ready;
    if (thread.state == State::done) {
        --in.alive;
        release_if_complete(in);
        complete_without(in, thread);
    }
}

bool all_spin(const std::vector<Block*>& in_flight, uint64_t accesses) {
    bool any = false;
    for (Block* in : in_flight)
        for (Thread& thread : in->threads) {
            if (thread.state == State::ready && thread.since_new < accesses) return false;
            any |= thread.state == State::ready;
        }
    return any;
}

// ---- the grid -----------------------------------------------------------------------------------

void run_blocks(std::vector<Block*>& in_flight) {
    const Dim& grid = gpu.launch->request->grid;
    unsigned blocks = grid.x * grid.y * grid.z / gpu.launch->cluster;
    std::vector<unsigned> order = order_of(blocks);
    // Static, because run_grid examines a stopped launch's blocks after this has returned.
    static std::vector<std::unique_ptr<Block>> objects;
    objects.clear();
    size_t wanted = gpu.launch->switched ? SIDE_BY_SIDE : 1, next = 0;
    std::vector<Block*> idle;
    uint64_t progress_when_stuck = schedule.progress;
    while (!gpu.launch->stopped && !gpu.launch->interrupted) {
        // Start blocks until enough are in flight.
        while (in_flight.size() < wanted && next < blocks) {
            if (idle.empty()) {
                objects.push_back(std::make_unique<Block>());
                objects.back()->number = static_cast<unsigned>(objects.size() - 1);
                idle.push_back(objects.back().get());
            }
            Block* in = idle.back();
            idle.pop_back();
            begin_block(*in, order[next++]);
            // The object is reused: its old shared memory must not be saved.
            if (gpu.block == in) gpu.block = nullptr;
            in_flight.push_back(in);
        }
        if (in_flight.empty()) return;

        // Find the blocks that can continue. If none can, start another block or report a deadlock.
        std::vector<Block*> able;
        for (Block* in : in_flight)
            if (has_ready(*in)) able.push_back(in);
        bool stuck = able.empty() || all_spin(in_flight, SPINNING);
        // The event that they wait for may have happened since.
        if (stuck && !able.empty() && schedule.progress != progress_when_stuck) {
            progress_when_stuck = schedule.progress;
            for (Block* in : in_flight)
                for (Thread& thread : in->threads) thread.since_new = 0;
            continue;
        }
        bool more_blocks = next < blocks && wanted < MOST_IN_FLIGHT;
        // They may wait for a block that has not started.
        if (more_blocks && (stuck || all_spin(in_flight, WAITING))) {
            ++wanted;
            continue;
        }
        if (stuck) {
            gpu.launch->stopped = true;
            return record_deadlock(*in_flight[0]);
        }

        // Run one of them.
        Block* in = able[able.size() > 1 ? random_bits() % able.size() : 0];
        bool more;
        do {  // without random switches a block continues until none of its threads can
            bool may_spin = true;
            if (gpu.launch->request->engine) {
                gpu.launch->request->engine->run(*in);
            } else {
                Thread& thread = take_ready(*in);
                run_thread(*in, thread);
                may_spin = thread.state == State::ready;
            }
            more = has_ready(*in) && in_flight.size() == 1 && !gpu.launch->stopped && !gpu.launch->interrupted;
            more &= !may_spin || !all_spin(in_flight, more_blocks ? WAITING : SPINNING);
        } while (more);
        if (in->alive == 0) {  // no ordered write can follow the reads any more
            record_uninitialised_reads(*in);
            in_flight.erase(std::find(in_flight.begin(), in_flight.end(), in));
            idle.push_back(in);
        }
    }
}

void run_grid() {
    std::vector<Block*> in_flight;
    run_blocks(in_flight);
    for (Block* in : in_flight) {  // a stopped launch leaves fibers in the middle of a kernel
        record_uninitialised_reads(*in);
        for (Thread& thread : in->threads)
            if (thread.state != State::done && thread.fiber) thread.fiber->started = false;
    }
}

}  // namespace

bool call_was_stopped() { return schedule.dead; }

void enter_block(Block& in) {
    if (gpu.block == &in) return;
    swap_shared(gpu.block && gpu.block->alive ? gpu.block : nullptr, &in);
    gpu.block = &in;
    map_shared(in, gpu.launch->request->shared);
}

void made_progress() { ++schedule.progress; }

void wait_here() { leave_fiber(gpu.thread->fiber); }

void yield_now() {
    make_ready(*gpu.block, *gpu.thread);
    wait_here();
}

void stop_launch() {
    schedule.fault = {};
    gpu.launch->stopped = true;
    abandon_fiber();
}

void stop_if_requested(uintptr_t pc, const char* file, int line) {
    if (!gpu.launch->interrupted && !gpu.launch->expired) return;
    schedule.fault = {SIGALRM, 0, pc, file, line};
    gpu.launch->stopped = true;
    abandon_fiber();
}

void make_ready(Block& in, Thread& thread) {
    thread.state = State::ready;
    in.ready.push_back(static_cast<uint16_t>(thread.linear));
}

}  // namespace emulator

using namespace emulator;

extern "C" {

LaunchStatus emulator_launch(const Request* request, char* text, size_t text_bytes) {
    if (gpu.thread) return snprintf(text, text_bytes, "a kernel launched by a kernel: not covered"), LAUNCH_NESTED;
    std::lock_guard<std::mutex> lock(schedule.launch_lock);
    if (schedule.dead) return snprintf(text, text_bytes, "an earlier launch was stopped"), LAUNCH_STOPPED;
    char reason[256];
    if (LaunchStatus status = check_request(*request, reason, sizeof reason)) {
        const char* name = strrchr(request->file, '/') ? strrchr(request->file, '/') + 1 : request->file;
        if (*name) snprintf(text, text_bytes, "%s at %s:%d, %s", request->kernel, name, request->line, reason);
        else snprintf(text, text_bytes, "%s, %s", request->kernel, reason);
        return status;
    }
    ++schedule.launches;
    uint64_t blocks = uint64_t(request->grid.x) * request->grid.y * request->grid.z;
    if (schedule.next_serial + blocks > UINT32_MAX) {
        forget_cells();
        schedule.next_serial = 1;
    }
    Launch started = {};
    started.request = request;
    started.traced = gpu.options.trace && request->module->traced;
    started.switched = gpu.options.switch_chance > 0 && request->module->traced;
    started.first_serial = schedule.next_serial;
    schedule.next_serial += static_cast<uint32_t>(blocks);
    const Dim& of = request->cluster;
    started.cluster = std::max(1u, of.x * of.y * of.z);
    started.apart = started.cluster > 1 ? (request->block.x * request->block.y * request->block.z + 127) / 128 * 128 : ~0u;  // whole warpgroups
    started.window = started.cluster > 1 ? (request->shared + 2047) / 1024 * 1024 : 0;
    gpu.launch = &started;
    gpu.block = nullptr;
    schedule.fault = {};
    seed_random(gpu.options.seed * 0x2545F4914F6CDD1Du + schedule.launches);
    enter_module(request->module);
    if (request->engine) request->engine->start();
    watch_signals(gpu.options.limit, on_fault);
    run_grid();
    unwatch_signals();
    leave_module();
    gpu.launch = nullptr;
    gpu.block = nullptr;
    schedule.dead = started.stopped;
    if (started.interrupted) raise(SIGINT);
    return schedule.dead ? snprintf(text, text_bytes, "the launch was stopped"), LAUNCH_STOPPED : LAUNCH_DONE;
}

// Trace: check launches of traced modules. seed: order of threads and blocks. switch_chance: the
// probability that threads are switched at an access of a traced module, checked or not. limit:
// seconds for one launch.
void emulator_configure(int trace, uint64_t seed, double switch_chance, int by_warp, double limit) {
    gpu.options = {trace != 0, seed, switch_chance, by_warp != 0, limit};
    schedule.launches = 0;
}

void emulator_begin_call() { schedule.dead = false; }

uint64_t emulator_launches() { return schedule.launches; }

Dim emulator_thread_index() { return gpu.thread ? gpu.thread->index : Dim{0, 0, 0}; }
Dim emulator_block_index() { return gpu.thread ? gpu.block->index : Dim{0, 0, 0}; }
Dim emulator_block_size() { return gpu.thread ? gpu.launch->request->block : Dim{1, 1, 1}; }
Dim emulator_grid_size() { return gpu.thread ? gpu.launch->request->grid : Dim{1, 1, 1}; }

void emulator_returned() {
    if (gpu.thread) gpu.thread->left_early = true;
}

void emulator_trap(const char* text, const char* file, int line) {
    if (!gpu.thread) abort();
    Side side = side_here(TOUCH, 0);
    side.file = file;
    side.line = line;
    snprintf(add_record(TRAP, nullptr, 0, 0, 1, side).text, sizeof(Record::text), "%s", text);
    stop_launch();
}

void emulator_assert_failed(const char* expression, const char* file, int line) {
    char text[512];
    snprintf(text, sizeof text, "assert(%s)", expression);
    emulator_trap(text, file, line);
}
}
