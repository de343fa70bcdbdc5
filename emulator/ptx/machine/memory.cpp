// Loads, stores, asynchronous copies, addresses.
#include "access.h"

#include <cmath>
#include <cstdio>

namespace emulator::ptx {
namespace {

[[noreturn]] void misaligned(const Warp& warp, const Instruction& at, uintptr_t host, unsigned bytes, unsigned to, What what) {
    Record& record = add_record(MISALIGNED, region_of(host), host, bytes, 1, side_here(what, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "to %s %u bytes the address must be a multiple of %u; it is %u more",
             what == WRITE ? "write" : what == READ ? "read" : "update", bytes, to, static_cast<unsigned>(host % to));
    stop_launch();
}

// Without tracing, a harmless access is let through: memory beside a tensor is compared afterwards.
void check_plain(uintptr_t host, unsigned bytes, What what, uintptr_t site) {
    Region* region = region_of(host);
    if (region && host + bytes <= region->high) return;
    if (host - gpu.thread->own < gpu.thread->own_bytes && host + bytes <= gpu.thread->own + gpu.thread->own_bytes) return;
    Region* near = region ? region : region_around(host);
    if (near && near->soft && host >= near->margin_low && host + bytes <= near->margin_high) return;
    add_record(OUTSIDE, near, host, bytes, 1, side_here(what, site));
    stop_launch();
}

uintptr_t host_address(unsigned lane_thread, int space, uint64_t address) {
    switch (space) {
        case SHARED_SPACE: return shared_place(lane_thread, address);
        case LOCAL_SPACE: return gpu.block->threads[lane_thread].own + address;
        default: return address;
    }
}

bool is_power_of_2(unsigned n) { return (n & (n - 1)) == 0; }

const unsigned char* parameter(const Warp& warp, const Instruction& at, unsigned lane, uint64_t offset, unsigned bytes) {
    size_t count;
    const unsigned char* parameters = parameter_bytes(&count);
    if (offset + bytes <= count) return parameters + offset;
    gpu.thread = &gpu.block->threads[warp.first + lane];
    Record& record = add_record(OUTSIDE, nullptr, offset, bytes, 1, side_here(READ, site_at(warp, at)));
    snprintf(record.text, sizeof record.text, "reads byte %llu of the parameters, which have %zu",
             static_cast<unsigned long long>(offset), count);
    stop_launch();
}

// The accesses of one instruction. Without tracing, most go to the same region as the lane before
// and need no further check.
class Places {
public:
    Places(Warp& warp, const Instruction& at, int space, unsigned bytes, What what)
        : warp(warp), at(at), space(space), bytes(bytes), what(what), quick(!gpu.launch->traced && is_power_of_2(bytes)) {}

    unsigned char* of(unsigned lane, uint64_t address) {
        uintptr_t host = host_address(warp.first + lane, space, address);
        if (quick && region && host - region->low <= region->high - region->low - bytes && !(host & (bytes - 1)) &&
            region->high - region->low >= bytes)
            return reinterpret_cast<unsigned char*>(host);
        unsigned char* place = place_of(warp, at, lane, space, address, bytes, what);
        if (quick) region = region_of(host);
        return place;
    }

    // Whether `all_plain` may be asked: every check of a lane can be repeated.
    bool may_be_plain() const { return quick && gpu.launch->cluster == 1 && space != LOCAL_SPACE && space != PARAM_SPACE; }

    // After `of` the first lane: puts the addresses of all lanes into `hosts`, and returns whether those in `mask` need
    // no further check either. One pass over all lanes, which g++ vectorises, takes less than one call of `of` for each.
    bool all_plain(const uint64_t* addresses, uint32_t mask, uintptr_t* hosts) const {
        if (!region) return false;
        const bool shared = space == SHARED_SPACE;
        const uintptr_t low = region->low, room = region->high - low - bytes;
        if (region->high - low < bytes) return false;
        const uintptr_t base = shared ? shared_memory() : 0;
        const uint64_t all = shared ? UINT32_MAX : UINT64_MAX;
        uint32_t wrong = 0;
        for (unsigned lane = 0; lane < WARP; ++lane) {
            const uintptr_t host = base + (addresses[lane] & all);
            hosts[lane] = host;
            wrong |= (mask >> lane & 1) & static_cast<uint32_t>((host - low > room) | ((host & (bytes - 1)) != 0));
        }
        return !wrong;
    }

private:
    Warp& warp;
    const Instruction& at;
    int space;
    unsigned bytes;
    What what;
    bool quick;
    const Region* region = nullptr;
};

// ---- ld, st -------------------------------------------------------------------------------------

constexpr unsigned MOST_REGISTERS = 8;  // in a vector

// Converts an element to a register, which may be wider.
template <class R>
R widened(const unsigned char* from, unsigned bytes, bool is_signed) {
    uint64_t value = 0;
    memcpy(&value, from, bytes);
    if (is_signed && bytes < 8) value = static_cast<uint64_t>(static_cast<int64_t>(value << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    return static_cast<R>(value);
}

// [space, address, its bytes, offset, bytes of an element, count, signed, bytes of a register,
// registers...]
template <class R>
Flow load_registers(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    unsigned bytes = static_cast<unsigned>(o[4]), count = static_cast<unsigned>(o[5]);
    R* to[MOST_REGISTERS];
    for (unsigned i = 0; i < count; ++i) to[i] = warp.slot<R>(o[8 + i]);
    Places places(warp, at, o[0], bytes * count, READ);
    if (bytes == sizeof(R) && places.may_be_plain()) {
        uint64_t addresses[WARP];
        uintptr_t hosts[WARP];
        addresses_of(warp, o[1], o[2], o[3], addresses);
        const unsigned first = static_cast<unsigned>(__builtin_ctz(mask));
        const unsigned char* place = places.of(first, addresses[first]);
        if (places.all_plain(addresses, mask, hosts)) {
            detect_spinning(warp, at, place);
            for (unsigned i = 0; i < count; ++i)
                each_lane(mask, [&](unsigned lane) {
                    memcpy(to[i] + lane, reinterpret_cast<const unsigned char*>(hosts[lane]) + i * sizeof(R), sizeof(R));
                });
            return Flow::next;
        }
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        uint64_t address = address_of(warp, o[1], o[2], o[3], lane);
        const unsigned char* from =
            o[0] == PARAM_SPACE ? parameter(warp, at, lane, address, bytes * count) : places.of(lane, address);
        if (rest == mask && o[0] != PARAM_SPACE) detect_spinning(warp, at, from);
        if (bytes == sizeof(R))
            for (unsigned i = 0; i < count; ++i) memcpy(to[i] + lane, from + i * sizeof(R), sizeof(R));
        else
            for (unsigned i = 0; i < count; ++i) to[i][lane] = widened<R>(from + i * bytes, bytes, o[6]);
    }
    return Flow::next;
}

Flow load(Warp& warp, const Instruction& at, uint32_t mask) {
    int32_t bytes = at.operand[7];
    return (bytes == 2 ? load_registers<uint16_t> : bytes == 4 ? load_registers<uint32_t> : load_registers<uint64_t>)(warp, at, mask);
}

// [space, address, its bytes, offset, bytes of an element, count, bytes of a register,
// registers...]
Flow store(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    unsigned bytes = static_cast<unsigned>(o[4]), count = static_cast<unsigned>(o[5]);
    Places places(warp, at, o[0], bytes * count, WRITE);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        unsigned char* to = places.of(lane, address_of(warp, o[1], o[2], o[3], lane));
        for (unsigned i = 0; i < count; ++i, to += bytes) {  // the low bytes of the register
            if (o[6] == 2) write(warp, to, warp.slot<uint16_t>(o[7 + i]) + lane, bytes);
            else if (o[6] == 4) write(warp, to, warp.slot<uint32_t>(o[7 + i]) + lane, bytes);
            else write(warp, to, warp.slot<uint64_t>(o[7 + i]) + lane, bytes);
        }
    }
    return Flow::next;
}

// ---- cp.async -----------------------------------------------------------------------------------

// [to, its bytes, offset, from, its bytes, offset, bytes, bytes that are copied or NONE, predicate:
// copy nothing, or NONE]
Flow copy_async(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    auto bytes = static_cast<unsigned>(o[6]);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        gpu.thread = &gpu.block->threads[warp.first + lane];
        uint64_t from = address_of(warp, o[3], o[4], o[5], lane);
        uintptr_t to = host_address(gpu.thread->linear, SHARED_SPACE, address_of(warp, o[0], o[1], o[2], lane));
        unsigned copied = o[7] == NONE ? bytes : std::min(bytes, warp.slot<uint32_t>(o[7])[lane]);
        if (o[8] != NONE && (warp.predicate(o[8]) >> lane & 1)) copied = 0;
        if (to % bytes) misaligned(warp, at, to, bytes, bytes, WRITE);
        if (copied && from % bytes) misaligned(warp, at, from, bytes, bytes, READ);
        Copy copy = {reinterpret_cast<unsigned char*>(to), reinterpret_cast<const unsigned char*>(from), bytes, bytes - copied,
                     gpu.thread->batch, site_at(warp, at), false};
        if (gpu.launch->traced) {
            check_copy(copy, true);
        } else {
            if (copied) check_plain(from, copied, READ, copy.pc);
            check_plain(to, bytes, WRITE, copy.pc);
        }
        gpu.thread->copies.push_back(copy);
    }
    return Flow::next;
}

template <class F>
Flow each_thread(Warp& warp, uint32_t mask, F f) {
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        gpu.thread = &gpu.block->threads[warp.first + static_cast<unsigned>(__builtin_ctz(rest))];
        f(*gpu.thread);
    }
    return Flow::next;
}

Flow commit_group(Warp& warp, const Instruction&, uint32_t mask) {
    return each_thread(warp, mask, [](Thread& thread) { ++thread.batch; });
}

// [groups that may still be under way]
Flow wait_group(Warp& warp, const Instruction& at, uint32_t mask) {
    auto most = static_cast<unsigned>(at.operand[0]);
    return each_thread(warp, mask, [=](Thread& thread) { end_copies(thread, thread.batch > most ? thread.batch - most : 0); });
}

Flow wait_all(Warp& warp, const Instruction&, uint32_t mask) {
    return each_thread(warp, mask, [](Thread& thread) { end_copies(thread, ~0u); });
}

// ---- cvta: converts between an address in a space and a generic one [d, a] ----------------------

template <int SPACE>
Flow to_generic(Warp& warp, const Instruction& at, uint32_t mask) {
    auto* d = warp.slot<uint64_t>(at.operand[0]);
    const auto* a = warp.slot<uint64_t>(at.operand[1]);
    lanes_in(mask, [&](unsigned lane) { d[lane] = host_address(warp.first + lane, SPACE, a[lane]); });
    return Flow::next;
}

template <int SPACE>
Flow from_generic(Warp& warp, const Instruction& at, uint32_t mask) {
    auto* d = warp.slot<uint64_t>(at.operand[0]);
    const auto* a = warp.slot<uint64_t>(at.operand[1]);
    lanes_in(mask, [&](unsigned lane) {
        const unsigned thread = warp.first + lane;
        d[lane] = SPACE == SHARED_SPACE ? shared_address(thread, a[lane]) : a[lane] - host_address(thread, SPACE, 0);
    });
    return Flow::next;
}

// The generic address of a parameter [d, a]
Flow parameter_address(Warp& warp, const Instruction& at, uint32_t mask) {
    size_t count;
    const auto base = reinterpret_cast<uint64_t>(parameter_bytes(&count));
    auto* d = warp.slot<uint64_t>(at.operand[0]);
    const auto* a = warp.slot<uint64_t>(at.operand[1]);
    lanes_in(mask, [&](unsigned lane) { d[lane] = base + a[lane]; });
    return Flow::next;
}

const NamedHandler TABLE[] = {
    {"ld", load},
    {"st", store},
    {"cp.async", copy_async},
    {"cp.async.commit_group", commit_group},
    {"cp.async.wait_group", wait_group},
    {"cp.async.wait_all", wait_all},
    {"cvta.param", parameter_address},
    {"cvta.shared", to_generic<SHARED_SPACE>},
    {"cvta.to.shared", from_generic<SHARED_SPACE>},
    {"cvta.local", to_generic<LOCAL_SPACE>},
    {"cvta.to.local", from_generic<LOCAL_SPACE>},
};

}  // namespace

void refuse(unsigned thread, uintptr_t site, const char* why) {
    gpu.thread = &gpu.block->threads[thread];
    Record& record = add_record(TRAP, nullptr, 0, 0, 1, side_here(TOUCH, site));
    snprintf(record.text, sizeof record.text, "%s", why);
    stop_launch();
}

void not_covered(const Warp& warp, const Instruction& at, unsigned lane, const char* what) {
    char text[sizeof(Record::text)];
    snprintf(text, sizeof text, "not covered on the CPU: %s", what);
    refuse(thread_of(warp, lane).linear, site_at(warp, at), text);
}

void detect_spinning(Warp& warp, const Instruction& at, const void* place) {
    auto host = reinterpret_cast<uintptr_t>(place);
    warp.recent_site = site_at(warp, at);
    for (uintptr_t seen : warp.recent)
        if (seen == host) {
            ++warp.since_new;
            return;
        }
    warp.recent[warp.next_recent++ & 3] = host;
    warp.since_new = 0;
}

unsigned char* place_of(Warp& warp, const Instruction& at, unsigned lane, int space, uint64_t address, unsigned bytes, What what, unsigned to) {
    unsigned thread = warp.first + lane;
    uintptr_t host = host_address(thread, space, address);
    gpu.thread = &gpu.block->threads[thread];
    gpu.thread->stores += what == WRITE;
    if (!to) to = is_power_of_2(bytes) ? bytes : 1;
    if (host % to) misaligned(warp, at, host, bytes, to, what);
    if (gpu.launch->traced) check_access(host, bytes, what, site_at(warp, at));
    else check_plain(host, bytes, what, site_at(warp, at));
    if (gpu.launch->cluster > 1) note_shared(host, bytes, what, site_at(warp, at));
    return reinterpret_cast<unsigned char*>(host);
}

Handlers memory_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
