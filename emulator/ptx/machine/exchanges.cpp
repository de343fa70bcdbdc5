// Operations of a warp: shuffles, votes, matches, reductions, and bar.warp.sync. The lanes of the
// mask wait for each other.
#include "machine.h"

#include <cstdio>

namespace emulator::ptx {
namespace {

// The participating lanes, each with its instruction, as they may have come by different paths.
struct Exchange {
    Warp& warp;
    uint32_t lanes;
    const Instruction* at[WARP];
};

using Operation = void (*)(const Exchange&);

template <class T, class F>
void gather(const Exchange& in, T (&values)[WARP], F value_of) {
    lanes_in(in.lanes, [&](unsigned lane) { values[lane] = value_of(in.at[lane]->operand, lane); });
}

uint32_t ballot_of(const Exchange& in, int predicate, int negated) {
    uint32_t ballot = 0;
    lanes_in(in.lanes, [&](unsigned lane) {
        const int32_t* o = in.at[lane]->operand;
        ballot |= ((in.warp.predicate(o[predicate]) >> lane & 1) ^ static_cast<uint32_t>(o[negated])) << lane;
    });
    return ballot;
}

void set_predicate(const Exchange& in, unsigned lane, int32_t slot, bool value) {
    uint32_t& bits = in.warp.predicate(slot);
    bits = (bits & ~(1u << lane)) | uint32_t(value) << lane;
}

// [d, predicate or NONE, a, b, c, mask]: as in the PTX manual's pseudocode of shfl.sync.
template <int OP>
void shuffle(const Exchange& in) {
    uint32_t values[WARP], sources[WARP], clamps[WARP];
    gather(in, values, [&](const int32_t* o, unsigned lane) { return in.warp.slot<uint32_t>(o[2])[lane]; });
    gather(in, sources, [&](const int32_t* o, unsigned lane) { return in.warp.slot<uint32_t>(o[3])[lane]; });
    gather(in, clamps, [&](const int32_t* o, unsigned lane) { return in.warp.slot<uint32_t>(o[4])[lane]; });
    lanes_in(in.lanes, [&](unsigned lane) {
        uint32_t b = sources[lane] & 31, clamp = clamps[lane] & 31, segment = clamps[lane] >> 8 & 31;
        int most = static_cast<int>((lane & segment) | (clamp & ~segment)), least = static_cast<int>(lane & segment);
        int from, own = static_cast<int>(lane), by = static_cast<int>(b);
        bool inside;
        switch (OP) {
            case SHFL_UP: from = own - by, inside = from >= most; break;
            case SHFL_DOWN: from = own + by, inside = from <= most; break;
            case SHFL_XOR: from = own ^ by, inside = from <= most; break;
            default: from = static_cast<int>(least | (b & ~segment)), inside = from <= most; break;
        }
        if (!inside) from = own;
        const int32_t* o = in.at[lane]->operand;
        // The value of a lane that does not take part is undefined on a GPU.
        in.warp.slot<uint32_t>(o[0])[lane] = in.lanes >> from & 1 ? values[from] : ~0u;
        if (o[1] != NONE) set_predicate(in, lane, o[1], inside);
    });
}

// [d, predicate, negated, mask]
template <int OP>
void vote(const Exchange& in) {
    uint32_t ballot = ballot_of(in, 1, 2);
    bool all = ballot == in.lanes, any = ballot != 0;
    lanes_in(in.lanes, [&](unsigned lane) {
        int32_t d = in.at[lane]->operand[0];
        if (OP == BALLOT) in.warp.slot<uint32_t>(d)[lane] = ballot;
        else set_predicate(in, lane, d, OP == emulator::ALL ? all : OP == ANY ? any : all || !any);
    });
}

template <class T>
uint32_t equal_to(const Exchange& in, const T (&values)[WARP], unsigned lane) {
    uint32_t same = 0;
    lanes_in(in.lanes, [&](unsigned other) { same |= uint32_t(values[other] == values[lane]) << other; });
    return same;
}

// [d, a, mask]
template <class T>
void match_any(const Exchange& in) {
    T values[WARP];
    gather(in, values, [&](const int32_t* o, unsigned lane) { return in.warp.slot<T>(o[1])[lane]; });
    lanes_in(in.lanes, [&](unsigned lane) { in.warp.slot<uint32_t>(in.at[lane]->operand[0])[lane] = equal_to(in, values, lane); });
}

// [d, predicate or NONE, a, mask]
template <class T>
void match_all(const Exchange& in) {
    T values[WARP];
    gather(in, values, [&](const int32_t* o, unsigned lane) { return in.warp.slot<T>(o[2])[lane]; });
    lanes_in(in.lanes, [&](unsigned lane) {
        const int32_t* o = in.at[lane]->operand;
        bool all = equal_to(in, values, lane) == in.lanes;
        in.warp.slot<uint32_t>(o[0])[lane] = all ? in.lanes : 0;
        if (o[1] != NONE) set_predicate(in, lane, o[1], all);
    });
}

template <class T> T added(T a, T b) { return a + b; }
template <class T> T smaller(T a, T b) { return b < a ? b : a; }
template <class T> T larger(T a, T b) { return a < b ? b : a; }
template <class T> T anded(T a, T b) { return a & b; }
template <class T> T ored(T a, T b) { return a | b; }
template <class T> T xored(T a, T b) { return a ^ b; }

// [d, a, mask]
template <class T, T (*JOIN)(T, T)>
void reduce(const Exchange& in) {
    T total{};
    bool first = true;
    lanes_in(in.lanes, [&](unsigned lane) {
        T value = in.warp.slot<T>(in.at[lane]->operand[1])[lane];
        total = first ? value : JOIN(total, value);
        first = false;
    });
    lanes_in(in.lanes, [&](unsigned lane) { in.warp.slot<T>(in.at[lane]->operand[0])[lane] = total; });
}

// [d or NONE, predicate, mask]: the lowest lane is elected.
void elect(const Exchange& in) {
    unsigned leader = static_cast<unsigned>(__builtin_ctz(in.lanes));
    lanes_in(in.lanes, [&](unsigned lane) {
        const int32_t* o = in.at[lane]->operand;
        if (o[0] != NONE) in.warp.slot<uint32_t>(o[0])[lane] = leader;
        set_predicate(in, lane, o[1], lane == leader);
    });
}

void synchronise(const Exchange&) {}  // complete_exchange orders the lanes

// [d]: the lanes that run together now, which is the machine's choice
Flow active_mask(Warp& warp, const Instruction& at, uint32_t mask) {
    lanes_in(mask, [&](unsigned lane) { warp.slot<uint32_t>(at.operand[0])[lane] = mask; });
    return Flow::next;
}

// ---- lanes meet ---------------------------------------------------------------------------------

struct Meeting {  // a handler's operation when all lanes of the mask have arrived
    Operation run;
    int mask;  // which operand is the mask
    int op;    // for __syncwarp
};

uint32_t mask_of(const Warp& warp, const Instruction& at, int operand, unsigned lane) {
    uint32_t mask = warp.slot<uint32_t>(at.operand[operand])[lane];
    if (mask >> lane & 1) return mask;
    Thread& thread = thread_of(warp, lane);
    Record& record = add_record(MASK, nullptr, 0, 0, 1, side_of(thread, *gpu.block, WAIT, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "lane %u calls it with mask 0x%08x, which does not include it", lane, mask);
    return mask | 1u << lane;
}

void run_exchange(Warp& warp, const Meeting& meeting, uint32_t lanes, uint32_t mask) {
    Exchange all = {warp, lanes, {}};
    lanes_in(lanes, [&](unsigned lane) { all.at[lane] = &warp.begin[warp.pc[lane]]; });
    meeting.run(all);
    if (meeting.op == SYNCWARP && gpu.launch->traced) order_warp(*gpu.block, warp.first / WARP, mask, lanes);
}

template <Operation OPERATION, int MASK, int OP>
Flow exchange(Warp& warp, const Instruction& at, uint32_t lanes) {
    static const Meeting meeting = {OPERATION, MASK, OP};
    if (gpu.launch->traced) settle_value();
    uint32_t mask = 0;
    bool same = true;
    lanes_in(lanes, [&](unsigned lane) {
        uint32_t own = mask_of(warp, at, MASK, lane);
        same &= !mask || own == mask;
        mask = own;
    });
    if (same && (mask & warp.alive) == lanes) {  // all have arrived
        warp.go(lanes, warp.index_of(at));
        run_exchange(warp, meeting, lanes, mask);
        return Flow::next;
    }
    Wait wait = {};
    wait.op = OP;
    wait.operation = &meeting;
    wait.name = OP == SYNCWARP ? "bar.warp.sync" : "a warp operation (shfl, vote, match, redux)";
    lanes_wait(warp, at, lanes, State::at_warp, wait);
    lanes_in(lanes, [&](unsigned lane) { thread_of(warp, lane).wait.mask = mask_of(warp, at, MASK, lane); });
    lanes_in(lanes, [&](unsigned lane) {
        if (!(warp.ready >> lane & 1)) complete_exchange(warp, lane);
    });
    return Flow::moved;
}

template <int OP> constexpr Handler SHUFFLE = exchange<shuffle<OP>, 5, OP>;
template <int OP> constexpr Handler VOTE = exchange<vote<OP>, 3, OP>;
template <class T, T (*JOIN)(T, T)> constexpr Handler REDUCE = exchange<reduce<T, JOIN>, 2, REDUCE_ADD>;
constexpr int UNIFORM = 100;  // vote.uni, beside the operations that CUDA has

const NamedHandler TABLE[] = {
    {"bar.warp.sync", exchange<synchronise, 0, SYNCWARP>},
    {"activemask", active_mask},
    {"shfl.up", SHUFFLE<SHFL_UP>},
    {"shfl.down", SHUFFLE<SHFL_DOWN>},
    {"shfl.bfly", SHUFFLE<SHFL_XOR>},
    {"shfl.idx", SHUFFLE<SHFL>},
    {"vote.all", VOTE<emulator::ALL>},
    {"vote.any", VOTE<ANY>},
    {"vote.uni", VOTE<UNIFORM>},
    {"vote.ballot", VOTE<BALLOT>},
    {"match.any.b32", exchange<match_any<uint32_t>, 2, MATCH_ANY>},
    {"match.any.b64", exchange<match_any<uint64_t>, 2, MATCH_ANY>},
    {"match.all.b32", exchange<match_all<uint32_t>, 3, MATCH_ALL>},
    {"match.all.b64", exchange<match_all<uint64_t>, 3, MATCH_ALL>},
    {"redux.add.u32", REDUCE<uint32_t, added>},
    {"redux.min.u32", REDUCE<uint32_t, smaller>},
    {"redux.max.u32", REDUCE<uint32_t, larger>},
    {"redux.min.s32", REDUCE<int32_t, smaller>},
    {"redux.max.s32", REDUCE<int32_t, larger>},
    {"redux.and.b32", REDUCE<uint32_t, anded>},
    {"redux.or.b32", REDUCE<uint32_t, ored>},
    {"redux.xor.b32", REDUCE<uint32_t, xored>},
    {"elect", exchange<elect, 2, SHFL>},
};

}  // namespace

void complete_exchange(Warp& warp, unsigned lane) {
    const Wait& wait = thread_of(warp, lane).wait;
    uint32_t there = 0;
    for (uint32_t rest = wait.mask & warp.alive; rest; rest &= rest - 1) {
        unsigned other = static_cast<unsigned>(__builtin_ctz(rest));
        const Thread& thread = thread_of(warp, other);
        if (thread.state != State::at_warp || thread.wait.operation != wait.operation || thread.wait.mask != wait.mask) return;
        there |= 1u << other;
    }
    run_exchange(warp, *static_cast<const Meeting*>(wait.operation), there, wait.mask);
    lanes_in(there, [&](unsigned other) { make_ready(*gpu.block, thread_of(warp, other)); });
    wake_threads();
}

Handlers exchange_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
