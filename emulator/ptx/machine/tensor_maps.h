// Tensor maps: the bytes that describe a tensor to bulk copies, as parameters or made by a kernel.
#pragma once

#include "../../runtime/tensor_maps.h"
#include "machine.h"

namespace emulator::ptx {

// A tensor map, as the encoder of the CUDA driver lays it out for tiles.
struct TensorMap {
    uint64_t base;
    unsigned rank, element, swizzle;  // element: bytes
    uint64_t extent[5], stride[5];    // strides in bytes, innermost first
    unsigned box[5];
};

constexpr unsigned MAP_ALIGNMENT = 64;

// Reads the bytes of a map for an instruction of that rank. Returns what is wrong with it, or null.
const char* decode(const unsigned char* bytes, unsigned rank, TensorMap& map);

}  // namespace emulator::ptx
