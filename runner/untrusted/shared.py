"""Memory that the judging process and a kernel process both map: the inputs of a call lie in it.

The judging process writes inputs there and, after the call, compares the bytes with its own. So it
sees what was written to an input or around it, and need not believe the kernel process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import tempfile
from collections.abc import Sequence

import torch

from flash_attest.runner.untrusted.limits import FILE

PAGE = 4096
FIRST = 64 << 20  # bytes; pages that nobody writes to take no memory
MOST_ROOMS, MOST_ROOM = 32, 1 << 30  # memories and bytes that are kept for the next call
WORTH_FREEING = 1 << 20  # bytes

memcmp = ctypes.CDLL(None).memcmp
memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Shared:
    """The judging side of the memory.

    The same address and size of an input have the same room in it. So a kernel that caches results
    by address finds new values at the same address, as it would in the judging process. The file
    can grow, but not shrink: a judging process that reads what a kernel process has cut off would
    end with a bus error.
    """

    def __init__(self):
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create("inputs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.file, FIRST)
            # F_SEAL_SEAL: the kernel process must not add a seal that keeps the file from growing.
            fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        else:
            with tempfile.TemporaryFile() as file:
                self.file = os.dup(file.fileno())
            os.ftruncate(self.file, FIRST)
        self.memory = mmap.mmap(self.file, FIRST)
        self._rooms: dict[tuple[int, int], int] = {}  # (address, size) -> offset; the least recently used first

    def close(self) -> None:
        """Give the memory back."""
        os.close(self.file)
        self.memory.close()

    def place(self, addresses: Sequence[int], blocks: Sequence[torch.Tensor]) -> list[int]:
        """Copy blocks of bytes into the memory. Returns their offsets, equal to their addresses
        modulo a page, which preserves alignment.
        """
        keys = [(address, block.numel()) for address, block in zip(addresses, blocks, strict=True)]
        for key in keys:
            if key in self._rooms:
                self._rooms[key] = self._rooms.pop(key)
        self._forget({*keys})
        offsets = []
        for key, block in zip(keys, blocks, strict=True):
            if not key[1]:
                offsets.append(0)
                continue
            if key not in self._rooms:
                self._rooms[key] = self._free(*key)
            offsets.append(self._rooms[key])
            self._bytes(offsets[-1], key[1]).copy_(block)
        return offsets

    def changed(self, offsets: Sequence[int], blocks: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        """Return copies of the rooms whose bytes differ from their blocks: number -> bytes."""
        changed = {}
        for n, (offset, block) in enumerate(zip(offsets, blocks, strict=True)):
            if size := block.numel():
                now = self._bytes(offset, size)
                if memcmp(now.data_ptr(), block.data_ptr(), size):
                    changed[n] = now.clone()
        return changed

    def _bytes(self, offset: int, size: int) -> torch.Tensor:
        return torch.frombuffer(self.memory, dtype=torch.uint8, offset=offset, count=size)

    def _forget(self, needed: set[tuple[int, int]]) -> None:
        """Free the rooms that were not used for longest, except those needed now."""
        for key in [key for key in self._rooms if key not in needed]:
            if len(self._rooms) <= MOST_ROOMS and sum(size for _, size in self._rooms) <= MOST_ROOM:
                return
            first, end = _pages(self._rooms.pop(key), key[1])
            if end - first >= WORTH_FREEING and hasattr(mmap, "MADV_REMOVE"):
                self.memory.madvise(mmap.MADV_REMOVE, first, end - first)

    def _free(self, address: int, size: int) -> int:
        """Return the offset of a free room. The memory grows if there is none."""
        within, at = address % PAGE, 0
        for first, end in sorted(_pages(offset, size) for (_, size), offset in self._rooms.items()):
            if _pages(at + within, size)[1] <= first:
                break
            at = max(at, end)
        if (end := _pages(at + within, size)[1]) > len(self.memory):
            self._grow(-(-max(end, 2 * len(self.memory)) // PAGE) * PAGE)
        return at + within

    def _grow(self, size: int) -> None:
        """Make the memory this large, or as large as the kernel process has made it.

        Raises OSError if that is larger than the kernel process may make a file.
        """
        there = os.fstat(self.file).st_size
        if there > max(size, FILE):
            raise OSError(errno.EFBIG, f"it has {there:,} bytes, should be at most {max(size, FILE):,}")
        self.memory.resize(max(size, there))


def _pages(offset: int, size: int) -> tuple[int, int]:
    """Return the offsets at which the pages of a room begin and end."""
    return offset // PAGE * PAGE, -(-(offset + size) // PAGE) * PAGE


class Mapped:
    """The kernel process's side of the memory."""

    def __init__(self, file: int):
        self.file = file
        self.memory = mmap.mmap(file, 0)

    def block(self, offset: int, size: int, whole: int) -> torch.Tensor:
        """Return the bytes of a room, without a copy. whole: the present size of the memory."""
        if whole > len(self.memory):  # tensors of earlier calls keep the earlier mapping
            self.memory = mmap.mmap(self.file, whole)
        if not size:  # all empty tensors have the same address
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self.memory, dtype=torch.uint8, offset=offset, count=size)
