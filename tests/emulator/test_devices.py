"""A process emulates one GPU, named by an argument, an option or an environment variable, and its
children emulate the same one.
"""

from __future__ import annotations

import os
import sys

import pytest

from flash_attest.emulator import devices
from flash_attest.emulator.errors import EmulatorError
from flash_attest.properties.machine.gpus import emulated_on, note_on
from tests import runs
from tests.places import ROOT


@pytest.fixture
def undecided(monkeypatch):
    """A process in which nothing has asked for the GPU yet."""
    monkeypatch.setattr(devices, "_emulated", None)
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setenv(devices.VARIABLE, "80")  # so that it is restored afterwards
    os.environ.pop(devices.VARIABLE)


def test_the_default_is_an_a100(undecided):
    assert devices.target() == devices.DEFAULT == 80 and devices.note() == ""
    assert devices.emulated() is devices.A100 and devices.A100.capability == (8, 0)


def test_the_environment_names_another_one(undecided, monkeypatch):
    monkeypatch.setenv(devices.VARIABLE, "90")
    assert devices.emulated() is devices.H100 and devices.H100.attributes["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"] == 232448
    assert (emulated_on("cpu"), note_on("cpu")) == ("sm_90", ", as sm_90")
    assert (emulated_on("cuda"), note_on("cuda")) == ("", "")


def test_it_is_chosen_for_children_too_until_something_asks(undecided):
    devices.choose(90)
    devices.choose(80)
    devices.choose(90)
    assert os.environ[devices.VARIABLE] == "90" and devices.emulated().arch == "sm_90"
    devices.choose(90)
    with pytest.raises(EmulatorError, match="target=80: this process emulates sm_90 already"):
        devices.choose(80)


@pytest.mark.parametrize("target", (75, 86, "90", None))
def test_another_number_is_named_with_what_there_is(undecided, target):
    with pytest.raises(EmulatorError, match=rf"target={target!r}: should be 80 \(sm_80\) or 90 \(sm_90\)"):
        devices.choose(target)


def test_the_variable_is_named_if_it_is_wrong(undecided, monkeypatch):
    monkeypatch.setenv(devices.VARIABLE, "sm_90")
    with pytest.raises(EmulatorError, match=r"FLASH_ATTEST_EMULATED=sm_90: should be 80 \(sm_80\) or 90"):
        devices.emulated()


# ---- what programs see ---------------------------------------------------------------------------

PROGRAM = """
import os, subprocess, sys, torch
from flash_attest import emulate
assert emulate(target=90)
assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.get_device_name() == "emulated sm_90"
assert torch.cuda.get_arch_list() == ["sm_90"]
assert torch.cuda.get_device_properties(0).shared_memory_per_block_optin == 227 * 1024
assert os.environ["FLASH_ATTEST_EMULATED"] == "90"
"""
IN_TRITON = """
import triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)
@triton.jit
def through(desc, out, M: tl.constexpr, N: tl.constexpr):
    tile = desc.load([0, 0])
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tile)
x, out = torch.arange(100.), torch.empty(100)
compiled = twice[(2,)](x, out, 100, BLOCK=64)
assert torch.equal(out, 2 * x)
assert ".target sm_90" in compiled.asm["ptx"] and compiled.metadata.target.arch == 90
x, out = torch.arange(256.).view(16, 16), torch.empty(16, 16)
compiled = through[(1,)](TensorDescriptor.from_tensor(x, [16, 16]), out, 16, 16)
assert torch.equal(out, x) and "cp.async.bulk.tensor" in compiled.asm["ptx"]
"""
IN_NUMBA = """
from numba import cuda
@cuda.jit
def twice(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]
x, out = torch.arange(100.), torch.empty(100)
twice[4, 32](x, out)
assert torch.equal(out, 2 * x) and cuda.get_current_device().compute_capability == (9, 0)
(ptx,) = twice.inspect_asm().values()
assert ".target sm_90" in ptx
"""


def python(*arguments: object) -> runs.Ran:
    return runs.python(*arguments, PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="")


def test_triton_compiles_for_it(gxx, tmp_path):
    """Kernels for sm_90 read tensor descriptors by TMA."""
    pytest.importorskip("triton")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + IN_TRITON)
    done = python(program)
    assert done.returncode == 0, done.stderr


def test_numba_compiles_for_it(gxx):
    pytest.importorskip("numba.cuda")
    done = python("-c", PROGRAM + IN_NUMBA)
    assert done.returncode == 0, done.stderr


ASKED = "import torch; print(torch.cuda.get_device_name())"


def test_the_command_passes_it_to_what_it_starts():
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ASKED!r}])"
    done = python("-m", "flash_attest", "emulate", "--emulated", "90", "--", sys.executable, "-c", child)
    assert done.stdout == "emulated sm_90\n", done.stderr


@pytest.mark.parametrize("name", ("check", "emulate", "trace", "sweep", "power"))
def test_each_command_names_a_wrong_value(name):
    done = python("-m", "flash_attest", name, "--emulated", "75", "x")
    assert done.returncode == 2
    assert "argument --emulated: invalid choice: '75' (choose from" in done.stderr and "90" in done.stderr


@pytest.mark.parametrize("command", (["emulate", "--", "python"], ["check", "torch_math"], ["trace", __file__]))
def test_each_command_names_a_wrong_variable(command, monkeypatch):
    monkeypatch.setenv(devices.VARIABLE, "70")
    done = python("-m", "flash_attest", *command)
    assert done.returncode == 2
    assert "error: FLASH_ATTEST_EMULATED=70: should be 80 (sm_80) or 90 (sm_90)" in done.stderr
