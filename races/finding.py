"""What a detector found, in the words of the rule (races/rule.py): one Report for each kind, pair of lines and tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KINDS = {
    "race": "two threads touch the same byte, one of them writes, and no barrier comes between",
    "outside": "an access outside of every tensor and of all shared memory",
    "uninitialised": "memory read that nothing has written",
    "barrier": "a barrier that not all threads of the block reach",
    "deadlock": "threads wait for others that never come",
    "misaligned": "an address that does not divide by what the type of the access needs",
    "mask": "a lane calls a warp operation with a mask that does not name it",
    "async": "memory touched while an asynchronous copy into it is under way",
    "launch": "a launch that fails, and nobody asked",
    "trap": "the kernel ended itself",
}
VERBS = {"read": "reads", "write": "writes", "atomic": "updates (atomic)", "wait": "waits", "touch": "stops here"}


@dataclass(frozen=True)
class Site:
    """A place in the author's source; text is the line, stripped, or "" where the file cannot be read."""

    file: str
    line: int
    function: str = ""
    text: str = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}" if self.line else self.file or "(no line known)"


@dataclass(frozen=True)
class Access:
    """Who did what where.

    what: "read", "write", "atomic", "wait" (at a barrier), or "touch" (what ended the launch could not tell).
    """

    what: str
    site: Site
    thread: tuple[int, int, int]
    block: tuple[int, int, int]

    def __str__(self) -> str:
        return f"thread {_short(self.thread)} of block {_short(self.block)} {VERBS[self.what]}"


@dataclass(frozen=True)
class Report:
    """One finding, for all that have the same kind, lines and tensor.

    first, second: the accesses in the order of this run; second is None where one is enough.
    tensor, index: the element, (i, j, ...) in a tensor, (element,) in a shared variable. same_value: whether the second
    access wrote what was there already; None where that is no question. count: how many accesses. layer: who saw it.
    """

    kind: str
    space: str
    tensor: str
    index: tuple[int, ...] | None
    first: Access | None
    second: Access | None = None
    same_value: bool | None = None
    count: int = 1
    layer: str = "trace"
    detail: str = field(default="", compare=False)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The lines, in the order of this run."""
        return tuple(access.site for access in (self.first, self.second) if access is not None)

    @property
    def place(self) -> str:
        """ "tile[33] in shared memory"; "" where no memory is concerned."""
        if not self.tensor:
            return ""
        element = f"[{', '.join(map(str, self.index))}]" if self.index is not None else ""
        where = " in shared memory" if self.space == "shared" and "shared memory" not in self.tensor else ""
        return f"{self.tensor}{element}{where}"

    @property
    def headline(self) -> str:
        """One line, enough to file an issue with: what, where, which lines."""
        lines = " and ".join(line for line in dict.fromkeys(map(str, self.sites)) if line not in self._what)
        return f"{self.kind}: {self._what}{', ' + lines if lines else ''}"

    @property
    def _what(self) -> str:
        if self.kind == "race" and self.first and self.second:
            pair = f"{self.second.what} after {self.first.what}"
            return f"{self.place}, {pair}, no barrier between"
        first = self.detail.splitlines()[0] if self.detail else KINDS[self.kind]
        return f"{self.place}, {first}" if self.place else first

    def __str__(self) -> str:
        accesses = [access for access in (self.first, self.second) if access is not None]
        wide, who = (max((len(str(x)) for x in of), default=0) for of in ([a.site for a in accesses], accesses))
        lines = [f"  {access.site!s:<{wide}}  {access!s:<{who}}  {access.site.text}".rstrip() for access in accesses]
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
    """(3, 0, 0) -> 3: most launches have one dimension."""
    return str(index[0]) if index[1:] == (0, 0) else f"({', '.join(map(str, index))})"
