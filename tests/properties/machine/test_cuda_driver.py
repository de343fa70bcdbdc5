"""Calls of CUDA's driver: how errors are raised, and how a process waits for a GPU."""

import subprocess
import sys
from enum import Enum
from types import SimpleNamespace

import pytest

from flash_attest.properties.machine import cuda_driver
from tests.places import ROOT


class Result(Enum):
    """Errors of the driver's functions."""

    CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED = 0, 2, 801


OK = Result.CUDA_SUCCESS


@pytest.fixture
def machine(monkeypatch):
    """Return a driver with two GPUs. Its flags record what has been set."""
    flags = {}
    driver = SimpleNamespace(
        CUctx_flags=SimpleNamespace(CU_CTX_SCHED_YIELD=2),
        cuDeviceGetCount=lambda: (OK, 2),
        cuDeviceGet=lambda n: (OK, f"GPU {n}"),
        cuDevicePrimaryCtxSetFlags=lambda gpu, flag: (flags.__setitem__(gpu, flag), (OK,))[1],
        flags=flags,
    )
    monkeypatch.setattr(cuda_driver, "driver", lambda: driver)
    return driver


def test_a_process_yields_its_core_while_it_waits_for_any_gpu(machine):
    cuda_driver.yield_while_waiting()
    assert machine.flags == {"GPU 0": 2, "GPU 1": 2}


@pytest.mark.parametrize("why", [OSError("not installed"), RuntimeError("no driver"), Result.CUDA_ERROR_NOT_SUPPORTED])
def test_where_it_cannot_be_set_nothing_happens(machine, why):
    def fail(_):
        if isinstance(why, Exception):
            raise why
        return (why,)

    machine.cuDeviceGet = fail
    cuda_driver.yield_while_waiting()
    assert not machine.flags


def test_without_cuda_bindings_the_reason_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(OSError, match="cuda-bindings is not installed"):
        cuda_driver.driver()


@pytest.mark.parametrize(
    ("name", "raised"), [("CUDA_ERROR_OUT_OF_MEMORY", MemoryError), ("CUDA_ERROR_NOT_SUPPORTED", OSError)]
)
def test_a_driver_error_is_raised_by_its_name(name, raised):
    def cuMemCreate():
        return Result[name], None

    with pytest.raises(raised, match=f"cuMemCreate gives {name}"):
        cuda_driver.call(cuMemCreate)


def test_a_call_gives_its_result():
    assert cuda_driver.call(lambda n: (OK, n), 3) == 3 and cuda_driver.call(lambda: (OK,)) is None


@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="there is no GPU")
def test_judging_processes_yield():
    """The test runs in a separate process, which asks NVML for the GPUs and forks, as pytest's
    process does.
    """
    script = """
import os, sys
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
import torch
torch.cuda.device_count()
if pid := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
from cuda.bindings import driver as api
from flash_attest.properties.machine.cuda_driver import call
from flash_attest.runner.plugin.process import prepare
prepare("cuda", is_worker=False)
flags = call(api.cuDevicePrimaryCtxGetState, call(api.cuDeviceGet, 0))
assert flags & api.CUctx_flags.CU_CTX_SCHED_MASK == api.CUctx_flags.CU_CTX_SCHED_YIELD, flags
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
