"""GPU kernels without a GPU: `emulate`, and their races: `trace`, `assert_race_free`.

    from flash_attest import assert_race_free, emulate
    emulate()
    x = torch.randn(1000, device="cuda")                     # memory of the CPU
    out = torch.empty_like(x)
    scale_kernel[(8,)](x, out, 1000, BLOCK=128)              # @triton.jit, @cuda.jit: compiled for sm_80, run on the CPU
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

import flash_attest.properties.machine  # noqa: F401  (has GPUs counted without CUDA, so that laws can be judged in forks)
from flash_attest.emulator import numba as emulated_numba
from flash_attest.emulator import triton as emulated_triton

if TYPE_CHECKING:
    from flash_attest.races.finding import Finding

LIMIT = 60.0  # seconds for one launch, as of emulator/runtime/watch.py, which loads torch
_answering = False  # whether torch answers as with a GPU for the rest of the process


def emulate(*, as_gpu: bool = True) -> bool:
    """Run GPU kernels of this process on its CPU, from now on. Where a GPU is, do nothing.

    Kernels of `@triton.jit` and of `@numba.cuda.jit` compile for sm_80, as for an A100, and run in the emulator. They take
    CPU tensors of any shape, and Numba's take NumPy arrays. CUDA C++ is loaded by flash_attest.emulator.cuda.load or
    torch.cuda._compile_kernel. Call it before kernels are launched; with as_gpu, before a module asks torch for its GPU.

    as_gpu: torch answers as if the emulator were its GPU, number 0 of one: device="cuda", x.cuda(), x.is_cuda, x.device,
    torch.cuda.is_available(), torch.cuda.get_device_capability() == (8, 0), torch.autocast("cuda"), operators that are
    registered for CUDA only. So tests that were written for a GPU run as they are. torch.compile compiles nothing.
    False: torch is left alone, and only launches are changed.

    Returns whether kernels are emulated: False where a GPU is. To emulate there, hide it: CUDA_VISIBLE_DEVICES=
    Later, a program that asks torch.cuda for what has no answer (memory_allocated, CUDAGraph) gets NotCovered with its name.

        emulate()
        assert torch.ones(3, device="cuda").is_cuda
    """
    global _answering
    importlib.import_module("torch")  # here, as it takes seconds; before guards: it may call this (emulated.py)
    from flash_attest.emulator import guards

    if guards.gpu_is_there():
        return False
    _warn_of_other_simulators()
    emulated_triton.activate_when_imported()
    emulated_numba.activate_when_imported()
    if as_gpu and not _answering:
        _answering = True
        guards.answer()
    return True


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """Do what `emulate()` does, in a block: torch answers as if it had a GPU, and no longer than that.

    For calls of a package in a program that has to know the truth. Where a GPU is, the block does nothing.

        with emulated():
            from package import attention
            out = attention(q, k, v)
    """
    if emulate(as_gpu=False):
        from flash_attest.emulator import guards  # here, for the same reason

        with guards.as_cuda():
            yield
    else:
        yield


def trace(call: Callable[[], Any], *, seed: int = 0, switch: float = 0.0, limit: float = LIMIT) -> list[Finding]:
    """Call `call()` with every access of its kernels checked. -> the findings; [] means none for this input.

    Findings are races, accesses outside of tensors, reads of shared memory that was never written, barriers that not all
    threads reach, deadlocks (docs/why/races.md). Each has `kind`, `tensor`, `index`, `first` and `second` with their lines.

    seed: 0 runs threads and blocks in order, any other number in a random order. switch: the probability, 0 to 1, that
    another thread continues at an access, which makes the damage of a race visible. limit: seconds for one launch.
    If the call raises because of a finding, the findings are returned. Raises RuntimeError if no kernel ran in the emulator.

        for finding in trace(lambda: kernel[(1,)](x, out)):
            print(finding)
    """
    is_emulated = emulate(as_gpu=False)
    from flash_attest.races import recording, tracing  # here, as they import torch

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
    """Raise AssertionError if `trace(call)` has a finding; the message has each with its two lines and threads.

    The arguments, and RuntimeError if no kernel ran, are those of `trace`.

        assert_race_free(lambda: kernel[(1,)](x, out))
    """
    __tracebackhide__ = True
    if findings := trace(call, seed=seed, switch=switch, limit=limit):
        count = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        raise AssertionError("\n".join([f"{count} in the kernels that were launched:", *map(str, findings)]))


def _warn_of_other_simulators() -> None:
    """Triton and Numba have interpreters of their own, which come first."""
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
