// The rounding mode of the processor, for one handler.
#pragma once

#include "number.h"

#include <cfenv>

namespace emulator::ptx {

// Fesetround is a call that g++ does not know, so it moves no load or store past it.
template <int Mode, Handler Nearest>
Flow rounded(Warp& warp, const Instruction& at, uint32_t mask) {
    std::fesetround(Mode);
    const Flow flow = Nearest(warp, at, mask);
    std::fesetround(FE_TONEAREST);
    return flow;
}

}  // namespace emulator::ptx
