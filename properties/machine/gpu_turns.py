"""Processes that judge cases on one GPU share it, and one can have it alone for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import torch

from flash_attest.emulator.build_cache import cache_folder
from flash_attest.properties.progress import NOW

try:
    import fcntl
except ImportError:  # Windows has none, so nobody waits for the others there
    fcntl = None

KINDS = ("entrance", "judging", "wish", "large")
POLL = 0.1  # seconds between two attempts to take a lock
# Seconds after which a process goes on without a lock. Cases take seconds, or a minute with a
# compiler, so a holder that takes longer is probably a process that a kernel left behind.
LONGEST = 300.0


class Turns:
    """The locks of one GPU. Cases share it; one that runs out of memory can be alone on it.

    The file `judging` is locked by all cases together, or by one alone. Who takes `judging` passes
    through `entrance`, many at a time: a process that waits to be alone holds it for itself, so
    that no new case begins meanwhile, and `wish` tells the others so. `large` is held by one case
    at a time whose tensors fill the GPU.
    """

    def __init__(self, name: str):
        files = (open(cache_folder() / f"{kind}-{name}.lock", "a") for kind in KINDS)  # noqa: SIM115
        self._entrance, self._judging, self._wish, self._large = files
        self._shares = self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Judge a case beside others in this block."""
        if self._shares or self._is_alone:  # one case within another
            yield
            return
        self._share()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be alone in this block, after the others have ended their cases."""
        if self._is_alone:
            yield
            return
        shares = self._shares
        self._leave()
        # Others hold the wish for a moment when they ask whether somebody holds it.
        with _held(self._entrance, "LOCK_EX"), _held(self._wish, "LOCK_EX"):
            _take(self._judging, "LOCK_EX")
            self._is_alone = True
            try:
                yield
            finally:
                self._is_alone = False
                self._leave()
                if shares:  # while holding the entrance, so that nobody is alone in between
                    self._take_share()

    @contextmanager
    def large(self) -> Iterator[None]:
        """Be the only case with large tensors in this block.

        While it waits it does not share the GPU, as the other one may want to be alone.
        """
        if self._is_alone:
            yield
            return
        shares = self._shares
        self._leave()
        with _held(self._large, "LOCK_EX"):
            self._share()
            try:
                yield
            finally:
                if not shares:
                    self._leave()

    def wanted(self) -> bool:
        """Return whether another process is alone, or waits to be."""
        if not _flock(self._wish, "LOCK_SH"):
            return True
        _flock(self._wish, "LOCK_UN")
        return False

    def _share(self) -> None:
        with _held(self._entrance, "LOCK_SH"):
            self._take_share()

    def _take_share(self) -> None:
        _take(self._judging, "LOCK_SH")
        self._shares = True

    def _leave(self) -> None:
        _flock(self._judging, "LOCK_UN")
        self._shares = False


def _take(file: IO, mode: str) -> None:
    """Lock a file, or go on without the lock after LONGEST seconds."""
    for _ in _attempts():
        if _flock(file, mode):
            return


def _flock(file: IO, mode: str) -> bool:
    """Lock or unlock a file without waiting. Returns whether no other process prevents it.

    Where the system cannot lock a file, as some network file systems, nobody waits for the others.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, getattr(fcntl, mode) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def _held(file: IO, mode: str) -> Iterator[None]:
    """Lock a file in this block, as `_take` does."""
    _take(file, mode)
    try:
        yield
    finally:
        _flock(file, "LOCK_UN")


def _attempts() -> Iterator[None]:
    """Yield at once, and then every POLL seconds until LONGEST seconds have passed."""
    end = time.monotonic() + LONGEST
    while True:
        yield
        if time.monotonic() > end:
            return
        NOW.lives()  # a process that waits for others does not hang
        time.sleep(POLL)


_turns: dict[str, Turns] = {}


def turns_of(device: str) -> Turns:
    """Return the locks of the GPU that this process uses."""
    name = str(torch.cuda.get_device_properties(device).uuid)
    if name not in _turns:
        _turns[name] = Turns(name)
    return _turns[name]
