"""The library of host/, and what it calls: PTX of compiled functions, their kernels, launches."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flash_attest.emulator import ptx
from flash_attest.emulator.build_cache import cache_folder, key_of, write
from flash_attest.emulator.devices import emulated
from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.ptx.module import LAUNCH_DONE, LAUNCH_STOPPED, Kernel, Module, PtxError
from flash_attest.emulator.runtime.library import compiled_cpp

HOST = Path(__file__).resolve().parent / "host"
SOURCES = HOST, sorted(HOST.glob("*.h"))
# Numbers of cudaDeviceAttr, and their names in devices.py.
ATTRIBUTES = {
    1: "MAX_THREADS_PER_BLOCK", 2: "MAX_BLOCK_DIM_X", 3: "MAX_BLOCK_DIM_Y", 4: "MAX_BLOCK_DIM_Z", 5: "MAX_GRID_DIM_X",
    6: "MAX_GRID_DIM_Y", 7: "MAX_GRID_DIM_Z", 8: "MAX_SHARED_MEMORY_PER_BLOCK", 9: "TOTAL_CONSTANT_MEMORY", 10: "WARP_SIZE",
    12: "MAX_REGISTERS_PER_BLOCK", 13: "CLOCK_RATE", 16: "MULTIPROCESSOR_COUNT", 38: "L2_CACHE_SIZE",
    39: "MAX_THREADS_PER_MULTI_PROCESSOR", 75: "COMPUTE_CAPABILITY_MAJOR", 76: "COMPUTE_CAPABILITY_MINOR",
    81: "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 97: "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
}  # fmt: skip
SUCCESS, INVALID_VALUE, LAUNCH_FAILED = 0, 1, 719  # cudaError_t
FAILED = -1
FATBIN = 0xBA55ED50  # begins machine code for several GPUs

_int, _sizes = ctypes.c_int, ctypes.POINTER(ctypes.c_uint)


class _Python(ctypes.Structure):
    """struct Python of host.h."""

    _fields_ = (
        ("load", ctypes.CFUNCTYPE(_int, ctypes.c_void_p)),
        ("kernel", ctypes.CFUNCTYPE(_int, _int, ctypes.c_char_p)),
        ("attribute", ctypes.CFUNCTYPE(_int, _int)),
        (
            "launch",
            ctypes.CFUNCTYPE(_int, _int, _sizes, _sizes, _sizes, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)),
        ),
        ("refuse", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
    )


@dataclass
class State:
    """Holds what host code has loaded, by the numbers that it got, and what the call under way
    needs.
    """

    modules: list[Module] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    ptx: str | None = None  # of the function that is called or loaded
    raised: BaseException | None = None

    def take_raised(self) -> BaseException | None:
        raised, self.raised = self.raised, None
        return raised


state = State()


@functools.cache
def path() -> Path:
    """Return the path of the library, which is compiled if it was not. Raises NoCompiler."""
    return compiled_cpp(*SOURCES)


@functools.cache
def connect() -> None:
    """Make the library call this module."""
    global _table  # the library calls its functions later
    library = ctypes.CDLL(str(path()), mode=ctypes.RTLD_GLOBAL)
    types = dict(_Python._fields_)
    functions = {"load": _load, "kernel": _kernel, "attribute": _attribute, "launch": _launch, "refuse": _refuse}
    _table = _Python(**{name: types[name](_kept(function)) for name, function in functions.items()})
    library.emulator_cutedsl_connect(ctypes.byref(_table))


def _kept(function: Any) -> Any:
    """Keep an exception, which cannot pass through C++. The caller of the host code raises it."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            state.raised = state.raised or error
            return FAILED

    return call


def _load(image: int) -> int:
    """Load the kernels of a function. Its PTX is kept by its machine code, where a function that a
    package keeps in a file finds it.
    """
    kept = cache_folder() / f"{key_of(_fatbin(image))}.cutedsl.ptx"
    if state.ptx is not None:
        write(kept, state.ptx)
    elif not kept.exists():
        raise NotCovered("a function of CuTe DSL from a file, and no process has compiled it for the emulator")
    state.modules.append(ptx.load(state.ptx or kept.read_text(), source="CuTe DSL"))
    return len(state.modules)


def _fatbin(image: int) -> bytes:
    """Return the bytes of a fatbin in memory: its head has a magic number, a version, and the sizes
    of the head and of the rest.
    """
    magic, _, head, rest = struct.unpack("<IHHQ", ctypes.string_at(image, 16))
    if magic != FATBIN:
        raise NotCovered(f"machine code of CuTe DSL that is no fatbin: it begins with {magic:#x}")
    return ctypes.string_at(image, head + rest)


def _kernel(library: int, name: bytes) -> int:
    state.kernels.append(state.modules[library - 1][name.decode()])
    return len(state.kernels)


def _attribute(number: int) -> int:
    if number not in ATTRIBUTES:
        raise NotCovered(f"cudaDeviceAttr {number}, which host code asks for")
    return emulated().attributes[ATTRIBUTES[number]]


def _launch(number: int, grid: Any, block: Any, cluster: Any, shared: int, arguments: Any) -> int:
    if state.raised is not None:
        return LAUNCH_FAILED
    kernel = state.kernels[number - 1]
    params = bytearray(max((p.offset + p.size for p in kernel.parameters), default=0))
    for parameter, address in zip(kernel.parameters, arguments, strict=False):
        params[parameter.offset : parameter.offset + parameter.size] = ctypes.string_at(address, parameter.size)
    limit = emulated().max_shared
    status, text = kernel.start(tuple(grid[:3]), tuple(block[:3]), shared, bytes(params), limit, tuple(cluster[:3]))
    if status in (LAUNCH_DONE, LAUNCH_STOPPED):  # what stopped it is in the observations
        return SUCCESS
    raise PtxError(f"{kernel.name} cannot be launched: {text}")


def _refuse(what: bytes) -> None:
    raise NotCovered(f"not covered on the CPU: {what.decode()}")


@contextmanager
def host_code(text: str | None) -> Iterator[None]:
    """Run host code in this block. text: the PTX of the function that it calls or loads.

    Host code only sees that a function of this module has failed. The exception is raised here, in
    place of what host code makes of it.
    """
    before, state.ptx = state.ptx, text
    failed = None
    try:
        yield
    except Exception as error:
        failed = error
    finally:
        state.ptx = before
    if (cause := state.take_raised() or failed) is not None:
        raise cause
