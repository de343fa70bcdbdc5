"""torch.cuda and torch.accelerator: one device, on which all work is done when a launch returns."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from flash_attest.emulator.answers.memory import GPU, asked_by_suite, is_gpu, not_covered
from flash_attest.emulator.answers.random import RANDOM
from flash_attest.emulator.answers.tensors import LEGACY
from flash_attest.emulator.devices import MAX_THREADS, MULTIPROCESSORS, STATIC_SHARED, emulated

gpu_is_there = torch.cuda.is_available  # torch's own answer


class Device(contextlib.ContextDecorator):
    """Stands in for torch.cuda.device, device_of and stream: there is only one of each."""

    def __init__(self, device: Any = 0, *_: object) -> None:
        if isinstance(device, (int, str, torch.device)) and not (type(device) is int and device < 0):
            is_gpu(device)  # raises for another GPU
        self.idx, self.prev_idx = 0, 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class Stream:
    """A stream whose work is always done. Entering it makes it the current stream."""

    cuda_stream = stream_id = device_index = 0
    device = GPU
    priority = 0

    def __init__(self, *_: object, **__: object) -> None:
        """Ignore the arguments: all streams are the same one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Clock.Event | None = None) -> Clock.Event:
        event = Clock.Event(enable_timing=True) if event is None else event
        event.record(self)
        return event

    def _nothing(self, *_: object) -> None:
        """Do nothing: no work is pending."""

    synchronize = wait_stream = wait_event = _nothing


class Clock:
    """Stands in for torch.cuda in triton.testing.do_bench: kernels are done when a launch
    returns.
    """

    class Event:
        def __init__(self, enable_timing: bool = False, *_: object, **__: object) -> None:
            self.seconds: float | None = None

        def record(self, stream: object = None) -> None:
            self.seconds = time.perf_counter()

        def elapsed_time(self, end: Clock.Event) -> float:
            """Return the milliseconds between two events, measured on this CPU."""
            if self.seconds is None or end.seconds is None:
                raise RuntimeError("both events should be recorded before their time is asked for")
            return max(1e-6, (end.seconds - self.seconds) * 1e3)

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            """Do nothing: no work is pending."""

        def wait(self, stream: object = None) -> None:
            """Do nothing: no work is pending."""

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Do nothing: no work is pending."""

    @staticmethod
    def current_device() -> int:
        return 0


def _properties(device: object = None) -> SimpleNamespace:
    gpu = emulated()
    major, minor = gpu.capability
    return SimpleNamespace(
        name=gpu.name, major=major, minor=minor, multi_processor_count=MULTIPROCESSORS,
        warp_size=gpu.attributes["WARP_SIZE"], shared_memory_per_block=STATIC_SHARED,
        shared_memory_per_block_optin=gpu.max_shared,
        shared_memory_per_multiprocessor=gpu.shared,
        regs_per_multiprocessor=gpu.attributes["MAX_REGISTERS_PER_BLOCK"], max_threads_per_block=MAX_THREADS,
        max_threads_per_multi_processor=gpu.attributes["MAX_THREADS_PER_MULTI_PROCESSOR"],
        total_memory=gpu.memory, L2_cache_size=gpu.l2, is_integrated=0, is_multi_gpu_board=0,
    )  # fmt: skip


def _free_and_total(device: object = None) -> tuple[int, int]:
    """Return (free, total) bytes.

    Tensors lie in this machine's memory, so both are limited by what is free there.
    """
    memory = emulated().memory
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        free = memory
    return min(free, memory), memory


def compiled_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: list | None = None,
    nvcc_options: list | None = None,
) -> Callable[..., None]:
    """Compile CUDA C++ from a string, as torch.cuda._compile_kernel does.

    The result is called as kernel(grid, block, args, shared_mem, stream).
    """
    import hashlib  # these three imports are here because few programs compile CUDA C++

    from flash_attest.emulator.build_cache import cache_folder, write
    from flash_attest.emulator.cuda import load

    path = cache_folder() / f"{kernel_name}-{hashlib.sha256(kernel_source.encode()).hexdigest()[:16]}.cu"
    write(path, kernel_source)
    options = [str(option).removeprefix("-D") for option in nvcc_options or () if str(option).startswith("-D")]
    defines = {name: value or 1 for name, _, value in (option.partition("=") for option in options)}
    kernel = load(path, kernel_name, defines=defines, include=cuda_include_dirs or ())[kernel_name]

    def launch(
        grid: tuple = (1, 1, 1), block: tuple = (1, 1, 1), args: Any = None, shared_mem: int = 0, stream: Any = None
    ) -> None:
        kernel.launch(grid, block, shared_mem)(*(args or ()))

    return launch


def _always(answer: Any = None) -> Any:
    """Make a function that always returns the same answer.

    Each name gets a function of its own: torch.compile keeps a table of torch's functions by
    identity.
    """
    return lambda *_, **__: answer


def _own(kind: type) -> type:
    """Make a separate class for a name, for the same reason."""
    return type(kind.__name__, (kind,), {"__doc__": kind.__doc__})


def _nothing(*names: str) -> dict[str, Any]:
    """Map each name to a function that does nothing: no work is pending, and there is one
    device.
    """
    return {name: _always() for name in names}


def _but_for_suite(answer: Any, truth: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that gives this suite the true answer, because the suite judges on the
    CPU.
    """
    return lambda *args, **kwargs: truth(*args, **kwargs) if asked_by_suite() else answer


NOTHING = (
    "init", "_lazy_init", "synchronize", "set_device", "set_stream", "empty_cache", "ipc_collect", "set_sync_debug_mode",
    "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction",
)  # fmt: skip
CUDA = {
    **_nothing(*NOTHING),
    **RANDOM,
    **{f"{name}Tensor": getattr(torch, f"{name}Tensor") for name in LEGACY},
    "is_available": _but_for_suite(True, torch.cuda.is_available),
    "is_initialized": _but_for_suite(True, torch.cuda.is_initialized),
    "_is_in_bad_fork": _always(False),
    "device_count": _but_for_suite(1, torch.cuda.device_count),
    "current_device": _always(0),
    "get_device_name": lambda device=None: emulated().name,
    "get_device_capability": lambda device=None: emulated().capability,
    "get_device_properties": _properties,
    "get_arch_list": lambda: [emulated().arch],
    "get_sync_debug_mode": _always(0),
    "can_device_access_peer": _always(False),
    "is_bf16_supported": _always(True),
    "is_tf32_supported": _always(True),
    "mem_get_info": _free_and_total,
    "is_current_stream_capturing": _always(False),
    "device": Device,
    "device_of": _own(Device),
    "stream": _own(Device),
    "StreamContext": _own(Device),
    "Stream": Stream,
    "ExternalStream": _own(Stream),
    "Event": Clock.Event,
    "current_stream": lambda device=None: Stream(),
    "default_stream": lambda device=None: Stream(),
    "_compile_kernel": compiled_kernel,
}
# These are not answered: the memory that a program would take on a GPU, its graphs and its load are
# unknown here.
KEPT = ("CudaError", "DeferredCudaCallError", "OutOfMemoryError", "AcceleratorError", "check_error", "cudaStatus")


def _refused(module: ModuleType, answered: dict[str, Any], unchanged: tuple[str, ...] = ()) -> dict[str, Any]:
    """Replace all other functions and classes of a module by ones that raise NotCovered."""
    refused = {}
    for name in module.__all__:
        value = getattr(module, name, None)
        if name in answered or name in unchanged or not callable(value) or name.endswith("Storage"):
            continue
        refuse = not_covered(f"{module.__name__}.{name}")
        if hasattr(value, "__wrapped__"):  # torch.compile looks for it when it is imported
            refuse.__wrapped__ = value.__wrapped__
        is_class = isinstance(value, type)
        refused[name] = type(name, (), {"__init__": refuse, "__module__": module.__name__}) if is_class else refuse
    return refused


CUDA.update(_refused(torch.cuda, CUDA, KEPT))
ACCELERATOR = {
    "is_available": _but_for_suite(True, torch.accelerator.is_available),
    "device_count": _but_for_suite(1, torch.accelerator.device_count),
    "current_accelerator": _always(torch.device("cuda")),
    "current_device_index": _always(0),
    "current_device_idx": _always(0),
    "device_index": _own(Device),
    "current_stream": lambda device=None: Stream(),
    "get_memory_info": lambda device=None: _free_and_total(),
    **_nothing(
        "synchronize", "set_stream", "set_device_index", "set_device_idx", "empty_cache", "reset_peak_memory_stats",
        "reset_accumulated_memory_stats",
    ),
}  # fmt: skip
ACCELERATOR = {name: answer for name, answer in ACCELERATOR.items() if hasattr(torch.accelerator, name)}
ACCELERATOR.update(_refused(torch.accelerator, ACCELERATOR, ("Graph",)))
NVTX = {"range_push": _always(0), "range_pop": _always(0), "range_start": _always(0), **_nothing("range_end", "mark")}
VERSION = {"cuda": "12.8"}
BUILT = {"is_built": _always(True)}
