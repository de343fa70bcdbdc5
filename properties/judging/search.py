"""Searches for a case that breaks a law: through Hypothesis, or the one case that is given."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, Verbosity, given, reject, seed, settings
from hypothesis.errors import FlakyFailure, FlakyReplay, Unsatisfiable

from impls.contract import Implementation
from properties.cases.case import Case
from properties.cases.strategies import attention_cases
from properties.clock import Work
from properties.failures import AnotherCase, LawBroken, Undecided
from properties.judging.plan import Plan
from properties.judging.shrink import smallest
from properties.law import Law
from properties.trial import Meter, Trial


class ContextLost(BaseException):
    """The GPU context is lost: this process can launch nothing more, and Hypothesis must stop."""

    def __init__(self, broken: LawBroken, case: Case):
        super().__init__(broken.headline)
        self.broken, self.case = broken, case


_lost_in = ""  # the test in which this process lost its GPU context


def lost_in() -> str:
    """The test in which this process lost its GPU context; "" while it has one."""
    return _lost_in


def check_context(trial: Trial, broken: LawBroken, test: str) -> None:
    """Raise ContextLost if nothing can be launched after this failure."""
    if trial.device == "cuda" and not trial.device_works():
        global _lost_in
        _lost_in = test
        raise ContextLost(broken, trial.case) from None


def search(law: Law, impl: Implementation, plan: Plan, meter: Meter) -> tuple[LawBroken | None, Case | None, bool]:
    """Run the law on drawn cases (or the given one): the smallest failure, its case, whether it comes and goes."""
    failures: list[tuple[LawBroken, Case]] = []
    undecided: list[Undecided] = []
    test = law.test_id(impl.name)

    def holds(case: Case) -> None:
        plan.write_down(f"{test} {case}")
        trial = Trial(impl, case, plan.device, meter, plan.repeats_for(impl))
        try:
            with meter.clock.counts(Work.LAW):
                law.hold(trial)
            meter.cases += 1
        except LawBroken as broken:
            meter.cases += 1
            failures.append((broken, case))
            meter.clock.from_now_on(Work.SHRINKING)
            check_context(trial, broken, test)
            raise
        except Undecided as reason:
            undecided.append(reason)
            raise

    if plan.case is not None:
        try:
            holds(plan.case)
        except LawBroken as broken:
            return broken, plan.case, False
        return None, None, False
    try:
        _drawn(law, impl, plan)(holds)()
    except LawBroken as broken:
        case = next(c for b, c in reversed(failures) if b is broken)
        return *smallest(law, impl, case, broken, holds), False
    except (FlakyFailure, FlakyReplay):
        if undecided and not failures:  # memory sufficed in one run of the case and not in the other
            raise undecided[0] from None
        # The same case failed once and held once. That is the finding; trying again would hide it.
        broken, case = min(failures, key=lambda found: _size(found[1]))
        broken.headline = f"not on every run: {broken.headline}"
        return broken, case, True
    return None, None, False


def has_cases(law: Law, impl: Implementation, plan: Plan) -> bool:
    """Whether any case can be drawn. Nothing is launched."""
    try:
        _drawn(law, impl, plan)(lambda case: None)()
    except Unsatisfiable:
        return False
    return True


def _drawn(law: Law, impl: Implementation, plan: Plan) -> Callable:
    """holds(case) -> a function that Hypothesis runs on the cases of this law, implementation and plan."""
    name = f"{law.chapter}.{law.name}.{impl.name}"
    configured = settings(
        max_examples=plan.cases_for(impl, law.share),
        database=None,  # the same cases in every run; a failing case is kept as its replay line
        phases=(Phase.generate, Phase.shrink),
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    strategy = attention_cases(impl, plan.device, law.draws, small=plan.small)
    number = zlib.crc32(f"{plan.seed} {name}".encode())

    def drawn(holds: Callable[[Case], None]) -> Callable[[], None]:
        def on_drawn(case: Case) -> None:
            try:
                holds(case)
            except AnotherCase:
                reject()

        return seed(number)(configured(given(case=strategy)(on_drawn)))

    return drawn


def _size(case: Case) -> tuple[int, ...]:
    return (case.seqlen_q + case.seqlen_k, case.batch * case.nheads, case.headdim, case.seed)
