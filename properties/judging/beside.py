"""After a failure: the law goes on without what is special about the smallest case, so that one defect hides no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided
from flash_attest.properties.judging.clues import LeftOut, clues_of, leaving_out
from flash_attest.properties.judging.context import ContextLost
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.search import Found, Search

ALSO = "also wrong"  # how the line of another failure begins
SEEDS = 2  # beside the case's own: random numbers may hide that another value of a feature is wrong, too
MOST_SECONDS = 10.0  # for finding out what the clue is


@dataclass(frozen=True)
class Beside:
    """What became of the law without the clue: the other failure and its case, or on how many cases it was right."""

    without: str
    cases: int = 0
    broken: LawBroken | None = None
    case: Case | None = None

    @property
    def line(self) -> str:
        """In one line."""
        if self.broken is None:
            return f"right on {self.cases} cases without {self.without}"
        return f"{ALSO} without {self.without}: {self.broken.headline}"


def clues_in(judgement: Judgement, failure: Found) -> LeftOut | None:
    """Return what is special about the smallest case of a failure. None if that cannot be found out."""
    try:
        return LeftOut(clues_of(judgement, failure.case, _failing_as(judgement, failure.broken)))
    except (ContextLost, ContractError):  # its `accepts` may raise for a case that was not asked about before
        return None


def look_beside(judgement: Judgement, left_out: LeftOut) -> Beside | None:
    """Judge the law without the clues of a failure: one more search. None if there is no clue, or nothing is decided."""
    if not left_out.clues:
        return None
    own = Meter(clock=judgement.meter.clock)
    others = replace(judgement.drawing_from(leaving_out(judgement.law.draws, left_out)), meter=own)
    try:
        found = Search(others).run()
    except ContextLost as lost:
        found = Found(lost.broken, lost.case)
    except (Undecided, AnotherCase, Unsatisfiable, ContractError):
        return None
    judgement.meter.add(own)
    if found.broken is None and not own.cases:
        return None
    return Beside(str(left_out), own.cases, found.broken, found.case)


def _failing_as(judgement: Judgement, broken: LawBroken) -> Callable[[Case], bool]:
    """-> whether a case fails, too: by an exception if the failure was one, by a wrong result if it was one."""
    stop = time.perf_counter() + MOST_SECONDS

    def fails(case: Case) -> bool:
        if not judgement.takes(case):
            return False
        for seed in dict.fromkeys((case.seed, *range(SEEDS))):
            if time.perf_counter() > stop:
                return False
            with_seed = case.but(seed=seed)
            if str(with_seed) in judgement.plan.lost:
                continue
            try:
                judgement.hold_aside(with_seed)
            except LawBroken as found:
                if type(found) is type(broken):
                    return True
            except (AnotherCase, Undecided):
                pass
        return False

    return fails
