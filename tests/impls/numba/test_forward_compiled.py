"""Checks the forwards as Numba compiles them for a Hopper GPU, because no law notices whether they
are fast.
"""

from __future__ import annotations

import pytest
import torch

from flash_attest.impls.numba.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba import attention, fa1, fa2, matmul, tuning
from flash_attest.impls.numba.tiles import GROUPS, LANES, THREADS
from flash_attest.impls.numba.tuning import TILES, Tile
from tests.impls.numba.compiling import Compiled, compiled

DEVICE = torch.device("cpu" if EMULATED else "cuda")
FORWARDS = {"fa1_forward": fa1, "fa2_forward": fa2}
MULTIPROCESSOR = 64 * 1024, 228 * 1024  # registers, bytes of shared memory, of sm_90
RESERVED = 1024  # bytes of shared memory for each block


def forward(monkeypatch, name: str, tile: Tile, dtype: torch.dtype = torch.float32, softcap=None) -> Compiled:
    monkeypatch.setattr(FORWARDS[name], "EMULATED", False)  # a GPU has a kernel for each kind of call
    monkeypatch.setitem(tuning.EMULATED_TILES if EMULATED else tuning.TILES, name, (tile,))
    monkeypatch.setattr(tuning, "shared_memory_limit", lambda device: MULTIPROCESSOR[1] - RESERVED)
    x = torch.zeros(1, 1, 1, tile.D, dtype=dtype, device=DEVICE)
    return compiled(
        monkeypatch, FORWARDS[name], lambda: attention.Algorithm(name[:3]).forward(x, x, x, softcap=softcap)
    )


def first_tiles(quick):
    """Yield the preferred tile of each head dim. All except the quick ones are marked thorough."""
    for name in FORWARDS:
        for tile in TILES[name]:
            if max(tile.M, tile.N) > 16:
                words = f"{name}-{tile.M}-{tile.N}-{tile.D}"
                yield pytest.param(name, tile, id=words, marks=() if (name, tile) in quick else pytest.mark.thorough)


@pytest.mark.parametrize("name, tile", list(first_tiles([("fa2_forward", Tile(64, 64, 64))])))
def test_register_tiles_are_registers_and_shared_memory_is_read_by_four(name, tile, monkeypatch):
    """Loops over register tiles are unrolled. A step of the products reads four elements for each
    row and column.

    Two blocks share a multiprocessor: while one waits for memory, the other computes.
    """
    TM, TN, TD = tile.M // GROUPS, tile.N // LANES, tile.D // LANES

    result = forward(monkeypatch, name, tile)

    assert result.count(r"\.local") == 0  # a register tile in memory would be local
    assert result.count(r"\bcall\b") == 0  # all device functions are inlined
    assert result.count(r"ld\.shared\.v4\.f32") == (TM + TN) + (TM + TD)
    assert result.count(r"ld\.shared\.(?!v4)") == 0
    assert result.count(r"fma\.rn\.f32") >= 4 * TM * (TN + TD)
    assert result.count(r"ld\.global(\.nc)?\.v4\.f32") > 0
    assert result.count(r"%fd") == 0  # a Python number among float32 would be float64
    assert result.spilled <= 128  # bytes, none of them in the loops over products

    registers, shared = MULTIPROCESSOR
    blocks = min(registers // (THREADS * result.registers), shared // (FORWARDS[name].forward_bytes(*tile) + RESERVED))
    assert blocks >= (2 if name == "fa2_forward" else 1)  # FlashAttention-1 rarely has more


@pytest.mark.parametrize(
    "dtype, tile",
    [
        pytest.param(torch.float16, Tile(16, 16, 64), id="float16", marks=pytest.mark.thorough),
        pytest.param(torch.bfloat16, Tile(64, 32, 128), id="bfloat16"),
    ],
)
def test_sixteen_bits_are_converted_in_registers(dtype, tile, monkeypatch):
    """Rounding to bfloat16 once made the loop that stores `out` too long to be unrolled.

    O then stayed in memory.
    """
    result = forward(monkeypatch, "fa2_forward", tile, dtype)
    assert result.count(r"\.local") == result.count(r"%fd") == result.count(r"ld\.shared\.(?!v4)") == 0
    assert result.count(r"ld\.global(\.nc)?\.v4\.[bu]16") > 0


@pytest.mark.parametrize(
    "tile", [Tile(16, 16, 64), pytest.param(Tile(64, 64, 64), marks=pytest.mark.thorough)], ids=str
)
def test_only_a_softcap_costs_a_tanh(tile, monkeypatch):
    """The tanh of each score is computed in registers, and plain attention has a kernel without."""
    plain, capped = (forward(monkeypatch, "fa2_forward", tile, softcap=softcap) for softcap in (None, 30.0))
    scores = tile.M // GROUPS * (tile.N // LANES)
    assert capped.count(r"ex2\.approx") - plain.count(r"ex2\.approx") == scores
    assert capped.count(r"\.local") == capped.count(r"\bcall\b") == capped.count(r"%fd") == 0
    assert capped.spilled <= 128


def test_the_matrix_product_is_made_of_the_same(monkeypatch):
    monkeypatch.setattr(matmul, "ROWS", 64)
    x = torch.zeros(4, 4, device=DEVICE)
    result = compiled(monkeypatch, matmul, lambda: matmul.matmul(x, x))
    assert result.count(r"ld\.shared\.v4\.f32") == 8 + 4 and result.count(r"fma\.rn\.f32") == 128
    assert result.count(r"\.local") == result.spilled == 0
