"""Installs the answers (answers/) that torch gives to a program with a GPU, for a block or for the
process.

Attributes of torch, torch.Tensor, torch.cuda and some of their classes are replaced. Tensors stay
on the CPU, where the emulator runs kernels. (A mode of torch.overrides would do less: it is off
inside torch.autograd.grad, which runs the backward of packages. A custom device would have to
implement every operator around the kernels.)
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
_before: list[tuple[Any, str, Any]] = []  # replaced attributes: (owner, name, value)
_users = 0  # number of blocks that want the answers; the process counts as one


@contextlib.contextmanager
def as_cuda() -> Iterator[None]:
    """Make torch answer, in this block, as if the emulator were its GPU.

    Blocks may be nested, and may overlap in several threads.
    """
    answer()
    try:
        yield
    finally:
        answer_no_more()


def answer() -> None:
    """Start answering. Each call must be followed by one call of `answer_no_more`."""
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
        operators.take_over()


def answer_no_more() -> None:
    """End one `answer`. The last call restores torch."""
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
    """Return whether torch answers as if the emulator were its GPU."""
    return _users > 0


def _tell_script() -> None:
    """Register our functions with torch.jit.script, which knows torch's functions by identity."""
    # These are private names, in a part of torch that is deprecated.
    with contextlib.suppress(ImportError, AttributeError):
        from torch.jit import _builtins

        table = _builtins._get_builtin_table()
        for owner, answers in ANSWERS:
            for name, value in answers.items():
                if (known := table.get(id(vars(owner).get(name)))) is not None:
                    table[id(value)] = known
