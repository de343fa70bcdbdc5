"""Observations that the emulator makes while kernels run: who did what and where, and the kind of
mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path

DYNAMIC_SHARED = "dynamic shared memory"  # name of memory of Space.SHARED that no variable names
STATIC_SHARED = "shared memory"
ALLOCATION = "allocated memory"  # names device memory that host code allocated


class Kind(Enum):
    """Kinds of mistakes, in the order of enum Kind in runtime/runtime.h; `meaning` explains
    each.
    """

    RACE = "race", "two threads access the same byte, one of them writes, and no barrier orders the two"
    OUTSIDE = "outside", "an access outside of every tensor and of all shared memory"
    UNINITIALISED = "uninitialised", "a read of memory that was never written"
    BARRIER = "barrier", "a barrier that not all threads of the block reach"
    DEADLOCK = "deadlock", "threads wait for others that never arrive"
    MISALIGNED = "misaligned", "an address that is not a multiple of the alignment of the access"
    MASK = "mask", "a lane calls a warp operation with a mask that does not include it"
    ASYNC = "async", "an access to memory while an asynchronous copy into it is under way"
    REGISTER = "register", "a register is touched while a wgmma may still use it"
    LAUNCH = "launch", "a launch failed, and the host code did not check for errors"
    TRAP = "trap", "the kernel stopped itself"

    def __new__(cls, word: str, meaning: str):
        kind = object.__new__(cls)
        kind._value_, kind.meaning = word, meaning
        return kind


class Action(Enum):
    """A thread's action, in the order of enum What in runtime/runtime.h.

    TOUCH: it is unknown whether the thread read or wrote.
    """

    READ = "read", "reads"
    WRITE = "write", "writes"
    ATOMIC = "atomic", "updates (atomic)"
    WAIT = "wait", "waits"  # at a barrier or a warp operation
    TOUCH = "touch", "stops here"

    def __new__(cls, word: str, verb: str):
        action = object.__new__(cls)
        action._value_, action.verb = word, verb
        return action


class Apart(IntEnum):
    """Says how far apart the two threads of a race are, in the order of enum Apart in
    runtime/runtime.h.
    """

    LANES = 1  # of one warp
    WARPS = 2  # of one block
    BLOCKS = 3


class Space(Enum):
    """The kind of memory. NONE if the observation is not about memory, or the address is in no
    memory of the launch.
    """

    NONE = ""
    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"


@dataclass(frozen=True)
class Site:
    """A line in the author's source; text is the line, stripped, or "" if the file cannot be
    read.
    """

    file: str
    line: int
    function: str = ""
    text: str = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}" if self.line else self.file or "(no line known)"


@dataclass(frozen=True)
class Side:
    """One of the threads of an observation: what it did, where in the source, and its indices, if
    known.
    """

    what: Action
    site: Site
    thread: tuple[int, int, int] | None
    block: tuple[int, int, int] | None

    def __str__(self) -> str:
        if self.thread is None or self.block is None:
            return f"a thread {self.what.verb}"
        return f"thread {_short(self.thread)} of block {_short(self.block)} {self.what.verb}"


@dataclass(frozen=True)
class Observation:
    """One mistake, which stands for all accesses with the same kind, lines and tensor.

    first, second: in the order of this run; second is None if only one thread is involved. tensor,
    index: the element, (i, j, ...) in a tensor, (element,) in a variable. same_value: whether the
    second access, a write, left the value unchanged; None if not compared. count: number of
    accesses. detail: the mistake in words. apart: of a race that was traced, how far apart the
    threads are; first and second are then as far apart as any two that race on these lines. owner:
    the block whose shared memory it is, if blocks form clusters.
    """

    kind: Kind
    space: Space
    tensor: str
    index: tuple[int, ...] | None
    first: Side | None
    second: Side | None = None
    same_value: bool | None = None
    count: int = 1
    detail: str = field(default="", compare=False)
    apart: Apart | None = field(default=None, compare=False)
    owner: tuple[int, int, int] | None = field(default=None, compare=False)

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(side for side in (self.first, self.second) if side is not None)

    @property
    def sites(self) -> tuple[Site, ...]:
        """Return the lines, in the order of this run."""
        return tuple(side.site for side in self.sides)

    @property
    def is_of_fresh_tensor(self) -> bool:
        """Return whether it is a read of torch.empty's memory, which is right if no result depends
        on it: kernels read whole tiles, and drop the part of them that does not exist.
        """
        return self.kind is Kind.UNINITIALISED and self.space is Space.GLOBAL and self.tensor != ALLOCATION

    @property
    def place(self) -> str:
        """Return the location, as in "tile[33] in shared memory"; "" if the mistake is not about
        memory.
        """
        if not self.tensor:
            return ""
        element = f"[{', '.join(map(str, self.index))}]" if self.index is not None else ""
        is_variable = self.space is Space.SHARED and self.tensor not in (DYNAMIC_SHARED, STATIC_SHARED)
        owner = f" of block {_short(self.owner)}" if self.owner else ""
        return f"{self.tensor}{element}{' in shared memory' if is_variable else ''}{owner}"

    @property
    def headline(self) -> str:
        """Return one line that can be the title of an issue: what happened, where, and on which
        lines.
        """
        lines = " and ".join(line for line in dict.fromkeys(map(str, self.sites)) if line not in self._what)
        return f"{self.kind.value}: {self._what}{', ' + lines if lines else ''}"

    @property
    def _what(self) -> str:
        if self.kind is Kind.RACE and self.first and self.second:
            between = self.detail or "no barrier between"
            return f"{self.place}, {self.second.what.value} after {self.first.what.value}, {between}"
        first = self.detail.splitlines()[0] if self.detail else self.kind.meaning
        return f"{self.place}, {first}" if self.place else first

    def __str__(self) -> str:
        width, who = (max((len(str(x)) for x in of), default=0) for of in (self.sites, self.sides))
        lines = [f"  {side.site!s:<{width}}  {side!s:<{who}}  {side.site.text}".rstrip() for side in self.sides]
        notes = []
        if self.same_value is not None:
            notes.append("the write left the value as it was" if self.same_value else "the write changed the value")
        if self.count > 1:
            notes.append(f"{self.count} accesses")
        more = self.detail.splitlines()[1:]
        return "\n".join(
            [self.headline, *lines, *(f"  {line}" for line in more), *([f"  {'; '.join(notes)}"] if notes else [])]
        )


def _short(index: tuple[int, int, int]) -> str:
    """Shorten an index, (3, 0, 0) -> 3, because most launches have one dimension."""
    return str(index[0]) if index[1:] == (0, 0) else f"({', '.join(map(str, index))})"
