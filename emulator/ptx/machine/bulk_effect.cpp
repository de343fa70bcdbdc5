// A bulk copy takes effect: piece by piece, box by box, and its bytes are counted.
#include "bulk.h"
#include "access.h"
#include "number.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace emulator::ptx {
namespace {

constexpr unsigned PIECE = 16;  // bytes that are copied together

class Mover {
public:
    Mover(const Bulk& copy, const Agent& reads, const Agent& writes) : copy(copy), reads(reads), writes(writes) {}

    // Copies a piece of `whole` bytes. Only those from `first` on, `bytes` of them, are in the tensor;
    // in shared memory the others are zeros.
    void move(uint64_t global, uint32_t shared, unsigned first, unsigned bytes, unsigned whole) {
        auto* there = copy.kind == BulkKind::value ? const_cast<unsigned char*>(copy.value) : reinterpret_cast<unsigned char*>(global + first);
        unsigned char* here = emulator_dynamic_shared + shared;
        if (copy.reduction != Reduction::none) {
            check(writes, reinterpret_cast<uintptr_t>(here), whole, ATOMIC);
            return copy.is_signed ? reduce<int32_t>(here) : whole == 4 ? reduce<uint32_t>(here) : reduce<uint64_t>(here);
        }
        if (is_load(copy)) {
            if (bytes && copy.kind == BulkKind::load) check(reads, global + first, bytes, READ);
            check(writes, reinterpret_cast<uintptr_t>(here), whole, WRITE);
            memset(here, 0, whole);
            if (bytes) memcpy(here + first, there, bytes);
            return;
        }
        check(reads, reinterpret_cast<uintptr_t>(here), whole, READ);
        if (!bytes || (copy.repeated && !memcmp(there, here, bytes))) return;
        check(writes, global + first, bytes, copy.kind == BulkKind::add ? ATOMIC : WRITE);
        if (copy.kind == BulkKind::store) memcpy(there, here + first, bytes);
        else add(there, here + first, bytes);
    }

    void check(const Agent& agent, uintptr_t address, size_t bytes, What what) const {
        if (gpu.launch->traced) return check_agent(agent, address, bytes, what);
        gpu.thread = &gpu.block->threads[copy.thread];
        Region* region = region_of(address);
        if (region && address + bytes <= region->high) return;
        add_record(OUTSIDE, region ? region : region_around(address), address, bytes, 1, side_here(what, copy.site));
        stop_launch();
    }

private:
    template <class T>
    void reduce(unsigned char* at) {
        T a, b;
        memcpy(&a, at, sizeof a), memcpy(&b, copy.value, sizeof b);
        switch (copy.reduction) {
            case Reduction::add: a = static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); break;
            case Reduction::min: a = std::min(a, b); break;
            case Reduction::max: a = std::max(a, b); break;
            case Reduction::inc: a = a >= b ? 0 : a + 1; break;
            case Reduction::dec: a = a == 0 || a > b ? b : a - 1; break;
            case Reduction::and_: a &= b; break;
            case Reduction::or_: a |= b; break;
            default: a ^= b;
        }
        memcpy(at, &a, sizeof a);
    }

    void add(unsigned char* to, const unsigned char* from, unsigned bytes) {
        for (unsigned i = 0; i < bytes; i += sizeof(float)) {
            float a, b;
            memcpy(&a, to + i, sizeof a), memcpy(&b, from + i, sizeof b);
            a = canonical(a + b);
            memcpy(to + i, &a, sizeof a);
        }
    }

    const Bulk& copy;
    const Agent &reads, &writes;
};

uint32_t swizzled(uint32_t address, unsigned swizzle) {
    static const uint32_t bits[] = {0, 1, 3, 7};
    return address ^ (address >> 7 & bits[swizzle]) << 4;
}

// Returns the bytes of the box in shared memory, of which complete_tx counts all.
uint32_t bytes_of(const Bulk& copy) {
    if (!copy.tiled) return copy.bytes;
    uint32_t bytes = copy.map.element;
    for (unsigned i = 0; i < copy.rank; ++i) bytes *= copy.map.box[i];
    return bytes;
}

void move_box(const Bulk& copy, Mover& mover) {
    const TensorMap& map = copy.map;
    const unsigned line = map.box[0] * map.element;
    uint32_t lines = 1;
    for (unsigned i = 1; i < copy.rank; ++i) lines *= map.box[i];
    for (uint32_t l = 0; l < lines; ++l) {
        uint64_t from = map.base;
        bool inside = true;
        uint32_t rest = l;
        for (unsigned i = 1; i < copy.rank; ++i) {
            const int64_t at = int64_t(copy.corner[i]) + rest % map.box[i];
            rest /= map.box[i];
            inside &= at >= 0 && static_cast<uint64_t>(at) < map.extent[i];
            from += static_cast<uint64_t>(at) * map.stride[i];
        }
        for (unsigned c = 0; c < line; c += PIECE) {
            const int64_t at = int64_t(copy.corner[0]) + c / map.element;
            const unsigned whole = std::min(PIECE, line - c);
            const int64_t first = std::max<int64_t>(0, -at * map.element);
            const int64_t end = std::min<int64_t>(whole, (static_cast<int64_t>(map.extent[0]) - at) * map.element);
            mover.move(from + static_cast<uint64_t>(at * map.element), swizzled(copy.shared + l * line + c, map.swizzle),
                       static_cast<unsigned>(std::min<int64_t>(first, whole)),
                       inside && end > first ? static_cast<unsigned>(end - first) : 0, whole);
        }
    }
}

// Whole warps execute the stores of CuTe DSL. By the manual each lane makes a copy, of the same
// bytes; in machine code (UTMASTG) one instruction of the warp makes one. So it is no race that
// another lane has written the same bytes.
bool same_store(const Bulk& a, const Bulk& b) {
    return a.kind == BulkKind::store && a.shared == b.shared && a.global == b.global && a.bytes == b.bytes &&
           !memcmp(a.corner, b.corner, sizeof a.corner);
}

bool is_repeated(const Bulk& copy, std::vector<Bulk>& known) {
    for (const Bulk& other : known)
        if (same_store(other, copy)) return other.thread != copy.thread;
    known.push_back(copy);
    return false;
}

uintptr_t shared_at(const Bulk& copy) { return shared_memory() + copy.shared; }

// Reads the copy's tensor map from memory, as late as its other reads.
void read_map(Bulk& copy, const Mover& mover, Agent reads) {
    reads.map = copy.global;
    mover.check(reads, copy.global, MAP_BYTES, READ);
    const char* wrong = decode(reinterpret_cast<const unsigned char*>(copy.global), copy.rank, copy.map);
    if (!wrong && !region_of(copy.map.base)) wrong = "a tensor map in memory whose address is in no tensor of the launch";
    if (!wrong) return;
    char text[200];
    snprintf(text, sizeof text, "not covered on the CPU: %s", wrong);
    refuse(copy.thread, copy.site, text);
}

}  // namespace

bool is_of_block(const Bulk& copy, unsigned rank) {
    const uintptr_t from = copy.global - shared_memory();
    return rank_at(copy.shared) == rank || (from < MOST_BLOCKS * gpu.launch->window && rank_at(from) == rank);
}

void take_effect(Block& in, Bulk copy) {
    const char* waits = is_load(copy) ? "mbarrier.try_wait" : "cp.async.bulk.wait_group";
    Agent reads = {0, 0, copy.issue, copy.thread, false, copy.site, "bulk copy", waits}, writes = reads;
    Asynchronous& all = asynchronous_of(in);
    if (gpu.launch->traced && is_load(copy)) {
        std::tie(reads.column, reads.epoch) = agents_of(all.mbarriers, copy.mbarrier);
        writes.column = reads.column, writes.epoch = reads.epoch;
    } else if (gpu.launch->traced) {
        const BulkGroups& groups = all.groups[copy.thread];
        reads.column = groups.reads, writes.column = groups.writes;
        reads.epoch = writes.epoch = copy.group;
    }
    if (copy.kind == BulkKind::store) copy.repeated = is_repeated(copy, all.made[{copy.thread / WARP, copy.at}]);
    Mover mover(copy, reads, writes);
    if (copy.map_in_memory) read_map(copy, mover, reads);
    if (copy.tiled) move_box(copy, mover);
    else
        for (uint32_t i = 0; i < copy.bytes; i += PIECE) {
            const unsigned size = std::min(PIECE, copy.bytes - i);
            mover.move(copy.global + i, copy.shared + i, 0, size, size);
        }
    if (is_load(copy) && gpu.launch->cluster > 1) {
        const Side side = side_of(in.threads[copy.thread], in, WRITE, copy.site);
        for (unsigned rank = 0; rank < gpu.launch->cluster; ++rank)
            if (is_of_block(copy, rank)) note_use(rank, writes.column, writes.epoch, side, rank_at(copy.shared) == rank ? shared_at(copy) : copy.global, bytes_of(copy));
    }
    if (is_load(copy)) complete_bytes(all.mbarriers, copy.mbarrier, bytes_of(copy), copy.thread, copy.site);
    gpu.thread = nullptr;
}

}  // namespace emulator::ptx
