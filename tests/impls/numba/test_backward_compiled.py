"""What Numba makes of the backward for a Hopper GPU: every tile compiles in every dtype, and uses registers as it should."""

from __future__ import annotations

import pytest
import torch

from flash_attest.impls.numba.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba import attention, backward, bias_gradient, tuning
from flash_attest.impls.numba.tiles import GROUPS, LANES, THREADS
from flash_attest.impls.numba.tuning import TILES, Tile
from tests.impls.numba.compiling import Compiled, all_compiled

DEVICE = "cpu" if EMULATED else "cuda"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MODULES = {"backward": backward, "bias_gradient": bias_gradient}
REGISTERS = 64 * 1024  # of a multiprocessor
OUTSIDE = (
    512  # bytes of spills and reloads of a thread outside of the loops over products, about 1 % of its instructions
)

pytestmark = pytest.mark.usefixtures("one_thread")


def compiled(monkeypatch, name: str, tile: Tile, dtype: torch.dtype, kernel: str) -> Compiled:
    """A kernel that the backward launches with this tile."""
    monkeypatch.setitem(tuning.EMULATED_TILES if EMULATED else tuning.TILES, name, (tile,))
    for other in MODULES.values():
        monkeypatch.setattr(other, "launch", lambda *launched: None)
    x = torch.zeros(1, 1, 1, tile.D, dtype=dtype, device=DEVICE)
    lse, bias = x.new_zeros(1, 1, 1, dtype=torch.float32), x.new_zeros(1, 1, 1, 1)
    call = lambda: attention.Algorithm("fa2").backward(x, x, x, x, x, lse, bias=bias)  # noqa: E731
    return all_compiled(monkeypatch, MODULES[name], call, kernel)[kernel]


def thorough_but(*kept):
    """Every kernel, tile and dtype; all but those kept are thorough, because each compiles for seconds."""
    return [
        pytest.param(
            *(name, tile, dtype),
            id=f"{name}-{tile.M}-{tile.N}-{tile.D}-{str(dtype).removeprefix('torch.')}",
            marks=() if (name, tile, dtype) in kept else pytest.mark.thorough,
        )
        for name in MODULES
        for tile in TILES[name]
        for dtype in DTYPES
    ]


@pytest.mark.parametrize("name, tile, dtype", thorough_but(
    ("bias_gradient", Tile(32, 32, 256), torch.bfloat16)))  # fmt: skip
def test_register_tiles_are_registers_and_shared_memory_is_read_by_four(name, tile, dtype, monkeypatch):
    """Loops over register tiles are unrolled. A step of each product reads four elements of each row and column at once.

    (With small tiles some of the loops over steps are unrolled, too.)
    """
    TM, TN, TD = tile.M // GROUPS, tile.N // LANES, tile.D // LANES
    TK, TQ = tile.N // GROUPS, tile.M // LANES
    made = compiled(monkeypatch, name, tile, dtype, f"{name}_kernel")
    assert made.count(r"\.local") == made.count(r"\bcall\b") == made.count(r"%fd") == 0
    if name == "backward":  # S^T, dP^T; dV, dK; dQ
        assert made.count(r"ld\.shared\.v4\.f32") >= 2 * (TK + TQ) + 2 * (TK + TD) + (TM + TD)
        assert made.count(r"ld\.shared\.(?!v4)") == 0
        assert made.count(r"fma\.rn\.f32") >= 4 * (2 * TK * TQ + 2 * TK * TD + TM * TD)
        assert REGISTERS // (THREADS * made.registers) >= backward.BLOCKS
    else:  # S, dP; then the sums of the groups
        assert made.count(r"ld\.shared\.v4\.f32") >= 2 * (TM + TN)
        assert made.count(r"ld\.shared\.(?!v4)") == GROUPS
        assert made.count(r"fma\.rn\.f32") >= 4 * 2 * TM * TN
    assert made.spilled <= OUTSIDE


@pytest.mark.parametrize("kernel", ("delta_kernel", "sum_dq_kernel"))
def test_the_small_kernels_need_few_registers(kernel, monkeypatch):
    """They wait for memory, so as many threads as the multiprocessor has should be there: 2048."""
    made = compiled(monkeypatch, "backward", Tile(16, 16, 64), torch.float32, kernel)
    assert made.count(r"\.local") == made.count(r"%fd") == made.spilled == 0
    assert made.registers <= 64
