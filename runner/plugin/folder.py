"""The folder of a report.

Only one run holds it at a time, files are replaced as a whole, and a full disk does not stop a run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

IN_USE = "in-use.txt"  # names the run that holds the folder
ANOTHER = "name another one with --report=DIR"


class FolderError(ValueError):
    """The folder cannot be written to, or another run writes to it. The message says what to do."""


class Pace:
    """Limits repeated writing to a share of the run's time, after the first `free` seconds."""

    def __init__(self, share: float, free: float = 0.0):
        self.share, self.free = share, free
        self.began, self.spent, self.last = time.perf_counter(), 0.0, 0.0

    def due(self) -> bool:
        """Return whether one more write, if it takes as long as the last one, stays within the
        share.
        """
        return self.spent + self.last <= self.free + self.share * (time.perf_counter() - self.began)

    @contextlib.contextmanager
    def writing(self):
        """Measure the time of one write, which the block performs."""
        started = time.perf_counter()
        yield
        self.last = time.perf_counter() - started
        self.spent += self.last


class Folder:
    """A report folder. If writing fails after the start, `tell` is called once, with one
    sentence. A folder that is removed is made again.
    """

    def __init__(self, path: Path, tell: Callable[[str], None] = lambda text: None):
        self.path = path
        self.tell = tell
        self.unwritten: dict[str, str] = {}  # file -> why it could not be written when that was last tried
        self._told = False
        self._there = Path(os.path.abspath(path))  # the working directory may change
        self._holder = ""
        self._lock: int | None = None

    @property
    def trouble(self) -> str:
        """The reason why a file is not on disk; "" if all are."""
        return next((f"{self.path / name} cannot be written: {why}" for name, why in self.unwritten.items()), "")

    def take(self, holder: str) -> None:
        """Hold the folder until `release`, or until this process ends in any way.

        holder: a description of this run, for messages of other runs. Raises FolderError if another
        process holds the folder, or if it cannot be written to.
        """
        try:
            self._there.mkdir(parents=True, exist_ok=True)
            self._lock = self._locked()
            self._holder = holder
            os.ftruncate(self._lock, 0)
            os.write(self._lock, f"process {os.getpid()} ({holder})\n".encode(errors="backslashreplace"))
        except OSError as error:
            self._remove_lock()
            problem = "is a file, should be a folder" if isinstance(error, FileExistsError) else error.strerror
            raise FolderError(f"--report {self.path}: cannot be written to ({problem}): {ANOTHER}") from OSError(
                problem
            )

    def _locked(self) -> int:
        """Return a POSIX lock of this process.

        Forks do not inherit it, and it is dropped when the process ends.
        """
        file = self._there / IN_USE
        while True:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    who = os.read(descriptor, 4096).decode(errors="replace").strip() or "another process"
                    os.close(descriptor)
                    raise FolderError(f"--report {self.path}: in use by {who}: {ANOTHER}") from OSError(
                        f"in use by {who}"
                    )
                return descriptor  # the file system has no locks
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(file)):
                    return descriptor
            os.close(descriptor)  # its holder removed the file in between

    def release(self) -> None:
        """Release the folder for other processes."""
        self._remove_lock()
        self._holder = ""

    def _remove_lock(self) -> None:
        if self._is_held():
            with contextlib.suppress(OSError):
                (self._there / IN_USE).unlink()
        self._close()

    def _close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def has(self, name: str) -> bool:
        """Return whether a file is there."""
        return (self._there / name).exists()

    def restore(self) -> None:
        """Make the folder again if it has vanished since `take`. Raises OSError if that fails, or
        if another process holds the new one.
        """
        if not self._holder or self._is_held():
            return
        self._close()
        try:
            self.take(self._holder)
        except FolderError as error:
            raise OSError(str(error.__cause__)) from None
        self.tell(f"{self.path} was removed or emptied: its files are written again")

    def _is_held(self) -> bool:
        """Return whether the locked file is the one that is there."""
        try:
            return self._lock is not None and os.path.samestat(os.fstat(self._lock), os.stat(self._there / IN_USE))
        except OSError:
            return False

    def write(self, name: str, text: str) -> bool:
        """Replace a file atomically: readers see either the old file or the new one, complete.

        Returns whether it worked.
        """
        unfinished = self._there / f"{name}.part"
        try:
            self.restore()
            unfinished.write_text(text, encoding="utf-8")
            os.replace(unfinished, self._there / name)
            self.unwritten.pop(name, None)
            return True
        except OSError as error:
            self.failed(name, error.strerror or str(error))
            with contextlib.suppress(OSError):
                unfinished.unlink()
            return False

    def append(self, name: str, text: str) -> None:
        """Append to a file in one system call."""
        try:
            with open(self._there / name, "ab", buffering=0) as file:
                file.write(text.encode())
        except OSError as error:
            self.failed(name, error.strerror or str(error))

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        try:
            (self._there / name).unlink(missing_ok=True)
            self.unwritten.pop(name, None)
        except OSError as error:
            self.failed(name, error.strerror or str(error))

    def failed(self, name: str, why: str) -> None:
        """Record that a file could not be written, and tell the first time."""
        self.unwritten[name] = why
        if not self._told:
            self._told = True
            self.tell(self.trouble)
