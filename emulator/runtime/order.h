// The rule (races/rule.py) as bookkeeping: is what is remembered of a cell ordered before what the running thread does now?
#pragma once

#include "runtime.h"

#include <deque>

namespace cuda_trace {

inline std::deque<Older> olders;
inline bool shared;  // the memory looked at belongs to the running block, and what another one left in these cells is over
inline uint16_t me() { return static_cast<uint16_t>(now->linear); }
inline uint32_t syncs_now() { return block->warps[now->warp()].syncs; }
inline bool counts(uint32_t serial) { return shared ? serial == block->serial : serial >= launch->first_serial; }
inline uint32_t site_of(uintptr_t pc) { return static_cast<uint32_t>(pc - launch->code); }

// Is what that thread of this block did ordered before what the running thread does now?
inline bool ordered(uint32_t interval, uint16_t thread, uint32_t syncs) {
    if (interval != block->interval || thread == me()) return true;
    if (thread / WARP != now->warp()) return false;
    return block->warps[now->warp()].seen[now->lane()][thread % WARP] > syncs;
}

struct Conflict {
    uint32_t serial;
    uint16_t thread;
    uint32_t site;
    bool found;
};
constexpr Conflict NONE = {0, 0, 0, false};

inline Conflict conflict_with(const Past& past) {
    if (!counts(past.serial)) return NONE;
    if (past.serial == block->serial && ordered(past.interval, past.thread, past.syncs)) return NONE;
    return {past.serial, past.thread, past.site, true};
}

// Those of `lanes` that nothing orders before what the running thread does now.
inline uint32_t unordered(uint32_t lanes, uint32_t syncs) {
    auto& seen = block->warps[now->warp()].seen[now->lane()];
    uint32_t left = 0;
    for (lanes &= ~(1u << now->lane()); lanes; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
        if (seen[lane] <= syncs) left |= 1u << lane;
    }
    return left;
}

inline Conflict conflict_with_lanes(uint32_t lanes, uint32_t syncs, uint32_t site) {
    uint32_t left = unordered(lanes, syncs);
    if (!left) return NONE;
    return {block->serial, static_cast<uint16_t>(now->warp() * WARP + static_cast<unsigned>(__builtin_ctz(left))), site, true};
}

inline Conflict conflict_with(const Crowd& crowd) {
    if (!counts(crowd.serial)) return NONE;
    if (crowd.serial != block->serial) return {crowd.serial, crowd.first, crowd.site, true};
    if (crowd.before != NOBODY) return {crowd.before_serial, crowd.before, crowd.before_site, true};
    if (crowd.interval != block->interval) return NONE;
    if (crowd.first / WARP != now->warp()) return {crowd.serial, crowd.first, crowd.site, true};
    if (crowd.other != NOBODY) return {crowd.serial, crowd.other, crowd.other_site, true};
    Conflict found = conflict_with_lanes(crowd.lanes, crowd.syncs, crowd.site);
    for (Older* older = crowd.older; older && !found.found; older = older->next)
        found = conflict_with_lanes(older->lanes, older->syncs, older->site);
    return found;
}

inline void begin(Crowd& crowd, uint32_t site) {
    crowd.serial = block->serial;
    crowd.interval = block->interval;
    crowd.syncs = syncs_now();
    crowd.lanes = 1u << now->lane();
    crowd.site = site;
    crowd.older = nullptr;
    crowd.first = me();
    crowd.other = NOBODY;
}

inline void join(Crowd& crowd, uint32_t site) {
    if (crowd.serial != block->serial) {
        bool earlier = counts(crowd.serial);
        uint32_t serial = crowd.serial, at = crowd.site;
        uint16_t who = crowd.first;
        begin(crowd, site);
        crowd.before = earlier ? who : NOBODY;
        crowd.before_serial = serial;
        crowd.before_site = at;
    } else if (crowd.interval != block->interval) {
        begin(crowd, site);
    } else if (crowd.first / WARP != now->warp()) {
        if (crowd.other == NOBODY) {
            crowd.other = me();
            crowd.other_site = site;
        }
    } else if (crowd.syncs == syncs_now() && crowd.site == site) {
        crowd.lanes |= 1u << now->lane();
    } else if (crowd.syncs == syncs_now()) {  // on another line
        for (Older* older = crowd.older; older; older = older->next)
            if (older->syncs == crowd.syncs && older->site == site) {
                older->lanes |= 1u << now->lane();
                return;
            }
        olders.push_back({crowd.syncs, 1u << now->lane(), site, crowd.older});
        crowd.older = &olders.back();
    } else {  // the warp has synced since: who is ordered before this access needs no memory any more
        Older* kept = nullptr;
        uint32_t left = unordered(crowd.lanes, crowd.syncs);
        if (left) {
            olders.push_back({crowd.syncs, left, crowd.site, kept});
            kept = &olders.back();
        }
        for (Older* older = crowd.older; older; older = older->next)
            if ((left = unordered(older->lanes, older->syncs))) {
                olders.push_back({older->syncs, left, older->site, kept});
                kept = &olders.back();
            }
        crowd.older = kept;
        crowd.syncs = syncs_now();
        crowd.lanes = 1u << now->lane();
        crowd.site = site;
        crowd.first = me();
    }
}

}  // namespace cuda_trace
