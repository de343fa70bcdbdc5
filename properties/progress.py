"""The state of the judging process, in memory that its parent can read even after it dies."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SIZE = 1 << 14
_FOUND = SIZE // 2  # the offset of the last failure
# The offsets of: the start of the call in progress (0 if there is none); the last sign of life; the
# number of cases done; the number of running compilers; the process id; the seconds of the call in
# progress that were spent compiling, if that is known only afterwards; the phase; the text.
_BEGAN, _ALIVE, _CASES, _COMPILING = range(0, 32, 8)
_PROCESS, _COMPILED, _PHASE, _TEXT = 32, 40, 48, 256
_LONGEST_PHASE = _TEXT - _PHASE - 1


@dataclass(frozen=True)
class Seen:
    """The state that the parent has read.

    text: the case that was recorded last. seconds: the time since the call in progress began, or
    since the last sign of life.
    """

    text: str
    in_call: bool
    began: float
    seconds: float
    phase: str
    cases: int
    compiling: bool
    compiled: float
    found: tuple[str, str] | None  # a case that fails, and how


class Status:
    """Written by the judging process and read by its parent: memory that a fork shares."""

    def __init__(self):
        self._memory = mmap.mmap(-1, SIZE)  # shared with every process that this one forks
        self.judging_process: int | None = None  # None if the pytest process itself judges the laws

    def reset(self) -> None:
        """Clear the record of the last law."""
        self.lives()  # first, as the parent may read before the rest is done
        for offset in (_BEGAN, _CASES, _COMPILING):
            self._set(offset, 0)
        self._write(_PHASE, "", _LONGEST_PHASE)
        self._write(_FOUND, "", SIZE - _FOUND - 1)
        self.begins("")

    def is_mine(self) -> None:
        """Declare this process to be the one that judges from now on."""
        self.judging_process = os.getpid()
        self._set(_PROCESS, self.judging_process)

    def forget_process(self) -> None:
        """Forget the judging process, as another one will judge."""
        self._set(_PROCESS, 0)

    @property
    def process(self) -> int:
        """The id of the process that judges."""
        return int(self._get(_PROCESS))

    @property
    def isolated(self) -> bool:
        """Whether this is a separate judging process. Ctrl-C does not reach such a process."""
        return self.judging_process is not None

    def begins(self, text: str) -> None:
        """Record the case that is about to be launched."""
        self._write(_TEXT, text, _FOUND - _TEXT - 1)
        self._set(_ALIVE, time.monotonic())

    def lives(self) -> None:
        """Give a sign of life during long work outside of a call."""
        self._set(_ALIVE, time.monotonic())

    def enters(self, phase: str) -> None:
        """Record whether the call in progress is in its forward or its backward."""
        self._write(_PHASE, phase, _LONGEST_PHASE)

    def found(self, case: str, headline: str) -> None:
        """Record a failing case, as shrinking or explaining it may end the process."""
        self._write(_FOUND, f"{case}\n{headline}", SIZE - _FOUND - 1)

    def did(self, cases: int) -> None:
        """Record how many cases of this law have been judged."""
        self._set(_CASES, cases)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Mark a block in which the implementation controls the process.

        If the implementation forks, its child also returns from the call, and must not go on
        judging: in an isolated process, this block ends the child.
        """
        within = self._get(_BEGAN) > 0  # True in a call between the forward and the backward of another call
        self._set(_COMPILED, 0)
        self._set(_BEGAN, time.monotonic())
        try:
            yield
        finally:
            if self.isolated and os.getpid() != self.judging_process:
                os._exit(0)
            self._set(_BEGAN, time.monotonic() if within else 0)
            self._set(_ALIVE, time.monotonic())

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Mark a block in which a question to the implementation is in progress, outside of a call.

        what: takes the place of the phase in what is said if it does not return.
        """
        if not self.isolated or self._get(_BEGAN):
            yield
            return
        phase = self._read(_PHASE)
        self.enters(what)
        try:
            with self.call():
                yield
        finally:
            self.enters(phase)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Mark a block in which something compiles, which may take longer than a call."""
        before = self._get(_COMPILING)
        self._set(_COMPILING, before + 1)
        try:
            yield
        finally:
            self._set(_COMPILING, before)

    def compiled(self, seconds: float) -> None:
        """Add the seconds that the call in progress has spent compiling."""
        self._set(_COMPILED, self._get(_COMPILED) + seconds)

    def seen(self) -> Seen:
        """Return what the process is doing now, or was doing when it died."""
        began = self._get(_BEGAN)
        case, _, headline = self._read(_FOUND).partition("\n")
        return Seen(
            text=self._read(_TEXT),
            in_call=began > 0,
            began=began,
            seconds=time.monotonic() - (began or self._get(_ALIVE)),
            phase=self._read(_PHASE) or "forward",
            cases=int(self._get(_CASES)),
            compiling=self._get(_COMPILING) > 0,
            compiled=self._get(_COMPILED),
            found=(case, headline) if case else None,
        )

    def _set(self, offset: int, number: float) -> None:
        struct.pack_into("d", self._memory, offset, number)

    def _get(self, offset: int) -> float:
        return struct.unpack_from("d", self._memory, offset)[0]

    def _write(self, offset: int, text: str, most: int) -> None:
        data = text.encode(errors="replace")[:most] + b"\0"
        self._memory[offset : offset + len(data)] = data

    def _read(self, offset: int) -> str:
        return self._memory[offset : self._memory.find(b"\0", offset)].decode(errors="replace")


NOW = Status()
