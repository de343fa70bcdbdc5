// The functions that compiled kernels call. Every kernel family compiles against this header; the
// runtime's library, which is loaded first, defines the functions. It has only plain structs and C
// functions, so that generated code can declare them too.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulator {

struct Dim {
    unsigned x, y, z;
};

enum BarrierOp : int { SYNC, SYNC_AND, SYNC_OR, SYNC_COUNT };

enum WarpOp : int {
    SYNCWARP, SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR, ALL, ANY, BALLOT, MATCH_ANY, MATCH_ALL,
    REDUCE_ADD, REDUCE_MIN_S, REDUCE_MAX_S, REDUCE_MIN_U, REDUCE_MAX_U, REDUCE_AND, REDUCE_OR, REDUCE_XOR,
};

// In the order of Action in observation.py; TOUCH: unknown.
enum What : int { READ, WRITE, ATOMIC, WAIT, TOUCH };

struct Module {  // a compiled library of kernels, or the code of another engine
    int traced;  // whether it announces its accesses (emulator_access)
    // Address of a thread_local of the library, to make its TLS block exist; null: no library.
    void* (*anchor)();
    const char* name;  // its name in records; null: the library's path
};

struct Engine;  // runtime.h: runs the blocks of a launch; null: one fiber for each thread

struct Request {  // a launch
    const Module* module;
    const char* kernel;  // as written at the launch
    const char* file;
    int line;
    const void* function;  // address of the kernel, to find its shared variables; may be null
    Dim grid, block;
    Dim cluster;  // blocks in each dimension of a cluster; 0: each block is alone
    size_t shared;  // dynamic shared memory, in bytes
    size_t shared_limit;  // all shared memory, in bytes
    void (*entry)(void*);
    void* params;
    size_t params_bytes;
    const Engine* engine;
};

enum LaunchStatus : int {
    LAUNCH_DONE, LAUNCH_NESTED, LAUNCH_INVALID, LAUNCH_STATIC_SHARED, LAUNCH_DYNAMIC_SHARED, LAUNCH_STOPPED,
};

}  // namespace emulator

extern "C" {

// Runs a launch to its end. A status other than LAUNCH_DONE comes with the reason in `text`.
emulator::LaunchStatus emulator_launch(const emulator::Request* request, char* text, size_t text_bytes);

// Const, because one thread gets the same answer every time.
__attribute__((const)) emulator::Dim emulator_thread_index();
__attribute__((const)) emulator::Dim emulator_block_index();
__attribute__((const)) emulator::Dim emulator_block_size();
__attribute__((const)) emulator::Dim emulator_grid_size();

// File and line are the author's, for observations. place: tells barriers on one line apart.
int emulator_barrier(int op, int value, const char* file, int line, int place);
uint64_t emulator_warp(int op, unsigned mask, uint64_t value, int argument, int width, const char* file, int line);
void emulator_returned();  // called at a `return` in a kernel, so that it differs from running past a barrier
void emulator_trap(const char* text, const char* file, int line);
[[noreturn]] void emulator_assert_failed(const char* expression, const char* file, int line);

// Announces an access before it happens, in a traced module. pc: an address in the module's code,
// for its source line.
void emulator_access(const void* place, size_t bytes, emulator::What what, uintptr_t pc);

// An atomic operation of the running thread: emulator_atomic copies the old value out, the caller
// computes the new value, emulator_put stores it. Threads switch only inside the runtime, so
// nothing comes between.
void emulator_atomic(void* place, unsigned bytes, void* old);
void emulator_put(void* place, unsigned bytes, const void* value);

// Asynchronous copies (cp.async). The last `filled` of `bytes` become zero. wait leaves the newest
// `batches` pending.
void emulator_copy_async(void* to, const void* from, unsigned bytes, unsigned filled, const char* file, int line);
void emulator_copy_commit();
void emulator_copy_wait(unsigned batches);

extern unsigned char emulator_dynamic_shared[];  // dynamic shared memory of the running block

}  // extern "C"
