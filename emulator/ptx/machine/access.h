// Accesses of lanes to memory: checked, then executed. Handlers of every file use these.
#pragma once

#include "machine.h"

namespace emulator::ptx {

// Returns the address in this process of a lane's access, after every check. Does not return if the
// launch ends here. aligned: the address must be a multiple of this, without it of the bytes.
unsigned char* place_of(Warp& warp, const Instruction& at, unsigned lane, int space, uint64_t address, unsigned bytes, What what, unsigned aligned = 0);

// Ends the launch because of what a thread does, with the whole message.
[[noreturn]] void refuse(unsigned thread, uintptr_t site, const char* why);
// Ends the launch at an instruction that meets something that only shows while it runs.
[[noreturn]] void not_covered(const Warp& warp, const Instruction& at, unsigned lane, const char* what);

// Called for a read: a warp that keeps reading the same few addresses may be waiting for a value.
void detect_spinning(Warp& warp, const Instruction& at, const void* place);

// In a cluster, an address in the shared memory of the block with rank r has r + 1 in its highest byte
// (mapa); without it, it is in the thread's own block. Returns the offset from the shared memory of the first block.
uint32_t offset_in_cluster(unsigned thread, uint32_t address);
uint64_t shared_address(unsigned thread, uint64_t generic);  // the other way
inline uint32_t shared_offset(unsigned thread, uint64_t address) {
    const auto own = static_cast<uint32_t>(address);
    return gpu.launch->cluster == 1 ? own : offset_in_cluster(thread, own);
}
inline uintptr_t shared_place(unsigned thread, uint64_t address) {
    return shared_memory() + shared_offset(thread, address);
}
// Ends the launch if one of these blocks is not in the cluster.
void check_ranks(Warp& warp, const Instruction& at, unsigned lane, uint32_t blocks);
// In a cluster: the running thread uses the shared memory of another block, if it does. That the block is there is
// checked now, and, if it is `ordered`, in every schedule.
void note_shared(uintptr_t host, unsigned bytes, What what, uintptr_t site, bool ordered = true);

// Writes a lane's value to memory. A warp that changes memory does not wait for others, however
// often it reads the same addresses.
inline void write(Warp& warp, unsigned char* to, const void* from, unsigned bytes) {
    if (warp.since_new && memcmp(to, from, bytes)) warp.since_new = 0;
    memcpy(to, from, bytes);
}

// Reads a lane's `bytes` at an address of a space; the address is a multiple of `bytes`.
inline void load_lane(Warp& warp, const Instruction& at, unsigned lane, int space, uint64_t address, unsigned bytes, void* to) {
    memcpy(to, place_of(warp, at, lane, space, address, bytes, READ), bytes);
}

// Returns the address in an operand of 4 or 8 bytes, plus an offset, for one lane.
inline uint64_t address_of(const Warp& warp, int32_t slot, int32_t slot_bytes, int32_t offset, unsigned lane) {
    uint64_t base = slot_bytes == 4 ? warp.slot<uint32_t>(slot)[lane] : warp.slot<uint64_t>(slot)[lane];
    return base + static_cast<int64_t>(offset);
}

// The same for all lanes, active or not.
inline void addresses_of(const Warp& warp, int32_t slot, int32_t slot_bytes, int32_t offset, uint64_t* addresses) {
    const uint64_t more = static_cast<uint64_t>(static_cast<int64_t>(offset));
    const auto* narrow = warp.slot<uint32_t>(slot);
    const auto* wide = warp.slot<uint64_t>(slot);
    if (slot_bytes == 4)
        for (unsigned lane = 0; lane < WARP; ++lane) addresses[lane] = narrow[lane] + more;
    else
        for (unsigned lane = 0; lane < WARP; ++lane) addresses[lane] = wide[lane] + more;
}

}  // namespace emulator::ptx
