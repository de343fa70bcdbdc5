"""Collects the findings of a law over all its cases, so that the first does not hide the others.

Otherwise the search would end at the first failure and shrink only that one. A race in which both
threads write the same value shows in every case, and would hide a race that needs two tiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.pictures import plural
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging import shrink
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.races.finding import Finding

MOST_COLLECTING = 20.0  # seconds for further cases after the first failing one


class Enough(BaseException):
    """Raised if no further case is needed. It is not an Exception, so Hypothesis stops."""


@dataclass
class Item:
    """A finding, its failure, its smallest case so far, and how many drawn cases show it."""

    finding: Finding
    broken: LawBroken
    case: Case
    cases: int = 0

    @property
    def rank(self) -> tuple:
        """The sort key: by the rank of the finding, then smaller cases first."""
        return self.finding.rank, size(self.case)


@dataclass
class Collected:
    """Findings by kind and lines. Those that leave values unchanged have entries of their own."""

    items: dict[tuple, Item] = field(default_factory=dict)
    drawn: int = 0  # cases
    _stop: float = 0.0

    def draws(self, case: Case, run: Callable[[Case], None], goes_on: bool) -> None:
        """Run a drawn case.

        Raises Enough if no more cases are needed, and raises any failure that is not a finding.
        """
        try:
            self.runs(case, run)
        except LawBroken as broken:
            if not broken.found:
                raise
            for key in {_key(finding) for finding in broken.found}:
                self.items[key].cases += 1
            self._stop = self._stop or time.perf_counter() + MOST_COLLECTING
        self.drawn += 1  # not counted if the law says nothing about the case
        if self.items and (not goes_on or time.perf_counter() > self._stop):
            raise Enough

    def runs(self, case: Case, run: Callable[[Case], None]) -> None:
        """Run a case, record its findings, and reraise the failure."""
        try:
            run(case)
        except LawBroken as broken:
            for finding in broken.found:
                new = Item(finding, broken, case)
                item = self.items.setdefault(_key(finding), new)
                if new.rank < item.rank:
                    item.finding, item.broken, item.case = finding, broken, case
            raise

    def shrink(self, judgement: Judgement, run: Callable[[Case], None]) -> None:
        """Shrink the case of each finding, beginning with findings that change values.

        Several findings may share a case.
        """
        stop, done = time.perf_counter() + shrink.MOST_SECONDS, set()
        while waiting := sorted((item.rank, n) for n, (key, item) in enumerate(self.items.items()) if key not in done):
            key, item = list(self.items.items())[waiting[0][1]]
            done.add(key)
            seconds = max(0.0, stop - time.perf_counter()) / len(waiting)

            def again(case: Case) -> None:
                self.runs(case, run)

            # A race of two blocks stays one: in a smaller case only two lanes may race.
            def same(broken: LawBroken, key: tuple = key, rank: tuple = item.finding.rank) -> bool:
                return any(_key(finding) == key and finding.rank <= rank for finding in broken.found)

            # One seed is enough, as the accesses hardly depend on random numbers.
            shrink.smallest(judgement, item.case, item.broken, again, same, seconds, seeds=1)

    @property
    def ranked(self) -> list[Item]:
        """The findings in the order in which a message lists them.

        A finding that keeps values is left out if another one at the same lines changes values.
        """
        items = sorted(self.items.values(), key=lambda item: item.rank)
        change = {item.finding.what for item in items if not item.finding.keeps_values}
        return [item for item in items if not (item.finding.keeps_values and item.finding.what in change)]

    @property
    def broken(self) -> tuple[LawBroken, Case]:
        """All findings as one failure, and the smallest case of the first finding."""
        first, *others = self.ranked
        if not others:
            return first.broken, first.case
        lines = [f"{len(others) + 1} findings in {plural(self.drawn, 'case')}, each with its smallest case", ""]
        for item in (first, *others):
            often = f", of {item.cases} that show it" if item.cases > 1 else ""
            lines += [str(item.finding), f"  smallest case{often}: {item.case}", ""]
        findings = [item.finding for item in self.ranked]
        headlines = [finding.headline for finding in findings]
        return LawBroken(headlines[0], "\n".join(lines), findings=headlines, found=findings), first.case

    @property
    def lines(self) -> list[str]:
        """The lines that mention these findings in the message of another failure."""
        findings = [f"{item.finding.headline} (smallest case: {item.case})" for item in self.ranked]
        return ["also found:", *(f"  {line}" for line in findings)] if findings else []


def size(case: Case) -> tuple[int, ...]:
    """Return the sort key of cases by size."""
    return (case.seqlen_q + case.seqlen_k, case.batch * case.nheads, case.headdim, case.seed)


def _key(finding: Finding) -> tuple:
    return finding.what, finding.keeps_values
