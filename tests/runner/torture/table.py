"""Tables of hostile implementations, and the verdicts that they must get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flash_attest import Implementation
from tests.plugins import good

AT = 1  # the length at which it is hostile
CASE = f"seqlen_q={AT} seqlen_k={AT} headdim=16 dtype=float32"
PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


@dataclass(frozen=True)
class Row:
    """A hostile act and its allowed verdicts.

    act(q, k, v) returns None, or a value to return instead of the right answer. words: part of the
    verdict's reason.
    """

    act: Callable
    verdicts: tuple[str, ...]
    words: str

    def implementation(self, name: str) -> Implementation:
        """Return an implementation that acts in this way at one length."""

        def forward(q, k, v):
            returned = self.act(q, k, v) if q.shape[1] == AT else None
            return good.forward(q, k, v) if returned is None else returned

        return Implementation(name=name, forward=forward, supports=good.IMPL.supports)


class Table(dict):
    """name -> Row.

    repeats: names of rows that resemble another row; only --thorough judges them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repeats: frozenset[str] = frozenset()

    def gives(self, verdict: str, words: str = "") -> Callable:
        """Add a function. verdict: "fail", or several, for example "pass unknown"."""

        def add(act: Callable) -> Callable:
            self[act.__name__] = Row(act, tuple(verdict.split()), words)
            return act

        return add

    def implementations(self, *repeats: str) -> tuple[list[Implementation], list[Implementation]]:
        """Return the implementations of the rows that do not repeat another row, and of all
        rows.
        """
        assert set(repeats) <= set(self), set(repeats) - set(self)
        self.repeats = frozenset(repeats)
        every = {name: row.implementation(name) for name, row in self.items()}
        return [every[name] for name in self if name not in repeats], list(every.values())
