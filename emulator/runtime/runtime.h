// The runtime of GPU kernels on a CPU: scheduling, barriers, memory, and observations. All kernel
// families share it.
//
// One launch runs at a time. Its blocks run one after another (a few concurrently if threads are
// switched at random), and each thread of a block has a fiber. Only one OS thread at a time uses
// anything here (launch_lock).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <ucontext.h>
#include <vector>

#include "kernel_api.h"
#include "shadow.h"

namespace emulator {

constexpr unsigned WARP = 32, MOST_THREADS = 1024;
constexpr size_t DEFAULT_SHARED = 48 * 1024, LARGEST_SHARED = 227 * 1024;  // bytes per block: by default, and after opting in
constexpr size_t STACK = 576 * 1024;  // bytes per thread: a GPU has 512 KiB of local memory
constexpr unsigned char POISON = 0xFF;  // fills the shared memory of a new block: NaN, -1

// ---- threads and blocks -------------------------------------------------------------------------

struct Fiber {
    ucontext_t start;
    jmp_buf resume;
    char* stack = nullptr;
    bool started = false;
};

enum class State : uint8_t { ready, at_barrier, at_warp, at_mbarrier, done };

struct Wait {  // the barrier or warp operation that a thread waits at
    int op;
    unsigned mask;
    uint64_t value, result;
    int argument, width;
    const char* file;
    int line;
    const char* name;  // the operation's name in messages; null: its CUDA name
    const void* operation;  // run by another engine when all have arrived
    bool reduces;  // a barrier of another engine that has a result
    bool repeats;  // another engine repeats the instruction, instead of going on after it
    int place;  // tells barriers on one line apart
};

struct Copy {  // an asynchronous copy that has not been waited for
    unsigned char* to;
    const unsigned char* from;
    unsigned bytes, filled, batch;
    uintptr_t pc;
};

struct Thread {
    Fiber* fiber;  // null if another engine runs it
    uintptr_t own, own_bytes;  // its local memory: a fiber's stack, or .local variables
    Dim index;
    unsigned linear;
    State state;
    // Its last action was a `return`, so it did not run past the barrier of others.
    bool left_early;
    Wait wait;
    unsigned batch;  // number of batches of asynchronous copies committed
    std::vector<Copy> copies;
    uintptr_t recent[4];  // last addresses accessed, to detect spinning
    unsigned next_recent;
    uintptr_t recent_pc;
    uint64_t since_new;  // accesses since it touched another address
    // Stores so far, if Launch::replicated: equal for lanes that execute one store together.
    uint32_t stores;

    unsigned warp() const { return linear / WARP; }
    unsigned lane() const { return linear % WARP; }
};

// Vector clocks of a warp since the last block barrier. Time is the number of __syncwarps of the
// warp. clock[l][m] > s means that lane m's actions at time s happen before lane l's next action
// (the rule is in races/rule.py).
struct Warp {
    uint32_t syncs;
    uint32_t clock[WARP][WARP];
};

// What happens before an event, if clocks have a column for each thread and agent (clocks.cpp).
struct Order {
    std::vector<uint32_t> clock;
    std::vector<uint64_t> fenced;  // if the launch has agents
};

// A barrier for some threads of the block: threads that wait at it, and threads that only arrive
// (named_barriers.cpp).
struct NamedBarrier {
    unsigned expected = 0, arrived = 0;  // threads
    unsigned holding = 0;  // number of arrived threads whose value is not 0
    std::vector<uint32_t> lanes;  // arrived lanes of each warp
    std::vector<uint32_t> again;  // of them, those that arrived and then wait
    std::vector<unsigned> waiting;
    Order joined;  // what all that have arrived did
};

struct Region;
struct Side {  // who did what where; plain, because Python reads it (emulator/runtime/records.py)
    int what;
    unsigned thread[3], block[3];
    uint64_t pc;  // 0 if file and line are known instead
    const char* file;
    int line;
};

// A read of shared memory before any write in its block. It is recorded when the block ends or when
// an ordered write follows. A write that races with the read cancels it: which of the two ran first
// depends on the schedule, and the race is reported.
struct UninitialisedRead {
    const Region* region;
    uintptr_t address;
    size_t size;
    Side side;
    uint32_t next;  // previous read of the same cell, as in Cell::uninitialised
};

struct Mbarrier;  // mbarriers.h

struct Block {
    unsigned number;  // among the blocks in flight
    Dim index;
    uint32_t serial;  // unique over all blocks of all launches
    uint32_t interval;  // number of block barriers passed, plus 1
    unsigned alive, waiting;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<uint32_t> clocks;  // of all threads, if Launch::joins_warps (clocks.cpp)
    std::vector<uint64_t> fenced;  // the same for moments of proxy fences, if Launch::has_agents
    unsigned agents, agent_room;  // columns of agents in these clocks: used, and there
    NamedBarrier named[16];
    std::map<uint32_t, Mbarrier>* mbarriers = nullptr;  // by address, if the engine has any
    std::vector<unsigned> rank;  // of each warp, if threads run by warp
    std::vector<uint16_t> ready;
    size_t next_ready;
    std::vector<Cell> shared_static, shared_dynamic;  // shadow of the block's shared memory
    std::vector<UninitialisedRead> uninitialised;
    std::vector<unsigned char> image;  // its shared memory while another block runs
};

// ---- launches (scheduler.cpp) -------------------------------------------------------------------

struct Launch {
    const Request* request;
    bool traced;  // every access is checked
    bool switched;  // threads are switched at accesses, traced or not
    uint64_t until_switch;  // number of accesses before the next switch, if they are not checked
    bool joins_warps;  // barriers may join only some warps of a block, or has_agents
    bool has_agents;  // it is traced, and work of the asynchronous proxy goes on beside threads (agents.h)
    bool replicated;  // threads may hold copies of a value and all store it: two writes of one value are no mistake
    // Threads wait at one barrier if its number is equal, wherever they are; a thread that ends
    // blocks none.
    bool by_barrier;
    uint32_t first_serial;  // serial of block 0
    uintptr_t code, code_bytes;  // address of the module: sites are offsets from here
    int os_thread;
    bool stopped;
    volatile bool interrupted, expired;  // by Ctrl-C; by the time limit
};

struct Options {
    bool trace = false;
    uint64_t seed = 0;
    double switch_chance = 0;
    // Warps of a block run one after another, in random order, each until it waits for others.
    bool by_warp = false;
    double limit = 60;  // seconds of CPU time for one launch
};

// The state of the emulated GPU. There is one, and the launch in progress has it. State that only
// one file needs is in a struct of that file: schedule (scheduler.cpp), checking
// (happens_before.h), recorded (records.cpp).
struct Gpu {
    // The running thread: barriers, accesses and faults are its own. It is null outside kernels, so
    // that the functions of kernel_api.h do nothing in host code. The machine for PTX runs many
    // lanes at once and sets it when an action concerns one.
    Thread* thread = nullptr;

    // The block whose shared memory is mapped: the block of `thread`, or the last one that ran
    // while no thread runs. It is null before the first block of a launch, and after the object of
    // an ended block is reused.
    Block* block = nullptr;

    // The launch in progress, on the stack of emulator_launch. It is null between launches, which
    // tells the signal handler that a fault does not come from a kernel.
    Launch* launch = nullptr;

    // How launches run: checked or not, in which order, for how long. Python sets it between
    // launches (emulator_configure).
    Options options;
};
extern Gpu gpu;

// Runs the blocks of a launch. The runtime chooses the order of blocks and calls `run` while
// `has_ready` is true.
struct Engine {
    void (*start)();  // called when a launch starts
    void (*begin)(Block& in);
    bool (*has_ready)(const Block& in);
    void (*run)(Block& in);  // runs some threads of it, until they wait, end, or have run for long
};

bool call_was_stopped();  // a launch of this call was stopped: as on a GPU, no more can be launched
void wait_here();  // back to the scheduler, until the thread is made ready
void yield_now();  // back to the scheduler, at the end of the ready queue
[[noreturn]] void stop_launch();  // called in a kernel: the launch ends here
// Ctrl-C or the time limit
void stop_if_requested(uintptr_t pc, const char* file = nullptr, int line = 0);
void release_if_complete(Block& in);
void complete_warp_op(Block& in, const Thread& arrived);
// A __syncwarp of `lanes`, the remaining lanes of `mask`
void order_warp(Block& in, unsigned warp, uint32_t mask, uint32_t lanes);
// Completes warp operations that waited for a lane that has now returned.
void complete_without(Block& in, const Thread& gone);
void make_ready(Block& in, Thread& thread);
void switch_at_random();  // called at an access: another thread may continue first
void detect_spinning(uintptr_t address, uintptr_t pc);
void enter_block(Block& in);  // maps its shared memory
// Accesses to the same few addresses after which a thread may be waiting for another block.
constexpr uint64_t WAITING = 1 << 10;
void made_progress();  // a thread returned or reached a barrier
void finish_copies(Thread& thread, unsigned before_batch);  // of batches with a lower number

// ---- named_barriers.cpp -------------------------------------------------------------------------

// Threads of a warp arrive at barrier `number`, which `expected` threads pass together (0: all that
// have not returned). Waiting threads become ready when it is complete; their wait.result is as at
// a barrier of the block.
void arrive(Block& in, unsigned number, unsigned expected, const std::vector<unsigned>& threads, bool wait);
// Completes barriers that waited for a thread that has now returned.
void complete_named(Block& in);

// ---- clocks.cpp ---------------------------------------------------------------------------------

uint32_t* clock_of(Block& in, unsigned thread);  // clock of a thread, if Launch::joins_warps
void join(Order& to, Block& in, unsigned thread, uint32_t syncs);  // adds what a thread did before time `syncs` of its warp
void follow(Block& in, unsigned thread, const Order& order);  // the thread's next actions come after all of it
void forget_order(Block& in);  // at a barrier of the whole block

// ---- order.cpp ----------------------------------------------------------------------------------

void seed_random(uint64_t seed);
uint64_t random_bits();
std::vector<unsigned> order_of(unsigned n);  // order in which n threads, warps or blocks run
Thread& take_ready(Block& in);  // thread that runs next; one must be ready

// ---- failures.cpp -------------------------------------------------------------------------------

// Address of a fault if the processor does not give it.
constexpr uintptr_t UNKNOWN = ~uintptr_t(0);

struct Fault {
    int signal;
    uintptr_t address, pc;
    const char* file;  // if pc is 0
    int line;
};

void record_fault(const Fault& fault);  // of the running thread
void record_deadlock(const Block& in);  // no thread of this block can continue
LaunchStatus check_request(const Request& request, char* text, size_t text_bytes);  // against the limits of a GPU

// ---- fibers.cpp ---------------------------------------------------------------------------------

Fiber* fiber(unsigned slot);  // slots start at 0; a fiber is created when first requested
void run_fiber(Fiber* fiber, void (*body)());  // starts or resumes it, until leave_fiber or the end of body
void leave_fiber(Fiber* fiber);
[[noreturn]] void abandon_fiber();  // back to run_fiber's caller, never to be resumed; safe in a signal handler
bool run_stoppable(void (*body)());  // false if threads without fibers called stop_launch in it
bool in_stacks(uintptr_t address);
void watch_signals(double seconds, void (*on_fault)(int signal, uintptr_t address, uintptr_t pc));
void unwatch_signals();

// ---- regions.cpp --------------------------------------------------------------------------------

enum Space : int { NOWHERE, GLOBAL, SHARED_STATIC, SHARED_DYNAMIC, MODULE, LOCAL, PARAMETER };

struct Region {
    uintptr_t low, high;
    uintptr_t margin_low, margin_high;  // an access in a margin is recorded as beside this region
    bool soft;  // the margins belong to the emulator, so such an access is harmless
    Space space;
    int id;
    unsigned shift;  // a shadow cell covers 1 << shift bytes
    bool read_only;
    Cell* cells;  // null until the first access
    std::vector<Cell> own;
    std::vector<bool> written;  // by byte, for device allocations and torch.empty; else empty
    std::vector<std::pair<uintptr_t, uintptr_t>> spans;  // accessible parts; empty: all of it
    std::vector<std::pair<uintptr_t, uintptr_t>> unwatched;  // variables that the compiler added

    bool allows(uintptr_t from, size_t bytes) const {
        if (spans.empty()) return from >= low && from + bytes <= high;
        for (auto& span : spans)
            if (from >= span.first && from + bytes <= span.second) return true;
        return false;
    }

    void forget() {  // forgets all accesses to it
        cells = nullptr;
        own.clear();
    }
};

Region* region_of(uintptr_t address);  // or null
Region* region_around(uintptr_t address);  // including margins
void add_region(Region* region);
void remove_region(Region* region);
void forget_regions();  // forgets all accesses to them
bool in_local(uintptr_t address);  // whether it is local memory of a thread without a fiber
void set_local(uintptr_t low, size_t bytes);

// Device memory that host code allocates.
void allocation_added(void* base, size_t bytes);  // its contents count as unwritten
void allocation_removed(void* base);
void written_by_host(const void* base, size_t bytes);
bool is_device_memory(const void* base, size_t bytes);  // whether a kernel may access all of it

// ---- modules.cpp --------------------------------------------------------------------------------

struct Variable {  // of an author's library; plain, as Python fills it (runtime/symbols.py)
    uint64_t start, end;  // in the TLS block if it is in shared memory, else in the library
    // Kernel that a shared variable belongs to, as an offset in the library; 0: any.
    uint64_t kernel;
    int guard;  // the compiler's flag that a constructor has run
};

void enter_module(const Module* module);  // adds its globals and its static shared memory
void leave_module();
void forget_cells();  // forgets all accesses
size_t static_shared_of(const Module* module, const void* kernel);  // bytes of the kernel's own variables
// Accessible offsets in dynamic shared memory.
void limit_dynamic(const std::vector<std::pair<size_t, size_t>>& spans);
// Of a module that is not a library.
void add_global(const Module* module, void* base, size_t bytes, bool read_only);
void map_shared(Block& of, size_t dynamic_bytes);  // the shared regions now show this block's cells
void swap_shared(Block* out, Block* in);
void poison_shared(size_t dynamic_bytes);
size_t static_shared_bytes();

// ---- records.cpp --------------------------------------------------------------------------------

enum Kind : int {  // in the order of Kind in emulator/observation.py
    RACE, OUTSIDE, UNINITIALISED, BARRIER, DEADLOCK, MISALIGNED, MASK, ASYNC, REGISTER, LAUNCH, TRAP,
};

// How far apart the threads of a race are, in the order of Apart in emulator/observation.py.
enum Apart : int { LANES = 1, WARPS, BLOCKS };

struct Record {
    int kind, space, region, same_value;  // same_value: 1, 0, or -1 if it was not compared
    int copies;  // two writes, which are no mistake if same_value
    int apart;  // of a race: an Apart; else 0
    int64_t offset;
    uint64_t size, count;
    int sides;
    Side first, second;
    uint64_t code;  // address of the library
    const char* library;
    char text[1024];
};

Side side_of(const Thread& thread, const Block& in, What what, uintptr_t pc);
Side side_here(What what, uintptr_t pc);  // of the running thread
Side side_waiting(const Thread& thread, const Block& in);
Side side_of_earlier(uint32_t serial, unsigned thread, What what, uint32_t site);
void new_access();  // several records of one access count as one
long record_number(const Record& record);
void note_value(long record, bool same);
Record& add_record(Kind kind, const Region* region, uintptr_t address, size_t size, int sides, Side first, Side second = {});

// ---- shadow.cpp ---------------------------------------------------------------------------------

// Called for the running thread, before the access.
void check_access(uintptr_t address, size_t bytes, What what, uintptr_t pc);
// The same without a check: only switches threads.
void pass_access(uintptr_t address, uintptr_t pc);
void check_copy(const Copy& copy, bool begins);
void forget_shadows();  // forgets all cells
void record_uninitialised_reads(Block& of);  // records the remaining ones when a block ends
void settle_value();  // compares the value that a racing write left with the value before

}  // namespace emulator
