// Tensor maps: how their bytes are read, and the instructions that make them in a kernel.
#include "tensor_maps.h"
#include "access.h"

#include <cstdarg>
#include <cstdio>

namespace emulator::ptx {
namespace {

// ---- the bytes ----------------------------------------------------------------------------------

// As tensor_map.py writes them.
constexpr size_t BASE = 0, HEAD = 8, STRIDES = 12, EXTENTS = 32, ELEMENT_STRIDES = 52, BOX = 55;
constexpr uint32_t TILED = 2;
constexpr unsigned KIND = 0, RANK = 4, TYPE = 7, SWIZZLE = 13;  // bits of the head

template <class T>
T field(const unsigned char* bytes, size_t at) {
    T value;
    memcpy(&value, bytes + at, sizeof value);
    return value;
}

template <class T>
void set(unsigned char* bytes, size_t at, T value) {
    memcpy(bytes + at, &value, sizeof value);
}

void set_bits(unsigned char* bytes, unsigned bit, unsigned count, uint32_t value) {
    const uint32_t mask = ((1u << count) - 1) << bit;
    set(bytes, HEAD, (field<uint32_t>(bytes, HEAD) & ~mask) | value << bit);
}

// Bytes of an element, by the number of its type in the bytes of a map (IN_BYTES of tensor_map.py).
constexpr unsigned ELEMENT[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4};
constexpr unsigned TYPES = sizeof ELEMENT / sizeof *ELEMENT;

// ---- tensormap.replace --------------------------------------------------------------------------

enum Field : int {  // in the order of FIELDS in maps.py
    GLOBAL_ADDRESS, RANK_FIELD, BOX_DIM, GLOBAL_DIM, GLOBAL_STRIDE, ELEMENT_STRIDE, ELEMTYPE, INTERLEAVE, SWIZZLE_MODE,
    FILL_MODE,
};

[[noreturn]] void wrong(const Warp& warp, const Instruction& at, unsigned lane, const char* format, ...) {
    char text[200];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    refuse(thread_of(warp, lane).linear, site_at(warp, at), text);
}

// [space, address (3), Field, dimension, bytes of the value, value]
Flow replace(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    const auto i = static_cast<unsigned>(o[5]);
    lanes_in(mask, [&](unsigned lane) {
        const uint64_t address = address_of(warp, o[1], o[2], o[3], lane);
        // The whole map is one object, of which the instruction makes another.
        place_of(warp, at, lane, o[0], address, MAP_BYTES, READ, MAP_ALIGNMENT);
        unsigned char* map = place_of(warp, at, lane, o[0], address, MAP_BYTES, WRITE, MAP_ALIGNMENT);
        const uint64_t value = o[6] == 4 ? warp.slot<uint32_t>(o[7])[lane] : warp.slot<uint64_t>(o[7])[lane];
        const auto refused = [&](const char* what, const char* should) {
            wrong(warp, at, lane, "tensormap.replace gives a tensor map the %s %llu: should be %s", what, static_cast<unsigned long long>(value), should);
        };
        if (!(field<uint32_t>(map, HEAD) & 15)) set_bits(map, KIND, 4, TILED);  // it was zeros: .tile says what it is
        switch (o[4]) {
            case GLOBAL_ADDRESS:
                if (value % 16) refused("address", "a multiple of 16");
                return set(map, BASE, value);
            case RANK_FIELD:
                if (value > 4) refused("rank, less 1, of", "0 to 4");
                return set_bits(map, RANK, 3, static_cast<uint32_t>(value));
            case BOX_DIM:
                if (value < 1 || value > 256) refused("box size", "1 to 256");
                return set(map, BOX + i, static_cast<uint8_t>(value - 1));
            case GLOBAL_DIM:
                if (!value) refused("size", "at least 1");
                return set(map, EXTENTS + 4 * i, static_cast<uint32_t>(value - 1));
            case GLOBAL_STRIDE:
                if (value % 16 || value >> 36) refused("stride", "a multiple of 16 bytes, below 2**36");
                return set(map, STRIDES + 4 * i, static_cast<uint32_t>(value / 16));
            case ELEMENT_STRIDE:
                if (value != 1) refused("element stride", "1, the only one that is covered on the CPU");
                return;
            case ELEMTYPE:
                if (value >= TYPES) refused("element type", "0 to 12, the only ones that are covered on the CPU");
                return set_bits(map, TYPE, 4, static_cast<uint32_t>(value));
            case INTERLEAVE:
                if (value) refused("interleave layout", "0, the only one that is covered on the CPU");
                return;
            case SWIZZLE_MODE:
                if (value > 3) refused("swizzle mode", "0 to 3, the only ones that are covered on the CPU");
                return set_bits(map, SWIZZLE, 2, static_cast<uint32_t>(value));
            default:
                if (value) refused("fill mode", "0, the only one that is covered on the CPU: zeros are outside");
        }
    });
    gpu.thread = nullptr;
    return Flow::next;
}

// ---- copies and fences --------------------------------------------------------------------------

// The lanes' earlier actions come before what all of them do next.
void meet(Warp& warp, uint32_t mask) {
    if (gpu.launch->traced) order_warp(*gpu.block, warp.first / WARP, mask, mask);
}

void check_scope(const Warp& warp, const Instruction& at, uint32_t mask, int32_t is_narrow) {
    if (is_narrow && gpu.launch->cluster > 1)
        not_covered(warp, at, static_cast<unsigned>(__builtin_ctz(mask)), "a fence of tensor maps with .cta scope in a cluster");
}

void publish(Warp& warp, uint32_t mask) {
    if (gpu.launch->makes_maps) release_maps(*gpu.block, warp.first / WARP, mask);
}

// tensormap.cp_fenceproxy, by a warp together [address in global memory (3), address in shared memory (3), whether its scope is the block]
Flow copy(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    const auto lane = static_cast<unsigned>(__builtin_ctz(mask));
    const uint64_t to = address_of(warp, o[0], o[1], o[2], lane), from = address_of(warp, o[3], o[4], o[5], lane);
    lanes_in(mask, [&](unsigned other) {
        if (address_of(warp, o[0], o[1], o[2], other) != to || address_of(warp, o[3], o[4], o[5], other) != from)
            wrong(warp, at, other, "tensormap.cp_fenceproxy has other addresses than in lane %u: a warp copies one tensor map", lane);
    });
    check_scope(warp, at, mask, o[6]);
    meet(warp, mask);
    const unsigned char* source = place_of(warp, at, lane, SHARED_SPACE, from, MAP_BYTES, READ, MAP_ALIGNMENT);
    memcpy(place_of(warp, at, lane, GLOBAL_SPACE, to, MAP_BYTES, WRITE, MAP_ALIGNMENT), source, MAP_BYTES);
    meet(warp, mask);
    publish(warp, mask);
    gpu.thread = nullptr;
    return Flow::next;
}

// [whether its scope is the block]
Flow release(Warp& warp, const Instruction& at, uint32_t mask) {
    check_scope(warp, at, mask, at.operand[0]);
    publish(warp, mask);
    return Flow::next;
}

// [generic address (3), whether its scope is the block]
Flow acquire(Warp& warp, const Instruction& at, uint32_t mask) {
    const int32_t* o = at.operand;
    check_scope(warp, at, mask, o[3]);
    if (gpu.launch->makes_maps)
        lanes_in(mask, [&](unsigned lane) { acquire_map(*gpu.block, warp.first + lane, address_of(warp, o[0], o[1], o[2], lane)); });
    return Flow::next;
}

const NamedHandler TABLE[] = {
    {"tensormap.replace", replace},
    {"tensormap.cp_fenceproxy", copy},
    {"fence.proxy.tensormap.release", release},
    {"fence.proxy.tensormap.acquire", acquire},
};

}  // namespace

const char* decode(const unsigned char* bytes, unsigned rank, TensorMap& map) {
    const auto head = field<uint32_t>(bytes, HEAD);
    const unsigned type = head >> TYPE & 15;
    if ((head & 15) != TILED || type >= TYPES) return "a tensor map that is not one of tiles";
    map.base = field<uint64_t>(bytes, BASE);
    map.rank = (head >> RANK & 7) + 1;
    map.element = ELEMENT[type];
    map.swizzle = head >> SWIZZLE & 3;
    if (map.rank > 5) return "a tensor map of more than 5 dimensions";
    if (map.rank != rank) return "a tensor map of another rank than the instruction's";
    for (size_t i = ELEMENT_STRIDES; i < BOX; ++i)
        if (bytes[i]) return "a tensor map with element strides";
    for (unsigned i = 0; i < rank; ++i) {
        map.extent[i] = uint64_t(field<uint32_t>(bytes, EXTENTS + 4 * i)) + 1;
        map.stride[i] = i ? uint64_t(field<uint32_t>(bytes, STRIDES + 4 * (i - 1))) * 16 : map.element;
        map.box[i] = bytes[BOX + i] + 1u;
    }
    const unsigned line = map.box[0] * map.element;
    if (line % 16) return "a tensor map whose boxes have lines whose bytes are not a multiple of 16";
    if (map.swizzle && line > 16u << map.swizzle) return "a tensor map whose boxes have longer lines than its swizzle";
    return nullptr;
}

Handlers tensor_map_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
