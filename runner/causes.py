"""Groups the failures of a run by their causes, as far as these are known.

A wrong merge would hide a second bug, so failures of an implementation have one cause only on
evidence: a law fails on the smallest case of the other (properties/judging/repeats.py), headlines
are equal, the same is computed instead (`matches`), a race has the same lines, or smallest cases
need the same thing to fail (the clue: a head dim, a mask, a layout) and the same kind of result is
wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flash_attest.properties.judging.explained import kind_of, rank_of, special_in, without_lengths
from flash_attest.properties.judging.verdict import FAIL, PLAIN, law_name

OUT_OF_DATE = "passes, but known_failures lists it"
RACE, SITE = re.compile(r"\brace\b"), re.compile(r"[\w./+-]+\.\w+:\d+")
FRAME = re.compile(r"^  at (.*:\d+, in .*)$", re.MULTILINE)


@dataclass(frozen=True)
class Cause:
    """Failures of one implementation that have one cause.

    first: the result, as in results.json, that describes the cause best. others: the remaining
    ones.
    """

    impl: str
    first: dict
    others: tuple[dict, ...] = ()

    @property
    def heading(self) -> str:
        """The headline of the first failure: what is wrong, in one line."""
        return self.first["reason"]

    @property
    def shared(self) -> str:
        """State how many laws fail, and what their cases share: "3 laws fail, with causal"; "" for
        one law without a clue.
        """
        n, clue = 1 + len(self.others), self.first["clue"]
        laws = "1 law fails" if n == 1 else f"{n} laws fail"
        if any(without_lengths(other["clue"]) != without_lengths(clue) for other in self.others):
            clue = ""  # equal headlines, whose cases share nothing else
        if clue == PLAIN:
            return f"{laws}, even on {PLAIN}"
        if clue:
            return f"{laws}, with {clue}"
        return "" if n == 1 else laws

    def as_dict(self) -> dict:
        """Return the entry of `causes` in results.json."""
        laws = [result["law"] for result in (self.first, *self.others)]
        return {
            "impl": self.impl,
            "law": self.first["law"],
            "laws": laws,
            "reason": self.heading,
            "shared": self.shared,
        }

    @property
    def anchor(self) -> str:
        """The cause's id on a page. It is the same in each run that finds the cause."""
        return f"{self.impl}-{law_name(self.first['law']).replace('_', '-')}"


def causes_of(results: Sequence[dict]) -> list[Cause]:
    """Return the causes of all failures except known ones, by implementation, with the contract
    check first.
    """
    groups: dict[str, list[tuple[set, list[dict]]]] = {}
    for result in results:
        if result["verdict"] != FAIL or result["known"]:
            continue
        keys, members, others = _keys(result), [result], []
        for group in groups.get(result["impl"], []):
            if keys & group[0]:
                keys, members = keys | group[0], group[1] + members
            else:
                others.append(group)
        groups[result["impl"]] = [*others, (keys, members)]
    causes = [_cause(members) for of_impl in groups.values() for _, members in of_impl]
    return sorted(causes, key=lambda cause: (cause.impl, _order(cause.first)))


def in_words(causes: Sequence[Cause]) -> str:
    """Return "17 laws fail for 3 causes"; "" if each law has its own."""
    laws = sum(1 + len(cause.others) for cause in causes)
    if laws == len(causes):
        return ""
    return f"{laws} laws fail for {len(causes)} cause{'s' * (len(causes) > 1)}"


def _cause(members: list[dict]) -> Cause:
    clues = Counter(without_lengths(result["clue"]) for result in members)

    def order(result: dict) -> tuple:
        of_contract, is_short, *rest = _order(result)
        return of_contract, is_short, -clues[without_lengths(result["clue"])], *rest

    first, *others = sorted(members, key=order)
    return Cause(first["impl"], first, tuple(others))


def _keys(result: dict) -> set[tuple[str, ...]]:
    """Return the keys under which a failure is grouped with other failures of its
    implementation.
    """
    reason, clue = result["reason"], result["clue"]
    keys = {("law", result["law"])}
    if not reason.startswith(OUT_OF_DATE):  # each such law passes by itself
        keys.add(("headline", reason, _place(result)))
    if result["same_as"]:
        keys.add(("law", result["same_as"]))
    if RACE.search(reason) and (sites := SITE.findall(reason)):
        keys.add(("race", *sorted({site.rpartition("/")[2] for site in sites})))
    if result["matches"]:
        keys.add(("matches", *sorted(result["matches"])))
    if clue:
        tensor = (result["wrong"] or {}).get("tensor", "")
        special = special_in(result["smallest"]) if clue == PLAIN else ""
        kind = kind_of(result["chapter"], tensor, alone=clue == PLAIN and not special)
        keys.add(("clue", without_lengths(clue), special, kind))
        if special and " " not in special:  # a law of any mask finds a clue in what a law of causal masks wants
            name, _, value = special.partition("=")
            keys.add(("clue", name if value == "True" else f"{name} {value}", "", kind))
    return keys


def _place(result: dict) -> str:
    """Return the frame that raised an exception; "" for another failure."""
    frames = FRAME.findall(result["message"]) if " raises " in result["reason"] else []
    return frames[-1] if frames else ""


def _order(result: dict) -> tuple:
    """Return a sort key for failures: whole messages first, the best description, then small
    cases.
    """
    of_contract, *rank = rank_of(result)
    is_short = bool(result["same_as"]) and "\nSame cause as " in result["message"]
    return of_contract, is_short, *rank, len(result["smallest"]), result["law"]
