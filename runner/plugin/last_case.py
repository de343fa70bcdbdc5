"""Keeps the case about to be launched in a file that survives the death of the process."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

SIZE = 1 << 14  # bytes of the file; a longer text is cut off


class LastCase:
    """Keeps one text in a memory-mapped file.

    A text is written before every call, and mapping the file saves a system call each time. Two
    processes of one worker may share the file: the one that judges, and one that judges a case
    alone.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file: int | None = None
        self._memory: mmap.mmap | None = None  # also None if the file system cannot map files

    def write(self, text: str) -> None:
        """Replace the text in the file."""
        new = f"{text}\n".encode(errors="backslashreplace")[:SIZE].ljust(SIZE)
        with suppress(OSError):  # a full disk, which the report mentions
            if self._file is None:
                self._open()
            if self._memory is not None:
                self._memory[:] = new
            else:
                os.pwrite(self._file, new, 0)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Do not truncate: a process that has the file mapped would die at its next access.
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        # Reserve the disk space now: a mapped write without space would end the process.
        if os.pwrite(file, b" " * SIZE, 0) < SIZE:
            os.close(file)
            raise OSError(f"{self.path}: no room for {SIZE} bytes")
        self._file = file
        with suppress(OSError):
            self._memory = mmap.mmap(file, SIZE)

    def remove(self) -> None:
        """Remove the file, because the process ends normally."""
        if self._memory is not None:
            self._memory.close()
        if self._file is not None:
            os.close(self._file)
        self._file = self._memory = None
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def last_case_in(path: Path) -> str:
    """Return the text that a process wrote there last, or ""."""
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
