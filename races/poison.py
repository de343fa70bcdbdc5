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
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode

from flash_attest.races.bits import INTEGERS

# Byte patterns: the largest numbers (NaN in float16), all bits set (NaN, and -1 as an integer),
# zeros.
PATTERNS = (0x7F, 0xFF, 0x00)

_FRESH = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
)

_current: list[tuple[int, str, list[int]]] = []

_KEYS = {"cpu": torch._C.DispatchKey.CPU, "cuda": torch._C.DispatchKey.CUDA}


class FillFresh(TorchDispatchMode):
    """Fill tensors from torch.empty and similar functions with bytes `pattern` in this block."""

    supports_higher_order_operators = True  # flex_attention is such an operator; this mode does not change it

    def __init__(self, pattern: int, device: str):
        super().__init__()
        self.pattern, self.device = pattern, device

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled code run as it does without this mode."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name() in OPDEFS:
            return self._within(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if func in _FRESH and result.is_floating_point() and result.device.type in ("cpu", "cuda"):
            fill_bytes(result, self.pattern)
        return result

    def _within(self, func, args, kwargs):
        """Run a torch.library.custom_op with this mode switched on; torch switches it off inside.

        The operator's function is called directly, below autograd, as calling the operator would
        call this function again.
        """
        for key in (torch._C.DispatchKey.CompositeExplicitAutograd, _KEYS[self.device]):  # for all devices, or one
            if func.has_kernel_for_dispatch_key(key):
                with self:
                    return func._op_dk(key, *args, **kwargs)
        return func(*args, **kwargs)


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
