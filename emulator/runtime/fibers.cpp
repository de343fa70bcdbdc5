// Fibers, one for each thread of a block, and the signals that can end a launch inside a fiber.
// ucontext creates fibers, and setjmp switches them: it does not save the signal mask in a system
// call, so a switch takes 10 ns (swapcontext takes 300).
#include "runtime.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emulator {
namespace {

constexpr unsigned SLAB = 1024;  // fibers whose stacks are mapped together
// Bytes below each stack; accesses to too large local memory fault there.
constexpr size_t GUARD = 4096;

struct Slab {
    char* stacks;
    std::vector<Fiber> fibers;
};

std::vector<Slab*> slabs;  // never freed: later launches reuse the stacks
jmp_buf scheduler;  // set in run_fiber
void (*body_of_fibers)();  // argument of run_fiber

Slab* make_slab() {
    void* stacks = mmap(nullptr, SLAB * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) throw std::runtime_error("no memory for the stacks of 1024 threads");
    auto* slab = new Slab{static_cast<char*>(stacks), std::vector<Fiber>(SLAB)};
    for (unsigned i = 0; i < SLAB; ++i) slab->fibers[i].stack = slab->stacks + i * STACK;
    return slab;
}

// Never returns: after each thread it waits to be resumed for the next one on the same stack.
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
    if (gpu.thread->fiber) gpu.thread->fiber->started = false;
    _longjmp(scheduler, 1);
}

__attribute__((noinline)) bool run_stoppable(void (*body)()) {
    if (_setjmp(scheduler)) return false;
    body();
    return true;
}

bool in_stacks(uintptr_t address) {
    for (auto* slab : slabs)
        if (address - reinterpret_cast<uintptr_t>(slab->stacks) < SLAB * STACK) return true;
    return false;
}

// ---- signals ------------------------------------------------------------------------------------

namespace {

const int CLOCK = SIGRTMIN + 3;
const int WATCHED[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGINT, CLOCK};
constexpr int COUNT = sizeof WATCHED / sizeof *WATCHED;
constexpr long TICK = 50 * 1000 * 1000;  // ns between two checks of the time limit
struct sigaction before[COUNT];  // handlers that a launch replaces, for each signal in WATCHED
void (*on_fault)(int, uintptr_t, uintptr_t);
double deadline;  // of the launch, in seconds_now()
stack_t stack_before;  // signal stack that a launch replaces
timer_t timer;
pid_t timer_of = 0;  // OS thread that the timer signals

pid_t gettid_now() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// CPU time of this OS thread: on a busy machine, a launch that takes long need not be a deadlock.
double seconds_now() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

bool limit_is_over() { return seconds_now() > deadline; }

struct Place {
    uintptr_t pc, stack;
};

Place place_of(void* context) {
    auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return {static_cast<uintptr_t>(machine.gregs[REG_RIP]), static_cast<uintptr_t>(machine.gregs[REG_RSP])};
#elif defined(__aarch64__)
    return {machine.pc, machine.sp};
#else
#error "only x86-64 and aarch64: for others, add where a signal's context has the program counter and the stack pointer"
#endif
}

// A fault in a kernel ends its launch at once. The timer and Ctrl-C can interrupt any code: they
// end the launch at once only if the author's code runs on a fiber. Otherwise they set a flag that
// the runtime reads (stop_if_requested).
void on_signal(int signal, siginfo_t* info, void* context) {
    bool fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
    bool here = gpu.launch && gettid_now() == gpu.launch->os_thread;
    Place place = place_of(context);
    const Fiber* fiber = here && gpu.thread ? gpu.thread->fiber : nullptr;
    bool on_fiber = fiber && place.stack - reinterpret_cast<uintptr_t>(fiber->stack) + 4 * STACK < 5 * STACK;
    bool in_kernel = on_fiber && place.pc - gpu.launch->code < gpu.launch->code_bytes;
    if (fault && !on_fiber) {  // not in a kernel: for the previous handler
        for (int i = 0; i < COUNT; ++i)
            if (WATCHED[i] == signal) sigaction(signal, &before[i], nullptr);
        return;
    }
    if (gpu.launch && signal == SIGINT) gpu.launch->interrupted = true;
    if (gpu.launch && !fault && signal != SIGINT) gpu.launch->expired = gpu.launch->expired || limit_is_over();
    if (fault || (in_kernel && (gpu.launch->interrupted || gpu.launch->expired)))
        on_fault(fault ? signal : gpu.launch->interrupted ? SIGINT : CLOCK,
                 info->si_code == SI_KERNEL ? UNKNOWN : reinterpret_cast<uintptr_t>(info->si_addr), place.pc);
}

}  // namespace

void watch_signals(double seconds, void (*handler)(int, uintptr_t, uintptr_t)) {
    static char* alternate = static_cast<char*>(mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE,
                                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    on_fault = handler;
    deadline = seconds_now() + seconds;
    stack_t stack = {};
    stack.ss_sp = alternate;
    stack.ss_size = 1 << 16;
    sigaltstack(&stack, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < COUNT; ++i) {
        sigaction(WATCHED[i], &action, &before[i]);
        // Ctrl-C stays ignored in a background process.
        if (before[i].sa_handler == SIG_IGN) sigaction(WATCHED[i], &before[i], nullptr);
    }
    pid_t self = gettid_now();
    gpu.launch->os_thread = self;
    if (timer_of != self) {
        if (timer_of) timer_delete(timer);
        sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = CLOCK;
        event._sigev_un._tid = self;
        timer_of = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 ? self : 0;
    }
    itimerspec when = {};
    when.it_value.tv_nsec = when.it_interval.tv_nsec = TICK;
    if (timer_of) timer_settime(timer, 0, &when, nullptr);
}

void unwatch_signals() {
    itimerspec never = {};
    if (timer_of) timer_settime(timer, 0, &never, nullptr);
    for (int i = 0; i < COUNT; ++i) sigaction(WATCHED[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
}

}  // namespace emulator
