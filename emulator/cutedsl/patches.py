"""Replaces parts of cutlass (nvidia-cutlass-dsl): how it takes tensors, and how it calls and loads
what it compiled.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import tvm_ffi
from cutlass.base_dsl.export import ExternalBinaryModule
from cutlass.base_dsl.jit_executor import JitExecutor
from cutlass.cute.runtime import _Tensor
from cutlass.cutlass_dsl import CuTeDSL
from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction
from cutlass.cutlass_dsl.tvm_ffi_provider import TVMFFIJitCompiledFunction, TVMFFIJitCompiledFunctionWithKwargs

from flash_attest.emulator.cutedsl import library
from flash_attest.emulator.cutedsl.calls import called
from flash_attest.emulator.cutedsl.memory import OnGpu, is_ours

# The tensors of cutlass, by the address of the struct that compiled host code reads.
_passed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_active = False


def activate() -> None:
    """Replace them, once."""
    global _active
    if _active:
        return
    _active = True
    library.connect()
    _dump_elsewhere()
    os.register_at_fork(after_in_child=_dump_elsewhere)
    _Tensor.__init__ = _taking(_Tensor.__init__)
    _Tensor.__c_pointers__ = _noting(_Tensor.__c_pointers__)
    JitExecutor.run_compiled_program = _running(JitExecutor.run_compiled_program)
    CudaDialectJitCompiledFunction._load_cuda_library = _loading(CudaDialectJitCompiledFunction._load_cuda_library)
    CudaDialectJitCompiledFunction.num_devices = 1
    for kind in (TVMFFIJitCompiledFunction, TVMFFIJitCompiledFunctionWithKwargs):
        kind.__call__ = _calling(kind.__call__)
    ExternalBinaryModule.__getattr__ = _from_file(ExternalBinaryModule.__getattr__)


def _dump_elsewhere() -> None:
    """Give the process its own folder for PTX, which cutlass writes to a file and reads back."""
    global _folder  # it is deleted with the process
    _folder = tempfile.TemporaryDirectory(prefix="flash-attest-cutedsl-", ignore_cleanup_errors=True)
    os.environ["CUTE_DSL_DUMP_DIR"] = CuTeDSL._get_dsl().envar.dump_dir = _folder.name


def _taking(original: Callable[..., None]) -> Callable[..., None]:
    """Take a CPU tensor as one of a GPU."""

    def __init__(self: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:
        self.emulated = tensor if is_ours(tensor) else None
        original(self, tensor if self.emulated is None else OnGpu(tensor), *args, **kwargs)

    return __init__


def _noting(original: Callable[..., list[int]]) -> Callable[..., list[int]]:
    def __c_pointers__(self: Any) -> list[int]:
        pointers = original(self)
        if self.emulated is not None:
            _passed[pointers[0]] = self
        return pointers

    return __c_pointers__


def _running(original: Callable[..., Any]) -> Callable[..., Any]:
    """Run host code that reads structs. The address of a tensor is the first field of each."""

    def run_compiled_program(self: JitExecutor, exe_args: list[Any]) -> Any:
        pointers = [arg.value if isinstance(arg, ctypes.c_void_p) else arg for arg in exe_args]
        passed = [(pointer, _passed[pointer]) for pointer in pointers if pointer in _passed]
        fields = [ctypes.c_void_p.from_address(pointer) for pointer, _ in passed]
        before = [field.value for field in fields]

        def call(addresses: list[int]) -> Any:
            for field, address in zip(fields, addresses, strict=True):
                field.value = address
            try:
                return original(self, exe_args)
            finally:
                for field, address in zip(fields, before, strict=True):
                    field.value = address

        return called(None, [(f"argument {i + 1}", one.emulated) for i, (_, one) in enumerate(passed)], call)

    return run_compiled_program


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: CudaDialectJitCompiledFunction) -> Any:
        with library.host_code(self.__ptx__):
            return original(self)

    return load


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Call a function that takes tensors by TVM's interface."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = self.execution_args._meta.pos_names if hasattr(self, "execution_args") else ()
        names = [name for name, _ in zip(known, args, strict=False)]
        names += [f"argument {i + 1}" for i in range(len(names), len(args))]
        tensors = [
            pair for name, arg in [*zip(names, args, strict=True), *kwargs.items()] for pair in _tensors(name, arg)
        ]

        def run(addresses: list[int]) -> Any:
            rest = iter(addresses)
            moved = [_moved(arg, rest) for arg in args]
            return original(self, *moved, **{name: _moved(arg, rest) for name, arg in kwargs.items()})

        return called(getattr(self, "__ptx__", None), tensors, run)

    return call


def _from_file(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make calls of functions from a file come here, too, if they take tensors by TVM's
    interface.
    """

    def get(self: ExternalBinaryModule, name: str) -> Any:
        function = original(self, name)
        if not isinstance(function, tvm_ffi.Function):
            return function
        return functools.partial(_calling(lambda _, *args: function(*args)), None)

    return get


def _source(value: Any) -> torch.Tensor | None:
    """Return the CPU tensor that a value stands for."""
    if type(value) is _Tensor:
        return value.emulated
    return value if is_ours(value) else None


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of an argument, in order."""
    if (tensor := _source(value)) is not None:
        yield name, tensor
    elif isinstance(value, (tuple, list)):
        for i, one in enumerate(value):
            yield from _tensors(f"{name}[{i}]", one)


def _moved(value: Any, addresses: Iterator[int]) -> Any:
    """Return an argument with its tensors at the next addresses."""
    if (tensor := _source(value)) is not None:
        return tvm_ffi.from_dlpack(OnGpu(tensor, next(addresses)))
    if not isinstance(value, (tuple, list)):
        return value
    parts = [_moved(one, addresses) for one in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
