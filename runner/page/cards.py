"""What a page tells at length: causes of failures, and reasons why laws could not be judged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from markupsafe import Markup

from flash_attest.properties.judging.verdict import FAIL, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.runner.page import plane
from flash_attest.runner.page.records import grouped
from flash_attest.runner.page.stand_in import Cause, causes_of
from flash_attest.runner.page.words import ELSEWHERE, KNOWN, slug

OPEN = 3  # cards that are open at first: the others would hide what stands below them
BUGS = "docs/why/bugs.md"


@dataclass(frozen=True)
class Card:
    """Results of one cause: the one that says it best, and the others. anchor: its id."""

    anchor: str
    verdict: str
    impl: str
    heading: str
    first: dict
    others: tuple[dict, ...] = ()
    picture: Markup | None = None
    open: bool = False

    @property
    def results(self) -> tuple[dict, ...]:
        """All of them."""
        return self.first, *self.others


@dataclass
class Anchors:
    """Ids that are the same on each page of these results. Of equal ones the second is numbered."""

    taken: set[str] = field(default_factory=set)

    def one(self, *parts: str) -> str:
        """Return an id made of these."""
        anchor, n = slug(*parts), 2
        while anchor in self.taken:
            anchor, n = f"{slug(*parts)}.{n}", n + 1
        self.taken.add(anchor)
        return anchor


def failures(results: list[dict], anchors: Anchors) -> list[Card]:
    """Return a card for each cause. Known failures come last."""
    causes = causes_of(results)
    cards = [_card(cause, anchors) for cause in sorted(causes, key=lambda cause: cause.first["kind"] == KNOWN)]
    return [Card(**{**vars(card), "open": n < OPEN and card.verdict == FAIL}) for n, card in enumerate(cards)]


def _card(cause: Cause, anchors: Anchors) -> Card:
    anchor = anchors.one("cause", cause.anchor)
    wrong = next((result["wrong"] for result in (cause.first, *cause.others) if result["wrong"]), None)
    picture = plane.drawn(f"{anchor}.plane", wrong) if wrong else None
    return Card(anchor, cause.first["kind"], cause.impl, cause.heading, cause.first, cause.others, picture)


def undecided(results: list[dict], anchors: Anchors) -> list[Card]:
    """Return a card for each reason why laws of an implementation could not be decided."""
    cards = []
    for (impl, reason), laws_of in grouped(_of_kind(results, UNKNOWN), "impl", "reason").items():
        first, *others = sorted(laws_of, key=lambda result: not result["message"])
        anchor = anchors.one("undecided", impl, first["law"].removeprefix("test_"))
        cards.append(Card(anchor, UNKNOWN, impl, reason, first, tuple(others)))
    return cards


@dataclass(frozen=True)
class Elsewhere:
    """Laws that this machine or device cannot judge, for one reason."""

    reason: str
    count: int
    impls: list[str]


def elsewhere(results: list[dict]) -> list[Elsewhere]:
    """Return them, most laws first."""
    groups = grouped(_of_kind(results, ELSEWHERE), "reason").items()
    found = [Elsewhere(reason, len(own), sorted({result["impl"] for result in own})) for (reason,), own in groups]
    return sorted(found, key=lambda group: -group.count)


def _of_kind(results: Iterable[dict], name: str) -> list[dict]:
    return [result for result in results if result["kind"] == name]


@dataclass(frozen=True)
class Rule:
    """What a law says. bugs: where to read about bugs of this kind."""

    first: str
    rest: str
    bugs: str
    command: str


def rules_of(cards: Iterable[Card]) -> dict[str, Rule]:
    """Return law -> its rule, for the first law of each card. The contract has none."""
    names = {card.first["law"] for card in cards}
    known = laws() if names else {}  # to import every chapter takes a second
    return {
        law.name: Rule(*_split(law.rule), f"{BUGS}#{law.bug}" if law.bug else "",
                       f"flash-attest laws {law.name.removeprefix('test_')}")
        for name in names
        if (law := known.get(name))
    }  # fmt: skip


def _split(rule: str) -> tuple[str, str]:
    """Split a rule: the fact, which is its first paragraph, and why it holds."""
    first, _, rest = rule.partition("\n\n")
    return first.strip(), re.sub(r"\n{3,}", "\n\n", rest).strip()
