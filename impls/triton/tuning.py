"""The tile sizes, warps and stages that a kernel may run with, and the choice among them.

Each kernel has a short list of candidates for each head dim and operand size; the first is the
default. Small problems use the default. From TUNE_FROM operations on, Triton's autotuner tries all
candidates on the first call with a problem of this kind. It stores the choice on disk with the
compiled kernels (TRITON_CACHE_DIR). Nothing can be measured while a CUDA graph is captured, so the
default is used. impls/triton/every_tile.py lets the laws judge every candidate, not only the chosen
one.

To change a tile, edit CANDIDATES (the first of a list is the default) and judge the change on a GPU
with `pytest --impl-from=impls/triton/every_tile.py`. For the emulator, edit emulated_tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton

from flash_attest.emulator import devices

from .device import EMULATED, lacking

if reason := lacking():
    raise ImportError(reason)

# The number of operations (2 per multiply and add) from which tuning pays off. Below it a launch
# takes about 0.1 ms, and compiling all candidates takes longer than a program is likely to gain.
TUNE_FROM = 2**36


class Tile(NamedTuple):
    """BLOCK_M queries by BLOCK_N keys, on num_warps warps, with num_stages tiles in flight."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int

    def __str__(self) -> str:
        return f"m{self.BLOCK_M}_n{self.BLOCK_N}_w{self.num_warps}_s{self.num_stages}"


def emulated_tile(kernel: str, bytes_: int, tf32: bool = False) -> Tile:
    """Return the tile of a kernel in the emulator, for operands of this size and every head dim.

    In the emulator, compiling takes most of the time, and cases are small. Small tiles compile
    faster, and a case then has several of them. They are not square, so that confusing the two
    sizes shows. Loops are pipelined. In the forward each warp has its own rows; in the backward
    warps share rows. float32 has more warps, because its products are unrolled.

    On an emulated sm_90, products on the matrix units have 64 rows and four warps, so that they are
    wgmma; those for dk and dv have a row for each key.
    """
    if devices.target() >= 90 and (bytes_ == 2 or tf32):
        return Tile(32, 64, 4, 2) if kernel in ("dk_dv", "dk_dv_dq") else Tile(64, 32, 4, 2)
    if bytes_ == 4:
        return Tile(32, 16, 8, 2)
    return Tile(64, 32, 4, 2) if kernel == "forward" else Tile(32, 16, 4, 2)


# {kernel: {bytes of an operand: {BLOCK_D: candidates}}}
CANDIDATES: dict[str, dict[int, dict[int, list[Tile]]]] = {
    "forward": {
        2: {
            32: [Tile(64, 64, 4, 3), Tile(128, 64, 4, 3)],
            64: [Tile(64, 64, 4, 3), Tile(128, 64, 4, 3)],
            128: [Tile(128, 64, 8, 3), Tile(128, 128, 8, 2), Tile(64, 64, 4, 2)],
            256: [Tile(128, 64, 8, 2), Tile(64, 32, 4, 2)],
        },
        4: {32: [Tile(64, 32, 4, 2)], 64: [Tile(64, 32, 4, 2)], 128: [Tile(32, 32, 8, 2)], 256: [Tile(32, 32, 8, 1)]},
    },
    "dq": {
        2: {
            32: [Tile(64, 64, 4, 3), Tile(128, 64, 4, 2)],
            64: [Tile(64, 64, 4, 3), Tile(128, 64, 4, 2), Tile(64, 128, 4, 2)],
            128: [Tile(128, 64, 8, 3), Tile(128, 32, 8, 3), Tile(64, 64, 4, 2)],
            256: [Tile(64, 64, 8, 1), Tile(64, 32, 8, 1)],
        },
        4: {32: [Tile(32, 32, 4, 1)], 64: [Tile(32, 32, 4, 1)], 128: [Tile(32, 32, 8, 1)], 256: [Tile(16, 32, 8, 1)]},
    },
    "dk_dv": {
        2: {
            32: [Tile(128, 64, 4, 2), Tile(64, 64, 4, 2)],
            64: [Tile(128, 64, 4, 2), Tile(32, 128, 4, 3), Tile(64, 64, 4, 2)],
            128: [Tile(64, 128, 8, 2), Tile(32, 128, 8, 3), Tile(32, 64, 4, 3)],
            256: [Tile(32, 64, 8, 1), Tile(32, 32, 4, 1)],
        },
        4: {32: [Tile(32, 32, 4, 1)], 64: [Tile(32, 32, 4, 1)], 128: [Tile(32, 32, 8, 1)], 256: [Tile(32, 16, 8, 1)]},
    },
    "dk_dv_dq": {
        2: {
            32: [Tile(64, 128, 8, 2), Tile(64, 64, 4, 2)],
            64: [Tile(64, 128, 8, 3), Tile(32, 128, 4, 3), Tile(64, 64, 4, 2)],
            128: [Tile(32, 128, 8, 3), Tile(64, 128, 8, 2), Tile(32, 64, 4, 2)],
            256: [Tile(32, 64, 8, 1), Tile(32, 32, 4, 1)],
        },
        4: {32: [Tile(32, 32, 4, 1)], 64: [Tile(32, 32, 4, 1)], 128: [Tile(32, 32, 8, 1)], 256: [Tile(32, 16, 8, 1)]},
    },
    "delta": {bytes_: {d: [Tile(64, 16, 4, 1)] for d in (32, 64, 128, 256)} for bytes_ in (2, 4)},
    "dbias": {
        2: {d: [Tile(64, 64, 4, 1)] for d in (32, 64, 128)} | {256: [Tile(32, 32, 4, 1)]},
        4: {d: [Tile(32, 32, 4, 1)] for d in (32, 64, 128)} | {256: [Tile(16, 16, 4, 1)]},
    },
}

# The arguments on which the tuned choice depends. Triton adds the dtypes.
KEY = ["tuning_key", "BLOCK_D", "BLOCK_DV", "ALIGN", "BIAS", "CAP", "WINDOW", "ATOMIC", "PRECISION"]


def tuning_key(seqlen_q: int, seqlen_k: int, causal: bool) -> int:
    """Return one number for the mask and the bit lengths of the two lengths."""
    return (seqlen_q.bit_length() << 8 | seqlen_k.bit_length()) << 1 | causal


class Kernel:
    """A Triton kernel and its candidates. accumulates: the arguments to which it adds."""

    def __init__(self, name: str, kernel, accumulates: list[str] | None = None):
        self.name = name
        self.kernel = kernel
        tiles = {tile for by_headdim in CANDIDATES[name].values() for tiles in by_headdim.values() for tile in tiles}
        self.tuned = triton.autotune(
            configs=[config(tile) for tile in sorted(tiles)],
            key=KEY,
            prune_configs_by={"early_config_prune": self._fitting},
            reset_to_zero=accumulates,  # trying a candidate adds to these, so they are reset afterwards
            cache_results=True,
        )(kernel)

    def candidates(self, bytes_: int, block_d: int) -> list[Tile]:
        """Return the tiles for this operand size and padded head dim, the default first."""
        return CANDIDATES[self.name][bytes_][block_d]

    def launch(
        self,
        programs: Callable[[int, int], int],
        like: torch.Tensor,
        operations: int = 0,
        tile: Tile | None = None,
        **arguments: object,
    ) -> None:
        """Run programs(BLOCK_M, BLOCK_N) programs on the device of `like`, an operand.

        tile: forces a choice. operations: the number of operations, which decides whether to tune.
        """

        def grid(meta: dict) -> tuple[int]:
            return (programs(meta["BLOCK_M"], meta["BLOCK_N"]),)

        bytes_ = like.element_size()
        if EMULATED and not tile:
            tile = emulated_tile(self.name, bytes_, arguments.get("PRECISION") == "tf32")
        candidates = [tile] if tile else self.candidates(bytes_, largest_block_d(arguments))
        with torch.cuda.device_of(like):  # Triton launches on the current device, not on the tensors' device
            if len(candidates) > 1 and operations >= TUNE_FROM and not capturing():
                self.tuned[grid](**arguments)
            else:
                self._launch_first_that_fits(grid, candidates, arguments)

    def _launch_first_that_fits(self, grid: Callable, candidates: list[Tile], arguments: dict) -> None:
        """Launch the first candidate that fits. Shared memory depends on the GPU and the bias."""
        for tile in candidates:
            try:
                self.kernel[grid](**arguments, **tile._asdict())
                return
            except triton.OutOfResources:
                if tile == candidates[-1]:
                    raise

    def _fitting(self, configs: list[triton.Config], named: dict, **arguments: object) -> list[triton.Config]:
        bytes_ = arguments["k_ptr"].element_size()
        return [config(tile) for tile in self.candidates(bytes_, largest_block_d(arguments))]


def largest_block_d(arguments: dict) -> int:
    """Return the larger of the padded head dims of k and v. A tile that fits for two such head
    dims fits for one.
    """
    return max(arguments.get(name, 0) for name in ("BLOCK_D", "BLOCK_DV"))


def config(tile: Tile) -> triton.Config:
    """Return a tile as a configuration of Triton's autotuner."""
    constants = {"BLOCK_M": tile.BLOCK_M, "BLOCK_N": tile.BLOCK_N}
    return triton.Config(constants, num_warps=tile.num_warps, num_stages=tile.num_stages)


def capturing() -> bool:
    """Return whether a CUDA graph is being captured on the current stream."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
