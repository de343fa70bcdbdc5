"""Cuts texts that implementations have written, reads those of exceptions, writes lists and
durations.
"""

from __future__ import annotations

import linecache
import traceback
from types import TracebackType
from typing import NamedTuple

MOST_CHARACTERS = 20_000
LONGEST_MARK = 40  # characters of the mark in the middle
LONGEST_NAME = 100


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the head and the tail of a text that is too long, with the number of characters cut
    out between them, altogether at most `most` characters.

    All texts of implementations come through here: messages, names, reasons, printed lines.
    """
    if len(text) <= most:
        return text
    room = most - LONGEST_MARK
    head = room * 3 // 4
    return f"{text[:head]} [... {len(text) - room:,} characters ...] {text[len(text) - (room - head) :]}"


def words_of(error: BaseException) -> str:
    """Return the text of an exception, even if its __str__ raises."""
    try:
        return cut(str(error))
    except BaseException:  # __str__ may be the implementation's own code, and raise anything
        return "(no message: its __str__ raises)"


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception, whatever its class makes of __traceback__."""
    return BaseException.__dict__["__traceback__"].__get__(error)


class Frame(NamedTuple):
    """A frame of a traceback. line: its source, or "" if it cannot be read."""

    filename: str
    lineno: int
    name: str
    line: str


def frames_of(error: BaseException) -> list[Frame]:
    """Return the frames of an exception, the outermost first.

    Code may have any text for the name of its file, with which traceback.extract_tb raises.
    """
    frames = []
    for frame, number in traceback.walk_tb(traceback_of(error)):
        file = frame.f_code.co_filename
        try:
            linecache.checkcache(file)
            line = linecache.getline(file, number, frame.f_globals).strip()
        except Exception:
            line = ""
        frames.append(Frame(file, number, frame.f_code.co_name, line))
    return frames


def trace_of(error: BaseException) -> str:
    """Return an exception with its frames and its causes, as Python prints them."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # of an implementation, whose exception is among the causes
        return "".join(f"{frame.filename}:{frame.lineno}, in {frame.name}\n" for frame in frames_of(error))


def type_name(value: object) -> str:
    """Return the name of a value's class, whatever its metaclass makes of __name__."""
    return cut(type.__dict__["__name__"].__get__(type(value)), LONGEST_NAME)


def all_of(names: list[str]) -> str:
    """Return "dq", "dq and dk", or "dq, dk and dv"."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def duration(seconds: float) -> str:
    """Return a duration in a convenient unit: "40 s", "3 min", "2 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


def exact_duration(seconds: float) -> str:
    """Return a duration that somebody has set, without rounding: "0.5 s", "100 s", "10 min"."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size and seconds % size == 0:
            return f"{seconds / size:.10g} {unit}"
    return f"{seconds:.10g} s"


def gib(memory: float, decimals: int = 0) -> str:
    """Return a number of bytes as, for example, "24 GiB", or with a decimal "23.5 GiB"."""
    return f"{memory / 2**30:.{decimals}f} GiB"
