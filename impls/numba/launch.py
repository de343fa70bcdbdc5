"""Launches a kernel on torch's current stream, or in the emulator if there is no GPU.

Numba's kernels take flat arrays of all elements of a tensor, in the order of memory, and compute
addresses from the strides in Problem. So a kernel is compiled once per dtype, not once per pattern
of strides.
"""

from __future__ import annotations

from typing import Any

import torch

from .device import EMULATED
from .shared_memory import allow_shared_memory
from .tiles import THREADS

MOST_BLOCKS = 2**31 - 1  # CUDA's limit for a one-dimensional grid


def launch(kernel: Any, blocks: int, bytes_: int, *arguments: Any) -> None:
    """Run blocks of a kernel, each with `bytes_` of dynamic shared memory. 0 blocks do nothing.

    arguments: tensors, which are flattened here, numbers, and tuples of integers. Raises
    RuntimeError if the kernel cannot be launched. On a GPU, cuda.core may raise its own error.
    """
    if blocks == 0:
        return
    if blocks > MOST_BLOCKS:
        raise RuntimeError(f"{kernel.__name__}: {blocks} blocks are more than the {MOST_BLOCKS} of a grid")
    flattened = [flat(x) if isinstance(x, torch.Tensor) else x for x in arguments]
    if EMULATED:
        _emulate(kernel, blocks, bytes_, flattened)
    else:
        from . import on_gpu  # importing it needs the driver

        on_gpu.launch(kernel, blocks, bytes_, flattened)


def _emulate(kernel: Any, blocks: int, bytes_: int, passed: list[Any]) -> None:
    key = (kernel, bytes_, *(x.dtype for x in passed if isinstance(x, torch.Tensor)))
    if key not in _allowed:
        allow_shared_memory(kernel.compile(tuple(map(kernel.typeof_pyval, passed))).library.get_cufunc(), bytes_)
        _allowed.add(key)
    kernel[blocks, THREADS, 0, bytes_](*passed)


_allowed: set[tuple] = set()


def flat(x: torch.Tensor) -> torch.Tensor:
    """x of any strides -> its memory, (elements,), not copied; bfloat16 as its bits in int16."""
    x = x.detach()
    if x.dtype == torch.bfloat16:
        x = x.view(torch.int16)
    elements = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((elements if x.numel() else 0,), (1,))
