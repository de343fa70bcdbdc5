"""Tiles: loading them into shared memory, and the two products of register tiles in all kernels.

    add_rows_dot_rows(S, A, B, d)     S += A B^T      S = Q K^T, dP = dO V^T, or transposed
    add_product(O, P, V, n, d)        O += P V        O = P V, dQ = dS K, dK = dS^T Q, dV = P^T dO

A block has THREADS = 8 groups of 16 lanes; a group lies within a warp. A thread holds its part of a
tile in a register tile: a cuda.local.array whose indices are all known when the kernel is compiled,
so it becomes registers.

    S (TM, TN)    S[r, c] is row(r), column(c)         of a tile (8 TM, 16 TN) of scores
    O (TM, TD)    O[r, n] is row(r), head_column(n)    of a tile (8 TM, 16 TD) of out or a gradient

The 16 lanes of a group share its rows, so they exchange values of a row by shuffles, or through
memory and cuda.syncwarp().

A shared tile (rows, D + PAD) is float32 in shared memory, made by `matrix`. Thanks to the padding,
8 lanes that read four elements each at the same columns of 8 rows have no bank conflict. Rows
beyond the sequence and columns beyond the head dim are 0. A global matrix (seqlen, stride) is one
(batch, head) of a tensor, also made by `matrix`.
"""

import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice

from .elements import from_float, to_float
from .memory import load4, store4

THREADS, LANES = 128, 16
GROUPS = THREADS // LANES
PAD = 4
MOST_TM = 8  # for any tile: at most 64 rows
WARP = 0xFFFFFFFF
ZERO, ONE, INF = np.float32(0), np.float32(1), np.float32("inf")  # a Python number would turn float32 into float64

# Inline these functions, so that register tiles become registers and their loops are unrolled.
device_function = cuda.jit(device=True, forceinline=True)


# ---- which elements a thread holds --------------------------------------------------------------
# Indices use bit operations, not // and %: the compiler then knows that they are not negative, and
# adds no code for Python's x[-1].


@device_function
def lane():
    """Return this thread's position in its group, 0 .. 15."""
    return cuda.threadIdx.x & (LANES - 1)


@device_function
def group():
    """Return this thread's group, 0 .. 7."""
    return (cuda.threadIdx.x // LANES) & (GROUPS - 1)


@device_function
def row(r):
    """Return the row of the tile that S[r] and O[r] hold."""
    return group() + GROUPS * r


@device_function
def column(c):
    """Return the column of the tile that S[:, c] holds."""
    return lane() + LANES * c


@device_function
def head_column(n):
    """Return the column of the tile that O[:, n] holds: four adjacent columns in every 64."""
    return n // 4 * (4 * LANES) + 4 * lane() + n % 4


@device_function
def fill(S, value):
    """Set S (TM, TN) to value."""
    for r in range(S.shape[0]):
        for c in range(S.shape[1]):
            S[r, c] = value


# ---- products -----------------------------------------------------------------------------------


@device_function
def add_rows_dot_rows(S, A, B, headdim):
    """S (TM, TN) += A B^T, with shared tiles A (8 TM, D), B (16 TN, D), over headdim columns.

    headdim is rounded up to a multiple of 4, where the tiles are 0.
    """
    for d in range(0, headdim, 4):
        for r in range(S.shape[0]):
            a = load4(A, row(r), d)
            for c in range(S.shape[1]):
                b = load4(B, column(c), d)
                S[r, c] += a[0] * b[0]
                S[r, c] += a[1] * b[1]
                S[r, c] += a[2] * b[2]
                S[r, c] += a[3] * b[3]


@device_function
def add_product(O, P, V, length, headdim):
    """O (TM, TD) += P V, with shared tiles P (8 TM, N), V (N, 16 TD), over `length` rows of V.

    length is rounded up to a multiple of 4, where the tiles are 0. Blocks of 64 columns beyond
    headdim are skipped. The blocks are separate statements, because the compiler would not unroll
    such a long loop, and O would stay in memory.
    """
    for j in range(0, length, 4):
        add_product_of_four(O, 0, P, V, j)
        if O.shape[1] > 4 and headdim > 64:
            add_product_of_four(O, 4, P, V, j)
        if O.shape[1] > 8 and headdim > 128:
            add_product_of_four(O, 8, P, V, j)
        if O.shape[1] > 12 and headdim > 192:
            add_product_of_four(O, 12, P, V, j)


@device_function
def add_product_of_four(O, n, P, V, j):
    """O[:, n .. n + 3] += P[:, j .. j + 3] V[j .. j + 3]."""
    for r in range(O.shape[0]):
        p = load4(P, row(r), j)
        for e in range(4):
            v = load4(V, j + e, head_column(n))
            O[r, n] += p[e] * v[0]
            O[r, n + 1] += p[e] * v[1]
            O[r, n + 2] += p[e] * v[2]
            O[r, n + 3] += p[e] * v[3]


# ---- memory -------------------------------------------------------------------------------------


@device_function
def offset(strides, b, h):
    """Return the start of the matrix of batch b and head h: matrix(x, offset(...), rows, row)."""
    return b * strides.batch + h * strides.head


@device_function
def load_tile(tile, x, first_row, rows, headdim, wide):
    """Load rows first_row .. of a global matrix x into a shared tile (at most 64, D).

    All threads must call it. rows: the number of rows of x. Later rows, and columns from headdim
    on, become 0. Nothing is read out of bounds, because that memory may be NaN or unmapped. wide: x
    may be read four elements at a time.
    """
    # One loop for each kind of load, without a condition inside: otherwise NVVM 13 sometimes makes
    # a branch to a block that it removed, and fails with "Symbol name with unsupported characters".
    if wide:
        for piece in range((tile.shape[1] - PAD) // 64):
            load_four_columns(tile, x, first_row, rows, headdim, head_column(4 * piece))
    else:
        for piece in range((tile.shape[1] - PAD) // 64):
            for r in range(tile.shape[0] // GROUPS):
                for c in range(4):
                    i, d = first_row + row(r), piece * 64 + column(c)
                    tile[row(r), d] = to_float(x[i, d]) if i < rows and d < headdim else ZERO


@device_function
def load_four_columns(tile, x, first_row, rows, headdim, d):
    """tile[row(r), d .. d + 3] = x[first_row + row(r), d .. d + 3]; 0 out of bounds."""
    loaded = cuda.local.array((MOST_TM, 4), float32)  # all loads are issued before the first result is needed
    for r in range(tile.shape[0] // GROUPS):
        i = first_row + row(r)
        for e in range(4):
            loaded[r, e] = ZERO
        if i < rows and d < headdim:
            four = load4(x, i, d)
            loaded[r, 0], loaded[r, 1] = to_float(four[0]), to_float(four[1])
            loaded[r, 2], loaded[r, 3] = to_float(four[2]), to_float(four[3])
    for r in range(tile.shape[0] // GROUPS):
        store4(tile, row(r), d, (loaded[r, 0], loaded[r, 1], loaded[r, 2], loaded[r, 3]))


@device_function
def store_rows(x, first_row, rows, headdim, O, wide):
    """Store O (TM, TD) to rows first_row .. of a global matrix x below `rows`, in its dtype.

    It is not a loop, for the reason given in add_product.
    """
    store_four_columns(x, first_row, rows, headdim, O, 0, wide)
    if O.shape[1] > 4:
        store_four_columns(x, first_row, rows, headdim, O, 4, wide)
    if O.shape[1] > 8:
        store_four_columns(x, first_row, rows, headdim, O, 8, wide)
    if O.shape[1] > 12:
        store_four_columns(x, first_row, rows, headdim, O, 12, wide)


@device_function
def store_four_columns(x, first_row, rows, headdim, O, n, wide):
    """x[first_row + row(r), head_column(n)] and the next three = O[r, n .. n + 3], if in bounds."""
    d = head_column(n)
    for r in range(O.shape[0]):
        i = first_row + row(r)
        if i < rows:
            if wide:
                if d < headdim:
                    store4(x, i, d, (
                        from_float(O[r, n], x), from_float(O[r, n + 1], x),
                        from_float(O[r, n + 2], x), from_float(O[r, n + 3], x),
                    ))  # fmt: skip
            else:
                for e in range(4):
                    if d + e < headdim:
                        x[i, d + e] = from_float(O[r, n + e], x)


@device_function
def fetch_rows(O, x, first_row, rows, headdim, wide):
    """Load the elements that store_rows writes from a float32 global matrix x into O (TM, TD)."""
    fetch_four_columns(O, 0, x, first_row, rows, headdim, wide)
    if O.shape[1] > 4:
        fetch_four_columns(O, 4, x, first_row, rows, headdim, wide)
    if O.shape[1] > 8:
        fetch_four_columns(O, 8, x, first_row, rows, headdim, wide)
    if O.shape[1] > 12:
        fetch_four_columns(O, 12, x, first_row, rows, headdim, wide)


@device_function
def fetch_four_columns(O, n, x, first_row, rows, headdim, wide):
    """O[r, n .. n + 3] = x[first_row + row(r), head_column(n)] and the next three, or 0."""
    d = head_column(n)
    for r in range(O.shape[0]):
        i = first_row + row(r)
        for e in range(4):
            O[r, n + e] = ZERO
        if i < rows:
            if wide:
                if d < headdim:
                    O[r, n], O[r, n + 1], O[r, n + 2], O[r, n + 3] = load4(x, i, d)
            else:
                for e in range(4):
                    if d + e < headdim:
                        O[r, n + e] = x[i, d + e]


@device_function
def share(tile, S):
    """Store S to a shared tile (8 TM, 16 TN), for add_product.

    Only the lanes of a group read its rows, so cuda.syncwarp() is enough before they read.
    """
    for r in range(S.shape[0]):
        for c in range(S.shape[1]):
            tile[row(r), column(c)] = S[r, c]


# ---- rows ---------------------------------------------------------------------------------------


@device_function
def maximum_of_lanes(x):
    """Return the maximum of x over the 16 lanes of a group, in each of them.

    The whole warp must call it.
    """
    for other in (8, 4, 2, 1):
        x = libdevice.fmaxf(x, cuda.shfl_xor_sync(WARP, x, other))
    return x


@device_function
def sum_of_lanes(x):
    """Return the sum of x over the 16 lanes of a group, with the same bits in each of them.

    The whole warp must call it.
    """
    for other in (8, 4, 2, 1):
        x += cuda.shfl_xor_sync(WARP, x, other)
    return x
