"""Judges a law again on cases without the clues of its failure, as one defect may hide another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided
from flash_attest.properties.judging.clues import LeftOut, clues_of, leaving_out
from flash_attest.properties.judging.context import ContextLost
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.search import Found, RepeatOf, Search

ALSO = "also wrong"  # the start of the line about another failure
SEEDS = 2  # besides the case's own: with one seed only, another wrong value of a feature may look right
MOST_SECONDS = 10.0  # the time for finding clues


@dataclass(frozen=True)
class Beside:
    """The result without the clues: another failure and its case, or the number of right cases."""

    without: str
    cases: int = 0
    broken: LawBroken | None = None
    case: Case | None = None

    @property
    def line(self) -> str:
        """The result in one line."""
        if self.broken is None:
            return f"right on {self.cases} cases without {self.without}"
        return f"{ALSO} without {self.without}: {self.broken.headline}"


def clues_in(judgement: Judgement, failure: Found) -> LeftOut | None:
    """Return the clues in the smallest case of a failure; None if they cannot be found."""
    try:
        return LeftOut(clues_of(judgement, failure.case, _failing_as(judgement, failure.broken)))
    except (ContextLost, ContractError):  # `accepts` may raise for a new case
        return None


def look_beside(judgement: Judgement, left_out: LeftOut) -> Beside | None:
    """Judge the law without the clues of a failure, in one more search.

    Returns None if there is no clue, or if nothing could be decided.
    """
    if not left_out.clues:
        return None
    found = search_without(judgement, (left_out,))
    if found is None:
        return None
    result, cases = found
    return Beside(str(left_out), cases, result.broken, result.case)


def search_without(
    judgement: Judgement, left_out: Sequence[LeftOut], repeat_of: RepeatOf | None = None
) -> tuple[Found, int] | None:
    """Search for a failure without these clues. Returns it, and how many cases were judged; None if
    nothing could be decided.
    """
    own = Meter(clock=judgement.meter.clock)
    others = replace(judgement.drawing_from(leaving_out(judgement.law.draws, *left_out)), meter=own)
    try:
        result = Search(others, repeat_of).run()
    except ContextLost as lost:
        result = Found(lost.broken, lost.case)
    except (Undecided, AnotherCase, Unsatisfiable, ContractError):
        return None
    judgement.meter.add(own)
    return None if result.broken is None and not own.cases else (result, own.cases)


def _failing_as(judgement: Judgement, broken: LawBroken) -> Callable[[Case], bool]:
    """Return a function that says whether another case fails in the same way.

    Two failures are of the same kind if both are exceptions or neither is.
    """
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
            except LawBroken as failure:
                if type(failure) is type(broken):
                    return True
            except (AnotherCase, Undecided):
                pass
        return False

    return fails
