"""Compiles a kernel as Numba does for a Hopper GPU, and returns its PTX and registers. No GPU is
needed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from cuda.bindings import nvjitlink
from numba import cuda

from flash_attest.impls.numba import launch


class Compiled(NamedTuple):
    """A kernel for sm_90: its PTX, registers per thread, and bytes of stack and spills."""

    ptx: str
    registers: int
    stack: int
    spilled: int

    def count(self, pattern: str) -> int:
        return len(re.findall(pattern, self.ptx))


def compiled(monkeypatch, module, call) -> Compiled:
    """Compile, without launching it, the only kernel that call() launches through a module's
    `launch`.
    """
    (kernel,) = all_compiled(monkeypatch, module, call).values()
    return kernel


def all_compiled(monkeypatch, module, call, *names: str) -> dict[str, Compiled]:
    """Return {name: kernel} of the kernels that call() launches through a module's `launch`. names:
    only these.
    """
    launched = {}

    def note(kernel, blocks, bytes_, *arguments):
        launched[kernel.__name__] = (kernel, [launch.flat(x) if isinstance(x, torch.Tensor) else x for x in arguments])

    monkeypatch.setattr(module, "launch", note)
    call()
    return {name: _compile(*launch) for name, launch in launched.items() if not names or name in names}


def _compile(kernel, arguments) -> Compiled:
    signature, bounds = tuple(map(kernel.typeof_pyval, arguments)), kernel.targetoptions["launch_bounds"]
    ptx, _ = cuda.compile_ptx(kernel.py_func, signature, cc=(9, 0), lineinfo=False, launch_bounds=bounds)
    return Compiled(ptx, *linked(ptx))


def linked(ptx: str) -> tuple[int, int, int]:
    """Return the registers, bytes of stack, and bytes of spills of PTX, according to Numba's
    linker.
    """
    link = nvjitlink.create(3, ["-arch=sm_90", "-verbose", "-Xptxas=-v"])
    nvjitlink.add_data(link, nvjitlink.InputType.PTX, ptx.encode(), len(ptx.encode()), "kernel")
    nvjitlink.complete(link)
    log = bytearray(nvjitlink.get_info_log_size(link))
    nvjitlink.get_info_log(link, log)
    nvjitlink.destroy(link)
    (registers,) = re.findall(r"Used (\d+) registers", log.decode())
    ((stack, stores, loads),) = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log.decode()
    )
    return int(registers), int(stack), int(stores) + int(loads)
