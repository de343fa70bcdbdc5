// The fences of tensor maps. The moments up to which a release lies on a path from each thread are
// among the clocks (clocks.cpp); an acquire keeps those that had come to it, with its own moment.
#include "tensor_maps.h"
#include "clusters.h"

#include <algorithm>

namespace emulator {

void release_maps(Block& in, unsigned warp, uint32_t lanes) {
    const uint32_t syncs = ++in.warps[warp].syncs;
    for (; lanes; lanes &= lanes - 1) {
        const unsigned thread = warp * WARP + static_cast<unsigned>(__builtin_ctz(lanes));
        raise_row(in, thread, maps_row(), syncs);
    }
}

void acquire_map(Block& in, unsigned thread, uintptr_t address) {
    const uint64_t* of = fenced_of(in, thread, maps_row());
    std::vector<uint64_t> released(of, of + in.threads.size());
    std::vector<MapAcquire>& all = in.map_acquires[address];
    for (const MapAcquire& earlier : all)  // in a loop it is often repeated
        if (earlier.thread == thread && earlier.released == released) return;
    const unsigned warp = thread / WARP;
    all.push_back({thread, moment(in.interval, in.warps[warp].syncs), std::move(released)});
    ++in.warps[warp].syncs;  // what its lanes do next has another time
}

Missing missing_fence(const Agent& agent, uintptr_t address, unsigned thread, uint64_t then) {
    if (!gpu.launch->makes_maps) return Missing::release;
    const Issue& issue = *agent.issue;
    const auto found = gpu.block->map_acquires.find(address);
    if (found != gpu.block->map_acquires.end())
        for (const MapAcquire& acquire : found->second)
            if (is_seen(issue, acquire.thread, acquire.moment) && acquire.released[thread] > then)
                return Missing::nothing;
    return issue.order.fenced[maps_row() * gpu.block->threads.size() + thread] > then ? Missing::acquire : Missing::release;
}

}  // namespace emulator
