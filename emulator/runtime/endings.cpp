// How a launch comes to no good end, in words: a fault, a deadlock, a configuration that no GPU takes.
#include "host.h"
#include "runtime.h"

#include <csignal>
#include <cstdio>
#include <cstring>

namespace cuda_trace {
namespace {

std::string called(const Wait& wait, State state) {
    char text[64] = "__syncthreads()";
    if (state == State::at_warp) snprintf(text, sizeof text, "a warp operation with mask 0x%08x", wait.mask);
    if (state == State::at_warp && wait.op == SYNCWARP) snprintf(text, sizeof text, "__syncwarp(0x%08x)", wait.mask);
    return text;
}

// "threads 0-15 wait at __syncthreads(), flash.cu:12", a line for each group.
std::string who_waits(const Block& in) {
    std::string text;
    std::vector<bool> told(in.threads.size(), false);
    unsigned returned = 0;
    for (size_t i = 0; i < in.threads.size(); ++i) {
        const Thread& thread = in.threads[i];
        if (thread.state == State::done) ++returned;
        if (told[i] || thread.state == State::done) continue;
        std::string members;
        size_t start = i, end = i, count = 0;
        auto flush = [&] {
            members += (members.empty() ? "" : ", ") + std::to_string(start) + (end > start ? "-" + std::to_string(end) : "");
        };
        for (size_t j = i; j < in.threads.size(); ++j) {
            const Thread& other = in.threads[j];
            bool same = other.state == thread.state &&
                        (thread.state == State::ready ||
                         (other.wait.line == thread.wait.line && !strcmp(other.wait.file, thread.wait.file) &&
                          (thread.state == State::at_barrier || (other.wait.mask == thread.wait.mask && other.wait.op == thread.wait.op))));
            if (!same) continue;
            told[j] = true;
            if (count++ && j != end + 1) {
                flush();
                start = j;
            }
            end = j;
        }
        flush();
        const char* file = thread.wait.file;
        text += (count == 1 ? "thread " : "threads ") + members;
        text += thread.state == State::ready
                    ? (count == 1 ? " reads" : " read") + std::string(" the same few places for ever\n")
                    : (count == 1 ? " waits at " : " wait at ") + called(thread.wait, thread.state) + ", " + (strrchr(file, '/') ? strrchr(file, '/') + 1 : file) + ":" +
                          std::to_string(thread.wait.line) + "\n";
    }
    if (returned) text += std::to_string(returned) + (returned == 1 ? " thread has returned\n" : " threads have returned\n");
    return text;
}

}  // namespace

void report_deadlock(const Block& in) {
    const Thread *first = nullptr, *second = nullptr;
    for (const Thread& thread : in.threads) {
        if (thread.state != State::at_barrier && thread.state != State::at_warp) continue;
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

void report_fault(const Fault& fault) {
    bool memory = fault.signal == SIGSEGV || fault.signal == SIGBUS;
    // Local memory that is too large is touched from its far end, which may be far below the stack.
    bool local = memory && fault.address + 4 * STACK - reinterpret_cast<uintptr_t>(now->fiber->stack) < 4 * STACK + 4096;
    Kind kind = memory ? OUTSIDE : fault.signal == SIGFPE || fault.signal == SIGILL ? TRAP : DEADLOCK;
    Record& record = add_record(kind, nullptr, memory ? fault.address : 0, 0, 1, side_of(*now, *block, TOUCH, fault.pc));
    if (fault.file) {
        record.first.file = fault.file;
        record.first.line = fault.line;
    }
    auto say = [&](const char* format, auto... values) { snprintf(record.text, sizeof record.text, format, values...); };
    if (local) {
        record.space = LOCAL;
        say("more than %zu KiB of local memory in one thread (arrays of its own, deep recursion)", STACK / 1024 - 64);
    } else if (memory && fault.address == UNKNOWN) {
        say("an address that is misaligned, or none at all; trace() says which");
    } else if (memory) {
        say("address %#llx, where no tensor is", static_cast<unsigned long long>(fault.address));
    } else if (kind == TRAP) {
        say("%s", fault.signal == SIGFPE ? "division of an integer by zero" : "an illegal instruction");
    } else {
        say("the launch had not ended after %g s; this thread was running", options.limit);
    }
}

const char* why_not(const Request& request) {
    static char text[256];
    auto& g = request.grid;
    auto& b = request.block;
    uint64_t threads = uint64_t(b.x) * b.y * b.z;
    size_t limit = dynamic_shared_limit(request.function), fixed = static_shared_of(request.module, request.function);
    if (!threads || !g.x || !g.y || !g.z)
        snprintf(text, sizeof text, "a grid of %ux%ux%u blocks of %ux%ux%u threads: none may be 0", g.x, g.y, g.z, b.x, b.y, b.z);
    else if (threads > MOST_THREADS || b.z > 64)
        snprintf(text, sizeof text, "%ux%ux%u = %llu threads a block: at most 1024, and 64 in z", b.x, b.y, b.z,
                 static_cast<unsigned long long>(threads));
    else if (uint64_t(g.x) * g.y > (uint64_t(1) << 31) / g.z)
        snprintf(text, sizeof text, "a grid of %ux%ux%u: more than 2^31 blocks, which no CPU gets through", g.x, g.y, g.z);
    else if (g.y > 65535 || g.z > 65535)
        snprintf(text, sizeof text, "a grid of %ux%ux%u: y and z may be 65535", g.x, g.y, g.z);
    else if (fixed > DEFAULT_SHARED)
        snprintf(text, sizeof text, "%zu bytes of static shared memory: at most %zu", fixed, DEFAULT_SHARED);
    else if (request.shared + fixed > limit)
        snprintf(text, sizeof text, "%zu bytes of dynamic shared memory%s, at most %zu%s", request.shared,
                 fixed ? (" beside " + std::to_string(fixed) + " static").c_str() : "", limit,
                 limit < LARGEST_SHARED ? " without cudaFuncSetAttribute" : "");
    else
        return nullptr;
    return text;
}

}  // namespace cuda_trace
