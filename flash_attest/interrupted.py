"""Signals that interrupt a run: raised so that Python keeps its exit status, or made to wait."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

# SIGHUP: the terminal was closed, or the connection to it lost. Windows has none.
SIGNALS = (signal.SIGINT, signal.SIGTERM, *(getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name)))


class Interrupted(KeyboardInterrupt):
    """A KeyboardInterrupt, also by name.

    If `python -m` is interrupted in `exec` of a text, as when a dataclass is made, it ends with
    SIGINT instead of its exit status, even if the exception was caught. It does not do so for a
    subclass.
    """


Interrupted.__name__ = Interrupted.__qualname__ = KeyboardInterrupt.__name__
Interrupted.__module__ = KeyboardInterrupt.__module__


def interrupt(number: int, frame: object) -> NoReturn:
    """Handle a signal."""
    raise Interrupted


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Let the signals wait until the end of this block. A fork made in it has them blocked.

    To block them here does not suffice: if another thread receives one, Python still runs the
    handler in the main thread.
    """
    due: list[int] = []
    handlers = {}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if callable(signal.getsignal(number)):
                    handlers[number] = signal.signal(number, lambda number, frame: due.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number in due[:1]:
            signal.raise_signal(number)
