"""Limits what a kernel process takes of the machine: memory, files, processes, output."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterable

from flash_attest.runner.descendants import descendants
from flash_attest.texts import gib

OPEN_FILES = 4096
FILE = 2 << 30  # bytes of one file
WRITTEN = 4 << 30  # bytes in the folders that it may write to
SMALL_FILE = 1 << 15  # bytes that a file counts for at least: many small ones fill a disk, too
PRINTED = 1 << 20  # bytes, after which the file of its output is emptied
PROCESSES = 512  # with threads of other processes, and the compilers
THREADS = 4096  # of this user, in all
LEAST_MEMORY = 16 << 30  # bytes of addresses; PyTorch alone takes 5 GiB
INTERVAL = 1.0  # seconds between two looks


def take_on(gpu: bool) -> None:
    """Limit this process. On a GPU, addresses are not limited: its driver maps hundreds of GiB."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_FSIZE, FILE)
    _lower(resource.RLIMIT_NPROC, _of_this_user() + THREADS)
    if not gpu:
        _lower(resource.RLIMIT_AS, max(LEAST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2))


def _lower(which: int, most: int) -> None:
    before = resource.getrlimit(which)[1]
    most = most if before == resource.RLIM_INFINITY else min(most, before)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (most, most))


def _of_this_user() -> int:
    """Return how many threads this user has, which the system counts together."""
    count = 0
    with contextlib.suppress(OSError):
        for process in os.scandir("/proc"):
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    if process.stat().st_uid == os.getuid():
                        count += len(os.listdir(f"{process.path}/task"))
    return count


class Watch:
    """Looks, at most once in INTERVAL, at what no limit of the system holds."""

    def __init__(self, pid: int, folders: Iterable[str], printed: int):
        self.pid, self.folders, self.printed = pid, tuple(folders), printed
        self._at = time.monotonic()
        self._before = _size(self.folders)  # what earlier runs have left in a cache

    def excess(self) -> str:
        """Return what the process took too much of, or ""."""
        if time.monotonic() - self._at < INTERVAL:
            return ""
        self._at = time.monotonic()
        if os.fstat(self.printed).st_size > PRINTED:
            os.ftruncate(self.printed, 0)
        if (written := _size(self.folders) - self._before) > WRITTEN:
            return f"it has written {gib(written, 1)} to its folders, should be at most {WRITTEN >> 30}"
        if (processes := len(descendants(self.pid, ended=True))) > PROCESSES:
            return f"it has started {processes} processes, should be at most {PROCESSES}"
        return ""


def _size(folders: Iterable[str]) -> int:
    """Return the bytes of all files below these folders."""
    size = 0
    for folder in folders:
        for path, _, files in os.walk(folder):
            for name in files:
                with contextlib.suppress(OSError):
                    size += max(SMALL_FILE, os.lstat(os.path.join(path, name)).st_blocks * 512)
    return size
