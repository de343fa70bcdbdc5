"""The tiles of kernels: the largest that fit in the shared memory of the device.

To change a tile, edit TILES. More queries or keys in a tile mean more products for each element
loaded. O (M, D), or dK and dV (N, D), are spread over the registers of 128 threads with 255
registers each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from .device import EMULATED


class Tile(NamedTuple):
    """M queries by N keys, for head dims up to D.

    M is a multiple of 8, N of 16, D of 64; M, N <= 64.
    """

    M: int
    N: int
    D: int


# Sorted by D. For each D the preferred tile comes first, and a small one, for devices with little
# shared memory, comes last.
TILES = {
    "fa1_forward": (
        *(Tile(64, 64, 64), Tile(16, 16, 64)),
        *(Tile(64, 64, 128), Tile(16, 16, 128)),
        *(Tile(32, 64, 256), Tile(16, 16, 256)),
    ),
    "fa2_forward": (
        *(Tile(64, 64, 64), Tile(16, 16, 64)),
        *(Tile(64, 32, 128), Tile(16, 16, 128)),
        *(Tile(32, 32, 256), Tile(16, 16, 256)),
    ),
    "backward": (
        *(Tile(64, 64, 64), Tile(16, 16, 64)),
        *(Tile(48, 32, 128), Tile(16, 16, 128)),
        *(Tile(32, 16, 256), Tile(16, 16, 256)),
    ),
    "bias_gradient": (
        *(Tile(64, 64, 64), Tile(16, 16, 64)),
        *(Tile(64, 64, 128), Tile(16, 16, 128)),
        *(Tile(32, 32, 256), Tile(16, 16, 256)),
    ),
}

# In the emulator compiling takes most of the time, so one tile serves every head dim, and it is
# small because register tiles are unrolled. If registers allow, it is not square, so that confusing
# the two sizes shows.
EMULATED_TILES = {
    "fa1_forward": (Tile(16, 32, 256),),
    "fa2_forward": (Tile(16, 32, 256),),
    "backward": (Tile(16, 16, 256),),
    "bias_gradient": (Tile(16, 32, 256),),
}


def choose(kernel: str, bytes_of: Callable[[int, int, int], int], headdim: int, device: torch.device) -> Tile:
    """Return the tile of a kernel on a device. bytes_of(M, N, D): its shared memory.

    Raises RuntimeError if none fits.
    """
    candidates = [tile for tile in (EMULATED_TILES if EMULATED else TILES)[kernel] if headdim <= tile.D]
    candidates = [tile for tile in candidates if tile.D == candidates[0].D]
    limit = shared_memory_limit(device)
    for tile in candidates:
        if bytes_of(*tile) <= limit:
            return tile
    raise RuntimeError(
        f"{kernel}: headdim={headdim} needs {bytes_of(*candidates[-1])} bytes of shared memory with tiles of "
        f"{candidates[-1].M} queries and {candidates[-1].N} keys, {device} has {limit}"
    )


@functools.cache
def shared_memory_limit(device: torch.device) -> int:
    """Return the bytes of shared memory that a block on this device may ask for."""
    if EMULATED:
        return 163 * 1024  # sm_80's limit
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin
