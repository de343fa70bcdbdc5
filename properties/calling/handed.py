"""Finds out whether a call resized its inputs, gave them other memory, or changed their methods."""

from __future__ import annotations

from typing import NamedTuple

import torch

from flash_attest.impls.contract.tensors import Inputs


class Handed(NamedTuple):
    """One input: its class, dtype, shape, strides and memory."""

    kind: type
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    nbytes: int
    address: int


def handed_of(x: Inputs) -> dict[str, Handed]:
    """Return the places of all inputs."""
    return {name: _place(tensor) for name, tensor in x.items()}


def problem_with(x: Inputs, before: dict[str, Handed]) -> str:
    """Return what a call did to its inputs, for example "resizes k", or "".

    A call may make an input require a gradient. This is undone.
    """
    now = {name: _place(tensor) for name, tensor in x.items()}
    if resized := [name for name, place in now.items() if place[:5] != before[name][:5]]:
        return f"resizes {', '.join(resized)}"
    if moved := [name for name, place in now.items() if place != before[name]]:
        return f"replaces the memory of {', '.join(moved)}"
    for name, tensor in x.items():
        if hidden := [each for each in tensor.__dict__ if hasattr(torch.Tensor, each)]:
            return f"sets {name}.{hidden[0]}"
        if tensor.requires_grad and not tensor.is_leaf:
            return f"makes {name} part of an autograd graph"
        tensor.requires_grad_(False)
    return ""


def _place(tensor: torch.Tensor) -> Handed:
    return Handed(
        type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.untyped_storage().nbytes(), tensor.data_ptr()
    )
