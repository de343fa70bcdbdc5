"""A loaded .cu file: its host functions and kernels, as Python functions of CPU tensors."""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from flash_attest.emulator.cuda import build
from flash_attest.emulator.errors import EmulatorError
from flash_attest.emulator.observation import Observation
from flash_attest.emulator.runtime import watch
from flash_attest.emulator.runtime.calls import CallMemory, Dims, memory_of, raise_observed, refuse_large, three
from flash_attest.emulator.runtime.symbols import base_name, register_variables

# Maps the codes of shim/entry.h for pointer types to the dtypes that fit.
POINTEES = {
    "f": {torch.float32}, "d": {torch.float64}, "e": {torch.float16}, "g": {torch.bfloat16}, "?": {torch.bool, torch.uint8},
    "b": {torch.int8}, "B": {torch.uint8, torch.bool}, "h": {torch.int16}, "H": {torch.int16, torch.uint16},
    "i": {torch.int32}, "I": {torch.int32, torch.uint32}, "l": {torch.int64}, "L": {torch.int64, torch.uint64},
}  # fmt: skip
RANGES = {"?": (0, 1)} | {
    code: (-(2 ** (bits - 1)) * signed, 2 ** (bits - signed) - 1)
    for signed, codes in ((1, "bhil"), (0, "BHIL"))
    for code, bits in zip(codes, (8, 16, 32, 64), strict=True)
}


class CudaError(EmulatorError):
    """A launch failed, or a kernel did something that stops it on a GPU: a deadlock, an illegal
    address, a trap.
    """


class _Value(ctypes.Structure):
    _fields_ = (("pointer", ctypes.c_void_p), ("integer", ctypes.c_int64), ("number", ctypes.c_double))


class _Shape(ctypes.Structure):
    _fields_ = (("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_size_t))


class Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("types", ctypes.c_char_p), ("result", ctypes.c_char), ("call", ctypes.c_void_p),
    )  # fmt: skip


_CALL = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Value), ctypes.POINTER(_Shape), ctypes.POINTER(_Value))
library_lock = threading.RLock()  # held while a library is loaded


class CudaFile:
    """A .cu file whose functions can be called: file.forward(q, k, ...),
    file["scale<4>"].launch(grid, block)(x, n).
    """

    def __init__(self, path: Path, names: tuple[str, ...], flags: tuple[str, ...], level: str):
        self.path, self.names, self.flags, self.level = path, names, flags, level
        self.kernels: tuple[str, ...] = ()  # names without namespaces and template arguments
        self._libraries: dict[bool, dict[str, Entry]] = {}

    def __getitem__(self, name: str) -> Function:
        if name not in self.names:
            raise KeyError(f"{self.path.name}: {name!r} was not named in load(), which named {', '.join(self.names)}")
        return Function(self, name)

    def __getattr__(self, name: str) -> Function:
        if name.startswith("_") or name not in self.names:
            known = ", ".join(self.__dict__.get("names", ()))
            raise AttributeError(f"{name!r} was not named in load(), which named {known}")
        return Function(self, name)

    def entries(self, traced: bool) -> dict[str, Entry]:
        """Return the entry of each name, in the plain library or the traced one."""
        with library_lock:
            if traced not in self._libraries:
                build.host()  # loaded first, because the library needs its functions
                path = build.library(self.path, self.names, self.flags, traced, self.level)
                library = ctypes.CDLL(str(path))
                library.emulator_cuda_kernels.restype = ctypes.c_char_p
                library.emulator_cuda_module.restype = ctypes.c_void_p
                library.emulator_cuda_entries.restype = ctypes.POINTER(Entry)
                self.kernels = tuple(library.emulator_cuda_kernels().decode().split())
                register_variables(library.emulator_cuda_module(), str(path), self.kernels)
                # The value is copied, because a kernel of a plain build may overwrite it.
                table = library.emulator_cuda_entries()
                entries = [Entry.from_buffer_copy(table[i]) for i in range(len(self.names))]
                self._libraries[traced] = dict(zip(self.names, entries, strict=True))
            return self._libraries[traced]

    def raise_failed(self) -> None:
        """Raise the exception, if any, that a launch of the last call raised in Python.

        This does nothing here, because these launches run in C++.
        """

    @functools.cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8", errors="replace")


class Function:
    """A function of a CudaFile. A host function is called; a kernel is launched with `launch`."""

    def __init__(self, file: CudaFile, name: str):
        self.file, self.name = file, name

    def __repr__(self) -> str:
        return f"<{self.name} of {self.file.path.name}>"

    def __call__(self, *arguments: Any) -> float | int | None:
        """Call a host function.

        Pointers take CPU tensors or None (null); other parameters take numbers.
        """
        if self.is_kernel:
            raise TypeError(
                f"{self.name} is a kernel: launch it, as in .launch(grid, block)(...), or call a host function"
            )
        return self._run(arguments, None)

    def launch(self, grid: Dims, block: Dims, shared: int = 0) -> Callable[..., None]:
        """Return a function that launches this kernel.

        grid, block: 1 to 3 sizes. shared: bytes of dynamic shared memory.
        """
        if not self.is_kernel:
            raise TypeError(f"{self.name} is a host function, not a kernel: call it")
        shape = _Shape(three("grid", grid), three("block", block), shared)
        return lambda *arguments: self._run(arguments, shape)

    @property
    def is_kernel(self) -> bool:
        """Return whether the function is declared __global__."""
        return base_name(self.name) in self.file.kernels

    @functools.cached_property
    def parameters(self) -> list[str]:
        """Return the names of the function's parameters, as in the source; [] if they cannot be
        read.
        """
        declaration = re.search(rf"\b{re.escape(base_name(self.name))}\s*\(([^;{{}}]*?)\)\s*\{{", self.file.text)
        return re.findall(r"(\w+)\s*(?:\[\s*\])?\s*(?=,|$)", declaration[1]) if declaration else []

    def _run(self, arguments: tuple, shape: _Shape | None) -> float | int | None:
        watching = watch.current()
        entry = self.file.entries(traced=watch.needs_traced_build())[self.name]
        values = self._values(entry.types, arguments)
        tensors = [(self._name(i), a) for i, a in enumerate(arguments) if isinstance(a, torch.Tensor)]
        with memory_of(tensors) as memory:
            addresses = iter(memory.addresses)
            for value, argument in zip(values, arguments, strict=False):
                if isinstance(argument, torch.Tensor):
                    value.pointer = next(addresses)
            if watching:
                refuse_large(self._who, memory.storages, CudaError)
            result = _Value()
            thrown, observations = _called(entry, values, shape, result, memory)
            self.file.raise_failed()
            if watching:
                watching.observe(observations)
            if thrown:
                raise CudaError("\n".join([f"the host code throws: {thrown}", *map(str, observations)]))
            if not watching:
                raise_observed(self._who, observations, memory.storages, CudaError)
        return {b"v": None, b"d": result.number, b"i": result.integer}[entry.result]

    @property
    def _who(self) -> str:
        return f"{self.name} of {self.file.path.name}"

    def _name(self, i: int) -> str:
        return self.parameters[i] if i < len(self.parameters) else f"argument {i + 1}"

    def _values(self, types: bytes, arguments: tuple) -> ctypes.Array:
        if len(arguments) != len(types):
            names = f" ({', '.join(self.parameters)})" if self.parameters else ""
            raise TypeError(
                f"{self.name} of {self.file.path.name} takes {len(types)} arguments{names}, got {len(arguments)}"
            )
        values = (_Value * max(len(types), 1))()
        for i, (code, argument) in enumerate(zip(types, arguments, strict=True)):
            problem = _fill(values[i], code, argument)
            if problem:
                raise TypeError(f"{self.name} of {self.file.path.name}, {self._name(i)}: {problem}")
        return values


def _fill(value: _Value, code: int, argument: Any) -> str:
    """Store an argument in a value. Returns an error about the argument, or ""."""
    if code & 0x80:
        pointee = chr(code & 0x7F)
        if argument is None:
            return ""
        if not isinstance(argument, torch.Tensor):
            return f"should be a CPU tensor or None, is {argument!r}"
        if argument.device.type != "cpu":
            return f"should be a CPU tensor, is on {argument.device}"
        if pointee in POINTEES and argument.dtype not in POINTEES[pointee]:
            return f"dtype should be {' or '.join(sorted(map(str, POINTEES[pointee])))}, is {argument.dtype}"
        return ""
    if isinstance(argument, torch.Tensor) or not isinstance(argument, (int, float)):
        return f"should be a number, is {type(argument).__name__}"
    if chr(code) == "d":
        value.number = argument
        return ""
    if isinstance(argument, float) and not argument.is_integer():
        return f"should be an integer, is {argument!r}"
    low, high = RANGES[chr(code)]
    if not low <= argument <= high:
        return f"should be from {low} to {high}, is {argument!r}"
    value.integer = int(argument) - (2**64 if argument >= 2**63 else 0)
    return ""


def _called(
    entry: Entry, values: ctypes.Array, shape: _Shape | None, result: _Value, memory: CallMemory
) -> tuple[str, list[Observation]]:
    """Make the call.

    Returns the message of an exception that the host code threw, or "", and the observations.
    """
    host = build.host()
    host.emulator_cuda_thrown.restype = ctypes.c_char_p
    host.emulator_cuda_begin_call()
    _CALL(entry.call)(values, shape, ctypes.byref(result))
    host.emulator_cuda_end_call()
    return host.emulator_cuda_thrown().decode(errors="replace"), memory.take_observations()
