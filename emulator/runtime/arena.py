"""Memory for the tensors of a call, with margins in which writes out of bounds are harmless and
detected.

Whole storages are copied in, which keeps views, strides and gaps, and copied back afterwards. Large
storages are not copied, because a call accesses little of them: kernels get the original memory.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

MARGIN = 64 * 1024  # bytes: a tile of 128 rows of 128 float32
LARGE = 2**28  # bytes; larger storages are not copied
POISON = 0xFF  # NaN in every floating type
_PATTERN = bytes([POISON]) * MARGIN


@dataclass
class View:
    """One tensor argument: name, shape, strides, bytes per element, its first byte in the storage,
    and its dtype.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int
    start: int
    dtype: torch.dtype

    @property
    def end(self) -> int:
        """Return the position after the last byte of its last element."""
        if 0 in self.shape:
            return self.start
        return self.start + self.width * (1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)))

    def index_of(self, offset: int) -> tuple[int, ...]:
        """Return the element that holds the byte at `offset` of the storage. If the tensor is
        broadcast, return the first one.
        """
        remainder, index = (offset - self.start) // self.width, [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            if self.strides[axis]:
                index[axis] = min(remainder // self.strides[axis], self.shape[axis] - 1)
                remainder -= index[axis] * self.strides[axis]
        return tuple(index)


@dataclass
class Stored:
    """A storage of a call: its original address, its address for kernels, and its views."""

    source: int
    nbytes: int
    address: int = 0
    views: list[View] = field(default_factory=list)

    @property
    def margin(self) -> int:
        """Return the bytes of margin on each side; 0 if the storage is not in the arena."""
        return MARGIN if self.nbytes <= LARGE else 0

    @property
    def width(self) -> int:
        return min(view.width for view in self.views)

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Return whether the given storage is this one or a part of it."""
        start = storage.data_ptr()
        return start == self.source or self.source <= start < self.source + self.nbytes

    def copy_in(self) -> None:
        """Copy the storage into the arena, between margins of NaN."""
        if self.margin:
            ctypes.memset(self.address - MARGIN, POISON, MARGIN)
            ctypes.memset(self.address + self.nbytes, POISON, MARGIN)
            ctypes.memmove(self.address, self.source, self.nbytes)

    def copy_back(self) -> None:
        """Copy the storage back, but only if it changed, because an input may be in read-only
        memory.
        """
        if not self.margin:
            return
        new = ctypes.string_at(self.address, self.nbytes)
        if new != ctypes.string_at(self.source, self.nbytes):
            ctypes.memmove(self.source, new, self.nbytes)

    def beside(self) -> str:
        """Return where a margin was written, from the nearest written element to the farthest; ""
        if nowhere.
        """
        if not self.margin:
            return ""
        name = ", ".join(view.name for view in self.views)
        after = ctypes.string_at(self.address + self.nbytes, MARGIN)
        if after != _PATTERN:
            return f"{self._reach(after)} bytes past the end of {name}"
        before = ctypes.string_at(self.address - MARGIN, MARGIN)
        if before != _PATTERN:
            return f"{self._reach(before[::-1])} bytes before the start of {name}"
        return ""

    def _reach(self, margin: bytes) -> str:
        """Return the range of written elements, such as "24 to 28", in a margin that begins at the
        tensor.

        An element counts as written if one of its bytes was.
        """
        written = [i // self.width for i, byte in enumerate(margin) if byte != POISON]
        return f"{written[0] * self.width} to {(written[-1] + 1) * self.width}"


def _storages(tensors: list[tuple[str, torch.Tensor]]) -> tuple[list[Stored], list[tuple[Stored, int]]]:
    """Return the storages, and each tensor's storage and start in it.

    Storages that overlap, as of two NumPy arrays, are merged.
    """
    storages: list[Stored] = []
    starts = []
    for storage in sorted((t.untyped_storage() for _, t in tensors), key=lambda s: s.data_ptr()):
        start, nbytes = storage.data_ptr(), storage.nbytes()
        if storages and start < storages[-1].source + storages[-1].nbytes:
            storages[-1].nbytes = max(storages[-1].nbytes, start + nbytes - storages[-1].source)
        elif not any(place.holds(storage) for place in storages):
            storages.append(Stored(start, nbytes))
    for name, tensor in tensors:
        place = next(p for p in storages if p.holds(tensor.untyped_storage()))
        start = tensor.data_ptr() - place.source if tensor.numel() else 0
        place.views.append(View(name, tuple(tensor.shape), tensor.stride(), tensor.element_size(), start, tensor.dtype))
        starts.append((place, start))
    return storages, starts


class Arena:
    """Memory for the storages of one call. It is kept between calls because fresh pages are
    slow.
    """

    def __init__(self):
        self._memory: mmap.mmap | None = None
        self._base = 0

    @contextmanager
    def holding(self, tensors: list[tuple[str, torch.Tensor]]) -> Iterator[tuple[list[Stored], list[int]]]:
        """Copy the storages in, yield them with each tensor's address, and copy them back at the
        end, also after an exception.
        """
        stored, starts = _storages(tensors)
        self._lay_out(stored)
        for place in stored:
            place.copy_in()
        try:
            yield stored, [place.address + start for place, start in starts]
        finally:
            for place in stored:
                place.copy_back()

    def _lay_out(self, stored: list[Stored]) -> None:
        total = MARGIN
        inside = [place for place in stored if place.margin]
        for place in inside:
            place.address = total
            total += -(-place.nbytes // 256) * 256 + 2 * MARGIN
        if self._memory is None or len(self._memory) < total:
            private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # a forked process gets its own copy
            self._memory = mmap.mmap(-1, 2 * total, flags=private)
            self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for place in inside:
            place.address += self._base
        for place in stored:
            place.address = place.address or place.source
