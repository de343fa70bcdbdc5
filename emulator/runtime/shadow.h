// What is remembered of the accesses to one piece of memory: enough that an access which races with any earlier one
// races with one that is still remembered. (Why that is enough: the notes at each struct. The idea of keeping the last
// write, and of the reads only those that nothing has ordered: FastTrack, Flanagan and Freund, PLDI 2009.)
#pragma once

#include <cstdint>

namespace cuda_trace {

constexpr uint16_t NOBODY = 0xFFFF;

// The last write. An earlier one is ordered before it, or raced with it and has been reported.
struct Past {
    uint32_t serial, interval, syncs, site;
    uint16_t thread;
};

// Lanes of one warp that did something when the warp had had so many syncs, on one line; the rest of a Crowd's lanes.
struct Older {
    uint32_t syncs, lanes, site;
    Older* next;
};

// Accesses that may be concurrent with each other: all reads since the last write, or all atomics.
// Of other blocks one thread is enough, as it conflicts with whoever comes from a third block, and `first` with whoever
// comes from the second. Of other warps of the block one is enough in the same way. Of the warp of `first` all lanes
// count, each with the number of syncs at its time, as __syncwarp may have ordered some and not others.
struct Crowd {
    uint32_t serial, interval;
    uint32_t syncs, lanes, site;  // lanes of the warp of `first`
    Older* older;  // lanes of that warp at fewer syncs
    uint32_t other_site;
    uint16_t first, other;  // other: a thread of another warp, in this interval; or NOBODY
    uint16_t before;  // a thread of an earlier block of this launch; or NOBODY
    uint32_t before_serial, before_site;
};

// One cell stands for a few bytes that have always been touched together; once they are not, for one byte each.
struct Cell {
    Past write;
    Crowd reads;
    Crowd* atomics;
    Cell* bytes;
    uint32_t copying;  // serial of the block in which an asynchronous copy into it is under way, or 0
    uint32_t early, early_in;  // reads before any write in block early_in: the number of the last in Block::early, plus 1; or 0
};

}  // namespace cuda_trace
