"""Standard streams that nobody reads, or that are closed, change nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

STREAMS = ("stdin", "stdout", "stderr")


class Unread(io.FileIO):
    """A file whose reader may leave. What is written after that goes nowhere."""

    def write(self, data: bytes) -> int:
        """Write, like io.FileIO."""
        try:
            return super().write(data)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), self.fileno())
            return len(memoryview(data))


def open_closed() -> None:
    """Open the null device in place of a standard stream that was closed, as by `>&-`.

    Otherwise the next file that is opened gets its number, and what others print.
    """
    for number, name in enumerate(STREAMS):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Go on in this block when nobody reads standard output any more, as in `check | head`."""
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):  # a test has replaced it
        yield
        return
    before.flush()
    raw = Unread(before.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=before.encoding, errors=before.errors, line_buffering=before.isatty()
    )
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = before
