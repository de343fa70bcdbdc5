"""The case that is about to be launched, in a file that is still there when the process has died."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

SIZE = 1 << 14  # bytes of the file; a longer text is cut off


class LastCase:
    """Keeps one text in a file that is mapped into memory: a text is written before every call, and so costs no system call.

    Processes of one worker may have the same file: one that judges, and one in which a case is judged alone.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file: int | None = None
        self._memory: mmap.mmap | None = None  # None, too, if the file system maps no files

    def write(self, text: str) -> None:
        """Put this text in the place of whatever is in the file."""
        new = f"{text}\n".encode(errors="backslashreplace")[:SIZE].ljust(SIZE)
        with suppress(OSError):  # a full disk, which the report tells
            if self._file is None:
                self._open()
            if self._memory is not None:
                self._memory[:] = new
            else:
                os.pwrite(self._file, new, 0)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Not truncated, as another process may have it mapped: its next access would end that process.
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        # Filled, so that the disk has room for what is written to memory: without room, too, an access ends the process.
        if os.pwrite(file, b" " * SIZE, 0) < SIZE:
            os.close(file)
            raise OSError(f"{self.path}: no room for {SIZE} bytes")
        self._file = file
        with suppress(OSError):
            self._memory = mmap.mmap(file, SIZE)

    def remove(self) -> None:
        """Remove the file: the process ends normally."""
        if self._memory is not None:
            self._memory.close()
        if self._file is not None:
            os.close(self._file)
        self._file = self._memory = None
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def last_case_in(path: Path) -> str:
    """What a process has written there last; "" if nothing."""
    return path.read_text(errors="replace").strip() if path.exists() else ""
