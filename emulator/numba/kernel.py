"""A compiled kernel, whose PTX is loaded and run where Numba would load and launch a cubin."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.cuda import dispatcher, types, typing

from flash_attest.emulator.build_cache import built
from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.numba import arguments, fingerprint
from flash_attest.emulator.numba.function import Function
from flash_attest.emulator.numba.text import links_only_numba, text_of

NumbaKernel = dispatcher._Kernel  # saved before it is replaced


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Turn Python's garbage collection off in this block. With Numba's many objects it takes a
    tenth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Kernel(NumbaKernel):
    """Replaces Numba's kernel while the emulator is active. There is one for each signature."""

    def __init__(self, py_func: Any, argtypes: tuple, **options: Any):
        self.compiler_arguments = py_func, argtypes, options
        self.ptx = ""
        try:
            path = built(fingerprint.key(*self.compiler_arguments), self._compile_into, ".numba")
        except fingerprint.Unkeyed:
            path = None
        if not self.ptx and path:
            self._read(path)
        if not self.ptx:  # the kernel has no key, or the cache was just cleaned
            self._compile()
        self.function = functools.cache(lambda: Function(self))

    def _compile(self) -> None:
        """Let Numba compile the kernel to PTX."""
        py_func, argtypes, options = self.compiler_arguments
        with without_collections():
            super().__init__(py_func, argtypes, **options)
        if self.cooperative:
            raise NotCovered(f"{py_func.__name__}: a grid that waits for all its blocks is not covered on the CPU")
        self._codelibrary = Library(self, self._codelibrary)
        self.ptx = text_of(self._codelibrary)

    def _compile_into(self, path: Path) -> None:
        self._compile()
        if self.launch_config_sensitive:
            raise fingerprint.Unkeyed("it was compiled for one grid")
        if not links_only_numba(self._codelibrary):
            raise fingerprint.Unkeyed("it links code that may change")
        path.write_text(json.dumps([self.entry_name, self.ptx]))

    def _read(self, path: Path) -> None:
        """Read the result of another process's compilation, and set the attributes that Numba sets
        for a kernel from its own cache.
        """
        try:
            name, ptx = json.loads(path.read_text())
        except (OSError, ValueError):
            return
        py_func, argtypes, options = self.compiler_arguments
        kernel = NumbaKernel._rebuild(
            cooperative=False, name=name, signature=typing.signature(types.void, *argtypes), codelibrary=Library(self),
            debug=False, lineinfo=options.get("lineinfo", False), call_helper=None, extensions=[],
        )  # fmt: skip
        self.__dict__.update(vars(kernel))
        self.py_func, self.argtypes, self.launch_bounds = py_func, argtypes, options.get("launch_bounds")
        self.objectmode, self.ptx = False, ptx

    def bind(self) -> None:
        """Do nothing: there is no device to load it on."""

    @functools.cached_property
    def names(self) -> list[str]:
        """Return the names of the Python parameters."""
        return list(inspect.signature(self.py_func).parameters)

    def launch(self, args: tuple, griddim: tuple, blockdim: tuple, stream: Any = 0, sharedmem: int = 0) -> None:
        """Run the kernel with these arguments."""
        if len(args) != len(self.names):
            listed = ", ".join(self.names)
            raise TypeError(f"{self.py_func.__name__} takes {len(self.names)} arguments ({listed}), got {len(args)}")
        named, afterwards = [], []
        for name, type_, value in zip(self.names, self.argument_types, args, strict=True):
            for extension in reversed(self.extensions):
                type_, value = extension.prepare_args(type_, value, stream=0, retr=afterwards)
            named += arguments.flat(name, type_, value)
        self.function()(griddim, blockdim, sharedmem, named)
        if self.debug:
            self._raise_exception()
        for each in afterwards:
            each()

    def _raise_exception(self) -> None:
        """Raise the exception of the kernel: with debug=True it stores the exception's number and
        the thread.
        """
        code = self.function().variable("errcode")
        number, code.value = code.value, 0
        if not number:
            return
        kind, args, location = self.call_helper.get_exception(number)
        thread, block = (
            tuple(self.function().variable(f"{what}{i}").value for i in "xyz") for what in ("tid", "ctaid")
        )
        where = f"{location[1]}:{location[2]}, in {location[0]}, " if location else ""
        said = f": {args[0]}" if args else ""
        raise kind(f"{where}thread {thread} of block {block}{said}", *(args or ())[1:])


class Library:
    """Numba's code library of a kernel. It is compiled only when something other than the function
    is requested.
    """

    def __init__(self, kernel: Kernel, compiled: Any = None):
        self._kernel, self._compiled = kernel, compiled

    def get_cufunc(self) -> Function:
        return self._kernel.function()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._compiled is None:
            py_func, argtypes, options = self._kernel.compiler_arguments
            self._compiled = NumbaKernel(py_func, argtypes, **options)._codelibrary
        return getattr(self._compiled, name)
