"""After a failure: the law goes on without what is special about the smallest case, so that one defect hides no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided
from flash_attest.properties.judging.clues import LeftOut, clues_of, leaving_out
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.search import ContextLost, Found, Search, check_context, trial_of
from flash_attest.properties.law import Law

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


def look_beside(
    law: Law, impl: Implementation, case: Case, broken: LawBroken, plan: Plan, meter: Meter
) -> Beside | None:
    """Judge the law without the clue of a failure: one more search. None where there is no clue, or nothing is decided."""
    try:
        left_out = LeftOut(clues_of(law, impl, case, _failing_as(law, impl, broken, plan)))
    except (ContextLost, ContractError):  # its `accepts` may raise for a case that was not asked about before
        return None
    if not left_out.clues:
        return None
    others, own = replace(law, draws=leaving_out(law.draws, left_out)), Meter(clock=meter.clock)
    try:
        found = Search(others, impl, plan, own).run()
    except ContextLost as lost:
        found = Found(lost.broken, lost.case)
    except (Undecided, AnotherCase, Unsatisfiable, ContractError):
        return None
    meter.cases += own.cases
    if found.broken is None and not own.cases:
        return None
    return Beside(str(left_out), own.cases, found.broken, found.case)


def _failing_as(law: Law, impl: Implementation, broken: LawBroken, plan: Plan) -> Callable[[Case], bool]:
    """-> whether a case fails, too: by an exception if the failure was one, by a wrong result if it was one."""
    stop, test = time.perf_counter() + MOST_SECONDS, law.test_id(impl.name)

    def fails(case: Case) -> bool:
        if unsupported(impl, case) or law.draws.excludes(case):
            return False
        for seed in dict.fromkeys((case.seed, *range(SEEDS))):
            if time.perf_counter() > stop:
                return False
            if str(case.but(seed=seed)) in plan.lost:
                continue
            trial = trial_of(impl, case.but(seed=seed), plan)
            plan.write_down(f"{test} {trial.case}")
            try:
                law.hold(trial)
            except LawBroken as found:
                check_context(trial, found, test)
                if type(found) is type(broken):
                    return True
            except (AnotherCase, Undecided):
                pass
        return False

    return fails
