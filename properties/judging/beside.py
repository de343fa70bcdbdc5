"""Judges a law again on cases without the clues of its failure, as one defect may hide another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case, CaseError
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided
from flash_attest.properties.judging.at_hand import same_kind, some
from flash_attest.properties.judging.clues import Clue, LeftOut, clues_of, leaving_out, not_plain
from flash_attest.properties.judging.context import ContextLost
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.search import Found, RepeatOf, Search

ALSO = "also wrong"  # the start of the line about another failure
RIGHT = 3  # right cases to which a clue is added
SEEDS = 2  # besides the case's own: with one seed only, another wrong value of a feature may look right
MOST_SECONDS = 10.0  # the time for finding clues


@dataclass(frozen=True)
class Beside:
    """The result without the clues: another failure, or the number of right cases.

    without: the clues that the cases lack.
    """

    without: str
    cases: int = 0
    found: Found | None = None

    @property
    def line(self) -> str:
        """The result in one line."""
        if self.found is None:
            return f"right on {self.cases} cases without {self.without}"
        return f"{ALSO} without {self.without}: {self.found.broken.headline}"


def clues_in(judgement: Judgement, failure: Found) -> LeftOut | None:
    """Return the clues in the smallest case of a failure; None if they cannot be found."""
    fails = _failing_as(judgement.of_failure(failure.broken), failure.broken)
    try:
        clues = clues_of(judgement, failure.case, fails)
        return LeftOut(clues, _right_with(clues[0], failure.right, fails) if len(clues) == 1 else None)
    except (ContextLost, ContractError):  # `accepts` may raise for a new case
        return None


def _right_with(clue: Clue, right: tuple[Case, ...], fails: Callable[[Case], bool | None]) -> Case | None:
    """Return a right case that is still right with the clue added, so that the clue is not enough.

    Right cases of different lengths are tried, the longest first.
    """
    lacking = {(case.seqlen_q, case.seqlen_k): case for case in right if clue.added and not clue.has(case)}
    for case in sorted(lacking.values(), key=lambda case: case.seqlen_q * case.seqlen_k, reverse=True)[:RIGHT]:
        try:
            added = clue.added(case)
        except CaseError:
            continue
        if fails(added) is False:
            return added
    return None


def look_beside(judgement: Judgement, left_out: LeftOut, case: Case) -> Beside | None:
    """Judge the law without the clues of a failure, in one more search. case: its smallest case.

    Returns None if there is no clue, or if nothing could be decided.
    """
    if not left_out.clues or not can_lack(judgement, left_out, case):
        return None
    found = search_without(judgement, (left_out,))
    if found is None:
        return None
    result, cases = found
    if result.broken is None:
        return Beside(left_out.lacking(), cases)
    return Beside(left_out.lacking(result.case), cases, result)


def can_lack(judgement: Judgement, left_out: LeftOut, case: Case) -> bool:
    """Return whether the law wants some case like this one without all of the clues.

    Otherwise looking for one takes a minute: a law about rows without keys has nothing to judge
    without them.
    """
    draws = leaving_out(judgement.law.draws, left_out)
    for clue in left_out.clues:
        try:
            fitted(judgement.impl, clue.without(case), draws)
            return True
        except (AnotherCase, CaseError):
            continue
    return False


def search_without(
    judgement: Judgement, left_out: Sequence[LeftOut], repeat_of: RepeatOf | None = None
) -> tuple[Found, int] | None:
    """Search for a failure without these clues. Returns it, and how many cases were judged; None if
    nothing could be decided.
    """
    own = Meter(clock=judgement.meter.clock)
    others = replace(judgement.drawing_from(leaving_out(judgement.law.draws, *left_out)), meter=own, part="")
    try:
        result = Search(others, repeat_of).run()
    except ContextLost as lost:
        result = Found(lost.broken, lost.case)
    except (Undecided, AnotherCase, Unsatisfiable, ContractError):
        return None
    judgement.meter.add(own)
    return None if result.broken is None and not own.cases else (result, own.cases)


def plainest(judgement: Judgement, failure: Found) -> tuple[Found, LeftOut | None, Beside | None]:
    """Return the failure with its clues, and the result of the law without them.

    If the law fails in the same way on a plainer case, that becomes the failure: the smallest case
    may have more that is special than the failure needs, if no single step leads to the plainer
    one.
    """
    clues = clues_in(judgement, failure)
    beside = look_beside(judgement, clues, failure.case) if clues else None
    other = beside.found if beside else None
    if other is None or other.flaky or not same_kind(other.broken, failure.broken):
        return failure, clues, beside
    if len(not_plain(judgement, other.case)) >= len(not_plain(judgement, failure.case)):
        return failure, clues, beside
    seen = (*other.failures, (failure.broken, failure.case), *failure.failures)
    plainer = replace(other, failures=tuple(some(list(seen))), right=(*failure.right, *other.right))
    clues = clues_in(judgement, plainer)
    beside = look_beside(judgement, clues, plainer.case) if clues else None
    if beside is None or beside.found is None:
        other.broken.observed.append(f"wrong with more, too: {failure.case}")
    return plainer, clues, beside


def _failing_as(judgement: Judgement, broken: LawBroken) -> Callable[[Case], bool | None]:
    """Return a function that says whether another case fails in the same way.

    It returns None if the case was not tried. Two failures are of the same kind if both are
    exceptions or neither is.
    """
    stop = time.perf_counter() + MOST_SECONDS

    def fails(case: Case) -> bool | None:
        if not judgement.takes(case):
            return None
        for seed in dict.fromkeys((case.seed, *range(SEEDS))):
            if time.perf_counter() > stop:
                return None
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
