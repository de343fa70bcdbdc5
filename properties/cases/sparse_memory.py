"""Sparse memory: elements too far apart for 32-bit offsets, in little physical memory.

On a CPU it is a mapping whose pages are allocated only when they are touched. On a GPU it is one
small allocation that is mapped repeatedly over the whole range of addresses (gpu_ring.py), so every
truncated offset stays in the range.
"""

from __future__ import annotations

import mmap
import sys

import torch

from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.properties.cases import gpu_ring
from flash_attest.properties.failures import OutOfMemory, Reason, Undecided
from flash_attest.texts import gib

BEHIND = 2**32  # elements from the first to the last along the spread dimension
BEFORE = 2**31  # elements before the first one, as a truncated offset may be negative
BLOCK = 64  # elements; strides and the first position are multiples of this, so rows stay as aligned as in torch
LARGEST = gpu_ring.PERIOD // 2  # bytes; tensors up to this size fit on a GPU, whatever their shape
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # named since Python 3.13


def spread(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Store a tensor so that the last index along `dim` lies 2^32 elements after the first.

    An offset that is cut to 32 bits, signed or not, in elements or bytes, then reads another
    element, or memory that holds 0. A tensor with a single index along `dim` is returned unchanged.
    Raises Undecided if the machine has no such memory.
    """
    count = tensor.shape[dim]
    if count < 2:
        return tensor
    one = tensor.narrow(dim, 0, 1).contiguous()
    strides = list(one.stride())
    strides[dim], before = _placement(one.numel(), count, tensor.dtype, tensor.device.type == "cuda")
    memory = sparse_zeros(before + (count - 1) * strides[dim] + one.numel(), tensor.dtype, tensor.device)
    return memory.as_strided(tensor.shape, strides, before).copy_(tensor)


def _placement(numel: int, count: int, dtype: torch.dtype, ring: bool) -> tuple[int, int]:
    """Return (stride, elements before the first) for `count` rows of `numel` elements each.

    In a ring, rows do not share a byte of physical memory.
    """
    stride = rounded_up(-(-BEHIND // (count - 1)), BLOCK)
    if not ring:
        return stride, BEFORE
    period, row = gpu_ring.PERIOD // dtype.itemsize, rounded_up(numel, BLOCK)
    if (count + 1) * row > period:
        size = (count + 1) * row * dtype.itemsize
        raise Undecided(f"one of the inputs needs {size} bytes of sparse memory, should be at most {gpu_ring.PERIOD}")
    return _in_ring(stride, count, row, period), rounded_up(BEFORE, period)


def _in_ring(least: int, count: int, row: int, period: int) -> int:
    """Return a stride of at least `least` by which `count` rows fall on different elements.

    With an odd number of periods in 2^n strides, rows fall into 2^n parts of the period by turns,
    and `row` more puts each behind the last one in its part. The more parts, the closer is a stride
    to `least`: with four in a stride, it is at most a quarter longer.
    """
    strides, parts = [], 1
    while parts == 1 or parts * least <= 8 * period:
        periods = max(1, -(-(least * parts - row) // period))
        if parts > 1:
            periods |= 1  # odd
        stride = rounded_up(-(-(periods * period + row) // parts), BLOCK)
        if parts == 1 or count * (row + parts * BLOCK) + parts * row <= period:
            strides.append(stride)
        parts *= 2
    return min(strides)


def sparse_zeros(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return (count,) zeros. Raises Undecided if the machine has no such memory."""
    nbytes = count * dtype.itemsize
    try:
        if device.type == "cuda":
            return gpu_ring.zeros(nbytes, device).view(dtype)
        return torch.frombuffer(_mapping(nbytes), dtype=dtype)
    except MemoryError as error:
        raise OutOfMemory(f"out of memory on {device}: {error}") from error
    except OSError as error:
        what = f"one of its inputs needs {gib(nbytes)} of address space: {error}"
        raise Undecided(f"no sparse memory on {device.type} here: {what}", Reason.NO_SPARSE_MEMORY) from error


def _mapping(nbytes: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        raise OSError("this system has no anonymous mappings")
    # The mapping is shared, as the limit of a judging process (runner/isolation/memory.py) does not
    # count shared memory.
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NORESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # otherwise each row takes 2 MiB if huge pages are on for all memory
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory
