"""The device that Numba sees: its context, memory, streams and events. All of them belong to this
CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.cuda.cudadrv import driver

from flash_attest.emulator.devices import MAX_THREADS, MULTIPROCESSORS, emulated


class Device:
    """The result of numba.cuda.get_current_device()."""

    id = 0
    uuid = "GPU-emulated"
    supports_float16 = supports_bfloat16 = True
    supports_fp8 = False

    @property
    def name(self) -> bytes:
        return emulated().name.encode()

    @property
    def compute_capability(self) -> tuple[int, int]:
        return emulated().capability

    def __getattr__(self, name: str) -> int:
        try:
            return emulated().attributes[name]
        except KeyError:
            raise AttributeError(f"the emulated device has no {name}") from None

    def get_primary_context(self) -> Context:
        return context

    def reset(self) -> None:
        """Do nothing: the device holds nothing."""


class Context:
    """The context, which provides memory, streams and events.

    Kernels have finished when a launch returns, so nothing has to wait.
    """

    def __init__(self) -> None:
        self.device = Device()
        self._numbers = itertools.count(1)  # numbers of events
        self._recorded: dict[int, float] = {}  # when each event was recorded, in seconds

    def memalloc(self, size: int) -> driver.MemoryPointer:
        """Allocate memory for a device array. Floating types are filled with NaN, so that no value
        can be relied on.
        """
        return self.mempin(np.full(size, 0xFF, np.uint8), None, size, False)

    def mempin(self, owner: Any, pointer: int | None, size: int, mapped: bool = False) -> driver.MemoryPointer:
        pointer = driver.host_pointer(owner) if pointer is None else pointer
        return driver.MemoryPointer(self, driver.binding.CUdeviceptr(pointer), size, owner=owner)

    def memhostalloc(self, size: int, *_: Any, **__: Any) -> driver.PinnedMemory:
        memory = np.zeros(max(size, 1), np.uint8)
        return driver.PinnedMemory(self, driver.host_pointer(memory), size, owner=memory)

    memallocmanaged = memhostalloc

    def get_memory_info(self) -> tuple[int, int]:
        return driver.MemoryInfo(emulated().memory, emulated().memory)

    def get_default_stream(self) -> driver.Stream:
        return driver.Stream(driver.binding.CUstream(0))

    create_stream = get_legacy_default_stream = get_per_thread_default_stream = get_default_stream

    def create_external_stream(self, ptr: int) -> driver.Stream:
        return driver.Stream(driver.binding.CUstream(ptr), external=True)

    def create_event(self, timing: bool = True) -> driver.Event:
        return driver.Event(next(self._numbers))

    def record(self, event: int) -> None:
        self._recorded[event] = time.perf_counter()

    def milliseconds_between(self, start: int, end: int) -> float:
        return (self._recorded[end] - self._recorded[start]) * 1e3

    def get_max_potential_block_size(self, func: Any, blocksizelimit: int = MAX_THREADS, **_: Any) -> tuple[int, int]:
        """Return (blocks, threads per block) that would keep a GPU busy, for forall."""
        return MULTIPROCESSORS, min(256, func.attrs.maxthreads, blocksizelimit)

    def get_active_blocks_per_multiprocessor(self, *_: Any, **__: Any) -> int:
        return 1

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        yield

    def _nothing(self) -> None:
        """Do nothing: no work is pending, and there is only one context."""

    synchronize = reset = push = pop = _nothing


class Runtime:
    """Stands in for Numba's context stack."""

    def get_or_create_context(self, devnum: int | None) -> Context:
        if devnum:
            raise ValueError(f"device {devnum}: there is one, number 0")
        return context

    @contextlib.contextmanager
    def ensure_context(self) -> Iterator[None]:
        yield

    def reset(self) -> None:
        """Do nothing: there is nothing to release."""


context = Context()


# ---- functions of CUDA's driver that Numba's device arrays, streams and events call --------------


def _copy(to: Any, source: Any, size: int, stream: Any = 0) -> None:
    ctypes.memmove(int(to), int(source), size)


def _fill(to: Any, byte: int, size: int, stream: Any = 0) -> None:
    ctypes.memset(int(to), byte, size)


def _record(event: int, stream: Any = 0) -> None:
    context.record(event)


def _elapsed(start: int, end: int) -> float:
    return context.milliseconds_between(start, end)


def _set_attribute(attribute: Any, value: int, kernel: Any, device: int) -> None:
    """Set an attribute of a kernel (function.py). Only one attribute has an effect here."""
    if attribute == driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        most = emulated().max_shared - kernel.attributes.shared
        if not 0 <= value <= most:
            raise ValueError(f"{kernel.title}: {value} bytes of dynamic shared memory: should be 0 to {most}")
        kernel.attributes.allowed_shared = value


def _nothing(*_: Any) -> None:
    """Do nothing: no work is pending."""


FUNCTIONS = {
    **{f"cuMemcpy{way}{when}": _copy for way in ("HtoD", "DtoH", "DtoD") for when in ("", "Async")},
    **{f"cuMemsetD8{when}": _fill for when in ("", "Async")},
    "cuKernelSetAttribute": _set_attribute,
    "cuEventRecord": _record,
    "cuEventElapsedTime": _elapsed,
    **dict.fromkeys(("cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery", "cuStreamWaitEvent"), _nothing),
    **dict.fromkeys(("cuProfilerStart", "cuProfilerStop"), _nothing),
    "get_device_count": lambda: 1,
    "get_device": lambda number=0: context.device,
    "is_initialized": True,
    "initialization_error": None,
}
