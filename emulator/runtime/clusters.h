// Clusters: blocks that run together, each of which reaches the shared memory of the others.
//
// The blocks of a cluster are one Block. Its threads are numbered through: those of the block with
// rank r begin at r * Launch::apart, and numbers between two blocks belong to no thread. In the same
// way the shared memory of rank r begins at r * Launch::window. As barriers of a block do not order
// the cluster, clocks say everything, and Block::interval stays 1.
#pragma once

#include "agents.h"

#include <map>
#include <string>

namespace emulator {

inline unsigned rank_of(unsigned thread) { return thread / gpu.launch->apart; }  // of its block
inline unsigned in_block(unsigned thread) { return thread % gpu.launch->apart; }
inline unsigned rank_at(uintptr_t shared) {  // an address in shared memory, counted from the first block
    return gpu.launch->cluster > 1 ? static_cast<unsigned>(shared / gpu.launch->window) : 0;
}
bool is_there(unsigned thread);           // whether a thread has this number
Dim first_block(unsigned number);         // index of the first block of a cluster, or of a block
Dim block_of(Dim first, unsigned thread);  // index of a thread's block

struct RemoteUse {  // of the shared memory of another block, the last one by a thread or an agent
    uint32_t time;  // in its column of the clocks
    Side side;
    uintptr_t address;
    size_t size;
};

struct Cluster {
    std::vector<unsigned> alive;  // threads of each block

    // barrier.cluster: completed phases, and the arrivals of threads that are alive in this one
    uint32_t phase = 0;
    unsigned arrived = 0;
    std::vector<uint32_t> arrivals, waits;  // of each thread, in all phases
    std::vector<unsigned> waiting;
    Order joining, completed;

    std::vector<Order> published;        // of each thread: what came before its last fence of the cluster
    std::vector<uint32_t> initialised;   // of each thread: the time of its last fence.mbarrier_init
    std::vector<uint32_t> announced;     // the same before its last arrival

    std::map<unsigned, RemoteUse> uses[MOST_BLOCKS];  // of each block, by columns
};

// threads: of each block; numbers: of threads in the cluster
std::shared_ptr<Cluster> new_cluster(unsigned threads, size_t numbers);
// Threads of one warp arrive at barrier.cluster.
void arrive_at_cluster(Block& in, const std::vector<unsigned>& threads, bool releases);
// Whether the phase in which the thread has arrived is over; if not, it is made ready when it is.
bool wait_at_cluster(Block& in, unsigned thread);
// Fences of threads of one warp, before an arrival that does not release: of everything, or of mbarrier.init.
void fence_cluster(Block& in, const std::vector<unsigned>& threads, bool of_inits);
void complete_cluster(Block& in);  // if all threads have arrived or ended
void forget_before_barrier(Cluster& of);  // a barrier of the whole block, which is alone, has ordered it
std::string missing_at_cluster(const Block& in);  // in words, for deadlocks

// The running thread uses the shared memory of the block with that rank, or an agent that it has
// issued: column and time are its place in the clocks.
void note_use(unsigned rank, unsigned column, uint32_t time, const Side& side, uintptr_t address, size_t size);
// A thread has ended. Returns whether its block has.
bool left_cluster(Block& in, unsigned thread);
void end_block_of_cluster(Block& in, unsigned rank);  // checks that all uses of its memory come before

}  // namespace emulator
