// The operations that lanes of a warp do together, as numbers: for the shim and for the runtime.
#pragma once

namespace cuda_trace {
enum WarpOp : int {
    SYNCWARP, SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR, ALL, ANY, BALLOT, MATCH_ANY, MATCH_ALL,
    REDUCE_ADD, REDUCE_MIN_S, REDUCE_MAX_S, REDUCE_MIN_U, REDUCE_MAX_U, REDUCE_AND, REDUCE_OR, REDUCE_XOR,
};
}
