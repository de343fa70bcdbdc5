"""A piece of global state that a call must leave unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Change:
    """A change of global state by a call.

    thing: the state. phase: what changed it, "forward" or "backward". text: the problem for the
    contract, in words. after: the state that the call left behind.
    """

    thing: Thing
    phase: str
    text: str
    after: Any = field(repr=False)


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


def same_object(name: str, owner: object, its_name: str) -> Thing:
    """Return a Thing for an attribute that must keep its object."""
    return Thing(name, *attribute(owner, its_name), lambda before, after: f"replaces {name} and does not restore it")
