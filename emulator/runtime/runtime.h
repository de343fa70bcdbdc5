// The runtime that CUDA kernels meet on a CPU: who is running, where everybody waits, what is known of memory.
//
// One launch at a time. Its blocks run one after another (a few side by side where threads are switched at random),
// each thread of a block on a fiber of its own. Everything here is reached from one OS thread at a time (launch_lock).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <ucontext.h>
#include <vector>

#include "../cuda/include/shim/warp_ops.h"
#include "shadow.h"

namespace cuda_trace {

struct Dim {
    unsigned x, y, z;
};

constexpr unsigned WARP = 32, MOST_THREADS = 1024;
constexpr size_t STACK = 576 * 1024;  // bytes for one thread: 512 KiB of local memory is what a GPU gives
constexpr unsigned char POISON = 0xFF;  // what shared memory holds when a block starts: NaN, -1

// ---- fibers.cpp ---------------------------------------------------------------------------------------------------

struct Fiber {
    ucontext_t start;
    jmp_buf resume;
    char* stack = nullptr;
    bool started = false;
};

// ---- what a thread waits for --------------------------------------------------------------------------------------

enum class State : uint8_t { ready, at_barrier, at_warp, done };

enum BarrierOp : int { SYNC, SYNC_AND, SYNC_OR, SYNC_COUNT };

struct Wait {
    int op;
    unsigned mask;
    uint64_t value, result;
    int argument, width;
    const char* file;
    int line;
};

// A __pipeline_memcpy_async that has not been waited for.
struct Copy {
    unsigned char* to;
    const unsigned char* from;
    unsigned bytes, filled, batch;
    uintptr_t pc;
};

struct Thread {
    Fiber* fiber;
    Dim index;
    unsigned linear;
    State state;
    bool left_early;  // its last doing was a `return`: it did not come to its end past what others wait at
    Wait wait;
    unsigned batch;  // number of __pipeline_commit so far
    std::vector<Copy> copies;
    uintptr_t recent[4];  // the last places touched, to tell a thread that spins
    unsigned next_recent;
    uintptr_t recent_pc;
    uint64_t since_new;  // accesses since it touched any other place

    unsigned warp() const { return linear / WARP; }
    unsigned lane() const { return linear % WARP; }
};

// What __syncwarp has ordered since the last block barrier. seen[l][m] > s: what lane m did when the warp had had s
// syncs is ordered before what lane l does now (races/rule.py has the rule, this is its bookkeeping).
struct Warp {
    uint32_t syncs;
    uint32_t seen[WARP][WARP];
};

struct Region;
struct Side {  // one access of a report; a plain struct that Python reads (emulator/records.py)
    int what;
    unsigned thread[3], block[3];
    uint64_t pc;  // 0 if file and line are known instead
    const char* file;
    int line;
};

// A read of shared memory before anything wrote it. Told once the block is over, or the memory is written in order; a write
// that races with the read takes it back: which of the two comes first is then chance, and the race says it all.
struct Early {
    const Region* region;
    uintptr_t address;
    size_t size;
    Side side;
    uint32_t next;  // as in Cell::early
};

struct Block {
    unsigned slot;  // of its first fiber
    Dim index;
    uint32_t serial;  // of all blocks of all launches
    uint32_t interval;  // number of block barriers passed, plus 1
    unsigned alive, waiting;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<uint16_t> ready;
    size_t next_ready;
    std::vector<Cell> shared_static, shared_dynamic;  // shadow of this block's shared memory
    std::vector<Early> early;
    std::vector<unsigned char> image;  // its shared memory while another block runs
};

// ---- launches (scheduler.cpp) -------------------------------------------------------------------------------------

struct Module {  // one compiled .cu; the glue (shim/glue.h) has one of these
    int traced;
    void* (*anchor)();  // the address of some thread_local of the module, made to exist
};

struct Request {
    const Module* module;
    const char* kernel;  // as written at the launch
    const char* file;
    int line;
    const void* function;  // for what was opted in by cudaFuncSetAttribute; may be null
    Dim grid, block;
    size_t shared;
    void (*entry)(void*);
    void* params;
    size_t params_bytes;
};

struct Launch {
    const Request* request;
    bool traced;
    uint32_t first_serial;  // of block 0
    uintptr_t code, code_bytes;  // where the module is loaded: sites are offsets from here
    int os_thread;
    bool stopped;
    volatile bool interrupted, expired;  // by Ctrl-C; by the clock
};

struct Options {
    bool trace = false;
    uint64_t seed = 0;
    double switch_chance = 0;
    double limit = 60;  // seconds for one launch
};

extern Thread* now;  // the thread that runs; null outside of kernels
extern Block* block;
extern Launch* launch;
extern Options options;

uint64_t random_bits();
void wait_here();  // back to the scheduler, until somebody makes this thread ready
void yield_now();  // back to the scheduler, in the queue of those that are ready
[[noreturn]] void stop_launch();  // from within a kernel: nothing more of this launch runs
void stop_if_told(uintptr_t pc, const char* file = nullptr, int line = 0);  // by Ctrl-C or the clock
void release_if_complete(Block& in);
void complete_warp_op(Block& in, const Thread& arrived);
void complete_without(Block& in, const Thread& gone);  // what waited for a lane that has now returned
void make_ready(Block& in, Thread& thread);
void watch_spinning(uintptr_t address, uintptr_t pc);
void finish_copies(Thread& thread, unsigned before_batch);  // of the batches numbered below

// ---- endings.cpp --------------------------------------------------------------------------------------------------

constexpr uintptr_t UNKNOWN = ~uintptr_t(0);  // the address of a fault where the processor does not tell

struct Fault {
    int signal;
    uintptr_t address, pc;
    const char* file;  // where pc is 0
    int line;
};

void report_fault(const Fault& fault);  // of the running thread
void report_deadlock(const Block& in);  // none of whose threads can go on
const char* why_not(const Request& request);  // cannot be launched on a GPU, in words; null if it can

// ---- fibers.cpp ---------------------------------------------------------------------------------------------------

Fiber* fiber(unsigned slot);  // slots are numbered from 0; made when first asked for
void run_fiber(Fiber* fiber, void (*body)());  // run or go on, until leave_fiber or the end of body
void leave_fiber(Fiber* fiber);
[[noreturn]] void abandon_fiber();  // back to run_fiber's caller, for good; safe in a signal handler
bool in_stacks(uintptr_t address);
void watch_signals(double seconds, void (*on_fault)(int signal, uintptr_t address, uintptr_t pc));
void unwatch_signals();

// ---- memory.cpp ---------------------------------------------------------------------------------------------------

enum Space : int { NOWHERE, GLOBAL, SHARED_STATIC, SHARED_DYNAMIC, MODULE, LOCAL, PARAMETER };

struct Region {
    uintptr_t low, high;
    uintptr_t margin_low, margin_high;  // beyond low and high; a stray access there is told as one beside this region
    bool soft;  // the margins are ours: such an access does no harm
    Space space;
    int id;
    unsigned shift;  // a cell of shadow is 1 << shift bytes
    bool read_only;
    Cell* cells;  // null until the first access
    std::vector<Cell> own;
    std::vector<bool> written;  // by byte, where that is followed: memory of cudaMalloc; else empty
    std::vector<std::pair<uintptr_t, uintptr_t>> spans;  // what may be touched; empty: all of it
    std::vector<std::pair<uintptr_t, uintptr_t>> unwatched;  // what the compiler put between for itself

    bool allows(uintptr_t from, size_t bytes) const {
        if (spans.empty()) return from >= low && from + bytes <= high;
        for (auto& span : spans)
            if (from >= span.first && from + bytes <= span.second) return true;
        return false;
    }
};

struct Variable {  // of static shared memory; a plain struct that Python fills (emulator/cuda/symbols.py)
    uint64_t start, end;  // in the TLS block
    uint64_t kernel;  // whose it is, as an offset in the library; 0: of whoever uses it
    int guard;  // the compiler's own, which says whether a constructor has run
};

Region* region_of(uintptr_t address);  // or null
Region* region_around(uintptr_t address);  // also in a margin
void enter_module(const Module* module);  // its globals and its static shared memory become known
void leave_module();
void forget_cells();  // all that is remembered of accesses
size_t static_shared_of(const Module* module, const void* kernel);  // bytes, of the kernel's own variables
void map_shared(Block& block, size_t dynamic_bytes);  // the shared regions show this block's cells
void swap_shared(Block* out, Block* in);
void poison_shared(size_t dynamic_bytes);
size_t static_shared_bytes();

// ---- records.cpp --------------------------------------------------------------------------------------------------

enum Kind : int {
    RACE, OUTSIDE, UNINITIALISED, BARRIER, DEADLOCK, MISALIGNED, MASK, ASYNC, LAUNCH, TRAP,
};
enum What : int { READ, WRITE, ATOMIC, WAIT, TOUCH };  // TOUCH: one cannot tell

struct Record {
    int kind, space, region, same_value;  // same_value: 1, 0, or -1 where it was not looked at
    int64_t offset;
    uint64_t size, count;
    int sides;
    Side first, second;
    uint64_t code;  // where the library is loaded
    const char* library;
    char text[1024];
};

Side side_of(const Thread& thread, const Block& in, What what, uintptr_t pc);
Side side_waiting(const Thread& thread, const Block& in);
Side side_of_past(uint32_t serial, unsigned thread, What what, uint32_t site);
void new_access();  // several reports of one access count once
long record_number(const Record& record);
void note_value(long record, bool same);
Record& add_record(Kind kind, const Region* region, uintptr_t address, size_t size, int sides, Side first, Side second = {});

// ---- shadow.cpp ---------------------------------------------------------------------------------------------------

void see_access(uintptr_t address, size_t bytes, What what, uintptr_t pc);  // of the running thread
void see_copy(const Copy& copy, bool begins);
void forget_shadows();  // all cells are gone
void tell_early(Block& of);  // those that are left when a block ends
void settle_value();  // look whether a write that raced changed what was there

}  // namespace cuda_trace
