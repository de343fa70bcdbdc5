"""What packages ask torch before they launch a kernel: whether tensors are on a GPU, and which GPU that is.

torch.Tensor and torch.cuda get other attributes for as long as a block lasts. Tensors stay on the CPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from emulator.triton.backend import CAPABILITY
from emulator.triton.driver import MAX_THREADS, PROPERTIES, Clock, is_active

NAME = "emulated sm_80"
STATIC_SHARED = 48 * 1024  # without asking for more
MAJOR, MINOR = divmod(CAPABILITY, 10)


@contextlib.contextmanager
def as_cuda() -> Iterator[None]:
    """See emulator.triton.as_cuda; only where the emulator is Triton's device."""
    if not is_active():
        yield
        return
    with contextlib.ExitStack() as stack:
        for owner, answers in ((torch.Tensor, TENSORS), (torch.cuda, CUDA), (torch.version, VERSION)):
            for name, answer in answers.items():
                stack.enter_context(mock.patch.object(owner, name, answer))
        stack.enter_context(OnTheCpu())
        yield


class OnTheCpu(TorchFunctionMode):
    """device="cuda" means the CPU: in torch.empty and the like, and in Tensor.to."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is not torch.device and kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": _device(kwargs["device"])}
        if func is torch.Tensor.to:
            args = (args[0], *map(_device, args[1:]))
        return func(*args, **(kwargs or {}))


def _device(value: Any) -> Any:
    named = isinstance(value, torch.device) and value.type == "cuda"
    return "cpu" if named or (isinstance(value, str) and value.split(":")[0] == "cuda") else value


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


def _properties(device: object = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=NAME, major=MAJOR, minor=MINOR, multi_processor_count=PROPERTIES["multiprocessor_count"],
        warp_size=PROPERTIES["warpSize"], shared_memory_per_block=STATIC_SHARED,
        shared_memory_per_block_optin=PROPERTIES["max_shared_mem"], regs_per_multiprocessor=PROPERTIES["max_num_regs"],
        max_threads_per_block=MAX_THREADS, total_memory=40 * 2**30, L2_cache_size=40 * 2**20,
    )  # fmt: skip


def _always(answer: Any) -> Any:
    return lambda *_, **__: answer


TENSORS = {"is_cuda": True, "get_device": _always(0), "cuda": lambda self, *_, **__: self}
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
    "current_stream": functools.partial(Stream),
    "default_stream": functools.partial(Stream),
}
