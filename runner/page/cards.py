"""Makes the cards of a page: causes of failures, and reasons why laws could not be judged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from markupsafe import Markup

from flash_attest.properties.judging.verdict import FAIL, UNKNOWN, law_name
from flash_attest.properties.law import laws
from flash_attest.runner.causes import causes_of
from flash_attest.runner.page import plane
from flash_attest.runner.page.records import grouped
from flash_attest.runner.page.words import ELSEWHERE, KNOWN, slug

OPEN = 3  # cards that are open at first: the others would hide what stands below them
BUGS = "flash-attest docs bugs"


@dataclass(frozen=True)
class Picture:
    """A drawing, and in words what it shows."""

    drawing: Markup
    says: str


@dataclass(frozen=True)
class Card:
    """Results of one cause: the one that says it best, and the others. anchor: its id.

    shared: how many they are, and what their cases have in common.
    """

    anchor: str
    verdict: str
    first: dict
    others: tuple[dict, ...] = ()
    shared: str = ""
    picture: Picture | None = None
    open: bool = False

    @property
    def impl(self) -> str:
        """The name of the implementation."""
        return self.first["impl"]

    @property
    def heading(self) -> str:
        """Say in one line what is wrong, or why nothing could be decided."""
        return self.first["reason"]

    @property
    def results(self) -> tuple[dict, ...]:
        """All results of the cause."""
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
    """Return a card for each cause, then one for each known failure."""
    cards = []
    for n, cause in enumerate(causes_of(results)):
        anchor, wrong = anchors.one("cause", cause.anchor), cause.first["wrong"]
        picture = Picture(plane.drawn(f"{anchor}.plane", wrong), plane.says_of(wrong)) if wrong else None
        cards.append(Card(anchor, FAIL, cause.first, cause.others, cause.shared, picture, n < OPEN))
    for result in _of_kind(results, KNOWN):
        cards.append(Card(anchors.one("known", result["impl"], _in_an_id(result["law"])), KNOWN, result))
    return cards


def undecided(results: list[dict], anchors: Anchors) -> list[Card]:
    """Return a card for each reason why laws of an implementation could not be decided."""
    cards = []
    for (impl, _), laws_of in grouped(_of_kind(results, UNKNOWN), "impl", "reason").items():
        first, *others = sorted(laws_of, key=lambda result: not result["message"])
        anchor = anchors.one("undecided", impl, _in_an_id(first["law"]))
        cards.append(Card(anchor, UNKNOWN, first, tuple(others)))
    return cards


@dataclass(frozen=True)
class Elsewhere:
    """Laws that cannot be judged here, for one reason. laws: how many, or None for all."""

    reason: str
    impls: list[str]
    laws: int | None = None


def elsewhere(results: list[dict], impls: dict[str, str]) -> list[Elsewhere]:
    """Return it by reason: implementations first, then laws.

    impls: `elsewhere` of the environment, name -> why the run left the implementation out.
    """
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(impls.items()):
        by_reason.setdefault(reason, []).append(name)
    groups = grouped(_of_kind(results, ELSEWHERE), "reason").items()
    laws = [Elsewhere(reason, sorted({result["impl"] for result in own}), len(own)) for (reason,), own in groups]
    return [Elsewhere(reason, names) for reason, names in by_reason.items()] + laws


def _in_an_id(law: str) -> str:
    return law_name(law).replace("_", "-")


def _of_kind(results: Iterable[dict], name: str) -> list[dict]:
    return [result for result in results if result["kind"] == name]


@dataclass(frozen=True)
class Rule:
    """The rule of a law. bugs, planted: commands that show bugs of this kind."""

    first: str
    rest: str
    bugs: str
    planted: str


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
