"""Finds the kernels of a call that are not PyTorch's own, which a sanitizer should watch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import DeviceType

OPERATORS = "aten::"  # the profiler's names of PyTorch's operators begin with this
OF_PYTORCH = ("at::", "c10::")  # namespaces of PyTorch's kernels
NOT_KERNELS = ("Memcpy", "Memset")
IDENTIFIER = re.compile(r"(?!operator$)[A-Za-z_$][\w$]*", re.ASCII)  # "operator()" has another name when mangled


def own_kernels(call: Callable[[], Any]) -> list[str]:
    """Return the kernels, for --kernel-name, that a call launches outside of PyTorch's operators.

    Raises LookupError if the profiler sees no kernel at all.
    """
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        call()
        torch.cuda.synchronize()
    return own_of(profile.events())


def own_of(events: Iterable[Any]) -> list[str]:
    """Return those kernels from the profiler's events (torch.autograd.profiler_util.FunctionEvent).

    Also raises LookupError for a kernel without an identifier, which no filter would match.
    """
    events = list(events)
    launched = {event.name for event in events if event.device_type == DeviceType.CUDA and _is_kernel(event)}
    if not launched:
        raise LookupError("torch.profiler sees no kernel on the GPU")
    of_operators = {kernel.name for event in events if event.name.startswith(OPERATORS) for kernel in event.kernels}
    own = {name: identifier(name) for name in sorted(launched - of_operators) if not of_pytorch(name)}
    if unnamed := [name for name, part in own.items() if not IDENTIFIER.fullmatch(part)]:
        raise LookupError(f"kernel {unnamed[0]!r} cannot be named to compute-sanitizer")
    return sorted({*own.values()})


def of_pytorch(function: str) -> bool:
    """Return whether a function on the GPU has a name of PyTorch."""
    words = function.replace("(anonymous namespace)::", "").split("<")[0].split("(")[0].split()
    return any(word.startswith(OF_PYTORCH) for word in words[-1:])


def identifier(name: str) -> str:
    """Return the part of a name that its mangled form also has.

    It is "forward" for "void fa2::forward<float, 64>(Problem)".
    """
    if name.startswith("_Z"):
        return name
    plain = name.replace("(anonymous namespace)::", "")
    for bracket in "<([":  # template arguments, parameters, Numba's ABI tags
        plain = plain.split(bracket)[0]
    return plain.split()[-1].split("::")[-1] if plain.split() else name


def _is_kernel(event: Any) -> bool:
    return not event.name.startswith(NOT_KERNELS) and not event.is_user_annotation
