"""Numba kernels of one idea each, as people write them: tiles in shared memory, barriers, rows of
arrays (subjects.py).
"""

import math

import numpy as np
from numba import boolean, complex64, cuda, float32, float64, int32

COEFFICIENTS = np.array([0.25, 0.5, 0.25], dtype=np.float32)


# ---- one tile ------------------------------------------------------------------------------------


@cuda.jit
def reverse(x, out):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.blockIdx.x, t]
    cuda.syncthreads()
    out[cuda.blockIdx.x, t] = tile[63 - t]


@cuda.jit
def reverse_rows(x, out):
    """Reverse rows of any length. Threads beyond the end of a row return."""
    tile = cuda.shared.array(64, float64)
    t, n = cuda.threadIdx.x, x.shape[1]
    if t >= n:
        return
    tile[t] = x[cuda.blockIdx.x, t]
    cuda.syncthreads()
    out[cuda.blockIdx.x, t] = tile[n - 1 - t]


@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((8, 9), float32)
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        tile[cuda.threadIdx.x, cuda.threadIdx.y] = x[i, j]
    cuda.syncthreads()
    column = cuda.blockIdx.y * 8 + cuda.threadIdx.x
    row = cuda.blockIdx.x * 8 + cuda.threadIdx.y
    if column < out.shape[0] and row < out.shape[1]:
        out[column, row] = tile[cuda.threadIdx.y, cuda.threadIdx.x]


@cuda.jit
def stencil(x, out):
    """Compute out[i] = x[i - 1] + x[i] + x[i + 1], with zeros beyond the ends. A tile has one more
    element on each side.
    """
    tile = cuda.shared.array(66, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t + 1] = x[i] if i < x.size else 0.0
    if t == 0:
        tile[0] = x[i - 1] if i > 0 else 0.0
    if t == 63:
        tile[65] = x[i + 1] if i + 1 < x.size else 0.0
    cuda.syncthreads()
    if i < x.size:
        out[i] = tile[t] + tile[t + 1] + tile[t + 2]


@cuda.jit
def smooth(x, out):
    """Do the same with weights in constant memory."""
    weights = cuda.const.array_like(COEFFICIENTS)
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        total = float32(0)
        for k in range(3):
            total += weights[k] * x[i - 1 + k]
        out[i] = total


@cuda.jit
def life(x, out):
    """Make a step of the game of life in int8. Each cell of a tile reads its neighbours."""
    tile = cuda.shared.array((10, 10), boolean)
    i, j = cuda.grid(2)
    for a in range(cuda.threadIdx.x, 10, 8):
        for b in range(cuda.threadIdx.y, 10, 8):
            r, c = cuda.blockIdx.x * 8 + a - 1, cuda.blockIdx.y * 8 + b - 1
            tile[a, b] = 0 <= r < x.shape[0] and 0 <= c < x.shape[1] and x[r, c] != 0
    cuda.syncthreads()
    if i < x.shape[0] and j < x.shape[1]:
        count = 0
        for a in range(3):
            for b in range(3):
                count += tile[cuda.threadIdx.x + a, cuda.threadIdx.y + b]
        alive = tile[cuda.threadIdx.x + 1, cuda.threadIdx.y + 1]
        out[i, j] = count == 3 or (alive and count == 4)


# ---- reductions, scans, sorting ------------------------------------------------------------------


@cuda.jit
def block_sum(x, out):
    tile = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    step = 64
    while step > 0:
        cuda.syncthreads()
        if t < step:
            tile[t] += tile[t + step]
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = tile[0]


@cuda.jit
def softmax(x, out):
    """Compute softmax with one block for each row, and one tile for both the maximum and the
    sum.
    """
    tile = cuda.shared.array(64, float32)
    t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
    largest = -math.inf
    for j in range(t, n, 64):
        largest = max(largest, x[row, j])
    tile[t] = largest
    cuda.syncthreads()
    for k in range(64):
        largest = max(largest, tile[k])
    cuda.syncthreads()
    total = float32(0)
    for j in range(t, n, 64):
        total += math.exp(x[row, j] - largest)
    tile[t] = total
    cuda.syncthreads()
    total = float32(0)
    for k in range(64):
        total += tile[k]
    for j in range(t, n, 64):
        out[row, j] = math.exp(x[row, j] - largest) / total


@cuda.jit
def scan(x, out):
    """Compute inclusive sums by doubling distances, alternating between two halves of a tile."""
    tile = cuda.shared.array((2, 64), float64)
    t = cuda.threadIdx.x
    tile[0, t] = x[t]
    now, distance = 0, 1
    cuda.syncthreads()
    while distance < 64:
        value = tile[now, t]
        if t >= distance:
            value += tile[now, t - distance]
        tile[1 - now, t] = value
        now, distance = 1 - now, 2 * distance
        cuda.syncthreads()
    out[t] = tile[now, t]


@cuda.jit
def bitonic(x, out):
    tile = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    size = 2
    while size <= 64:
        step = size // 2
        while step > 0:
            cuda.syncthreads()
            other = t ^ step
            if other > t:
                a, b = tile[t], tile[other]
                if (a > b) == ((t & size) == 0):
                    tile[t], tile[other] = b, a
            step //= 2
        size *= 2
    cuda.syncthreads()
    out[t] = tile[t]


@cuda.jit
def settle(x, out):
    """Swap neighbours until all threads of the block agree that nothing changes."""
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    changed, odd = 2, 0
    while changed:
        swap = 0
        if t % 2 == odd and t < 63:
            swap = 1 if tile[t] > tile[t + 1] else 0
            if swap:
                tile[t], tile[t + 1] = tile[t + 1], tile[t]
        changed = 2 if cuda.syncthreads_or(swap) else changed - 1
        odd = 1 - odd
    out[t] = tile[t]


@cuda.jit
def counted(x, out):
    """Count the positive values of a row, and record whether all are positive and whether any
    is.
    """
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    positive = 1 if x[row, t] > 0 else 0
    count = cuda.syncthreads_count(positive)
    every = cuda.syncthreads_and(positive)
    some = cuda.syncthreads_or(positive)
    if t == 0:
        out[row, 0], out[row, 1], out[row, 2] = count, every != 0, some != 0


# ---- products ------------------------------------------------------------------------------------


@cuda.jit
def matmul(a, b, out):
    """Multiply matrices of any sizes in tiles of 8 x 8."""
    left = cuda.shared.array((8, 8), float32)
    right = cuda.shared.array((8, 8), float32)
    i, j = cuda.grid(2)
    ti, tj = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for first in range(0, a.shape[1], 8):
        left[ti, tj] = a[i, first + tj] if i < a.shape[0] and first + tj < a.shape[1] else 0
        right[ti, tj] = b[first + ti, j] if first + ti < b.shape[0] and j < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(8):
            total += left[ti, k] * right[k, tj]
        cuda.syncthreads()
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = total


@cuda.jit
def dynamic_matmul(a, b, out):
    """Do the same with tiles as wide as the block, in dynamic shared memory."""
    width = cuda.blockDim.x
    memory = cuda.shared.array(0, float32)
    left, right = memory[: width * width], memory[width * width : 2 * width * width]
    i, j = cuda.grid(2)
    ti, tj = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for first in range(0, a.shape[1], width):
        left[ti * width + tj] = a[i, first + tj] if i < a.shape[0] and first + tj < a.shape[1] else 0
        right[ti * width + tj] = b[first + ti, j] if first + ti < b.shape[0] and j < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(width):
            total += left[ti * width + k] * right[k * width + tj]
        cuda.syncthreads()
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = total


@cuda.jit
def two_types(x, out):
    """Use dynamic shared memory as float64, then as int32."""
    values = cuda.shared.array(0, float64)[:64]
    order = cuda.shared.array(0, int32)[128:192]
    t = cuda.threadIdx.x
    values[t] = x[t]
    order[t] = (t * 5) % 64
    cuda.syncthreads()
    out[t] = values[order[t]]


@cuda.jit
def fourier(x, out):
    """Compute the discrete Fourier transform of 64 complex numbers, in six steps."""
    tile = cuda.shared.array(64, complex64)
    t = cuda.threadIdx.x
    tile[cuda.brev(t) >> 26] = x[t]
    half = 1
    while half < 64:
        cuda.syncthreads()
        if t < 32:
            at = t % half + t // half * 2 * half
            angle = -math.pi * (t % half) / half
            turned = complex(math.cos(angle), math.sin(angle)) * tile[at + half]
            tile[at], tile[at + half] = tile[at] + turned, tile[at] - turned
        half *= 2
    cuda.syncthreads()
    out[t] = tile[t]
