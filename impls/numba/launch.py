"""Launching a kernel on tensors: on torch's current stream and the tensors' device; in the emulator if there is no GPU.

Numba's kernels take flat arrays with all elements of a tensor, from the first to the last in memory, and compute addresses
from the strides in Problem. So a kernel is compiled once for each dtype, not for each pattern of strides as well.
"""

from __future__ import annotations

from typing import Any

import torch

from .device import EMULATED
from .shared_memory import allow_shared_memory
from .tiles import THREADS

MOST_BLOCKS = 2**31 - 1  # of a one-dimensional grid


def launch(kernel: Any, blocks: int, bytes_: int, *arguments: Any) -> None:
    """Run `blocks` blocks of a kernel with so many bytes of dynamic shared memory each; nothing for 0 blocks.

    arguments: tensors, flattened here; numbers; tuples of integers. Raises if it cannot be launched: RuntimeError, or on a
    GPU what cuda.core raises.
    """
    if blocks == 0:
        return
    if blocks > MOST_BLOCKS:
        raise RuntimeError(f"{kernel.__name__}: {blocks} blocks are more than the {MOST_BLOCKS} of a grid")
    passed = [flat(x) if isinstance(x, torch.Tensor) else x for x in arguments]
    if EMULATED:
        _emulate(kernel, blocks, bytes_, passed)
    else:
        from . import on_gpu  # needs the driver

        on_gpu.launch(kernel, blocks, bytes_, passed)


def _emulate(kernel: Any, blocks: int, bytes_: int, passed: list[Any]) -> None:
    key = (kernel, bytes_, *(x.dtype for x in passed if isinstance(x, torch.Tensor)))
    if key not in _allowed:
        allow_shared_memory(kernel.compile(tuple(map(kernel.typeof_pyval, passed))).library.get_cufunc(), bytes_)
        _allowed.add(key)
    kernel[blocks, THREADS, 0, bytes_](*passed)


_allowed: set[tuple] = set()


def flat(x: torch.Tensor) -> torch.Tensor:
    """A tensor of any strides -> its memory from first to last element, (elements,); bfloat16 as its bits, in int16."""
    x = x.detach()
    if x.dtype == torch.bfloat16:
        x = x.view(torch.int16)
    elements = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((elements if x.numel() else 0,), (1,))
