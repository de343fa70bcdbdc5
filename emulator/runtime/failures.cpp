// Diagnoses failed launches: faults, deadlocks, configurations that no GPU accepts.
#include "mbarriers.h"

#include <csignal>
#include <cstdio>
#include <cstring>

namespace emulator {
namespace {

std::string name_of(const Block& in, const Wait& wait, State state) {
    if (state == State::at_cluster) return missing_at_cluster(in);
    if (state == State::at_mbarrier) return state_of(*in.mbarriers, static_cast<uint32_t>(wait.value));
    if (wait.name) return wait.name;
    char text[64] = "__syncthreads()";
    if (state == State::at_warp) snprintf(text, sizeof text, "a warp operation with mask 0x%08x", wait.mask);
    if (state == State::at_warp && wait.op == SYNCWARP) snprintf(text, sizeof text, "__syncwarp(0x%08x)", wait.mask);
    return text;
}

// Whether two threads are in one group: both run, or both wait at the same line in the same
// operation.
bool same_wait(const Thread& a, const Thread& b) {
    if (a.state != b.state) return false;
    if (rank_of(a.linear) != rank_of(b.linear)) return false;
    if (a.state == State::ready) return true;
    if (a.wait.line != b.wait.line || strcmp(a.wait.file, b.wait.file)) return false;
    if (a.state == State::at_mbarrier) return a.wait.value == b.wait.value;
    return a.state == State::at_barrier || a.state == State::at_cluster || (a.wait.mask == b.wait.mask && a.wait.op == b.wait.op);
}

// "threads 0-15 wait at __syncthreads(), flash.cu:12", a line for each group.
std::string who_waits(const Block& in) {
    std::string text;
    std::vector<bool> listed(in.threads.size(), false);
    unsigned returned = 0;
    for (size_t i = 0; i < in.threads.size(); ++i) {
        const Thread& thread = in.threads[i];
        if (thread.state == State::done && is_there(thread.linear)) ++returned;
        if (listed[i] || thread.state == State::done) continue;
        std::string members;
        size_t start = i, end = i, count = 0;
        auto flush = [&] {
            members += (members.empty() ? "" : ", ") + std::to_string(in_block(static_cast<unsigned>(start)));
            if (end > start) members += "-" + std::to_string(in_block(static_cast<unsigned>(end)));
        };
        for (size_t j = i; j < in.threads.size(); ++j) {
            const Thread& other = in.threads[j];
            if (!same_wait(other, thread)) continue;
            listed[j] = true;
            if (count++ && j != end + 1) {
                flush();
                start = j;
            }
            end = j;
        }
        flush();
        if (in.cluster) members += " of block " + in_words(block_of(in.index, thread.linear));
        text += (count == 1 ? "thread " : "threads ") + members;
        if (thread.state == State::ready) {
            text += (count == 1 ? " keeps" : " keep") + std::string(" reading the same few addresses\n");
            continue;
        }
        const char* file = thread.wait.file;
        if (const char* slash = strrchr(file, '/')) file = slash + 1;
        text += (count == 1 ? " waits at " : " wait at ") + name_of(in, thread.wait, thread.state) + ", " + file + ":" +
                std::to_string(thread.wait.line) + "\n";
    }
    if (returned) text += std::to_string(returned) + (returned == 1 ? " thread has returned\n" : " threads have returned\n");
    return text;
}

}  // namespace

void record_deadlock(const Block& in) {
    const Thread *first = nullptr, *second = nullptr;
    for (const Thread& thread : in.threads) {
        if (thread.state == State::ready || thread.state == State::done) continue;
        if (!first) first = &thread;
        else if (!second && (thread.wait.line != first->wait.line || thread.state != first->state)) second = &thread;
    }
    Side a = first ? side_waiting(*first, in) : Side{};
    if (!first)
        for (const Thread& thread : in.threads)
            if (thread.state == State::ready) {
                a = side_of(thread, in, READ, thread.recent_pc);
                break;
            }
    Record& record = add_record(DEADLOCK, nullptr, 0, 0, second ? 2 : 1, a, second ? side_waiting(*second, in) : Side{});
    snprintf(record.text, sizeof record.text, "%s", who_waits(in).c_str());
}

void record_fault(const Fault& fault) {
    bool memory = fault.signal == SIGSEGV || fault.signal == SIGBUS;
    // If local memory is too large, it is accessed from its far end, which can be far below the
    // stack.
    bool local = memory && fault.address + 4 * STACK - gpu.thread->own < 4 * STACK + 4096;
    Kind kind = memory ? OUTSIDE : fault.signal == SIGFPE || fault.signal == SIGILL ? TRAP : DEADLOCK;
    Record& record = add_record(kind, nullptr, memory ? fault.address : 0, 0, 1, side_here(TOUCH, fault.pc));
    if (fault.file) {
        record.first.file = fault.file;
        record.first.line = fault.line;
    }
    auto say = [&](const char* format, auto... values) { snprintf(record.text, sizeof record.text, format, values...); };
    if (local) {
        record.space = LOCAL;
        say("more than %zu KiB of local memory in one thread (local arrays, deep recursion)", STACK / 1024 - 64);
    } else if (memory && fault.address == UNKNOWN) {
        say("a misaligned or invalid address; trace() says which");
    } else if (memory) {
        say("address %#llx, where no tensor is", static_cast<unsigned long long>(fault.address));
    } else if (kind == TRAP) {
        say("%s", fault.signal == SIGFPE ? "division of an integer by zero" : "an illegal instruction");
    } else {
        say("the launch had not ended after %g s; this thread was running", gpu.options.limit);
    }
}

LaunchStatus check_request(const Request& request, char* text, size_t text_bytes) {
    auto& g = request.grid;
    auto& b = request.block;
    uint64_t threads = uint64_t(b.x) * b.y * b.z;
    size_t fixed = static_shared_of(request.module, request.function);
    auto because = [&](LaunchStatus status, const char* format, auto... values) {
        snprintf(text, text_bytes, format, values...);
        return status;
    };
    if (!threads || !g.x || !g.y || !g.z)
        return because(LAUNCH_INVALID, "a grid of %ux%ux%u blocks of %ux%ux%u threads: no size may be 0", g.x, g.y, g.z,
                       b.x, b.y, b.z);
    if (threads > MOST_THREADS || b.z > 64)
        return because(LAUNCH_INVALID, "%ux%ux%u = %llu threads a block: at most 1024, and 64 in z", b.x, b.y, b.z,
                       static_cast<unsigned long long>(threads));
    if (uint64_t(g.x) * g.y > (uint64_t(1) << 31) / g.z)
        return because(LAUNCH_INVALID, "a grid of %ux%ux%u: more than 2^31 blocks, too many for a CPU", g.x, g.y, g.z);
    if (g.y > 65535 || g.z > 65535)
        return because(LAUNCH_INVALID, "a grid of %ux%ux%u: y and z are at most 65535", g.x, g.y, g.z);
    if (fixed > DEFAULT_SHARED)
        return because(LAUNCH_STATIC_SHARED, "%zu bytes of static shared memory: at most %zu", fixed, DEFAULT_SHARED);
    if (request.shared + fixed > request.shared_limit)
        return because(LAUNCH_DYNAMIC_SHARED, "%zu bytes of dynamic shared memory%s, at most %zu", request.shared,
                       fixed ? (" beside " + std::to_string(fixed) + " static").c_str() : "", request.shared_limit);
    return LAUNCH_DONE;
}

}  // namespace emulator
