"""Switches the checking of launches on: the interface between the runtime and whoever collects its observations."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from emulator.observation import Observation
from emulator.runtime.library import runtime

LIMIT = 60.0  # seconds for one launch; a longer one is a deadlock, or too much for a CPU

_current: Watch | None = None
_lock = threading.RLock()


@dataclass
class Watch:
    """Checking that is switched on. A kernel family runs its traced build then, and passes observations to `observe`."""

    observe: Callable[[list[Observation]], None]

    def launches(self) -> int:
        """How many kernels ran since it was switched on."""
        lib = runtime()
        lib.emulator_launches.restype = ctypes.c_uint64
        return lib.emulator_launches()


def current() -> Watch | None:
    """The checking that is on in this process; None in plain mode, in which a family raises what was observed."""
    return _current


@contextmanager
def watching(observe: Callable[[list[Observation]], None], seed: int, switch: float, limit: float) -> Iterator[Watch]:
    """Check every access of the launches inside this block. Raises RuntimeError inside another such block.

    seed: 0 for threads and blocks in order, else a random order. switch: the probability that another thread continues at
    an access. limit: seconds for one launch.
    """
    global _current
    with _lock:
        if _current is not None:
            raise RuntimeError("launches are being traced already: one at a time")
        _configure(True, seed, switch, limit)
        _current = Watch(observe)
        try:
            yield _current
        finally:
            _current = None
            _configure(False, 0, 0.0, LIMIT)
            runtime().emulator_forget_shadows()


def _configure(trace: bool, seed: int, switch: float, limit: float) -> None:
    runtime().emulator_configure(
        ctypes.c_int(trace), ctypes.c_uint64(seed), ctypes.c_double(switch), ctypes.c_double(limit)
    )
