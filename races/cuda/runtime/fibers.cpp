// Fibers, one for each thread of a block: made by ucontext, switched by setjmp (which does not ask the kernel for the
// signal mask, and so takes 10 ns where swapcontext takes 300). And the signals that can end a launch from within one.
#undef _FORTIFY_SOURCE
#include "runtime.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cuda_trace {
namespace {

constexpr unsigned SLAB = 1024;  // fibers whose stacks are mapped together
constexpr size_t GUARD = 4096;  // below each stack, so that local memory that is too large is a fault, not a neighbour's

struct Slab {
    char* stacks;
    std::vector<Fiber> fibers;
};

std::vector<Slab*> slabs;
jmp_buf scheduler;
void (*body_of_fibers)();

Slab* make_slab() {
    void* stacks = mmap(nullptr, SLAB * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) throw std::runtime_error("no memory for the stacks of 1024 threads");
    auto* slab = new Slab{static_cast<char*>(stacks), std::vector<Fiber>(SLAB)};
    for (unsigned i = 0; i < SLAB; ++i) slab->fibers[i].stack = slab->stacks + i * STACK;
    return slab;
}

// Never returns: between two threads it waits to be resumed, with its stack ready for the next one.
void fiber_main(unsigned low, unsigned high) {
    auto* self = reinterpret_cast<Fiber*>((static_cast<uintptr_t>(high) << 32) | low);
    for (;;) {
        body_of_fibers();
        leave_fiber(self);
    }
}

}  // namespace

Fiber* fiber(unsigned slot) {
    while (slabs.size() <= slot / SLAB) slabs.push_back(make_slab());
    return &slabs[slot / SLAB]->fibers[slot % SLAB];
}

__attribute__((noinline)) void run_fiber(Fiber* fiber, void (*body)()) {
    body_of_fibers = body;
    if (_setjmp(scheduler)) return;
    if (fiber->started) _longjmp(fiber->resume, 1);
    fiber->started = true;
    mprotect(fiber->stack, GUARD, PROT_NONE);
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = fiber->stack + GUARD;
    fiber->start.uc_stack.ss_size = STACK - GUARD;
    fiber->start.uc_link = nullptr;
    auto self = reinterpret_cast<uintptr_t>(fiber);
    makecontext(&fiber->start, reinterpret_cast<void (*)()>(fiber_main), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
    setcontext(&fiber->start);
}

__attribute__((noinline)) void leave_fiber(Fiber* fiber) {
    if (_setjmp(fiber->resume)) return;
    _longjmp(scheduler, 1);
}

void abandon_fiber() {
    now->fiber->started = false;
    _longjmp(scheduler, 1);
}

bool in_stacks(uintptr_t address) {
    for (auto* slab : slabs)
        if (address - reinterpret_cast<uintptr_t>(slab->stacks) < SLAB * STACK) return true;
    return false;
}

// ---- signals ------------------------------------------------------------------------------------------------------

namespace {

const int WATCHED[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGRTMIN + 3};
constexpr int COUNT = sizeof WATCHED / sizeof *WATCHED;
struct sigaction before[COUNT];
void (*fault)(int, uintptr_t, uintptr_t);
stack_t stack_before;
timer_t timer;
pid_t timer_of = 0;  // the OS thread that the timer signals

uintptr_t program_counter(void* context) {
#if defined(__x86_64__)
    return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#else
    return 0;
#endif
}

void on_signal(int signal, siginfo_t* info, void* context) {
    if (!now) {  // not in a kernel: not ours
        for (int i = 0; i < COUNT; ++i)
            if (WATCHED[i] == signal && signal != SIGRTMIN + 3) {
                if (signal == SIGINT) {
                    launch->interrupted = true;
                    return;
                }
                sigaction(signal, &before[i], nullptr);
            }
        return;
    }
    fault(signal, reinterpret_cast<uintptr_t>(info->si_addr), program_counter(context));
}

}  // namespace

void watch_signals(double seconds, void (*on_fault)(int, uintptr_t, uintptr_t)) {
    static char* alternate = static_cast<char*>(mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE,
                                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fault = on_fault;
    stack_t stack = {};
    stack.ss_sp = alternate;
    stack.ss_size = 1 << 16;
    sigaltstack(&stack, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < COUNT; ++i) sigaction(WATCHED[i], &action, &before[i]);
    pid_t self = static_cast<pid_t>(syscall(SYS_gettid));
    if (timer_of != self) {
        if (timer_of) timer_delete(timer);
        sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = SIGRTMIN + 3;
        event._sigev_un._tid = self;
        timer_of = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 ? self : 0;
    }
    itimerspec when = {};
    when.it_value.tv_sec = static_cast<time_t>(seconds);
    when.it_value.tv_nsec = static_cast<long>((seconds - static_cast<double>(when.it_value.tv_sec)) * 1e9) + 1;
    if (timer_of) timer_settime(timer, 0, &when, nullptr);
}

void unwatch_signals() {
    itimerspec never = {};
    if (timer_of) timer_settime(timer, 0, &never, nullptr);
    for (int i = 0; i < COUNT; ++i) sigaction(WATCHED[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
}

}  // namespace cuda_trace
