"""A kernel in the engine. It behaves as Numba's CUDA function does on a GPU.

It refuses launches that a GPU would not start.
"""

from __future__ import annotations

import ctypes
import math
import re
from typing import Any

from flash_attest.emulator import ptx
from flash_attest.emulator.devices import LARGEST_BLOCK, LARGEST_GRID, MAX_THREADS, STATIC_SHARED, emulated
from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.numba.device import context
from flash_attest.emulator.ptx.module import PtxError

ASKED = "numba.cuda.cudadrv.driver.driver.cuKernelSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES, n, function.handle, 0)"


class Function:
    """A kernel, called with a grid, a block, bytes of shared memory, and (name, argument) of each
    PTX parameter.
    """

    device = context.device

    def __init__(self, kernel: Any):
        self.title, self.name, text = kernel.py_func.__name__, kernel.entry_name, kernel.ptx
        if re.fullmatch(r"\w+", self.title) and not re.search(rf"\b{self.title}\b", text):
            text, self.name = text.replace(self.name, self.title), self.title  # messages use this name too
        self.module = ptx.load(text, source=f"{self.title}.ptx")
        self.loaded = self.module.kernels[self.name]
        self.attributes = self.attrs = Attributes(self.title, self.loaded)
        self.kernel = self.handle = self  # the names that cuda.core and CUDA use for it

    def __call__(self, grid: tuple, block: tuple, shared: int, named: list[tuple[str, Any]]) -> None:
        self._check(grid, block, shared)
        names, values = zip(*named, strict=True) if named else ((), ())
        self.loaded.launch(grid, block, shared, emulated().max_shared)(*values, names=names)

    def _check(self, grid: tuple, block: tuple, shared: int) -> None:
        for what, sizes, most in ("grid", grid, LARGEST_GRID), ("block", block, LARGEST_BLOCK):
            if not all(1 <= size <= limit for size, limit in zip(sizes, most, strict=True)):
                raise PtxError(f"{self.title} cannot be launched: {what}={sizes}: should be (1, 1, 1) to {most}")
        if math.prod(block) > MAX_THREADS:
            raise PtxError(f"{self.title} cannot be launched: block={block}: at most {MAX_THREADS} threads")
        most = self.attributes.max_dynamic_shared_size_bytes
        if (static := self.attributes.shared) > STATIC_SHARED:
            raise PtxError(
                f"{self.title} cannot be launched: {static} bytes of shared arrays: at most {STATIC_SHARED}, beyond which "
                "an array has to be dynamic (of size 0, its bytes given to the launch)"
            )
        if shared > most:
            beside = f" beside {static} of shared arrays" if static else ""
            could = emulated().max_shared - static
            more = f"; a kernel gets up to {could} if the host asks for them: {ASKED}" if most < could else ""
            raise PtxError(f"{self.title} cannot be launched: shared={shared} bytes: at most {most}{beside}{more}")

    def variable(self, what: str) -> ctypes.c_int:
        """Return the value of a module variable that kernels compiled with debug=True have."""
        return ctypes.c_int.from_address(self.module.variables[f"{self.name}__{what}__"][0])

    def set_shared_memory_carveout(self, carveout: int) -> None:
        """Ignore this hint: it has no effect here."""


class Attributes:
    """Attributes of a function. They have Numba's names, and the last ones have cuda.core's."""

    def __init__(self, title: str, kernel: ptx.module.Kernel):
        self._title, self._kernel = title, kernel
        self.allowed_shared: int | None = None  # set by cuKernelSetAttribute

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return STATIC_SHARED - self.shared if self.allowed_shared is None else self.allowed_shared

    @property
    def maxthreads(self) -> int:
        return math.prod(self._kernel.head.directives.get("maxntid", (MAX_THREADS,)))

    @property
    def shared(self) -> int:
        return sum(variable.end - variable.start for variable in self._layout.shared)

    @property
    def local(self) -> int:
        return self._layout.local_bytes

    @property
    def const(self) -> int:
        variables = self._kernel.module.decoded.variables.values()
        return sum(variable.size for variable in variables if variable.space == "const")

    @property
    def regs(self) -> int:
        raise NotCovered(
            f"{self._title}: its registers are not known on the CPU: ptxas, which allocates them, does not run"
        )

    @property
    def _layout(self) -> Any:
        return self._kernel._program.code.layout

    max_threads_per_block, shared_size_bytes, local_size_bytes = maxthreads, shared, local
    const_size_bytes, num_regs = const, regs
