"""Launches of Triton or Numba kernels, captured during a call so that they can be repeated with
edited PTX.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from flash_attest.emulator import ptx
from flash_attest.emulator.ptx.tensor_map import TensorMap
from flash_attest.races.tracing import trace

BARRIER = re.compile(r"\bbar(rier)?\.sync\b")
WARP_BARRIER = re.compile(r"\bbar\.warp\.sync\b")


@dataclass(frozen=True)
class Taken:
    """One launch: its kernel, its shape, and its arguments as they were before it."""

    kernel: ptx.Kernel
    shape: tuple
    arguments: tuple
    names: list[str]

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def lines(self) -> list[str]:
        return self.kernel.module.text.split("\n")

    @property
    def barriers(self) -> list[int]:
        """Return the lines (from 0) with a barrier of the block."""
        return [n for n, line in enumerate(self.lines) if BARRIER.search(line)]

    @property
    def warp_barriers(self) -> list[int]:
        """Return the lines (from 0) with a barrier of a warp."""
        return [n for n, line in enumerate(self.lines) if WARP_BARRIER.search(line)]

    def python_place(self, n: int) -> tuple[str, int]:
        """Return the Python file and line that line n of the PTX was compiled from."""
        files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', self.kernel.module.text, re.M))
        places = (re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line) for line in reversed(self.lines[: n + 1]))
        file, line = next(place for place in places if place).groups()
        return files[file], int(line)

    def python_line(self, n: int) -> str:
        file, line = self.python_place(n)
        return f"{file.rsplit('/', 1)[-1]}:{line}"

    def python_text(self, n: int) -> str:
        return linecache.getline(*self.python_place(n)).strip()

    def run(self, text: str | None = None, seed: int = 0, switch: float = 0.0) -> tuple[list, tuple]:
        """Run the launch. Returns the findings, and the arguments afterwards.

        text: PTX instead of the kernel's.
        """
        module = self.kernel.module
        kernel = self.kernel
        if text is not None:
            kernel = ptx.load(text, source=module.source, replicated=module.replicated)[self.name]
        arguments = tuple(map(copied, self.arguments))
        findings = trace(lambda: kernel.launch(*self.shape)(*arguments, names=self.names), seed=seed, switch=switch)
        return findings, arguments

    def without(self, *removed: int) -> str:
        """Return the PTX without these lines."""
        lines = self.lines
        for n in removed:
            lines[n] = f"// {lines[n]}"
        return "\n".join(lines)


def copied(argument: Any) -> Any:
    """Return a copy of a tensor, or of a tensor map with its tensor; anything else as it is."""
    if isinstance(argument, TensorMap):
        return replace(argument, tensor=argument.tensor.clone())
    return argument.clone() if isinstance(argument, torch.Tensor) else argument


@contextmanager
def taking() -> Iterator[list[Taken]]:
    """Captures the launches inside this block."""
    seen: list[Taken] = []
    real = ptx.Kernel.launch

    def launch(kernel: ptx.Kernel, *shape: Any, cluster: Any = None) -> Callable[..., None]:
        run = real(kernel, *shape, cluster=cluster)

        def call(*arguments: Any, names: list[str]) -> None:
            before = tuple(map(copied, arguments))
            seen.append(Taken(kernel, shape, before, names))
            run(*arguments, names=names)

        return call

    ptx.Kernel.launch = launch
    try:
        yield seen
    finally:
        ptx.Kernel.launch = real
