"""Checks the backward as Numba compiles it for a Hopper GPU: tiles, dtypes, registers."""

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
REGISTERS = 64 * 1024  # in a multiprocessor
# Limit of the bytes of spills and reloads per thread outside of the loops over products, about 1 %
# of its instructions.
OUTSIDE = 512


def compiled(monkeypatch, name: str, tile: Tile, dtype: torch.dtype, kernel: str, softcap=None) -> Compiled:
    """Return a kernel that the backward launches with this tile."""
    monkeypatch.setitem(tuning.EMULATED_TILES if EMULATED else tuning.TILES, name, (tile,))
    for other in MODULES.values():
        monkeypatch.setattr(other, "launch", lambda *launched: None)
        monkeypatch.setattr(other, "EMULATED", False)  # a GPU has a kernel for each kind of call
    x = torch.zeros(1, 1, 1, tile.D, dtype=dtype, device=DEVICE)
    lse, bias = x.new_zeros(1, 1, 1, dtype=torch.float32), x.new_zeros(1, 1, 1, 1)
    call = lambda: attention.Algorithm("fa2").backward(x, x, x, x, x, lse, bias=bias, softcap=softcap)  # noqa: E731
    return all_compiled(monkeypatch, MODULES[name], call, kernel)[kernel]


def thorough_but(*quick):
    """Return every kernel, tile and dtype.

    All except the quick ones are marked thorough, because each compiles for seconds.
    """
    return [
        pytest.param(
            *(name, tile, dtype),
            id=f"{name}-{tile.M}-{tile.N}-{tile.D}-{str(dtype).removeprefix('torch.')}",
            marks=() if (name, tile, dtype) in quick else pytest.mark.thorough,
        )
        for name in MODULES
        for tile in TILES[name]
        for dtype in DTYPES
    ]


@pytest.mark.parametrize("name, tile, dtype", thorough_but(
    ("bias_gradient", Tile(32, 32, 256), torch.bfloat16)))  # fmt: skip
def test_register_tiles_are_registers_and_shared_memory_is_read_by_four(name, tile, dtype, monkeypatch):
    """Loops over register tiles are unrolled. A step of each product reads four elements for each
    row and column.

    With small tiles some of the loops over steps are also unrolled.
    """
    TM, TN, TD = tile.M // GROUPS, tile.N // LANES, tile.D // LANES
    TK, TQ = tile.N // GROUPS, tile.M // LANES
    result = compiled(monkeypatch, name, tile, dtype, f"{name}_kernel")
    assert result.count(r"\.local") == result.count(r"\bcall\b") == result.count(r"%fd") == 0
    if name == "backward":  # S^T, dP^T; dV, dK; dQ
        assert result.count(r"ld\.shared\.v4\.f32") >= 2 * (TK + TQ) + 2 * (TK + TD) + (TM + TD)
        assert result.count(r"ld\.shared\.(?!v4)") == 0
        assert result.count(r"fma\.rn\.f32") >= 4 * (2 * TK * TQ + 2 * TK * TD + TM * TD)
        assert REGISTERS // (THREADS * result.registers) >= backward.BLOCKS
    else:  # S, dP; then the sums of the groups
        assert result.count(r"ld\.shared\.v4\.f32") >= 2 * (TM + TN)
        assert result.count(r"ld\.shared\.(?!v4)") == GROUPS
        assert result.count(r"fma\.rn\.f32") >= 4 * 2 * TM * TN
    assert result.spilled <= OUTSIDE


@pytest.mark.thorough
@pytest.mark.parametrize("tile", TILES["backward"], ids=str)
def test_slopes_of_a_softcap_need_no_registers(tile, monkeypatch):
    """They are kept in the tile of dS, one element at a time. Register tiles stay registers."""
    result = compiled(monkeypatch, "backward", tile, torch.float32, "backward_kernel", softcap=30.0)
    assert result.count(r"\.local") == result.count(r"\bcall\b") == result.count(r"%fd") == 0
    assert REGISTERS // (THREADS * result.registers) >= backward.BLOCKS
    assert result.spilled <= OUTSIDE


@pytest.mark.parametrize("kernel", ("delta_kernel", "sum_dq_kernel"))
def test_the_small_kernels_need_few_registers(kernel, monkeypatch):
    """These kernels wait for memory, so a multiprocessor should hold as many threads as possible:
    2048.
    """
    result = compiled(monkeypatch, "backward", Tile(16, 16, 64), torch.float32, kernel)
    assert result.count(r"\.local") == result.count(r"%fd") == result.spilled == 0
    assert result.registers <= 64
