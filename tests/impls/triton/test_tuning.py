"""The tile with which a kernel is launched: the lists of candidates, and the choice among them."""

import copy
import json
import os
import subprocess
import sys

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.triton.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

import triton

from flash_attest.impls.triton import attention, tuning
from flash_attest.impls.triton.attention import FlashAttention2
from flash_attest.impls.triton.device import EMULATED
from flash_attest.impls.triton.tuning import CANDIDATES, KEY, TUNE_FROM, Tile, tuning_key
from tests.places import ROOT

DEVICE = "cpu" if EMULATED else "cuda"
KERNELS = {name: value for name, value in vars(attention).items() if isinstance(value, tuning.Kernel)}
on_a_gpu = pytest.mark.skipif(EMULATED, reason="there is no GPU")
LISTS = [
    pytest.param(tiles, id=f"{kernel}-{bytes_}-{headdim}")
    for kernel, by_bytes in CANDIDATES.items()
    for bytes_, by_headdim in by_bytes.items()
    for headdim, tiles in by_headdim.items()
]


# --- the lists ------------------------------------------------------------------------------------


def test_every_kernel_has_a_list_for_every_operand_and_head_dim():
    assert sorted(kernel.name for kernel in KERNELS.values()) == sorted(CANDIDATES)
    for kernel, by_bytes in CANDIDATES.items():
        assert sorted(by_bytes) == [2, 4], kernel
        assert all(sorted(by_headdim) == [32, 64, 128, 256] for by_headdim in by_bytes.values()), kernel


@pytest.mark.parametrize("tiles", LISTS)
def test_choices_are_different_and_can_be_compiled(tiles):
    """Triton requires powers of two, at least 16 for products; a block has at most 1024 threads."""
    assert tiles and len(set(tiles)) == len(tiles)
    for tile in tiles:
        assert all(n >= 16 and n & (n - 1) == 0 for n in (tile.BLOCK_M, tile.BLOCK_N)), tile
        assert tile.num_warps in (1, 2, 4, 8, 16, 32) and tile.num_stages >= 1, tile


def test_a_tile_is_written_with_all_its_numbers():
    assert str(Tile(128, 64, 8, 3)) == "m128_n64_w8_s3"


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)
def test_a_key_names_arguments_of_some_kernel(kernel):
    """Triton silently ignores a name that no kernel has."""
    known = {name for each in KERNELS.values() for name in each.tuned.arg_names}
    assert set(KEY) <= known
    assert {"tuning_key", "BLOCK_DV", "ALIGN"} <= set(KEY) & set(kernel.tuned.arg_names)


# --- how one is chosen ----------------------------------------------------------------------------


class Recorder:
    """A stand-in for a kernel or the tuner. It records calls, and raises OutOfResources for some
    tiles.
    """

    def __init__(self, too_large=()):
        self.tiles, self.grids, self.too_large = [], [], too_large

    def __getitem__(self, grid):
        def run(**arguments):
            tile = Tile(*(arguments.get(name, 0) for name in Tile._fields))
            self.tiles.append(tile)
            if tile in self.too_large:
                raise triton.OutOfResources(300_000, 232_448, "shared memory")
            self.grids.append(grid(arguments) if tile.BLOCK_M else None)

        return run


CHOICES = CANDIDATES["forward"][2][128]


@pytest.fixture
def launch(monkeypatch):
    """launch(operations, tile, too_large) launches the forward for halves and head dim 128.

    It returns (kernel, tuner), both Recorders.
    """
    monkeypatch.setattr(tuning, "EMULATED", False)
    monkeypatch.setattr(tuning, "capturing", lambda: False)
    like = torch.zeros(1, dtype=torch.float16, device=DEVICE)

    def launch(operations=0, tile=None, too_large=(), name="forward"):
        kernel = copy.copy(next(each for each in KERNELS.values() if each.name == name))
        kernel.kernel, kernel.tuned = Recorder(too_large), Recorder()
        kernel.launch(lambda m, n: 1000 * m + n, like, operations, tile, BLOCK_D=128)
        return kernel.kernel, kernel.tuned

    return launch


def test_a_small_problem_uses_the_default(launch):
    kernel, tuner = launch(TUNE_FROM - 1)
    assert (kernel.tiles, tuner.tiles) == (CHOICES[:1], [])
    assert kernel.grids == [(1000 * CHOICES[0].BLOCK_M + CHOICES[0].BLOCK_N,)]


def test_a_large_problem_is_tuned(launch):
    kernel, tuner = launch(TUNE_FROM)
    assert kernel.tiles == [] and len(tuner.tiles) == 1


def test_a_single_choice_is_not_tuned(launch):
    kernel, tuner = launch(TUNE_FROM, name="delta")
    assert (kernel.tiles, tuner.tiles) == (CANDIDATES["delta"][2][128], [])


def test_nothing_is_tuned_while_a_graph_is_captured(launch, monkeypatch):
    monkeypatch.setattr(tuning, "capturing", lambda: True)
    kernel, tuner = launch(TUNE_FROM)
    assert (kernel.tiles, tuner.tiles) == (CHOICES[:1], [])


@pytest.mark.parametrize("operations", (0, TUNE_FROM))
def test_a_forced_tile_is_used_for_every_size(launch, operations):
    forced = Tile(16, 32, 2, 1)
    kernel, tuner = launch(operations, forced)
    assert (kernel.tiles, tuner.tiles) == ([forced], [])


def test_a_forced_tile_that_does_not_fit_is_an_error(launch):
    """A forced tile is the tile under test, so no other tile replaces it."""
    forced = Tile(16, 32, 2, 1)
    with pytest.raises(triton.OutOfResources):
        launch(0, forced, too_large=[forced])


def test_the_next_choice_is_used_if_one_does_not_fit(launch):
    assert launch(0, too_large=CHOICES[:1])[0].tiles == CHOICES[:2]
    assert launch(0, too_large=CHOICES[:2])[0].tiles == CHOICES[:3]


def test_it_is_an_error_if_no_choice_fits(launch):
    with pytest.raises(triton.OutOfResources, match="shared memory, Required: 300000"):
        launch(0, too_large=CHOICES)


def test_the_emulator_uses_one_tile_and_does_not_tune(launch, monkeypatch):
    monkeypatch.setattr(tuning, "EMULATED", True)
    kernel, tuner = launch(TUNE_FROM)
    assert (kernel.tiles, tuner.tiles) == ([tuning.emulated_tile("forward", 2)], [])


@pytest.mark.parametrize("name", [name for name in CANDIDATES if name != "delta"])  # delta has neither k nor a choice
@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=str)
def test_the_tuner_tries_the_choices_of_this_head_dim_and_operand(name, dtype, monkeypatch):
    (kernel,) = (each for each in KERNELS.values() if each.name == name)
    monkeypatch.setattr(kernel.tuned, "nargs", {}, raising=False)
    for block_d, block_dv, largest in ((64, 64, 64), (64, 128, 128), (128, 64, 128)):
        given = {"k_ptr": torch.zeros(1, dtype=dtype), "BLOCK_D": block_d, "BLOCK_DV": block_dv}
        candidates = kernel.tuned.prune_configs(given)
        got = [Tile(*each.kwargs.values(), each.num_warps, each.num_stages) for each in candidates]
        assert got == CANDIDATES[name][dtype.itemsize][largest]


def test_lengths_within_a_factor_of_two_share_a_key():
    assert tuning_key(1024, 1024, False) == tuning_key(2047, 1500, False)
    different = [(1023, 1024, False), (2048, 1024, False), (1024, 1023, False), (1024, 2048, False), (1024, 1024, True)]
    keys = [tuning_key(1024, 1024, False), *(tuning_key(*lengths) for lengths in different)]
    assert len(set(keys)) == len(keys)
    assert tuning_key(2**31, 2**31, True) < 2**31  # it is passed as a 32-bit int


# --- tuning ---------------------------------------------------------------------------------------


@pytest.fixture
def tuned(monkeypatch):
    """A state in which every problem counts as large."""
    monkeypatch.setattr(tuning, "TUNE_FROM", 0)
    monkeypatch.setattr(tuning, "EMULATED", False)
    for kernel in KERNELS.values():
        monkeypatch.setattr(kernel.tuned, "cache", {})
        monkeypatch.setattr(kernel.tuned, "cache_results", False)


@pytest.mark.parametrize(
    "atomic", (pytest.param(False, id=""), pytest.param(True, id="atomic", marks=pytest.mark.thorough))
)
def test_gradients_are_right_after_tuning(atomic, tuned):
    """A trial of a choice adds to dq, so dq must be zeroed before each trial and before the final
    call.
    """
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (torch.randn(1, n, 1, 40, generator=generator).to(DEVICE, torch.float16) for n in (20, 70, 70, 20))
    leaves = [x.float().requires_grad_() for x in (q, k, v)]
    want_out = torch_math.forward(*leaves)[0]
    want = torch.autograd.grad(want_out, leaves, dout.float())
    way = FlashAttention2(atomic=atomic)

    for _ in range(2):  # the first call is tuned, the second uses the cached choice
        out, lse = way.forward(q, k, v)
        got = way.backward(dout, q, k, v, out, lse)

        torch.testing.assert_close(out.float(), want_out, rtol=0.0, atol=2.0**-8)
        for mine, other in zip(got, want, strict=True):
            torch.testing.assert_close(mine.float(), other, rtol=0.0, atol=2.0**-8 * max(1.0, other.abs().max().item()))
    kernels = ("forward", "dk_dv_dq") if atomic else ("forward", "dk_dv", "dq")
    chosen = [kernel for kernel in KERNELS.values() if kernel.name in kernels]
    assert all(len(kernel.tuned.cache) == 1 for kernel in chosen)
    if EMULATED:  # the emulator's tuner takes the first choice that runs
        for kernel in chosen:
            (config,) = kernel.tuned.cache.values()
            first = kernel.candidates(2, 128)[0]
            assert (*config.kwargs.values(), config.num_warps, config.num_stages) == first


PROGRAM = """
import json, sys, torch
from flash_attest.impls.triton import attention, tuning
from triton.runtime.autotuner import Autotuner
tuning.TUNE_FROM = 0
tried, bench = [], Autotuner._bench
def counted(self, *args, config, **more):
    tried.append(str(config))
    return bench(self, *args, config=config, **more)
Autotuner._bench = counted
x = torch.randn(1, 256, 4, 64, device="cuda", dtype=torch.float16)
attention.FlashAttention2().forward(x, x, x)
chosen, = attention.compute_forward.tuned.cache.values()
print(json.dumps([len(tried), str(chosen)]))
"""


@on_a_gpu
def test_the_choice_is_stored_on_disk(tmp_path):
    """A second process reads it and measures nothing."""
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    answers = []
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr[-4000:]
        answers.append(json.loads(run.stdout.splitlines()[-1]))
    (first, chosen), (second, again) = answers
    assert first == len(CANDIDATES["forward"][2][64]) and second == 0
    assert again == chosen
