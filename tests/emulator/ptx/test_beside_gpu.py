"""The emulator and a GPU run the same PTX on the same memory. Kernels without approximations leave
the same bits.

Where there is no GPU, a second emulator stands for it, so that the comparison itself is tested.
"""

import re
import subprocess
import sys

import pytest
import torch

from flash_attest.emulator.ptx import module
from tests.emulator.ptx import beside_gpu
from tests.places import ROOT


class Twin:
    """Takes the place of the GPU: the emulator, on the same memory, which it then restores.

    flips: how many elements it then changes.
    """

    def __init__(self, flips: int = 0):
        self.call, self.flips = module.Kernel._call, flips

    def launch(self, kernel, grid, block, shared, arguments, names, cluster=None):
        storages = beside_gpu.storages_of(arguments)
        before = {at: memory.clone() for at, memory in storages.items()}
        self.call(kernel, grid, block, shared, module.LARGEST_SHARED, arguments, names, cluster)
        after = {at: memory.clone() for at, memory in storages.items()}
        for at, memory in storages.items():
            memory.copy_(before[at])
            if self.flips and (changed := (after[at] != before[at]).nonzero()).numel():
                after[at][changed[0]] ^= 1
                self.flips -= 1
        return after


@pytest.mark.parametrize(("flips", "agrees"), [(0, True), (1, False)])
def test_a_bit_of_an_exact_kernel_tells_them_apart(flips, agrees, monkeypatch, capsys, gxx):
    pytest.importorskip("triton")
    monkeypatch.setattr(beside_gpu, "Gpu", lambda: Twin(flips))
    monkeypatch.setattr(beside_gpu, "INEXACT", re.compile("no instruction"))
    assert beside_gpu.compare("triton_fa2", 2, 0) is agrees
    assert ("exact kernels should leave the same bits" in capsys.readouterr().out) is not agrees


def test_single_products_are_compared(monkeypatch, capsys, gxx):
    monkeypatch.setattr(beside_gpu, "Gpu", Twin)
    monkeypatch.setattr(beside_gpu, "PRODUCTS", (("f16", "f32"),))
    assert beside_gpu.compare_products(1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(line.endswith("apart     0.00") for line in lines)


def test_a_launch_has_the_sizes_of_a_cluster():
    gpu = object.__new__(beside_gpu.Gpu)  # without a context
    gpu.driver = pytest.importorskip("cuda.bindings.driver")
    config = gpu.configured((4, 2), 128, 1024, (2,))
    assert (config.gridDimX, config.gridDimY, config.gridDimZ, config.blockDimX, config.blockDimY) == (4, 2, 1, 128, 1)
    sizes = config.attrs[0].value.clusterDim
    assert (config.numAttrs, sizes.x, sizes.y, sizes.z) == (1, 2, 1, 1)
    assert gpu.configured(1, 32, 0, None).numAttrs == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares with a GPU: no CUDA device here")
@pytest.mark.parametrize("name", ["triton_fa2", "triton_fa2_tf32"])
def test_a_gpu_agrees(name):
    """The comparison runs in a separate process, in which torch sees no GPU, so that the
    implementation chooses the emulator.
    """
    command = [sys.executable, "-m", "tests.emulator.ptx.beside_gpu", "--impl", name, "--cases", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    exact = re.search(r"^delta_kernel +(\d+) +(\d+) ", done.stdout, re.MULTILINE)
    assert exact[1] == exact[2] and int(exact[1]) > 0, done.stdout
