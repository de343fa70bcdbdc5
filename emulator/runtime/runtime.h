// The runtime of GPU kernels on a CPU: scheduling, barriers, memory, and observations. All kernel
// families share it.
//
// One launch runs at a time. Its blocks run one after another (a few concurrently if threads are
// switched at random), and each thread of a block has a fiber. Only one OS thread at a time uses
// anything here (launch_lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "block.h"
#include "regions.h"

namespace emulator {

constexpr size_t DEFAULT_SHARED = 48 * 1024, LARGEST_SHARED = 227 * 1024;  // bytes per block: by default, and after opting in
constexpr size_t STACK = 576 * 1024;  // bytes per thread: a GPU has 512 KiB of local memory
constexpr unsigned char POISON = 0xFF;  // fills the shared memory of a new block: NaN, -1
// Where the dynamic shared memory of the running block lies, and behind it the memory of other blocks of its cluster.
inline uintptr_t shared_memory() { return reinterpret_cast<uintptr_t>(emulator_dynamic_shared); }

// ---- launches (scheduler.cpp) -------------------------------------------------------------------

struct Launch {
    const Request* request;
    bool traced;  // every access is checked
    bool switched;  // threads are switched at accesses, traced or not
    uint64_t until_switch;  // number of accesses before the next switch, if they are not checked
    bool joins_warps;  // barriers may join only some warps of a block, or has_agents
    bool has_agents;  // it is traced, and work of the asynchronous proxy goes on beside threads (agents.h)
    bool makes_maps;  // has_agents, and it makes tensor maps or has fences for them (tensor_maps.h)
    bool waits_relaxed;  // has_agents, and some waits on mbarriers do not acquire
    bool replicated;  // threads may hold copies of a value and all store it: two writes of one value are no mistake
    // Threads wait at one barrier if its number is equal, wherever they are; a thread that ends
    // blocks none.
    bool by_barrier;
    uint32_t first_serial;  // serial of block 0
    unsigned cluster;  // blocks of a cluster, or 1
    unsigned apart;    // threads from the first one of a block to the first one of the next (clusters.h)
    size_t window;     // bytes from the shared memory of a block to the next one's
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
void finish_first_copies(Thread& thread, size_t count);

// ---- named_barriers.cpp -------------------------------------------------------------------------

// Threads of a warp arrive at barrier `number`, which `expected` threads pass together (0: all that
// have not returned). Waiting threads become ready when it is complete; their wait.result is as at
// a barrier of the block.
void arrive(Block& in, unsigned number, unsigned expected, const std::vector<unsigned>& threads, bool wait);
// Completes barriers that waited for a thread that has now returned.
void complete_named(Block& in);

// ---- clocks.cpp ---------------------------------------------------------------------------------

uint32_t* clock_of(Block& in, unsigned thread);  // clock of a thread, if Launch::joins_warps
// Adds what a thread did before time `syncs` of its warp. wide: what it wrote is seen by other blocks of the cluster.
void join(Order& to, Block& in, unsigned thread, uint32_t syncs, bool wide = true);
void raise(Order& to, const Order& from);  // adds what comes before another event
// The thread's next actions come after all of it. wide: it sees what other blocks have made wide.
void follow(Block& in, unsigned thread, const Order& order, bool wide = true);
void forget_threads(Order& order, const Block& in);  // a barrier of the whole block has ordered what they did
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
    // Index of the block whose shared memory it is; 0, 0, 0 and not owned if blocks form no clusters.
    int owned;
    unsigned owner[3];
    int64_t offset;
    uint64_t size, count;
    int sides;
    Side first, second;
    uint64_t code;  // address of the library
    const char* library;
    char text[1024];
};

std::string in_words(Dim index);  // of a block: 3, or (3, 1, 0)
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
