#include "mbarriers.h"
#include "happens_before.h"

#include <cstdio>
#include <cstring>

namespace emulator {
namespace {

constexpr int64_t MOST_BYTES = (1 << 20) - 1;  // tx-count

Record& misused(uint32_t address, uintptr_t pc) {
    const uintptr_t host = shared_memory() + address;
    new_access();
    return add_record(BARRIER, region_of(host), host, sizeof(uint64_t), 1, side_here(TOUCH, pc));
}

template <class... Values>
void say(Record& record, const char* format, Values... values) {
    snprintf(record.text, sizeof record.text, format, values...);
}

uint64_t content_of(uint32_t address) { return 0x6d62617272696572u ^ uint64_t(address) << 32 | 1; }
unsigned char* memory_of(uint32_t address) { return emulator_dynamic_shared + address; }

// Whether its mbarrier.init comes before the running thread's next action.
bool is_known(const Mbarrier& of) {
    if (of.published && gpu.block->cluster->waits[self()] >= of.published) return true;
    return happens_before(of.made.interval, of.made.thread, of.made.syncs);
}

bool is_overwritten(uint32_t address, const Mbarrier& of) {
    const uint64_t content = content_of(address);
    return of.live && memcmp(memory_of(address), &content, sizeof content);
}

// Records that the memory of an mbarrier is used for something else. Only a traced launch knows by whom.
void say_overwritten(uint32_t address, Mbarrier& of) {
    of.live = false;  // so that it is said once
    if (!gpu.launch->traced) return;
    const auto host = reinterpret_cast<uintptr_t>(memory_of(address));
    const Region& region = *region_of(host);
    const Cell& cell = region.cells[(host - region.low) >> region.shift];
    const LastWrite& by = cell.bytes ? cell.bytes->write : cell.write;
    new_access();
    Record& record = add_record(BARRIER, &region, host, sizeof(uint64_t), 2, side_of_earlier(of.made.serial, of.made.thread, WRITE, of.made.site),
                                side_of_earlier(by.serial, issuer_of(by), WRITE, by.site));
    say(record, "an mbarrier that has been overwritten without mbarrier.inval");
}

// Returns the object for an operation of the running thread, or null after recording a mistake.
Mbarrier* used(Mbarriers& all, uint32_t address, uintptr_t pc) {
    auto found = all.find(address);
    if (found == all.end() || !found->second.live) {
        say(misused(address, pc), found == all.end() ? "used as an mbarrier without mbarrier.init" : "used after mbarrier.inval");
        stop_launch();
    }
    Mbarrier& of = found->second;
    if (is_overwritten(address, of)) {
        say(misused(address, pc), "an mbarrier that has been overwritten since mbarrier.init");
        stop_launch();
    }
    of.used = true;
    checking.in_shared = true;
    if (gpu.launch->traced && !is_known(of)) {
        new_access();
        const auto host = reinterpret_cast<uintptr_t>(memory_of(address));
        Record& record = add_record(RACE, region_of(host), host, sizeof(uint64_t), 2, side_of_earlier(gpu.block->serial, of.made.thread, WRITE, of.made.site),
                                    side_here(ATOMIC, pc));
        say(record, "no barrier between mbarrier.init and this use");
    }
    return &of;
}

void settle(Mbarrier& of) {
    if (of.pending || of.bytes) return;
    ++of.phase;
    of.pending = of.expected;
    if (gpu.launch->has_agents) {
        of.completed = std::move(of.joining);
        of.joining = {};
        of.completed_of_others = std::move(of.joining_of_others);
        of.joining_of_others = {};
        if (of.column) {
            if (of.completed.clock.size() <= of.column) of.completed.clock.resize(of.column + 1);
            of.completed.clock[of.column] = ++of.epoch;
            // In one column the copies of a phase come with those of earlier phases. Every thread that arrives knows
            // these, unless it comes from a wait that does not acquire.
            if (gpu.launch->waits_relaxed) of.column = 0;
        }
    }
    for (unsigned thread : of.waiting) make_ready(*gpu.block, gpu.block->threads[thread]);
    of.waiting.clear();
    made_progress();
}

}  // namespace

void init_mbarrier(Mbarriers& all, uint32_t address, unsigned count, uintptr_t pc) {
    Mbarrier& of = all[address];
    if (is_overwritten(address, of)) say_overwritten(address, of);
    if (of.live && of.used) say(misused(address, pc), "mbarrier.init of an mbarrier that is in use (no mbarrier.inval)");
    if (!count || count > MOST_BYTES) say(misused(address, pc), "mbarrier.init with %u arrivals: 1 to %u", count, unsigned(MOST_BYTES));
    const unsigned column = of.column;
    const uint32_t epoch = of.epoch;
    of = {};
    of.column = column, of.epoch = epoch;  // times never go back
    of.expected = of.pending = count;
    of.live = true;
    if (gpu.launch->traced) of.made = {gpu.block->serial, gpu.block->interval, syncs_now(), site_of(pc), self(), 0};
    const uint64_t content = content_of(address);
    memcpy(memory_of(address), &content, sizeof content);
}

void invalidate_mbarrier(Mbarriers& all, uint32_t address, uintptr_t pc) {
    Mbarrier& of = *used(all, address, pc);
    if (!of.waiting.empty() || of.bytes) say(misused(address, pc), "mbarrier.inval: %s", state_of(all, address).c_str());
    of.live = false;
    memset(memory_of(address), POISON, sizeof(uint64_t));
}

void check_repurposed(Mbarriers& all) {
    for (auto& [address, of] : all) {
        if (is_overwritten(address, of)) say_overwritten(address, of);
    }
}

uint32_t arrive_at(Mbarriers& all, uint32_t address, const Arrival& arrival, uintptr_t pc) {
    Mbarrier& of = *used(all, address, pc);
    const uint32_t phase = of.phase;
    if (arrival.count > of.pending) {
        say(misused(address, pc), "%u more arrivals in phase %u of an mbarrier, which expects %u of %u", arrival.count, phase, of.pending, of.expected);
        stop_launch();
    }
    if (of.observed < phase) {
        say(misused(address, pc), "an arrival in phase %u of an mbarrier, though no thread has waited for phase %u", phase, phase - 1);
        of.observed = phase;
    }
    if (arrival.releases && gpu.launch->has_agents) {
        const bool own = rank_of(self()) == rank_at(address);
        if (arrival.before) raise(of.joining, *arrival.before);
        else join(own ? of.joining : of.joining_of_others, *gpu.block, self(), ++gpu.block->warps[gpu.thread->warp()].syncs, own || arrival.wide);
    }
    of.bytes += arrival.bytes;
    of.pending -= arrival.count;
    settle(of);
    return phase;
}

void expect_arrival(Mbarriers& all, uint32_t address, uintptr_t pc) { ++used(all, address, pc)->pending; }

void expect_bytes(Mbarriers& all, uint32_t address, int64_t bytes, uintptr_t pc) {
    Mbarrier& of = *used(all, address, pc);
    of.bytes += bytes;
    if (of.bytes > MOST_BYTES) say(misused(address, pc), "an mbarrier expects more than %lld bytes", static_cast<long long>(MOST_BYTES));
}

bool wait_at(Mbarriers& all, uint32_t address, const PhaseWait& wait, uintptr_t pc) {
    Mbarrier& of = *used(all, address, pc);
    if (rank_of(self()) != rank_at(address)) {
        say(misused(address, pc), "a thread of another block waits at an mbarrier: only those of its own block can");
        stop_launch();
    }
    const bool done = wait.is_parity ? (of.phase & 1) != (wait.phase & 1) : of.phase > wait.phase;
    if (done) {
        of.observed = of.phase;
        if (wait.acquires && gpu.launch->has_agents) {
            follow(*gpu.block, self(), of.completed);
            follow(*gpu.block, self(), of.completed_of_others, wait.wide);
        }
    } else if (wait.parks) {
        of.waiting.push_back(self());
    }
    return done;
}

std::pair<unsigned, uint32_t> agents_of(Mbarriers& all, uint32_t address) {
    Mbarrier& of = all[address];
    if (!of.column) of.column = new_agents(*gpu.block);
    return {of.column, of.epoch};
}

void complete_bytes(Mbarriers& all, uint32_t address, int64_t bytes, unsigned thread, uintptr_t pc) {
    gpu.thread = &gpu.block->threads[thread];
    Mbarrier& of = *used(all, address, pc);
    of.bytes -= bytes;
    if (of.bytes < -MOST_BYTES) {
        say(misused(address, pc), "%lld bytes more than an mbarrier expects", static_cast<long long>(-of.bytes));
        stop_launch();
    }
    settle(of);
}

std::string state_of(const Mbarriers& all, uint32_t address) {
    auto found = all.find(address);
    if (found == all.end()) return "an mbarrier";
    const Mbarrier& of = found->second;
    char text[200], owner[50] = "";
    if (gpu.launch->cluster > 1)
        snprintf(owner, sizeof owner, " of block %s", in_words(block_of(gpu.block->index, rank_at(address) * gpu.launch->apart)).c_str());
    const auto offset = static_cast<uint32_t>(address - rank_at(address) * gpu.launch->window);
    int length = snprintf(text, sizeof text, "the mbarrier at %#x%s in phase %u (%u of %u arrivals to come", offset, owner, of.phase, of.pending, of.expected);
    if (of.bytes > 0) snprintf(text + length, sizeof text - length, ", %lld bytes to come)", static_cast<long long>(of.bytes));
    else if (of.bytes < 0) snprintf(text + length, sizeof text - length, ", %lld bytes more than expected)", static_cast<long long>(-of.bytes));
    else snprintf(text + length, sizeof text - length, ")");
    return text;
}

}  // namespace emulator
