"""Tests of the forwards that the laws do not cover: a GPU's tiles on the CPU, the choice of a tile,
launches.
"""

from __future__ import annotations

import inspect

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.numba.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba import fa1, fa2, launch, matmul, tuning
from flash_attest.impls.numba.attention import Algorithm
from flash_attest.impls.numba.tuning import TILES, Tile

DEVICE = torch.device("cpu" if EMULATED else "cuda")
FORWARDS = {"fa1_forward": fa1, "fa2_forward": fa2}
EVERY = [  # except for a tile that needs more shared memory than sm_80 has, which the emulator models
    (name, tile)
    for name, module in FORWARDS.items()
    for tile in TILES[name]
    if module.forward_bytes(*tile) <= tuning.shared_memory_limit(DEVICE)
]


# --- every tile -----------------------------------------------------------------------------------


def thorough_but(quick):
    """Return each forward with each of its tiles.

    All except the quick ones are marked thorough, because they compile for seconds.
    """
    return [
        pytest.param(
            *(name, tile),
            id=f"{name}-{tile.M}-{tile.N}-{tile.D}",
            marks=() if (name, tile) in quick else pytest.mark.thorough,
        )
        for name, tile in EVERY
    ]


@pytest.mark.parametrize("name, tile", thorough_but([("fa2_forward", Tile(64, 32, 128))]))
def test_each_tile_computes_attention(name, tile, monkeypatch):
    """Lengths are not multiples of a tile. Head dims are the largest one, and one without wide
    loads.
    """
    monkeypatch.setitem(tuning.EMULATED_TILES if EMULATED else tuning.TILES, name, (tile,))
    generator = torch.Generator().manual_seed(0)
    for headdim in (tile.D, tile.D - 3):
        q, k, v = (
            torch.randn(1, n, 2, headdim, generator=generator).to(DEVICE) for n in (tile.M + 7, tile.N + 9, tile.N + 9)
        )

        out, lse = Algorithm(name.removesuffix("_forward")).forward(q, k, v, causal=True)

        want_out, want_lse = torch_math.forward(q, k, v, causal=True)
        torch.testing.assert_close(out, want_out, rtol=0, atol=1e-5)
        torch.testing.assert_close(lse, want_lse, rtol=0, atol=1e-5)


# --- which tile -----------------------------------------------------------------------------------


@pytest.fixture
def gpu_with(monkeypatch):
    """gpu_with(bytes of shared memory) makes tiles be chosen as on a GPU with this limit."""

    def set_limit(limit):
        monkeypatch.setattr(tuning, "EMULATED", False)
        monkeypatch.setattr(tuning, "shared_memory_limit", lambda device: limit)

    return set_limit


@pytest.mark.parametrize("name", FORWARDS)
def test_a_large_gpu_gets_the_first_tile_of_the_least_head_dim(name, gpu_with):
    gpu_with(227 * 1024)
    for headdim, D in ((1, 64), (64, 64), (65, 128), (128, 128), (129, 256), (256, 256)):
        first = next(tile for tile in TILES[name] if tile.D == D)
        assert tuning.choose(name, FORWARDS[name].forward_bytes, headdim, DEVICE) == first


@pytest.mark.parametrize("name", FORWARDS)
@pytest.mark.parametrize("headdim", (64, 128, 256))
def test_every_gpu_has_a_tile_that_fits(name, headdim, gpu_with):
    """No GPU that Numba compiles for has less shared memory than 64 KiB (sm_75)."""
    gpu_with(64 * 1024)
    tile = tuning.choose(name, FORWARDS[name].forward_bytes, headdim, DEVICE)
    assert FORWARDS[name].forward_bytes(*tile) <= 64 * 1024
    assert tile in [each for each in TILES[name] if headdim == each.D]


def test_it_is_an_error_if_no_tile_fits(gpu_with):
    gpu_with(20_000)
    words = f"headdim=100 needs 26624 bytes of shared memory with tiles of 16 queries and 16 keys, {DEVICE} has 20000"
    with pytest.raises(RuntimeError, match=words):
        tuning.choose("fa2_forward", fa2.forward_bytes, 100, DEVICE)


def test_tiles_are_what_the_threads_can_hold():
    """8 groups share rows, and 16 lanes share columns, of O four adjacent ones; loads take 8
    rows.
    """
    for tiles in (*TILES.values(), *tuning.EMULATED_TILES.values()):
        assert list(tiles) == sorted(tiles, key=lambda tile: tile.D) and tiles[-1].D == 256
        for tile in tiles:
            assert tile.M % 16 == tile.N % 16 == tile.D % 64 == 0 and max(tile.M, tile.N) <= 64, tile


# --- launching ------------------------------------------------------------------------------------


def test_more_blocks_than_a_grid_holds_are_an_error():
    kernel = matmul.make_matmul(16, 64, 64)
    with pytest.raises(RuntimeError, match="matmul_kernel: 2147483648 blocks are more than the 2147483647 of a grid"):
        launch.launch(kernel, 2**31, 0)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16), ids=str)
def test_a_flat_tensor_is_its_memory(dtype):
    """The flat tensor has only the elements that the strides reach, because a kernel may not read
    beyond them.
    """
    memory = torch.arange(100.0).to(DEVICE, dtype)
    x = memory[7:].as_strided((2, 3, 1, 2), (30, 5, 1000, 1))
    flat = launch.flat(x)
    assert len(flat) == 30 + 2 * 5 + 1 + 1
    if EMULATED:
        assert torch.equal(flat.view(dtype), memory[7:49])
    assert len(launch.flat(x[:0])) == 0
    assert len(launch.flat(x.expand(2, 3, 4, 2)[:1, :1])) == 2


# --- Numba ----------------------------------------------------------------------------------------


def test_arrays_are_made_as_in_numba_cuda_0_30():
    """memory.py makes arrays with these private names.

    If a version changes them, change only that file.
    """
    from numba.cuda.np import arrayobj

    assert list(inspect.signature(arrayobj.make_array).parameters) == ["array_type"]
    assert list(inspect.signature(arrayobj.populate_array).parameters) == [
        "array", "data", "shape", "strides", "itemsize", "meminfo", "parent",
    ]  # fmt: skip
