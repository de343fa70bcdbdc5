"""More kernels like those of kernels.py: local arrays, functions, types, global memory
(subjects.py).
"""

import math

import numpy as np
from numba import cuda, float32, float64, int32

# ---- local arrays, functions, types --------------------------------------------------------------


@cuda.jit
def medians(x, out):
    """Compute medians of five neighbours, sorted in a local array."""
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
    """Find the most frequent of five neighbouring numbers, which are below 9."""
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
    """Scale rows to the range 0 to 1. shape: (rows, columns)."""
    tile = cuda.shared.array(64, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    rows, columns = shape
    stored(tile, t, x[row, t] if row < rows and t < columns else x[row, 0])
    low, high = smallest_and_largest(tile, 64)
    if t < columns:
        out[row, t] = (x[row, t] - low) / (high - low)


@cuda.jit
def half_dot(x, y, out):
    """Read float16, multiply in float16, and sum in float32."""
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
    """Copy bytes, four at a time."""
    i = cuda.grid(1)
    words = x[4:].view(np.int32)
    if i < words.size:
        out[i] = words[i]


# ---- global memory -------------------------------------------------------------------------------


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
    """Move each value to its left neighbour, in place."""
    t = cuda.threadIdx.x
    value = x[t + 1]
    cuda.syncthreads()
    x[t] = value


@cuda.jit
def rows_of_blocks(x, out):
    """Copy 48 rows with a block of 48 threads; the last block copies fewer."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.shape[0]:
        for j in range(x.shape[1]):
            out[i, j] = float64(x[i, j])


@cuda.jit
def two_halves(x, out):
    """Load the next tile with one half of the block while the other half uses the previous tile."""
    tile = cuda.shared.array((2, 32), float32)
    t, lane = cuda.threadIdx.x, cuda.threadIdx.x % 32
    for k in range(5):
        if t < 32:
            if k < 4:
                tile[k % 2, lane] = x[k, lane]
        elif k > 0:
            out[k - 1, lane] = tile[(k - 1) % 2, 31 - lane]
        cuda.syncthreads()
