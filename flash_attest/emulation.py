"""Runs GPU kernels without a GPU (`emulate`), and finds their races (`trace`, `assert_race_free`).

    from flash_attest import assert_race_free, emulate
    emulate()
    x = torch.randn(1000, device="cuda")                # memory of the CPU
    out = torch.empty_like(x)
    scale_kernel[(8,)](x, out, 1000, BLOCK=128)         # @triton.jit or @cuda.jit, run on the CPU
    assert_race_free(lambda: scale_kernel[(8,)](x, out, 1000, BLOCK=128))

Importing this imports neither torch nor Triton nor Numba.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import flash_attest.properties.machine  # noqa: F401  (makes torch count GPUs without CUDA, so that forks can use CUDA)
from flash_attest.emulator import cutedsl as emulated_cutedsl
from flash_attest.emulator import devices
from flash_attest.emulator import numba as emulated_numba
from flash_attest.emulator import triton as emulated_triton

if TYPE_CHECKING:
    from flash_attest.races.finding import Finding

LIMIT = 60.0  # seconds of CPU time for one launch; the same as in emulator/runtime/watch.py, which loads torch
_answering = False  # whether torch pretends to have a GPU for the rest of the process


def emulate(*, as_gpu: bool = True, target: int | None = None) -> bool:
    """Run this process's GPU kernels on the CPU from now on. Does nothing if there is a GPU.

        emulate()
        assert torch.ones(3, device="cuda").is_cuda

    Kernels of `@triton.jit` and `@numba.cuda.jit` are compiled for sm_80, as for an A100, and run
    in the emulator; with target=90, for sm_90, as for an H100. They take CPU tensors of any shape;
    Numba's kernels also take NumPy arrays. flash_attest.emulator.cuda.load and
    torch.cuda._compile_kernel load CUDA C++. Call this before any kernel is launched. With as_gpu,
    also call it before any module asks torch for its GPU.

    as_gpu: whether torch pretends that the emulator is its only GPU. device="cuda", x.cuda(),
    x.is_cuda, x.device, torch.cuda.is_available(), torch.cuda.get_device_capability() == (8, 0),
    torch.autocast("cuda") and operators registered for CUDA alone then work, so tests written for a
    GPU run unchanged. torch.compile compiles nothing. With False, torch is left alone and only
    launches change.

    target: the GPU, 80 or 90. None is what the environment variable FLASH_ATTEST_EMULATED names,
    else 80. Child processes get the same one. Raises EmulatorError for another number, and if this
    process emulates another GPU already.

    Returns whether kernels are emulated. This is False if there is a GPU; hide it with
    CUDA_VISIBLE_DEVICES= to emulate. A later request to torch.cuda that has no answer
    (memory_allocated, CUDAGraph) raises NotCovered with its name.
    """
    global _answering
    importlib.import_module("torch")  # takes seconds; before guards, as it may call `emulate`
    from flash_attest.emulator import guards

    if guards.gpu_is_there():
        return False
    if target is not None:
        devices.choose(target)
    devices.target()  # raises if FLASH_ATTEST_EMULATED names no GPU
    _warn_of_other_simulators()
    emulated_triton.activate_when_imported()
    emulated_numba.activate_when_imported()
    emulated_cutedsl.prepare()
    if as_gpu and not _answering:
        _answering = True
        guards.answer()
    return True


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """Emulate a GPU in a block: torch pretends to have one there, and nowhere else.

        with emulated():
            from package import attention
            out = attention(q, k, v)

    Use it for calls of a package in a program that otherwise needs torch's true answers. The block
    changes nothing if there is a GPU.
    """
    if emulate(as_gpu=False):
        from flash_attest.emulator import guards  # imports torch

        with guards.as_cuda():
            yield
    else:
        yield


def trace(call: Callable[[], Any], *, seed: int = 0, switch: float = 0.0, limit: float = LIMIT) -> list[Finding]:
    """Call `call()` and check every memory access of its kernels. Returns the findings.

        for finding in trace(lambda: kernel[(1,)](x, out)):
            print(finding)

    An empty list means that nothing was found for this input. Findings are races, accesses outside
    of tensors, reads of unwritten shared memory, barriers that not all threads reach, and deadlocks
    (docs/why/races.md). Each has `kind`, `tensor`, `index`, `first` and `second`; the last two hold
    the source lines.

    seed: 0 runs threads and blocks in order, any other number in a random order. switch: the
    probability, 0 to 1, that another thread continues at an access, which makes the damage of a
    race visible. limit: seconds of CPU time for one launch.

    If the call raises because of a finding, the findings are returned. Raises RuntimeError if no
    kernel ran in the emulator.
    """
    is_emulated = emulate(as_gpu=False)
    from flash_attest.races import recording, tracing  # import torch

    try:
        with recording.paused():
            return tracing.trace(call, seed, switch, limit)
    except RuntimeError as error:
        if is_emulated or "no traced kernel was launched" not in str(error):
            raise
        raise RuntimeError(
            f"{error}. A GPU runs the kernels here: hide it with CUDA_VISIBLE_DEVICES= to trace them"
        ) from None


def assert_race_free(call: Callable[[], Any], *, seed: int = 0, switch: float = 0.0, limit: float = LIMIT) -> None:
    """Raise AssertionError if `trace(call)` finds anything.

        assert_race_free(lambda: kernel[(1,)](x, out))

    The message has each finding with its two lines and threads. seed, switch and limit are the
    arguments of `trace`. Raises RuntimeError if no kernel ran in the emulator.
    """
    __tracebackhide__ = True
    if findings := trace(call, seed=seed, switch=switch, limit=limit):
        count = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        raise AssertionError("\n".join([f"{count} in the kernels that were launched:", *map(str, findings)]))


def _warn_of_other_simulators() -> None:
    """Warn if Triton's or Numba's interpreter is on: it runs kernels before the emulator can."""
    for is_on, name, whose in (
        (emulated_triton.interpreted(), "TRITON_INTERPRET", "Triton's interpreter"),
        (emulated_numba.simulated(), "NUMBA_ENABLE_CUDASIM", "Numba's simulator"),
    ):
        if is_on:
            warnings.warn(
                f"{name}={os.environ[name]}: {whose} runs its kernels instead of the emulator, and none is traced: unset it",
                RuntimeWarning,
                stacklevel=3,
            )
