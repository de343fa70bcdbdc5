// Checks the accesses of agents against those of threads.
#include "agents.h"
#include "cells.h"
#include "happens_before.h"

#include <algorithm>
#include <cstdio>

namespace emulator {
namespace {

enum class Path { ordered, unfenced, none, after_issue };

// How an access of a thread comes before the issue of an agent.
Path path_to(const Agent& agent, uint32_t interval, uint32_t syncs, uint16_t thread) {
    const Issue& issue = *agent.issue;
    const uint64_t then = moment(interval, syncs);
    if (then < moment(issue.interval, issue.order.clock[thread]))
        return then < issue.order.fenced[thread] ? Path::ordered : Path::unfenced;
    return interval > issue.interval || thread / WARP == agent.warp ? Path::after_issue : Path::none;
}

constexpr const char* OVERWRITTEN = "overwritten before the wgmma that reads it has been waited for";

void record(const Region& region, Path path, uint16_t thread, What was, uint32_t site, const Agent& agent, uintptr_t address, size_t size) {
    bool after = path == Path::after_issue;
    Record& record = add_record(after ? ASYNC : RACE, &region, address, size, 2,
                                side_of_earlier(gpu.block->serial, thread, was, site), side_here(READ, agent.pc));
    if (after)
        snprintf(record.text, sizeof record.text, "%s", OVERWRITTEN);
    else if (path == Path::unfenced)
        snprintf(record.text, sizeof record.text, "no fence.proxy.async between");
}

void check_cell(Cell& cell, const Region& region, const Agent& agent, uintptr_t address, size_t size) {
    const uint32_t serial = gpu.block->serial, site = site_of(agent.pc);
    if (cell.agents_in != serial) cell.agents = nullptr;
    for (AgentRead* read = cell.agents; read; read = read->next)
        if (read->warp == agent.warp && read->epoch == agent.epoch && read->site == site) return;
    const bool updated = cell.atomics && cell.atomics->serial == serial;
    if (cell.write.serial != serial && !updated) {
        note_uninitialised_read(cell, region, address, size, READ, agent.pc);
    } else if (cell.write.serial == serial) {
        Path path = path_to(agent, cell.write.interval, cell.write.syncs, cell.write.thread);
        if (path != Path::ordered) record(region, path, cell.write.thread, WRITE, cell.write.site, agent, address, size);
    }
    for (EarlierLanes* lanes = updated ? cell.atomics->earlier : nullptr; lanes; lanes = lanes->next)
        for (uint32_t rest = lanes->lanes; rest; rest &= rest - 1) {
            auto thread = static_cast<uint16_t>(lanes->warp * WARP + static_cast<unsigned>(__builtin_ctz(rest)));
            Path path = path_to(agent, cell.atomics->interval, lanes->syncs, thread);
            if (path != Path::ordered) record(region, path, thread, ATOMIC, lanes->site, agent, address, size);
        }
    if (cell.copying == serial) add_record(ASYNC, &region, address, size, 1, side_here(READ, agent.pc));
    checking.agent_reads.push_back({agent.epoch, agent.issue->interval, site, agent.warp, cell.agents});
    cell.agents = &checking.agent_reads.back();
    cell.agents_in = serial;
}

}  // namespace

std::shared_ptr<const Issue> issued(Block& in, unsigned warp, uint32_t lanes) {
    auto issue = std::make_shared<Issue>();
    issue->interval = in.interval;
    const uint32_t syncs = ++in.warps[warp].syncs;  // what its lanes do next has another time
    for (; lanes; lanes &= lanes - 1) join(issue->order, in, warp * WARP + static_cast<unsigned>(__builtin_ctz(lanes)), syncs);
    return issue;
}

void agents_done(Block& in, unsigned warp, uint32_t lanes, uint32_t before) {
    for (; lanes; lanes &= lanes - 1) {
        uint32_t& time = clock_of(in, warp * WARP + static_cast<unsigned>(__builtin_ctz(lanes)))[first_agent(in) + warp];
        time = std::max(time, before);
    }
}

void fence_proxies(Block& in, unsigned warp, uint32_t lanes) {
    const uint32_t syncs = ++in.warps[warp].syncs;
    for (; lanes; lanes &= lanes - 1) {
        const unsigned thread = warp * WARP + static_cast<unsigned>(__builtin_ctz(lanes));
        const uint32_t* clock = clock_of(in, thread);
        uint64_t* fenced = fenced_of(in, thread);
        for (size_t m = 0; m < in.threads.size(); ++m) fenced[m] = std::max(fenced[m], moment(in.interval, clock[m]));
        fenced[thread] = moment(in.interval, syncs);
    }
}

void record_overwritten(const AgentRead& read, const Region& region, uintptr_t address, size_t size, What what, uintptr_t pc) {
    // Ordered after the issue, and so no race of two threads without a barrier.
    bool after = gpu.block->interval > read.interval || gpu.thread->warp() == read.warp;
    Record& record = add_record(after ? ASYNC : RACE, &region, address, size, 2,
                                side_of_earlier(gpu.block->serial, read.warp * WARP, READ, read.site), side_here(what, pc));
    if (after) snprintf(record.text, sizeof record.text, "%s", OVERWRITTEN);
}

void check_agent(const Agent& agent, uintptr_t address, size_t bytes) {
    gpu.thread = &gpu.block->threads[agent.warp * WARP];
    settle_value();
    Region* region = checked_region(address, bytes, READ, agent.pc);
    if (!region) return;
    checking.in_shared = is_shared(*region);
    new_access();
    each_cell(*region, address, bytes, [&](Cell& cell) { check_cell(cell, *region, agent, address, bytes); });
}

}  // namespace emulator
