"""A tiled matrix product for all sizes: the simplest kernel with these device functions.

    C = A B     one block for each tile of C loops over the tiles of A's columns and B's rows

Read this first if tiles in shared memory are new to you, then fa2.py, where K^T, the softmax and V
take the place of B.
"""

import functools
from typing import NamedTuple

import torch
from numba import cuda, float32

from flash_attest.impls.contract.arguments import check_one_device, check_tensor, unit_stride

from .device import EMULATED
from .launch import launch
from .memory import matrix
from .problem import DTYPES, by_four, check_device
from .tiles import GROUPS, LANES, PAD, THREADS, ZERO, add_product, fill, load_tile, store_rows

ROWS = 16 if EMULATED else 64  # rows of a tile of C; small tiles compile faster
SIDE = 64  # columns of a tile of A, B and C


class Sizes(NamedTuple):
    """A (m, k), B (k, n), C (m, n), and their row strides. wide: whether wide loads are allowed."""

    m: int
    n: int
    k: int
    a_row: int
    b_row: int
    c_row: int
    wide: int


@functools.cache
def make_matmul(M: int, K: int, N: int):
    """Return the kernel with tiles A (M, K), B (K, N), C (M, N)."""
    TM, TN = M // GROUPS, N // LANES

    @cuda.jit(launch_bounds=THREADS)
    def matmul_kernel(a, b, c, s):
        """a, b, c: all elements, flat. s: Sizes."""
        shared = cuda.shared.array(0, float32, alignment=16)
        A = matrix(shared, 0, M, K + PAD)
        B = matrix(shared, M * (K + PAD), K, N + PAD)
        C = cuda.local.array((TM, TN), float32)
        fill(C, ZERO)

        tiles = (s.n + N - 1) // N  # in a row of C
        i0, j0 = cuda.blockIdx.x // tiles * M, cuda.blockIdx.x % tiles * N
        for k0 in range(0, s.k, K):
            left = s.k - k0
            load_tile(A, matrix(a, k0, s.m, s.a_row), i0, s.m, left, s.wide)
            load_tile(B, matrix(b, j0, s.k, s.b_row), k0, s.k, s.n - j0, s.wide)
            cuda.syncthreads()  # A and B are loaded by all threads: complete them before the product
            add_product(C, A, B, min(K, left), N)
            cuda.syncthreads()  # A and B are still being read: do not load the next ones yet
        store_rows(matrix(c, j0, s.m, s.c_row), i0, s.m, s.n - j0, C, s.wide)

    return matmul_kernel


def matmul_bytes(M: int, K: int, N: int) -> int:
    """Return the bytes of shared memory for A (M, K), B (K, N)."""
    return 4 * (M * (K + PAD) + K * (N + PAD))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a (m, k), b (k, n) -> a b (m, n), in their dtype, summed in float32. There is no gradient.

    All sizes and strides are allowed. Raises ValueError, with the values, for arguments that are
    not supported.
    """
    for name, x in (("a", a), ("b", b)):
        check_tensor(name, x)
        if x.dim() != 2:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: should have two dimensions")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires a gradient: should not, as this product has none")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a is {tuple(a.shape)}, b is {tuple(b.shape)}: a should have as many columns as b has rows")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        raise ValueError(f"a is {a.dtype}, b {b.dtype}: should be one of {', '.join(map(str, DTYPES))}, the same")
    check_one_device(a=a, b=b)
    check_device(a, "a")
    a, b = unit_stride(a), unit_stride(b)
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    sizes = Sizes(m, n, k, a.stride(0), b.stride(0), c.stride(0), int(all(map(by_four, (a, b, c)))))
    blocks = -(-m // ROWS) * -(-n // SIDE)
    launch(make_matmul(ROWS, SIDE, SIDE), blocks, matmul_bytes(ROWS, SIDE, SIDE), a, b, c, sizes)
    return c
