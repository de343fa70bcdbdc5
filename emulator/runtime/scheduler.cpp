// Runs a launch: block after block, the threads of a block one after another until each waits, returns, or is stopped.
#include "host.h"
#include "runtime.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <numeric>

namespace cuda_trace {

Thread* now = nullptr;
Block* block = nullptr;
Launch* launch = nullptr;
Options options;

namespace {

constexpr unsigned SIDE_BY_SIDE = 4;  // blocks in flight where threads are switched at random
constexpr unsigned MOST_IN_FLIGHT = 32;  // where a block may be waiting for one that has not begun
constexpr uint64_t SPINNING = 1 << 20;  // accesses to the same few places, then a thread counts as waiting

std::mutex launch_lock;
uint64_t random_state;
uint32_t next_serial = 1;
uint64_t launches = 0;
std::string thrown;
uint64_t progress = 0;  // threads that came to an end or to a barrier, in all
bool dead = false;  // a launch of this call was stopped: as on a GPU, nothing more can be launched
Fault fault;

void body() { launch->request->entry(launch->request->params); }

// The order in which n things are taken: as they are for seed 0, else shuffled.
std::vector<unsigned> order_of(unsigned n) {
    std::vector<unsigned> order(n);
    std::iota(order.begin(), order.end(), 0u);
    if (options.seed)
        for (unsigned i = n; i > 1; --i) std::swap(order[i - 1], order[random_bits() % i]);
    return order;
}

// In a signal handler: the launch ends here, and the report says where it was.
void on_fault(int signal, uintptr_t address, uintptr_t pc) {
    fault = {signal, address, pc + 1, nullptr, 0};
    launch->stopped = true;
    abandon_fiber();
}

// ---- one block ----------------------------------------------------------------------------------------------------

void begin_block(Block& in, unsigned linear, unsigned first_slot) {
    const Request& request = *launch->request;
    unsigned count = request.block.x * request.block.y * request.block.z;
    in.index = {linear % request.grid.x, linear / request.grid.x % request.grid.y, linear / request.grid.x / request.grid.y};
    in.serial = launch->first_serial + linear;
    in.interval = 1;
    in.alive = count;
    in.waiting = 0;
    in.threads.resize(count);
    if (launch->traced) in.warps.assign((count + WARP - 1) / WARP, Warp{});
    in.ready.clear();
    in.next_ready = 0;
    in.image.clear();
    for (unsigned i = 0; i < count; ++i) {
        Thread& thread = in.threads[i];
        thread.fiber = fiber(first_slot + i);
        thread.index = {i % request.block.x, i / request.block.x % request.block.y, i / request.block.x / request.block.y};
        thread.linear = i;
        thread.state = State::ready;
        thread.left_early = false;
        thread.batch = 0;
        thread.copies.clear();
        thread.since_new = 0;
    }
    for (unsigned i : order_of(count)) in.ready.push_back(static_cast<uint16_t>(i));
}

Thread& take_ready(Block& in) {
    if (in.next_ready > 4096) {
        in.ready.erase(in.ready.begin(), in.ready.begin() + static_cast<long>(in.next_ready));
        in.next_ready = 0;
    }
    if (options.seed) {
        size_t left = in.ready.size() - in.next_ready;
        std::swap(in.ready[in.next_ready], in.ready[in.next_ready + random_bits() % left]);
    }
    return in.threads[in.ready[in.next_ready++]];
}

bool has_ready(const Block& in) { return in.next_ready < in.ready.size(); }

void run_thread(Block& in, Thread& thread) {
    if (block != &in) {
        swap_shared(block && block->alive ? block : nullptr, &in);
        block = &in;
        map_shared(in, launch->request->shared);
    }
    now = &thread;
    run_fiber(thread.fiber, [] {
        body();
        finish_copies(*now, ~0u);
        now->state = State::done;
    });
    if (launch->stopped && fault.signal && !launch->interrupted) report_fault(fault);
    if (launch->traced) settle_value();
    now = nullptr;
    if (launch->stopped) return;
    progress += thread.state != State::ready;
    if (thread.state == State::done) {
        --in.alive;
        release_if_complete(in);
        complete_without(in, thread);
    }
}

bool all_spin(const std::vector<Block*>& flying) {
    bool any = false;
    for (Block* in : flying)
        for (Thread& thread : in->threads) {
            if (thread.state == State::ready && thread.since_new < SPINNING) return false;
            any |= thread.state == State::ready;
        }
    return any;
}

// ---- the grid -----------------------------------------------------------------------------------------------------

void run_blocks(std::vector<Block*>& flying) {
    const Dim &grid = launch->request->grid, &size = launch->request->block;
    unsigned blocks = grid.x * grid.y * grid.z, threads = size.x * size.y * size.z;
    std::vector<unsigned> order = order_of(blocks);
    static std::vector<std::unique_ptr<Block>> made;
    made.clear();
    size_t wanted = options.switch_chance > 0 && launch->traced ? SIDE_BY_SIDE : 1, next = 0;
    std::vector<Block*> idle;
    uint64_t progress_when_stuck = progress;
    while (!launch->stopped && !launch->interrupted) {
        while (flying.size() < wanted && next < blocks) {
            if (idle.empty()) {
                made.push_back(std::make_unique<Block>());
                made.back()->slot = static_cast<unsigned>(made.size() - 1) * threads;
                idle.push_back(made.back().get());
            }
            Block* in = idle.back();
            idle.pop_back();
            begin_block(*in, order[next++], in->slot);
            if (block == in) block = nullptr;  // a new block in an old one's place: its shared memory is not that one's
            flying.push_back(in);
        }
        if (flying.empty()) return;
        std::vector<Block*> able;
        for (Block* in : flying)
            if (has_ready(*in)) able.push_back(in);
        bool stuck = able.empty() || all_spin(flying);
        if (stuck && !able.empty() && progress != progress_when_stuck) {  // what they wait for may have come since
            progress_when_stuck = progress;
            for (Block* in : flying)
                for (Thread& thread : in->threads) thread.since_new = 0;
            continue;
        }
        if (stuck && next < blocks && wanted < MOST_IN_FLIGHT) {  // perhaps for a block that has not begun
            ++wanted;
            continue;
        }
        if (stuck) {
            launch->stopped = true;
            return report_deadlock(*flying[0]);
        }
        Block* in = able[able.size() > 1 ? random_bits() % able.size() : 0];
        bool more;
        do {  // without random switches a block goes on until none of its threads can
            Thread& thread = take_ready(*in);
            run_thread(*in, thread);
            more = has_ready(*in) && flying.size() == 1 && !launch->stopped && !launch->interrupted;
            more &= thread.state != State::ready || !all_spin(flying);
        } while (more);
        if (in->alive == 0) {
            tell_early(*in);
            flying.erase(std::find(flying.begin(), flying.end(), in));
            idle.push_back(in);
        }
    }
}

void run_grid() {
    std::vector<Block*> flying;
    run_blocks(flying);
    for (Block* in : flying) {  // a launch that was stopped leaves fibers in the middle of a kernel
        tell_early(*in);
        for (Thread& thread : in->threads)
            if (thread.state != State::done) thread.fiber->started = false;
    }
}

}  // namespace

uint64_t random_bits() {  // splitmix64
    uint64_t z = (random_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void wait_here() { leave_fiber(now->fiber); }

void yield_now() {
    make_ready(*block, *now);
    wait_here();
}

void stop_launch() {
    fault = {};
    launch->stopped = true;
    abandon_fiber();
}

void stop_if_told(uintptr_t pc, const char* file, int line) {
    if (!launch->interrupted && !launch->expired) return;
    fault = {SIGALRM, 0, pc, file, line};
    launch->stopped = true;
    abandon_fiber();
}

void make_ready(Block& in, Thread& thread) {
    thread.state = State::ready;
    in.ready.push_back(static_cast<uint16_t>(thread.linear));
}

}  // namespace cuda_trace

using namespace cuda_trace;

extern "C" {

void cuda_trace_launch(const Request* request) {
    if (now) return fail(801, "a kernel launched from within a kernel: not covered");
    std::lock_guard<std::mutex> lock(launch_lock);
    if (dead) return fail(719, "an earlier launch was stopped");
    if (const char* reason = why_not(*request)) {
        char text[512];
        const char* name = strrchr(request->file, '/') ? strrchr(request->file, '/') + 1 : request->file;
        if (*name) snprintf(text, sizeof text, "%s at %s:%d, %s", request->kernel, name, request->line, reason);
        else snprintf(text, sizeof text, "%s, %s", request->kernel, reason);
        return fail(strstr(text, "shared memory") ? 1 : 9, text);
    }
    ++launches;
    uint64_t blocks = uint64_t(request->grid.x) * request->grid.y * request->grid.z;
    if (next_serial + blocks > UINT32_MAX) {  // start anew, with nothing remembered
        forget_cells();
        next_serial = 1;
    }
    Launch running = {};
    running.request = request;
    running.traced = options.trace && request->module->traced;
    running.first_serial = next_serial;
    next_serial += static_cast<uint32_t>(blocks);
    launch = &running;
    block = nullptr;
    fault = {};
    random_state = options.seed * 0x2545F4914F6CDD1Du + launches;
    enter_module(request->module);
    watch_signals(options.limit, on_fault);
    run_grid();
    unwatch_signals();
    leave_module();
    launch = nullptr;
    block = nullptr;
    if ((dead = running.stopped)) fail(719, "the launch was stopped");
    if (running.interrupted) raise(SIGINT);
}

// trace: whether traced modules are watched; seed: order of threads and blocks; limit: seconds for one launch.
void cuda_trace_configure(int trace, uint64_t seed, double switch_chance, double limit) {
    options = {trace != 0, seed, switch_chance, limit};
    launches = 0;
}

void cuda_trace_begin_call() {
    dead = false;
    thrown.clear();
    forget_error();
}

void cuda_trace_threw(const char* what) { thrown = what; }

const char* cuda_trace_thrown() { return thrown.c_str(); }  // by the host code of this call; "" if nothing was

void cuda_trace_end_call() {
    if (!unasked() || dead) return;
    snprintf(add_record(LAUNCH, nullptr, 0, 0, 0, Side{}).text, sizeof(Record::text), "%s", unasked_text());
}

uint64_t cuda_trace_launches() { return launches; }

Dim cuda_trace_thread_index() { return now ? now->index : Dim{0, 0, 0}; }
Dim cuda_trace_block_index() { return now ? block->index : Dim{0, 0, 0}; }
Dim cuda_trace_block_size() { return now ? launch->request->block : Dim{1, 1, 1}; }
Dim cuda_trace_grid_size() { return now ? launch->request->grid : Dim{1, 1, 1}; }

void cuda_trace_left() {  // a `return` in a kernel
    if (now) now->left_early = true;
}

void cuda_trace_trap(const char* text, const char* file, int line) {
    if (!now) abort();
    Side side = side_of(*now, *block, TOUCH, 0);
    side.file = file;
    side.line = line;
    snprintf(add_record(TRAP, nullptr, 0, 0, 1, side).text, sizeof(Record::text), "%s", text);
    stop_launch();
}

void cuda_trace_assert_failed(const char* expression, const char* file, int line) {
    char text[512];
    snprintf(text, sizeof text, "assert(%s)", expression);
    cuda_trace_trap(text, file, line);
}
}
