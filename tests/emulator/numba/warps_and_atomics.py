"""More kernels like those of kernels.py, whose threads exchange values within a warp or by atomics
(subjects.py).
"""

from numba import cuda, float32, float64, int32, uint32, uint64

# ---- warps ---------------------------------------------------------------------------------------


@cuda.jit
def warp_sum(x, out):
    """Sum by shuffles, then sum the warps' sums."""
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
    """Give each lane the largest value of its warp, and its neighbour's value."""
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
    """Collect the positive values in any order. Each warp reserves all of its positions at once."""
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
    """Count the lanes of the warp that have this lane's value, and record whether all lanes have
    it.
    """
    t = cuda.threadIdx.x
    out[0, t] = cuda.popc(cuda.match_any_sync(0xFFFFFFFF, x[t]))
    _, same = cuda.match_all_sync(0xFFFFFFFF, x[t] & 1)
    out[1, t] = same


@cuda.jit
def warp_tile(x, out):
    """Reverse, in each warp, the warp's part of a tile."""
    tile = cuda.shared.array((4, 32), float32)
    t = cuda.threadIdx.x
    warp, lane = t // 32, t % 32
    tile[warp, lane] = x[t]
    cuda.syncwarp()
    out[t] = tile[warp, 31 - lane]


@cuda.jit
def half_warps(x, out):
    """Do the same for halves of warps, each of which waits only for itself."""
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


# ---- atomics -------------------------------------------------------------------------------------


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
    """Multiply all values, by compare and swap."""
    i = cuda.grid(1)
    old = cuda.atomic.add(out, 0, 0)
    seen = old - 1
    while seen != old:
        seen = old
        old = cuda.atomic.cas(out, 0, seen, seen * x[i] % 1000003)


@cuda.jit
def tickets(x, count, out):
    """Count in a ring of numbers, in which inc and dec wrap around."""
    i = cuda.grid(1)
    turn = cuda.atomic.inc(count, 0, 127)
    out[turn] = x[i] - x[i] + turn
    cuda.atomic.dec(count, 1, 127)


@cuda.jit
def last_block_sums(x, parts, count, out):
    """Let the last block add the results of all blocks."""
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
    """Let block 1 wait until block 0 has published its result."""
    if cuda.threadIdx.x > 0:
        return
    if cuda.blockIdx.x == 0:
        cuda.atomic.exch(flag, 0, x[0] + 1)
    else:
        value = uint64(0)
        while value == 0:
            value = cuda.atomic.add(flag, 0, 0)
        out[0] = value
