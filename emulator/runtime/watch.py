"""Switches on the checking of launches, or another order of threads. This is the interface between
the runtime and its users.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from flash_attest.emulator.observation import Observation
from flash_attest.emulator.runtime.fresh import Following, Fresh
from flash_attest.emulator.runtime.library import runtime

LIMIT = 60.0  # seconds of CPU time for one launch; a longer one is a deadlock, or too much for a CPU


@dataclass
class Watch:
    """Checking that is switched on.

    Kernel families then run traced builds and pass observations to `observe`. fresh: the memory of
    torch.empty in this block.
    """

    observe: Callable[[list[Observation]], None]
    fresh: Fresh = field(default_factory=Fresh)

    def launches(self) -> int:
        """Return how many kernels have run since checking was switched on."""
        lib = runtime()
        lib.emulator_launches.restype = ctypes.c_uint64
        return lib.emulator_launches()


@dataclass
class Mode:
    """The way this process launches kernels. One process has one runtime, so there is one Mode."""

    watch: Watch | None = None  # checking that is on
    switching: bool = False  # whether to switch threads at accesses, which only the traced build announces
    # This lock is held unless the mode is plain.
    changing: threading.RLock = field(default_factory=threading.RLock)


_mode = Mode()


def current() -> Watch | None:
    """Return the active checking of this process. None in plain mode, in which a family raises its
    observations as errors.
    """
    return _mode.watch


def needs_traced_build() -> bool:
    """Return whether kernel families must run the build that announces accesses, either to check
    them or to switch threads.
    """
    return _mode.watch is not None or _mode.switching


@contextmanager
def ordered(seed: int, switch: float = 0.0, by_warp: bool = False) -> Iterator[None]:
    """Run launches inside this block in another order, without checking. A `watching` block inside
    keeps its own order.

    seed, switch: as in `watching`. by_warp: warps run one after another in a random order, each
    until it waits for others.
    """
    with _mode.changing:
        if needs_traced_build():  # an order has been chosen already
            yield
            return
        _configure(False, seed, switch, LIMIT, by_warp)
        _mode.switching = switch > 0
        try:
            yield
        finally:
            _mode.switching = False
            _configure(False, 0, 0.0, LIMIT)


@contextmanager
def watching(observe: Callable[[list[Observation]], None], seed: int, switch: float, limit: float) -> Iterator[Watch]:
    """Check every access of the launches inside this block.

    Raises RuntimeError inside another such block.

    seed: 0 for threads and blocks in order, otherwise a random order. switch: the probability that
    another thread continues at an access. limit: seconds of CPU time for one launch.
    """
    with _mode.changing:
        if _mode.watch is not None:
            raise RuntimeError("launches are being traced already: one at a time")
        _configure(True, seed, switch, limit)
        _mode.watch = Watch(observe)
        try:
            with Following(_mode.watch.fresh):
                yield _mode.watch
        finally:
            _mode.watch = None
            _configure(False, 0, 0.0, LIMIT)
            runtime().emulator_forget_shadows()


def _configure(trace: bool, seed: int, switch: float, limit: float, by_warp: bool = False) -> None:
    runtime().emulator_configure(
        ctypes.c_int(trace),
        ctypes.c_uint64(seed),
        ctypes.c_double(switch),
        ctypes.c_int(by_warp),
        ctypes.c_double(limit),
    )
