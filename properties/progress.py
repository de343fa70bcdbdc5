"""What the judging process does at this moment, in memory that its parent sees too, even when the process has died."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SIZE = 1 << 14
_FOUND = SIZE // 2  # where the failure stands that was found last
# When the call in progress began (0: there is none), the last sign of life; cases done, compilers at work; the number of
# the process; seconds that the call in progress has compiled, where that is known afterwards; phase, text.
_BEGAN, _ALIVE, _CASES, _COMPILING = range(0, 32, 8)
_PROCESS, _COMPILED, _PHASE, _TEXT = 32, 40, 48, 80
_LONGEST_PHASE = _TEXT - _PHASE - 1


@dataclass(frozen=True)
class Seen:
    """What the parent saw. text: the case as it was written down last; seconds: of the call in progress, or of silence."""

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
    """Written by the judging process, read by its parent. Both have it since the fork."""

    def __init__(self):
        self._memory = mmap.mmap(-1, SIZE)  # shared with every process that this one forks
        self.judging_process: int | None = None  # None: laws are judged in the pytest process itself

    def reset(self) -> None:
        """Forget the last law."""
        for offset in (_BEGAN, _ALIVE, _CASES, _COMPILING):
            struct.pack_into("d", self._memory, offset, 0)
        self._write(_PHASE, "", _LONGEST_PHASE)
        self._write(_FOUND, "", SIZE - _FOUND - 1)
        self.begins("")

    def is_mine(self) -> None:
        """This process judges from now on."""
        self.judging_process = os.getpid()
        self._set(_PROCESS, self.judging_process)

    def forget_process(self) -> None:
        """Another process will judge."""
        self._set(_PROCESS, 0)

    @property
    def process(self) -> int:
        """The number of the process that judges."""
        return int(self._get(_PROCESS))

    @property
    def isolated(self) -> bool:
        """Whether this is a judging process, which no Ctrl-C reaches."""
        return self.judging_process is not None

    def begins(self, text: str) -> None:
        """A case is about to be launched."""
        self._write(_TEXT, text, _FOUND - _TEXT - 1)
        self._set(_ALIVE, time.monotonic())

    def lives(self) -> None:
        """A sign of life outside of a call, of what takes long."""
        self._set(_ALIVE, time.monotonic())

    def enters(self, phase: str) -> None:
        """The call in progress is in its forward or its backward."""
        self._write(_PHASE, phase, _LONGEST_PHASE)

    def found(self, case: str, headline: str) -> None:
        """A case fails. What follows, shrinking and explaining, may take the process down."""
        self._write(_FOUND, f"{case}\n{headline}", SIZE - _FOUND - 1)

    def did(self, cases: int) -> None:
        """So many cases of this law have been judged."""
        self._set(_CASES, cases)

    @contextmanager
    def call(self) -> Iterator[None]:
        """A block in which the implementation has the process.

        If it forks, its child returns from the call like its parent, and must not go on judging.
        """
        within = self._get(_BEGAN) > 0  # another call, between its forward and its backward
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
    def compiling(self) -> Iterator[None]:
        """A block in which something compiles, which may take longer than a call."""
        before = self._get(_COMPILING)
        self._set(_COMPILING, before + 1)
        try:
            yield
        finally:
            self._set(_COMPILING, before)

    def compiled(self, seconds: float) -> None:
        """The call in progress has compiled for so long."""
        self._set(_COMPILED, self._get(_COMPILED) + seconds)

    def seen(self) -> Seen:
        """What the process does now, or did when it died."""
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
