"""Fills fresh memory with poison: values on which no result may depend.

This exposes elements that are never written, and scratch that is assumed to be zero.

There are two methods, because neither reaches all memory. Allocations through the dispatcher
(torch.empty in Python, also in Triton and Numba wrappers) are filled when they are made. For
allocations inside a C++ operator, freed blocks of the expected sizes are left in the allocator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from flash_attest.emulator.runtime.fresh import FRESH, OperatorsSeen
from flash_attest.races.bits import INTEGERS

# Byte patterns: the largest numbers (NaN in float16), all bits set (NaN, and -1 as an integer),
# zeros.
PATTERNS = (0x7F, 0xFF, 0x00)
INTEGER_TYPES = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)

_current: list[tuple[int, str, list[int]]] = []


class FillFresh(OperatorsSeen):
    """Fill tensors from torch.empty and similar functions with bytes `pattern` in this block.

    integers: also those that hold integers, which kernels may use as addresses or counts.
    """

    def __init__(self, pattern: int, device: str, integers: bool = False):
        super().__init__(device)
        self.pattern, self.integers = pattern, integers

    def done(self, func, args, kwargs, result):
        if func not in FRESH or result.device.type not in ("cpu", "cuda"):
            return
        if result.is_floating_point() or (self.integers and result.dtype in INTEGER_TYPES):
            fill_bytes(result, self.pattern)


def fill_bytes(tensor: torch.Tensor, pattern: int) -> None:
    """Set every byte of a tensor's elements, in place."""
    word = int.from_bytes(bytes([pattern]) * tensor.element_size(), "little", signed=True)
    tensor.view(INTEGERS[tensor.element_size()]).fill_(word)


def leave_behind(pattern: int, device: str, nbytes: list[int]) -> None:
    """Fill blocks of 0.5, 1, 2 and 4 times these sizes with a pattern, and free them."""
    sizes = sorted({max(1, int(n * factor)) for n in nbytes for factor in (0.5, 1, 2, 4)})
    blocks = [torch.full((n,), pattern, dtype=torch.uint8, device=device) for n in sizes for _ in range(2)]
    del blocks


@contextmanager
def poisoned(pattern: int, device: str, nbytes: list[int]) -> Iterator[None]:
    """Fill fresh memory with `pattern` in this block. nbytes: likely sizes of allocations."""
    leave_behind(pattern, device, nbytes)
    _current.append((pattern, device, nbytes))
    try:
        with FillFresh(pattern, device):
            yield
    finally:
        _current.pop()


def current() -> tuple[int, str, list[int]] | None:
    """Return the arguments of the innermost `poisoned`, for a kernel in another process."""
    return _current[-1] if _current else None
