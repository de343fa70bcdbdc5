"""Calls the host functions of fa1.cu and fa2.cu, built by g++ for the CPU and by nvcc for GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import torch

from flash_attest.emulator.cuda import load

from . import extension

LONGEST_REFUSAL = 512  # bytes


def call(name: str, what: str, *arguments: torch.Tensor | float | None) -> None:
    """Run fa1_forward, fa2_bias_gradient, ... on the device of its first tensor.

    On a GPU it runs on the current stream. name: "fa1" or "fa2". what: "forward", "backward" or
    "bias_gradient". arguments: those of the host function without the stream, with a tensor for
    each pointer. The first call for a device compiles. Raises RuntimeError if compiling fails, or,
    with its message, if the host function refuses the call.
    """
    _functions(name, arguments[0].device.type)[what](*arguments)


@functools.cache
def _functions(name: str, device: str) -> dict[str, Callable[..., None]]:
    whats = ("forward", "backward", "bias_gradient")
    if device == "cuda":
        operators = extension.load(name)
        return {what: getattr(operators, what).default for what in whats}
    return {what: functools.partial(_call_on_cpu, name, what) for what in whats}


def _call_on_cpu(name: str, what: str, *arguments: torch.Tensor | float | None) -> None:
    file = _on_cpu(name)
    if file[f"{name}_{what}"](*arguments, None):  # None: the stream
        text = torch.zeros(LONGEST_REFUSAL, dtype=torch.int8, device="cpu")
        length = file[f"{name}_refusal"](text, LONGEST_REFUSAL)
        raise RuntimeError(bytes(text[:length].tolist()).decode())


@functools.cache
def _on_cpu(name: str):
    functions = (f"{name}_{what}" for what in ("forward", "backward", "bias_gradient", "refusal"))
    return load(Path(__file__).with_name(f"{name}.cu"), *functions)
