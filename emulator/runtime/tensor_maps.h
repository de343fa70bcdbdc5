// Tensor maps that lie in memory. The bulk copy that uses one reads it in a proxy of its own, so
// what has written the map comes before it only if a path passes a release of tensor maps and
// behind it an acquire of this one. The rule is in races/rule.py.
#pragma once

#include "agents.h"

namespace emulator {

constexpr size_t MAP_BYTES = 128;

// The lanes execute a fence.proxy.tensormap::generic.release.
void release_maps(Block& in, unsigned warp, uint32_t lanes);
// A lane executes a fence.proxy.tensormap::generic.acquire of the map at an address.
void acquire_map(Block& in, unsigned thread, uintptr_t address);

// What is missing between a thread's action at that moment and the agent's read of its map.
enum class Missing { nothing, release, acquire };
Missing missing_fence(const Agent& agent, uintptr_t address, unsigned thread, uint64_t moment);

}  // namespace emulator
