"""What a law raises when it does not hold."""

from __future__ import annotations

from collections.abc import Callable


class LawBroken(AssertionError):
    """A law does not hold: `headline` alone is enough to file an issue, `observed` are the facts below it.

    `suggests` is a guess read off the pattern, and is shown as one. `investigate` finds out more by further calls, once,
    when the smallest case is known: a phrase for the end of the headline, and lines for what was observed.
    """

    def __init__(
        self,
        headline: str,
        *observed: str,
        suggests: str | None = None,
        investigate: Callable[[], tuple[str, list[str]]] | None = None,
    ):
        super().__init__(headline)
        self.headline = headline
        self.observed = [line for text in observed for line in text.splitlines()]
        self.suggests = suggests
        self.investigate = investigate


class Raises(LawBroken):
    """The implementation raised an exception inside its promise: which law was being judged does not matter."""


class AnotherCase(Exception):
    """The case does not suit: the law would need what the implementation does not support. Draw another."""


class Undecided(Exception):
    """It could not be decided on this machine (out of memory, say): the verdict is unknown, with this reason."""
