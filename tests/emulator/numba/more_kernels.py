"""More kernels as those of kernels.py: warps, atomics, local arrays, global memory (subjects.py)."""

import math

import numpy as np
from numba import cuda, float32, float64, int32, uint32, uint64

# --- warps -------------------------------------------------------------------------------------------------------------


@cuda.jit
def warp_sum(x, out):
    """Sums by shuffles, then of the warps' sums."""
    parts = cuda.shared.array(4, float64)
    t = cuda.threadIdx.x
    value = x[cuda.grid(1)]
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if cuda.laneid == 0:
        parts[t // 32] = value
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3]


@cuda.jit
def butterfly(x, out):
    """Each lane gets the largest value of its warp, and its neighbour's value."""
    i = cuda.grid(1)
    value = x[i]
    for k in range(5):
        value = max(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << k))
    out[0, i] = value
    out[1, i] = cuda.shfl_sync(0xFFFFFFFF, x[i], (cuda.laneid + 1) % 32)


@cuda.jit
def warp_scan(x, out):
    i, lane = cuda.grid(1), cuda.laneid
    value = x[i]
    for k in range(5):
        before = cuda.shfl_up_sync(0xFFFFFFFF, value, 1 << k)
        if lane >= 1 << k:
            value += before
    out[i] = value


@cuda.jit
def compact(x, count, out):
    """The positive values, in any order: a warp takes its places at once."""
    i = cuda.grid(1)
    keep = i < x.size and x[i] > 0
    ballot = cuda.ballot_sync(0xFFFFFFFF, keep)
    first = 0
    if cuda.laneid == 0:
        first = cuda.atomic.add(count, 0, cuda.popc(ballot))
    first = cuda.shfl_sync(0xFFFFFFFF, first, 0)
    if keep:
        out[first + cuda.popc(ballot & cuda.lanemask_lt())] = x[i]


@cuda.jit
def votes(x, out):
    t = cuda.threadIdx.x
    out[0, t] = cuda.all_sync(0xFFFFFFFF, x[t] > 0)
    out[1, t] = cuda.any_sync(0xFFFFFFFF, x[t] > 0)
    out[2, t] = cuda.eq_sync(0xFFFFFFFF, x[t] > 0)
    mask = 0x0000FFFF if t % 32 < 16 else 0xFFFF0000
    out[3, t] = cuda.all_sync(mask, x[t] > 0)


@cuda.jit
def alike(x, out):
    """How many lanes of the warp have this lane's value; whether all have."""
    t = cuda.threadIdx.x
    out[0, t] = cuda.popc(cuda.match_any_sync(0xFFFFFFFF, x[t]))
    _, same = cuda.match_all_sync(0xFFFFFFFF, x[t] & 1)
    out[1, t] = same


@cuda.jit
def warp_tile(x, out):
    """Each warp turns around its own part of a tile."""
    tile = cuda.shared.array((4, 32), float32)
    t = cuda.threadIdx.x
    warp, lane = t // 32, t % 32
    tile[warp, lane] = x[t]
    cuda.syncwarp()
    out[t] = tile[warp, 31 - lane]


@cuda.jit
def half_warps(x, out):
    """The same for halves of warps, which wait for themselves only."""
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    if t % 32 < 16:
        cuda.syncwarp(0x0000FFFF)
    else:
        cuda.syncwarp(0xFFFF0000)
    out[t] = tile[t ^ 15]


@cuda.jit
def bits(x, out):
    i = cuda.grid(1)
    out[0, i] = cuda.popc(x[i])
    out[1, i] = cuda.clz(x[i])
    out[2, i] = cuda.ffs(x[i])
    out[3, i] = cuda.brev(x[i])


# --- atomics -----------------------------------------------------------------------------------------------------------


@cuda.jit
def histogram(x, out):
    tile = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        tile[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(tile, x[i], 1)
    cuda.syncthreads()
    if t < 32:
        cuda.atomic.add(out, t, tile[t])


@cuda.jit
def extremes(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, 0, x[i])
        cuda.atomic.min(out, 1, x[i])


@cuda.jit
def column_sums(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        cuda.atomic.add(out, j, x[i, j])


@cuda.jit
def flags(x, out):
    i = cuda.grid(1)
    bit = uint32(1) << uint32(x[i] % 32)
    cuda.atomic.or_(out, 0, bit)
    cuda.atomic.and_(out, 1, ~bit)
    cuda.atomic.xor(out, 2, bit)


@cuda.jit
def product(x, out):
    """The product of all values, by compare and swap."""
    i = cuda.grid(1)
    old = cuda.atomic.add(out, 0, 0)
    seen = old - 1
    while seen != old:
        seen = old
        old = cuda.atomic.cas(out, 0, seen, seen * x[i] % 1000003)


@cuda.jit
def tickets(x, count, out):
    """A ring of numbers: inc and dec wrap around."""
    i = cuda.grid(1)
    turn = cuda.atomic.inc(count, 0, 127)
    out[turn] = x[i] - x[i] + turn
    cuda.atomic.dec(count, 1, 127)


@cuda.jit
def last_block_sums(x, parts, count, out):
    """The block that comes last adds what all blocks found."""
    block, t = cuda.blockIdx.x, cuda.threadIdx.x
    is_last = cuda.shared.array(1, int32)
    cuda.atomic.add(parts, block, x[cuda.grid(1)])
    cuda.syncthreads()
    if t == 0:
        is_last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if is_last[0] and t == 0:
        total = 0.0
        for k in range(cuda.gridDim.x):
            total += cuda.atomic.add(parts, k, 0.0)
        out[0] = total


@cuda.jit
def handed_over(x, flag, out):
    """Block 1 waits until block 0 has said what it found."""
    if cuda.threadIdx.x > 0:
        return
    if cuda.blockIdx.x == 0:
        cuda.atomic.exch(flag, 0, x[0] + 1)
    else:
        found = uint64(0)
        while found == 0:
            found = cuda.atomic.add(flag, 0, 0)
        out[0] = found


# --- local arrays, functions, types ----------------------------------------------------------------------------------


@cuda.jit
def medians(x, out):
    """Of five neighbours, sorted in a local array."""
    i = cuda.grid(1)
    if i < 2 or i >= x.size - 2:
        return
    window = cuda.local.array(5, float32)
    for k in range(5):
        window[k] = x[i - 2 + k]
    for a in range(1, 5):
        value, b = window[a], a
        while b > 0 and window[b - 1] > value:
            window[b] = window[b - 1]
            b -= 1
        window[b] = value
    out[i] = window[2]


@cuda.jit
def modes(x, out):
    """The most frequent of five neighbours, of numbers below 9."""
    i = cuda.grid(1)
    if i >= out.size:
        return
    counts = cuda.local.array(9, int32)
    for k in range(9):
        counts[k] = 0
    for k in range(5):
        counts[x[i + k]] += 1
    best = 0
    for k in range(9):
        if counts[k] > counts[best]:
            best = k
    out[i] = best


@cuda.jit(device=True)
def stored(tile, at, value):
    tile[at] = value
    cuda.syncthreads()


@cuda.jit(device=True)
def smallest_and_largest(tile, n):
    low, high = tile[0], tile[0]
    for k in range(1, n):
        low, high = min(low, tile[k]), max(high, tile[k])
    return low, high


@cuda.jit
def scaled(x, shape, out):
    """Rows between 0 and 1. shape: (rows, columns)."""
    tile = cuda.shared.array(64, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    rows, columns = shape
    stored(tile, t, x[row, t] if row < rows and t < columns else x[row, 0])
    low, high = smallest_and_largest(tile, 64)
    if t < columns:
        out[row, t] = (x[row, t] - low) / (high - low)


@cuda.jit
def half_dot(x, y, out):
    """float16 in, float16 products, float32 sums."""
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    tile[t] = float32(x[t] * y[t])
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(32):
            total += tile[k]
        out[0] = total


@cuda.jit
def collatz(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    n, steps = x[i], 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    out[i] = steps


@cuda.jit
def whole_words(x, out):
    """Bytes, four at a time."""
    i = cuda.grid(1)
    words = x[4:].view(np.int32)
    if i < words.size:
        out[i] = words[i]


# --- global memory -----------------------------------------------------------------------------------------------------


@cuda.jit
def axpy(a, x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = a * x[i] + math.sqrt(x[i])


@cuda.jit
def box(x, out):
    i, j, k = cuda.grid(3)
    if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
        out[k, j, i] = 2 * x[i, j, k]


@cuda.jit
def shift(x):
    """In place: each value goes to its left neighbour."""
    t = cuda.threadIdx.x
    value = x[t + 1]
    cuda.syncthreads()
    x[t] = value


@cuda.jit
def rows_of_blocks(x, out):
    """A block of 48 threads copies 48 rows, the last block fewer."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.shape[0]:
        for j in range(x.shape[1]):
            out[i, j] = float64(x[i, j])


@cuda.jit
def two_halves(x, out):
    """Half of the block loads the next tile while the other half uses the last one."""
    tile = cuda.shared.array((2, 32), float32)
    t, lane = cuda.threadIdx.x, cuda.threadIdx.x % 32
    for k in range(5):
        if t < 32:
            if k < 4:
                tile[k % 2, lane] = x[k, lane]
        elif k > 0:
            out[k - 1, lane] = tile[(k - 1) % 2, 31 - lane]
        cuda.syncthreads()
