// Happens-before between the accesses remembered in a cell and the running thread's access. The
// rule is in races/rule.py.
#pragma once

#include "clusters.h"

#include <deque>

namespace emulator {

// The state of checking one access, beside the cells.
struct Checking {
    // The access is to shared memory, so accesses of other blocks that are still in the cells do
    // not count.
    bool in_shared = false;
    unsigned proxy_row = 0;  // for the access of an agent: the row of the fences that cover its memory (agents.h)

    // The write belongs to an asynchronous copy, which happens later: the value that it will leave
    // is unknown.
    bool in_copy = false;

    // This write and the one before it are one store of a warp, whose lanes may hold copies of one
    // value (Launch::replicated).
    bool together = false;

    // The last write that raced, until it happens and shows whether it changed the value. record:
    // its number, or -1.
    struct {
        long record = -1;
        const unsigned char* place = nullptr;
        unsigned size = 0;
        unsigned char was[16] = {};
        bool together = false;
    } unsettled;

    // The targets of pointers in cells. Deques do not move their elements. They are emptied with
    // the cells (forget_shadows).
    std::deque<EarlierLanes> earlier_lanes;
    std::deque<AgentAccess> agent_accesses;
    std::deque<AccessSet> atomic_sets;
    std::deque<std::vector<Cell>> byte_cells;
};
inline Checking checking;

inline uint16_t self() { return static_cast<uint16_t>(gpu.thread->linear); }
inline uint32_t syncs_now() { return gpu.block->warps[gpu.thread->warp()].syncs; }
inline bool counts(uint32_t serial) {
    return checking.in_shared ? serial == gpu.block->serial : serial >= gpu.launch->first_serial;
}
inline uint32_t site_of(uintptr_t pc) { return static_cast<uint32_t>(pc - gpu.launch->code); }

// Whether an access of this block at that epoch happens before the running thread's current action.
inline bool happens_before(uint32_t interval, uint16_t thread, uint32_t syncs) {
    if (gpu.launch->has_agents && thread >= first_agent(*gpu.block)) return clock_of(*gpu.block, self())[thread] > syncs;
    if (interval != gpu.block->interval || thread == self()) return true;
    if (gpu.launch->joins_warps) return clock_of(*gpu.block, self())[thread] > syncs;
    if (thread / WARP != gpu.thread->warp()) return false;
    return gpu.block->warps[gpu.thread->warp()].clock[gpu.thread->lane()][thread % WARP] > syncs;
}

// The thread of a write, or the one that issued its agent.
inline uint16_t issuer_of(const LastWrite& last) {
    return gpu.launch->has_agents && last.thread >= first_agent(*gpu.block) ? static_cast<uint16_t>(last.step) : last.thread;
}

// Whether the running thread, if it comes after a write by that thread at that epoch, also sees it: what another
// block of the cluster wrote is seen only after a release and an acquire at the scope of the cluster.
inline bool sees(uint32_t interval, uint16_t thread, uint32_t syncs) {
    if (gpu.launch->cluster == 1 || thread >= first_agent(*gpu.block) || thread == self()) return true;
    return fenced_of(*gpu.block, self(), seen_row())[thread] > moment(interval, syncs);
}
constexpr const char* NARROW = "a release and an acquire between, but not both with .cluster scope";

struct Conflict {
    uint32_t serial;
    uint16_t thread;
    uint32_t site;
    bool found;
    bool narrow;  // ordered, but not seen
};
constexpr Conflict NONE = {0, 0, 0, false, false};

inline Conflict conflict_with(const LastWrite& last) {
    if (!counts(last.serial)) return NONE;
    const bool before = last.serial == gpu.block->serial && happens_before(last.interval, last.thread, last.syncs);
    if (before && sees(last.interval, last.thread, last.syncs)) return NONE;
    return {last.serial, issuer_of(last), last.site, true, before};
}

// The lanes among `lanes` whose access at that time is concurrent with the running thread's current
// action.
inline uint32_t concurrent_lanes(uint32_t lanes, uint32_t syncs) {
    auto& clock = gpu.block->warps[gpu.thread->warp()].clock[gpu.thread->lane()];
    uint32_t concurrent = 0;
    for (lanes &= ~(1u << gpu.thread->lane()); lanes; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
        if (clock[lane] <= syncs) concurrent |= 1u << lane;
    }
    return concurrent;
}

inline Conflict conflict_with_lanes(uint32_t lanes, uint32_t syncs, uint32_t site) {
    uint32_t concurrent = concurrent_lanes(lanes, syncs);
    if (!concurrent) return NONE;
    unsigned lane = static_cast<unsigned>(__builtin_ctz(concurrent));
    return {gpu.block->serial, static_cast<uint16_t>(gpu.thread->warp() * WARP + lane), site, true, false};
}

// The lanes among these, of any warp, whose access is concurrent with the running thread's current
// action.
inline uint32_t concurrent_of(const EarlierLanes& earlier, bool writes) {
    const uint32_t* clock = clock_of(*gpu.block, self());
    uint32_t concurrent = 0;
    for (uint32_t lanes = earlier.lanes; lanes; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes)), thread = earlier.warp * WARP + lane;
        if (thread == self()) continue;
        if (clock[thread] <= earlier.syncs || (writes && !sees(gpu.block->interval, static_cast<uint16_t>(thread), earlier.syncs)))
            concurrent |= 1u << lane;
    }
    return concurrent;
}

inline Conflict conflict_of_any_warp(const AccessSet& set, bool writes) {
    for (EarlierLanes* earlier = set.earlier; earlier; earlier = earlier->next)
        if (uint32_t concurrent = concurrent_of(*earlier, writes)) {
            const unsigned thread = earlier->warp * WARP + static_cast<unsigned>(__builtin_ctz(concurrent));
            const bool narrow = clock_of(*gpu.block, self())[thread] > earlier->syncs;
            return {gpu.block->serial, static_cast<uint16_t>(thread), earlier->site, true, narrow};
        }
    return NONE;
}

// writes: the accesses are atomic operations.
inline Conflict conflict_with(const AccessSet& set, bool writes = false) {
    if (!counts(set.serial)) return NONE;
    if (set.serial != gpu.block->serial) return {set.serial, set.first, set.site, true, false};
    if (set.before != NOBODY) return {set.before_serial, set.before, set.before_site, true, false};
    if (set.interval != gpu.block->interval) return NONE;
    if (gpu.launch->joins_warps) return conflict_of_any_warp(set, writes);
    if (set.first / WARP != gpu.thread->warp()) return {set.serial, set.first, set.site, true, false};
    if (set.other != NOBODY) return {set.serial, set.other, set.other_site, true, false};
    Conflict conflict = conflict_with_lanes(set.lanes, set.syncs, set.site);
    for (EarlierLanes* earlier = set.earlier; earlier && !conflict.found; earlier = earlier->next)
        conflict = conflict_with_lanes(earlier->lanes, earlier->syncs, earlier->site);
    return conflict;
}

inline void start_set(AccessSet& set, uint32_t site) {
    set.serial = gpu.block->serial;
    set.interval = gpu.block->interval;
    set.syncs = syncs_now();
    set.lanes = 1u << gpu.thread->lane();
    set.site = site;
    set.earlier = nullptr;
    set.first = self();
    set.other = NOBODY;
    if (!gpu.launch->joins_warps) return;
    checking.earlier_lanes.push_back({set.syncs, set.lanes, site, gpu.thread->warp(), nullptr});
    set.earlier = &checking.earlier_lanes.back();
}

// Adds the running thread's access to the list of all warps; accesses that happen before it are
// dropped.
inline void add_among_all(AccessSet& set, uint32_t site, bool writes) {
    for (EarlierLanes* earlier = set.earlier; earlier; earlier = earlier->next)
        if (earlier->warp == gpu.thread->warp() && earlier->syncs == syncs_now() && earlier->site == site) {
            earlier->lanes |= 1u << gpu.thread->lane();
            return;
        }
    EarlierLanes* list = nullptr;
    for (EarlierLanes *earlier = set.earlier, *next; earlier; earlier = next) {
        next = earlier->next;
        if (!(earlier->lanes = concurrent_of(*earlier, writes))) continue;
        earlier->next = list;
        list = earlier;
    }
    checking.earlier_lanes.push_back({syncs_now(), 1u << gpu.thread->lane(), site, gpu.thread->warp(), list});
    set.earlier = &checking.earlier_lanes.back();
}

inline void add_access(AccessSet& set, uint32_t site, bool writes = false) {
    if (gpu.launch->joins_warps && set.serial == gpu.block->serial && set.interval == gpu.block->interval)
        return add_among_all(set, site, writes);
    if (set.serial != gpu.block->serial) {
        bool earlier = counts(set.serial);
        uint32_t serial = set.serial, at = set.site;
        uint16_t who = set.first;
        start_set(set, site);
        set.before = earlier ? who : NOBODY;
        set.before_serial = serial;
        set.before_site = at;
    } else if (set.interval != gpu.block->interval) {
        start_set(set, site);
    } else if (set.first / WARP != gpu.thread->warp()) {
        if (set.other == NOBODY) {
            set.other = self();
            set.other_site = site;
        }
    } else if (set.syncs == syncs_now() && set.site == site) {
        set.lanes |= 1u << gpu.thread->lane();
    } else if (set.syncs == syncs_now()) {  // on another line
        for (EarlierLanes* earlier = set.earlier; earlier; earlier = earlier->next)
            if (earlier->syncs == set.syncs && earlier->site == site) {
                earlier->lanes |= 1u << gpu.thread->lane();
                return;
            }
        checking.earlier_lanes.push_back({set.syncs, 1u << gpu.thread->lane(), site, gpu.thread->warp(), set.earlier});
        set.earlier = &checking.earlier_lanes.back();
    } else {  // the warp has synced since: lanes whose access happens before this one are dropped
        EarlierLanes* list = nullptr;
        uint32_t concurrent = concurrent_lanes(set.lanes, set.syncs);
        if (concurrent) {
            checking.earlier_lanes.push_back({set.syncs, concurrent, set.site, gpu.thread->warp(), list});
            list = &checking.earlier_lanes.back();
        }
        for (EarlierLanes* earlier = set.earlier; earlier; earlier = earlier->next)
            if ((concurrent = concurrent_lanes(earlier->lanes, earlier->syncs))) {
                checking.earlier_lanes.push_back({earlier->syncs, concurrent, earlier->site, gpu.thread->warp(), list});
                list = &checking.earlier_lanes.back();
            }
        set.earlier = list;
        set.syncs = syncs_now();
        set.lanes = 1u << gpu.thread->lane();
        set.site = site;
        set.first = self();
    }
}

}  // namespace emulator
