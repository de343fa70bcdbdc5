"""Computes the oracle and the budget of a small case on the CPU, even if a GPU is judged.

Both together take some 300 operations of 2 us each. A GPU runs the kernels of several workers in
turns, so each worker would wait for the operations of the others. Each worker has its own core,
which takes half as long for the smallest of these cases and twice as long for the largest
(docs/measured/index.md).

The tensors of a dataclass (Inputs, Attention, Budget) move in one copy, since the host waits for
each copy from a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch

from flash_attest.impls.contract.tensors import Inputs, tensors_of

MOST_ELEMENTS = 2**14  # the size of the largest matrix of a small case
Tensors = TypeVar("Tensors")  # a dataclass whose fields are tensors or None


class Nearby:
    """Moves the tensors of a case to the device of the oracle, and results back."""

    def __init__(self, device: str):
        self.device = device
        # id of an object on the device -> (the object, its copy here, its version)
        self._pairs: dict[int, tuple[object, object, int]] = {}

    def bring(self, x: Inputs, *results: object) -> tuple:
        """Return inputs, and results of `send`, on the CPU if inputs are small, else unchanged."""
        if self.device == "cpu" or not _is_small(x):
            return x, *results
        return tuple(map(self._brought, (x, *results)))

    def _brought(self, there: object) -> object:
        known, here, version = self._pairs.get(id(there), (None, None, 0))
        if known is None or version != _version(there):
            here = _moved(there, "cpu")
            self._pairs[id(there)] = there, here, _version(there)
        return here

    def send(self, here: Tensors) -> Tensors:
        """Return a result on the device, itself if it is there. `bring` returns the original."""
        if self.device == "cpu" or here.out.is_cuda:
            return here
        there = _moved(here, self.device)
        self._pairs[id(there)] = there, here, _version(there)
        return there


def _is_small(x: Inputs) -> bool:
    """Return whether every matrix of the oracle is small."""
    batch, seqlen_q, nheads, headdim = x.q.shape
    seqlen_k = x.k.shape[1]
    return batch * nheads * max(seqlen_q * seqlen_k, seqlen_q * headdim, seqlen_k * headdim) <= MOST_ELEMENTS


def _version(of: object) -> int:
    """Return a number that changes whenever torch writes to one of the tensors."""
    return sum(tensor._version for _, tensor in tensors_of(of))


def _moved(of: Tensors, device: str) -> Tensors:
    """Return the same values on another device, contiguous, moved in one copy."""
    # The widest elements first, so that each tensor begins at a multiple of its own size.
    tensors = sorted(tensors_of(of), key=lambda item: -item[1].element_size())
    rows = torch.cat([_bytes(tensor) for _, tensor in tensors]).to(device)
    parts = rows.split([tensor.numel() * tensor.element_size() for _, tensor in tensors])
    moved = {name: part.view(t.dtype).view(t.shape) for part, (name, t) in zip(parts, tensors, strict=True)}
    return replace(of, **moved)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    row = tensor.detach().reshape(-1)
    if row.stride(0) != 1:  # one element expanded to all, which reshape keeps
        row = row.clone(memory_format=torch.contiguous_format)
    return row.view(torch.uint8)
