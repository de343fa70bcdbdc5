// Checks the accesses of agents against those of threads and of each other.
#include "cells.h"
#include "tensor_maps.h"
#include "happens_before.h"

#include <algorithm>
#include <cstdio>

namespace emulator {
namespace {

enum class Path { ordered, unfenced, fenced_narrowly, unreleased, unacquired, narrow, none, after_issue };

bool issued_by(unsigned thread, unsigned issuer, bool by_warp) {
    return by_warp ? thread / WARP == issuer / WARP : thread == issuer;
}

// How an access of a thread of this block comes before the issue of an agent.
Path path_to(const Agent& agent, uint32_t interval, uint32_t syncs, uint16_t thread, bool writes) {
    const Issue& issue = *agent.issue;
    const uint64_t then = moment(interval, syncs);
    if (then < moment(issue.interval, issue.order.clock[thread])) {
        if (writes && !is_seen(issue, thread, then)) return Path::narrow;
        if (agent.map) {
            const Missing missing = missing_fence(agent, agent.map, thread, then);
            return missing == Missing::nothing ? Path::ordered : missing == Missing::release ? Path::unreleased : Path::unacquired;
        }
        const auto fenced = [&](unsigned row) { return then < issue.order.fenced[row * gpu.block->threads.size() + thread]; };
        if (fenced(checking.proxy_row + (writes ? wide_rows() : 0))) return Path::ordered;
        return fenced(checking.proxy_row) ? Path::fenced_narrowly : Path::unfenced;
    }
    return interval > issue.interval || issued_by(thread, agent.thread, agent.by_warp) ? Path::after_issue : Path::none;
}

// The same for another agent, whose end contains a fence.
Path path_from(const Agent& agent, uint32_t epoch, uint16_t column) {
    const std::vector<uint32_t>& clock = agent.issue->order.clock;
    return column < clock.size() && clock[column] > epoch ? Path::ordered : Path::none;
}

const char* verb(What what) { return what == READ ? "reads" : "writes"; }

class Check {  // of one access of an agent
public:
    Check(const Agent& agent, const Region& region, uintptr_t address, size_t size, What what)
        : agent(agent), region(region), address(address), size(size), what(what) {}

    void operator()(Cell& cell) {
        const uint32_t serial = gpu.block->serial, site = site_of(agent.pc);
        for (AgentAccess* other = cell.agents; other; other = other->next)
            if (what != WRITE && other->serial == serial && other->column == agent.column && other->epoch == agent.epoch &&
                other->site == site && other->atomic == (what == ATOMIC))
                return;  // the same was checked before, and nothing has been written since
        const bool updated = cell.atomics && cell.atomics->serial == serial;
        if (what == READ && checking.in_shared && cell.write.serial != serial && !updated)
            note_uninitialised_read(cell, region, address, size, READ, agent.pc);
        if (counts(cell.write.serial)) against_write(cell.write);
        if (what != ATOMIC && cell.atomics) against_set(*cell.atomics, ATOMIC);
        if (what != READ) against_set(cell.reads, READ);
        for (AgentAccess* other = cell.agents; other; other = other->next) against_agent(*other);
        if (cell.copying == serial) add_record(ASYNC, &region, address, size, 1, side_here(what, agent.pc));
        remember(cell, site);
    }

private:
    void against_write(const LastWrite& last) {
        if (last.serial != gpu.block->serial) return record(Path::none, last.serial, issuer_of(last), WRITE, last.site);
        if (agent.map && last.thread >= first_agent(*gpu.block)) {  // its fences would have to be found from the copy's end
            Record& record = add_record(TRAP, nullptr, 0, 0, 1, side_here(what, agent.pc));
            snprintf(record.text, sizeof record.text, "not covered on the CPU: a tensor map that a bulk copy has written");
            stop_launch();
        }
        const Path path = last.thread >= first_agent(*gpu.block) ? path_from(agent, last.syncs, last.thread)
                                                                 : path_to(agent, last.interval, last.syncs, last.thread, true);
        record(path, last.serial, issuer_of(last), WRITE, last.site);
    }

    void against_set(const AccessSet& set, What was) {
        if (!counts(set.serial)) return;
        if (set.serial != gpu.block->serial) return record(Path::none, set.serial, set.first, was, set.site);
        if (set.before != NOBODY) record(Path::none, set.before_serial, set.before, was, set.before_site);
        for (EarlierLanes* lanes = set.earlier; lanes; lanes = lanes->next)
            for (uint32_t rest = lanes->lanes; rest; rest &= rest - 1) {
                auto thread = static_cast<uint16_t>(lanes->warp * WARP + static_cast<unsigned>(__builtin_ctz(rest)));
                record(path_to(agent, set.interval, lanes->syncs, thread, was != READ), set.serial, thread, was, lanes->site);
            }
    }

    void against_agent(const AgentAccess& other) {
        if (!counts(other.serial) || (what == READ && !other.atomic) || (what == ATOMIC && other.atomic)) return;
        const Path path = other.serial == gpu.block->serial ? path_from(agent, other.epoch, other.column) : Path::none;
        record(path, other.serial, other.thread, other.atomic ? ATOMIC : READ, other.site);
    }

    void record(Path path, uint32_t serial, uint16_t thread, What was, uint32_t site) {
        if (path == Path::ordered) return;
        const bool after = path == Path::after_issue;
        Record& record = add_record(after ? ASYNC : RACE, &region, address, size, 2, side_of_earlier(serial, thread, was, site),
                                    side_here(what, agent.pc));
        if (after)
            snprintf(record.text, sizeof record.text, "%s before the %s that %s it has been waited for (%s)",
                     was == READ ? "read" : "overwritten", agent.name, verb(what), agent.waits);
        else if (path == Path::unfenced)
            snprintf(record.text, sizeof record.text, "no fence.proxy.async between");
        else if (path == Path::fenced_narrowly)
            snprintf(record.text, sizeof record.text, "no fence.proxy.async between on a path that has .cluster scope");
        else if (path == Path::unreleased)
            snprintf(record.text, sizeof record.text, "no fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy) between");
        else if (path == Path::unacquired)
            snprintf(record.text, sizeof record.text, "no fence.proxy.tensormap::generic.acquire of this tensor map between");
        else if (path == Path::narrow)
            snprintf(record.text, sizeof record.text, "%s", NARROW);
        if (path == Path::none) compare_value(record, serial, was, address, size, what);
    }

    void remember(Cell& cell, uint32_t site) {
        const auto column = static_cast<uint16_t>(agent.column), thread = static_cast<uint16_t>(agent.thread);
        if (what == WRITE) {
            cell.write = {gpu.block->serial, agent.issue->interval, agent.epoch, site, column, thread};
            cell.reads.serial = 0;
            if (cell.atomics) cell.atomics->serial = 0;
            cell.agents = nullptr;
            return;
        }
        AgentAccess* kept = nullptr;  // of other blocks one is enough: it conflicts with every access of a third
        if (cell.agents && cell.agents->serial == gpu.block->serial) kept = cell.agents;
        else if (cell.agents && counts(cell.agents->serial)) kept = cell.agents, kept->next = nullptr;
        checking.agent_accesses.push_back(
            {gpu.block->serial, agent.epoch, agent.issue->interval, site, column, thread, agent.by_warp, what == ATOMIC, kept});
        cell.agents = &checking.agent_accesses.back();
    }

    const Agent& agent;
    const Region& region;
    const uintptr_t address;
    const size_t size;
    const What what;
};

}  // namespace

std::shared_ptr<const Issue> issued(Block& in, unsigned warp, uint32_t lanes) {
    auto issue = std::make_shared<Issue>();
    issue->interval = in.interval;
    const uint32_t syncs = ++in.warps[warp].syncs;  // what its lanes do next has another time
    for (; lanes; lanes &= lanes - 1) join(issue->order, in, warp * WARP + static_cast<unsigned>(__builtin_ctz(lanes)), syncs);
    return issue;
}

void agents_done(Block& in, unsigned warp, uint32_t lanes, unsigned column, uint32_t before) {
    for (; lanes; lanes &= lanes - 1) {
        uint32_t& time = clock_of(in, warp * WARP + static_cast<unsigned>(__builtin_ctz(lanes)))[column];
        time = std::max(time, before);
    }
}

void fence_proxies(Block& in, unsigned warp, uint32_t lanes, const FenceOf& of) {
    const uint32_t syncs = ++in.warps[warp].syncs;
    const unsigned own = OF_SHARED + rank_of(warp * WARP);
    for (; lanes; lanes &= lanes - 1) {
        const unsigned thread = warp * WARP + static_cast<unsigned>(__builtin_ctz(lanes));
        for (unsigned row = 0; row < proxy_rows(); ++row) {
            if (!(row == OF_GLOBAL ? of.global : of.shared && (of.others || row == own))) continue;
            raise_row(in, thread, row, syncs);
            if (gpu.launch->cluster > 1) raise_row(in, thread, wide_rows() + row, syncs);
        }
    }
}

void check_agent(const Agent& agent, uintptr_t address, size_t bytes, What what) {
    gpu.thread = &gpu.block->threads[agent.thread];
    settle_value();
    Region* region = checked_region(address, bytes, what, agent.pc);
    if (!region) return;
    checking.in_shared = is_shared(*region);
    checking.proxy_row = checking.in_shared ? OF_SHARED + rank_at(address - shared_memory()) : OF_GLOBAL;
    new_access();
    note_written(*region, address, bytes, what, agent.pc);
    each_cell(*region, address, bytes, Check(agent, *region, address, bytes, what));
}

bool conflicts_with_agents(const Cell& cell, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    bool raced = false;
    for (const AgentAccess* other = cell.agents; other; other = other->next) {
        if (!counts(other->serial) || (what == READ && !other->atomic) || (what == ATOMIC && other->atomic)) continue;
        const bool here = other->serial == gpu.block->serial;
        if (here && clock_of(*gpu.block, self())[other->column] > other->epoch) continue;
        // Ordered after the issue, and so no race of two threads without a barrier.
        const bool after = here && (gpu.block->interval > other->interval || issued_by(self(), other->thread, other->by_warp));
        Record& record = add_record(after ? ASYNC : RACE, &region, address, size, 2,
                                    side_of_earlier(other->serial, other->thread, other->atomic ? ATOMIC : READ, other->site),
                                    side_here(what, pc));
        if (after)
            snprintf(record.text, sizeof record.text, "%s before the asynchronous work that %s it has been waited for",
                     what == READ ? "read" : "overwritten", verb(other->atomic ? ATOMIC : READ));
        raced = true;
    }
    return raced;
}

}  // namespace emulator
