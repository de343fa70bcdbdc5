"""A piece of global state that a call must leave unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """A change of global state by a call.

    thing: the name of the state. text: the problem for the contract, in words.
    """

    thing: str
    text: str


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
    """

    name: str
    read: Callable[[], Any]
    put_back: Callable[[Any], None]
    words: Callable[[Any, Any], str] | None = None
    lazily: bool = False
    steady: bool = False
    optional: bool = False

    def change(self, before: Any, after: Any) -> str:
        """Return the change in words."""
        if self.words:
            return self.words(before, after)
        return f"sets {self.name} to {after} and does not restore it (it was {before})"


def attribute(owner: object, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return functions that read and restore an attribute."""
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def same_object(name: str, owner: object, its_name: str) -> Thing:
    """Return a Thing for an attribute that must keep its object."""
    return Thing(name, *attribute(owner, its_name), lambda before, after: f"replaces {name} and does not restore it")


def drawn(name: str, own: str) -> Callable[[Any, Any], str]:
    """Return the words for a changed random number generator. own: what to use instead of it."""
    return lambda before, after: f"seeds {name}, or draws from them: use a separate generator ({own})"
