"""A piece of global state that a call must leave unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Import(Enum):
    """Says what it means if importing a file changes a piece of state.

    The state is restored in any case.
    """

    BREAKS = "breaks"  # the contract, as a call that changes it
    REMARK = "remark"  # programs often do this where they begin
    ALLOWED = "allowed"  # libraries do this, too, so it is not mentioned


@dataclass(frozen=True)
class Change:
    """A change of global state by a call.

    name: of the state. text: the problem for the contract, in words. phase: what changed it,
    "forward" or "backward". thing: the state; None for functions that were replaced. after: the
    state that the call left behind.
    """

    name: str
    text: str
    phase: str = ""
    thing: Thing | None = None
    after: Any = field(default=None, repr=False)

    @property
    def draws(self) -> bool:
        """Whether it is the state of a random number generator."""
        return self.thing is not None and self.thing.draw is not None


@dataclass(frozen=True)
class Thing:
    """A piece of global state that a call must leave unchanged.

    read(): returns a value that == can compare.
    put_back(before): restores it.
    words(before, after): describes a change.
    lazily: whether importing a library may legitimately add to it. It is then compared only if the
    call imported nothing.
    steady: whether the suite itself never changes it during a case. It is then read only once,
    before the first call of the case.
    optional: whether None means that there is no value to compare.
    imported: what it means if an import changes it.
    again(before, after): makes the change of an import once more; None for one that must not last.
    A file may choose these settings for its own implementations.
    draw(): for a random number generator, draws a number from it. own: what a kernel should use
    instead of it.
    """

    name: str
    read: Callable[[], Any]
    put_back: Callable[[Any], None]
    words: Callable[[Any, Any], str] | None = None
    lazily: bool = False
    steady: bool = False
    optional: bool = False
    imported: Import = Import.BREAKS
    again: Callable[[Any, Any], None] | None = None
    draw: Callable[[], object] | None = None
    own: str = ""

    def change(self, before: Any, after: Any) -> str:
        """Return the change in words."""
        if self.words:
            return self.words(before, after)
        if self.draw:
            return f"changes {self.name}"
        return f"sets {self.name} to {after} and does not restore it (it was {before})"


def attribute(owner: object, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return functions that read and restore an attribute."""
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def same_object(name: str, owner: object, its_name: str, **more: Any) -> Thing:
    """Return a Thing for an attribute that must keep its object."""
    words = f"replaces {name} and does not restore it"
    return Thing(name, *attribute(owner, its_name), lambda before, after: words, **more)


def setting(name: str, read: Callable[[], Any], put_back: Callable[[Any], None]) -> Thing:
    """Return a Thing that a file may choose for its own implementations when it is imported."""
    return Thing(name, read, put_back, imported=Import.REMARK, again=lambda before, after: put_back(after))
