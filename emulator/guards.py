"""Puts the answers in place that a program with a GPU gets from torch (answers/), for a block or for the process.

torch, torch.Tensor, torch.cuda and some of their classes get other attributes. Tensors stay on the CPU, where the emulator
runs kernels. (A mode of torch.overrides would do less: it is off inside of torch.autograd.grad, which runs the backward of
packages. A device of our own would have to implement every operator around the kernels.)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from torch.amp import autocast_mode
from torch.library import Library
from torch.utils._device import DeviceContext

from flash_attest.emulator.answers import autocast, device, operators, random, tensors
from flash_attest.emulator.answers.device import gpu_is_there as gpu_is_there

ANSWERS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (torch.Tensor, tensors.TENSORS),
    (torch, {**tensors.MAKERS, **random.GENERATORS}),
    *tensors.OTHER_MAKERS,
    (DeviceContext, tensors.CONTEXT),
    (torch.cuda, device.CUDA),
    (torch.cuda.nvtx, device.NVTX),
    (torch.accelerator, device.ACCELERATOR),
    (torch.version, device.VERSION),
    (torch.backends.cuda, device.BUILT),
    (Library, operators.LIBRARY),
    (CustomOpDef, operators.DEFINITION),
    (torch.library, operators.FUNCTIONS),
    (autocast_mode.autocast, autocast.AUTOCAST),
)
_ABSENT = object()
_lock = threading.RLock()
_before: list[tuple[Any, str, Any]] = []  # what was replaced
_users = 0  # blocks, and the process, that want the answers


@contextlib.contextmanager
def as_cuda() -> Iterator[None]:
    """Inside, torch answers as if its GPU were the emulator. Blocks may be nested, and overlap in several threads."""
    answer()
    try:
        yield
    finally:
        answer_no_more()


def answer() -> None:
    """Answer until `answer_no_more` has been called as often as this."""
    global _users
    with _lock:
        _users += 1
        if _users > 1:
            return
        _tell_script()
        for owner, answers in ANSWERS:
            for name, value in answers.items():
                _before.append((owner, name, vars(owner).get(name, _ABSENT)))
                setattr(owner, name, value)


def answer_no_more() -> None:
    """The end of one `answer`."""
    global _users
    with _lock:
        _users -= 1
        if _users:
            return
        while _before:
            owner, name, value = _before.pop()
            if value is _ABSENT:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def is_answering() -> bool:
    """Whether torch answers as if its GPU were the emulator."""
    return _users > 0


def _tell_script() -> None:
    """torch.jit.script knows torch's functions by their identity: it takes ours for them."""
    with contextlib.suppress(ImportError, AttributeError):  # private names, and a part of torch that is on its way out
        from torch.jit import _builtins

        table = _builtins._get_builtin_table()
        for owner, answers in ANSWERS:
            for name, value in answers.items():
                if (known := table.get(id(vars(owner).get(name)))) is not None:
                    table[id(value)] = known
