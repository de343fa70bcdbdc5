// Moves, and vectors of small registers packed into one register.
#include "table.h"

namespace emulator::ptx {
namespace {

template <class T>
void move(Table& table, std::initializer_list<const char*> types) {
    const auto same = [](T a) { return a; };
    for (auto type : types) table.add({"mov.", type}, Lanes<decltype(same), T, T>::run);
}

// The lowest element comes first. Registers of elements have their own width, but 8 bits are stored
// in 16.
template <class Whole, class Register, int Bits, int Count>
Flow pack(Warp& warp, const Instruction& at, uint32_t mask) {
    Whole* to = warp.slot<Whole>(at.operand[0]);
    const Register* from[Count];
    for (int i = 0; i < Count; ++i) from[i] = warp.slot<Register>(at.operand[1 + i]);
    each_lane(mask, [=](unsigned lane) {
        Whole whole = 0;
        for (int i = 0; i < Count; ++i) {
            const Whole part = Bits == 8 ? from[i][lane] & 0xff : from[i][lane];
            whole |= static_cast<Whole>(part << (Bits * i));
        }
        to[lane] = whole;
    });
    return Flow::next;
}

template <class Whole, class Register, int Bits, int Count>
Flow unpack(Warp& warp, const Instruction& at, uint32_t mask) {
    const Whole* from = warp.slot<Whole>(at.operand[Count]);
    for (int i = 0; i < Count; ++i) {
        if (at.operand[i] == NONE) continue;  // {%r1, _}
        Register* to = warp.slot<Register>(at.operand[i]);
        each_lane(mask, [=](unsigned lane) {
            const Register part = static_cast<Register>(from[lane] >> (Bits * i));
            to[lane] = Bits == 8 ? part & 0xff : part;
        });
    }
    return Flow::next;
}

template <class Whole, class Register, int Bits, int Count>
void vector(Table& table, std::string_view name) {
    table.add({"pack.", name}, pack<Whole, Register, Bits, Count>);
    table.add({"unpack.", name}, unpack<Whole, Register, Bits, Count>);
}

}  // namespace

void add_moves(Table& table) {
    move<uint16_t>(table, {"b16", "u16", "s16", "f16", "bf16"});
    move<uint32_t>(table, {"b32", "u32", "s32", "f32"});
    move<uint64_t>(table, {"b64", "u64", "s64", "f64"});
    vector<uint32_t, uint16_t, 16, 2>(table, "b16x2");
    vector<uint64_t, uint32_t, 32, 2>(table, "b32x2");
    vector<uint64_t, uint16_t, 16, 4>(table, "b16x4");
    vector<uint16_t, uint16_t, 8, 2>(table, "b8x2");
    vector<uint32_t, uint16_t, 8, 4>(table, "b8x4");
}

}  // namespace emulator::ptx
