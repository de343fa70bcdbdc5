"""What packages ask torch before they launch a kernel: whether tensors are on a GPU, and which GPU that is.

torch, torch.Tensor and torch.cuda get other attributes for as long as a block lasts. Tensors stay on the CPU. (A mode of
torch.overrides would do less: it is off inside of torch.autograd.grad, which runs the backward of packages.)
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from flash_attest.emulator.ampere import (
    CAPABILITY,
    DEVICE,
    MAX_SHARED,
    MAX_THREADS,
    MEMORY,
    MULTIPROCESSORS,
    STATIC_SHARED,
)

NAME = "emulated sm_80"
MAJOR, MINOR = CAPABILITY


@contextlib.contextmanager
def as_cuda() -> Iterator[None]:
    """See emulator.triton.as_cuda and emulator.numba.as_cuda, which say when."""
    before = [(owner, name, vars(owner).get(name, ABSENT)) for owner, answers in ANSWERS for name in answers]
    try:
        for owner, answers in ANSWERS:
            for name, answer in answers.items():
                setattr(owner, name, answer)
        yield
    finally:
        for owner, name, value in before:
            if value is ABSENT:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _on_the_cpu(function: Callable) -> Callable:
    """The function, for which "cuda" is the CPU, wherever it stands in the arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"])
        return function(*map(_device, args), **kwargs)

    return call


def _device(value: Any) -> Any:
    kind = value.type if isinstance(value, torch.device) else value.split(":")[0] if isinstance(value, str) else ""
    return "cpu" if kind == "cuda" else value


class Device(contextlib.ContextDecorator):
    """torch.cuda.device, device_of, stream: there is one of each."""

    def __init__(self, *_: object) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class Stream(Device):
    """A stream on which everything has ended."""

    cuda_stream = device_index = 0

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def synchronize(self) -> None:
        """Nothing is left running."""

    wait_stream = wait_event = record_event = lambda self, *_: None


class Clock:
    """In place of torch.cuda, for triton.testing.do_bench: kernels have ended when a launch returns."""

    class Event:
        def __init__(self, enable_timing: bool = False, **_: object) -> None:
            self.seconds = 0.0

        def record(self, stream: object = None) -> None:
            self.seconds = time.perf_counter()

        def elapsed_time(self, end: Clock.Event) -> float:
            """Milliseconds."""
            return max(1e-6, (end.seconds - self.seconds) * 1e3)

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Nothing is left running."""

    @staticmethod
    def current_device() -> int:
        return 0


def _properties(device: object = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=NAME, major=MAJOR, minor=MINOR, multi_processor_count=MULTIPROCESSORS,
        warp_size=DEVICE["WARP_SIZE"], shared_memory_per_block=STATIC_SHARED,
        shared_memory_per_block_optin=MAX_SHARED, regs_per_multiprocessor=DEVICE["MAX_REGISTERS_PER_BLOCK"],
        max_threads_per_block=MAX_THREADS, total_memory=MEMORY, L2_cache_size=DEVICE["L2_CACHE_SIZE"],
    )  # fmt: skip


def _interface(tensor: torch.Tensor) -> dict[str, Any]:
    """Where a tensor lies, for packages that take those of a GPU by it: numba.cuda.as_cuda_array."""
    if tensor.requires_grad:
        raise RuntimeError("a tensor that requires gradients has no __cuda_array_interface__: pass x.detach()")
    return {**tensor.numpy().__array_interface__, "version": 2}


def _always(answer: Any) -> Any:
    return lambda *_, **__: answer


LIKE = ("empty", "zeros", "ones", "full", "rand", "randn", "randint")
FACTORIES = (
    *LIKE,
    *(f"{name}_like" for name in LIKE),
    "tensor",
    "as_tensor",
    "arange",
    "linspace",
    "eye",
    "empty_strided",
)
METHODS = ("to", *(f"new_{name}" for name in ("empty", "zeros", "ones", "full", "tensor")))
TENSORS = {
    "is_cuda": True,
    "__cuda_array_interface__": property(_interface),
    "get_device": _always(0),
    "cuda": lambda self, *_, **__: self,
    **{name: _on_the_cpu(getattr(torch.Tensor, name)) for name in METHODS},
}
MAKERS = {name: _on_the_cpu(getattr(torch, name)) for name in FACTORIES}
VERSION = {"cuda": "12.8"}
CUDA = {
    "is_available": _always(True),
    "is_initialized": _always(True),
    "device_count": _always(1),
    "current_device": _always(0),
    "get_device_name": _always(NAME),
    "get_device_capability": _always((MAJOR, MINOR)),
    "get_device_properties": _properties,
    "is_bf16_supported": _always(True),
    "set_device": _always(None),
    "synchronize": _always(None),
    "empty_cache": _always(None),
    "is_current_stream_capturing": _always(False),
    "device": Device,
    "device_of": Device,
    "stream": Device,
    "Stream": Stream,
    "Event": Clock.Event,
    "current_stream": Stream,
    "default_stream": Stream,
}
ABSENT = object()
ANSWERS = ((torch.Tensor, TENSORS), (torch, MAKERS), (torch.cuda, CUDA), (torch.version, VERSION))
