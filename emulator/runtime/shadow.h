// Shadow memory: the accesses that are remembered for each piece of memory. An access that races
// with any earlier one also races with a remembered one; the comment at each struct says why. It
// follows FastTrack (Flanagan and Freund, PLDI 2009): the last write is kept, and of the reads
// since then only those that are concurrent.
//
// The epoch of an access is (serial, interval, syncs, thread): its block, the block barriers
// passed, the __syncwarps of its warp since then, its thread. Happens-before follows from two
// epochs and the clocks of a warp (happens_before.h).
#pragma once

#include <cstdint>

namespace emulator {

constexpr uint16_t NOBODY = 0xFFFF;

// The last write, by its epoch. An earlier write happens before it, or has raced with it and been
// recorded.
struct LastWrite {
    uint32_t serial, interval, syncs, site;
    uint16_t thread;  // or an agent's column
    uint32_t step;  // Thread::stores; for an agent the thread that issued it
};

// Lanes of one warp that made an access on one line after `syncs` syncs of the warp; a list in an
// AccessSet.
struct EarlierLanes {
    uint32_t syncs, lanes, site, warp;
    EarlierLanes* next;
};

// Accesses that may be concurrent with each other: the reads since the last write, or the atomics.
// One thread of other blocks is enough, because it conflicts with every access from a third block,
// and `first` conflicts with every access from the second. The same holds for other warps of the
// block. All lanes of the warp of `first` are kept, each with its number of syncs, because
// __syncwarp may have ordered only some of them. If a barrier may join only some warps of a block,
// every warp needs the same, and all lanes are kept in `earlier`.
struct AccessSet {
    uint32_t serial, interval;
    uint32_t syncs, lanes, site;  // lanes of the warp of `first`
    EarlierLanes* earlier;  // lanes of that warp at fewer syncs or on other lines
    uint32_t other_site;
    uint16_t first, other;  // other: a thread of another warp, in this interval; or NOBODY
    uint16_t before;  // a thread of an earlier block of this launch; or NOBODY
    uint32_t before_serial, before_site;
};

// A read or an atomic operation by an agent (agents.h). Those since the last write are kept.
struct AgentAccess {
    uint32_t serial, epoch, interval, site;  // interval: of its issue
    uint16_t column, thread;                 // thread: that issued it
    bool by_warp, atomic;  // by_warp: all lanes of its warp issued it
    AgentAccess* next;
};

// A cell covers a few bytes as long as they are accessed together; after that there is a cell for
// each byte.
struct Cell {
    LastWrite write;
    AccessSet reads;
    AccessSet* atomics;
    Cell* bytes;
    uint32_t copying;  // serial of the block with pending asynchronous copies into it, or 0
    uint32_t copies;  // number of these copies
    // Reads before any write in block uninitialised_in: the last one's number in
    // Block::uninitialised, plus 1; or 0.
    uint32_t uninitialised, uninitialised_in;
    AgentAccess* agents;
};

}  // namespace emulator
