"""Groups the failures of a run by their causes, as far as these are known.

Two failures of an implementation have one cause if they have the same headline, or if their
smallest cases need the same thing to fail (the clue: a head dim, a mask, a layout) and the same
kind of result is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.properties.judging.verdict import FAIL, PLAIN, law_name

# The chapter whose law describes a mistake best comes first: "which key is missing" says more than
# "which number is off".
BEST_FIRST = (
    "test_contract", "test_causal", "test_bias", "test_seqlens", "test_forward", "test_calling",
    "test_backward", "test_extremes", "test_memory", "test_laws", "test_races",
)  # fmt: skip
# A clue about lengths names the smallest length that fails, which differs from law to law.
LENGTH = re.compile(r"(a length|lengths) of \d+")


@dataclass(frozen=True)
class Cause:
    """Failures of one implementation that probably have one cause.

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
        if any(LENGTH.sub("", other["clue"]) != LENGTH.sub("", clue) for other in self.others):
            clue = ""  # equal headlines, whose cases share nothing else
        if clue == PLAIN:
            return f"{laws}, even on {PLAIN}"
        if clue:
            return f"{laws}, with {clue}"
        return "" if n == 1 else laws

    @property
    def anchor(self) -> str:
        """The cause's id on a page. It is the same in each run that finds the cause."""
        return f"{self.impl}-{law_name(self.first['law']).replace('_', '-')}"


def causes_of(results: list[dict]) -> list[Cause]:
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
    return sorted(causes, key=lambda cause: (cause.impl, _rank(cause.first)))


def _cause(members: list[dict]) -> Cause:
    first, *others = sorted(members, key=_rank)
    return Cause(first["impl"], first, tuple(others))


def _keys(result: dict) -> set[tuple[str, ...]]:
    """Return the keys under which a failure is grouped with other failures of its
    implementation.
    """
    keys = {("headline", result["reason"])}
    if result["clue"]:
        keys.add(("clue", LENGTH.sub("lengths", result["clue"]), _kind(result)))
    return keys


def _kind(result: dict) -> str:
    """Return which kind of result is wrong. A wrong mask and a wrong gradient are different
    mistakes.
    """
    if result["chapter"] in ("test_races", "test_contract"):
        return result["chapter"]
    tensor = (result["wrong"] or {}).get("tensor", "")
    return "gradients" if tensor in GRADIENTS or result["chapter"] == "test_backward" else "forward"


def _rank(result: dict) -> tuple:
    """Return a sort key for the best description of a cause: failures that name the missing key
    come first, then small cases.
    """
    chapter, wrong = result["chapter"], result["wrong"] or {}
    place = BEST_FIRST.index(chapter) if chapter in BEST_FIRST else len(BEST_FIRST)
    names_keys = bool(wrong.get("missing") or wrong.get("extra"))
    return place > 0, not names_keys, place, len(result["smallest"]), result["law"]
