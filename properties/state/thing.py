"""Something that a call must leave as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """Something that a call left otherwise than it was. thing: what; text: a problem of the contract, in words."""

    thing: str
    text: str


@dataclass(frozen=True)
class Thing:
    """Something that a call must leave as it is.

    read() gives what == compares; put_back(before); words(before, after) for a message. lazily: importing a library may add
    to it, which is nobody's mistake: then it is compared only if the call imported nothing. steady: the suite itself leaves
    it alone for as long as a case takes, so that it is read once before all calls of the case. optional: None is no value,
    so that there is nothing to compare.
    """

    name: str
    read: Callable[[], Any]
    put_back: Callable[[Any], None]
    words: Callable[[Any, Any], str] | None = None
    lazily: bool = False
    steady: bool = False
    optional: bool = False

    def change(self, before: Any, after: Any) -> str:
        """The change, in words."""
        if self.words:
            return self.words(before, after)
        return f"sets {self.name} to {after} and leaves it so (it was {before})"


def attribute(owner: object, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """How to read and to put back an attribute."""
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def same_object(name: str, owner: object, its_name: str) -> Thing:
    """An object that is to stay the same one."""
    return Thing(name, *attribute(owner, its_name), lambda before, after: f"replaces {name} and leaves it so")


def drawn(name: str, own: str) -> Callable[[Any, Any], str]:
    return lambda before, after: f"seeds {name}, or draws from them: use a generator of its own ({own})"
