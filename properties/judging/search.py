"""Searches for a case that breaks a law: through Hypothesis, or the one case that is given."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from hypothesis.errors import FlakyFailure, FlakyReplay, Unsatisfiable

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.failures import AnotherCase, LawBroken, OutOfMemory, Undecided
from flash_attest.properties.judging.collected import Collected, Enough, size
from flash_attest.properties.judging.plan import CALLED_WITH, REPEATS, Plan
from flash_attest.properties.judging.shrink import smallest
from flash_attest.properties.law import Law
from flash_attest.properties.machine.clock import Work
from flash_attest.properties.machine.gpu_memory import when_memory_suffices
from flash_attest.properties.progress import NOW
from flash_attest.properties.trial import Trial


class ContextLost(BaseException):
    """The GPU context is lost: this process can launch nothing more, and Hypothesis must stop."""

    def __init__(self, broken: LawBroken, case: Case):
        super().__init__(broken.headline)
        self.broken, self.case = broken, case


_lost_in = _lost_case = ""  # the test, and its case, in which this process lost its GPU context


def lost_in() -> str:
    """The test in which this process lost its GPU context; "" while it has one."""
    return _lost_in


def lost_case() -> str:
    """The case in which it did."""
    return _lost_case


def check_context(trial: Trial, broken: LawBroken, test: str) -> None:
    """Raise ContextLost if nothing can be launched after this failure."""
    if not trial.caller.device_works():
        global _lost_in, _lost_case
        _lost_in, _lost_case = test, str(trial.case)
        raise ContextLost(broken, trial.case) from None


def trial_of(impl: Implementation, case: Case, plan: Plan, meter: Meter | None = None) -> Trial:
    """What a law gets."""
    meter = Meter() if meter is None else meter
    return Trial(
        impl,
        case,
        plan.device,
        meter,
        repeats=plan.repeats_for(impl),
        perturbations=plan.perturbations,
        origin=plan.origin,
        alone=plan.alone,
        calls=plan.caller_of(impl),
    )


def search(law: Law, impl: Implementation, plan: Plan, meter: Meter) -> tuple[LawBroken | None, Case | None, bool]:
    """Run the law on drawn cases (or the given one): the smallest failure, its case, whether it comes and goes."""
    failures: list[tuple[LawBroken, Case]] = []
    undecided: list[Undecided] = []
    held: set[Case] = set()
    test = law.test_id(impl.name)

    def holds(case: Case) -> None:
        if str(case) in plan.lost:  # counts as right, so that the draws after it stay what they are
            return
        unclear: Undecided | None = None
        try:
            with meter.clock.counts(Work.LAW):
                if undecided or failures:  # the case is looked at again, or a smaller one is searched
                    holds_now(case)
                else:
                    when_memory_suffices(plan.device, lambda: holds_now(case))
        except Undecided as reason:
            unclear = Undecided(str(reason), reason.why)
        if unclear:  # without the frames of the first one, which hold tensors as long as Hypothesis keeps it
            undecided.append(unclear)
            raise unclear

    def holds_now(case: Case) -> None:
        plan.write_down(f"{test} {case}")
        trial = trial_of(impl, case, plan, meter)
        trial.write_down = lambda what: plan.write_down(f"{test} {case}{CALLED_WITH}{what}")
        before = meter.counted()
        try:
            with trial.caller.may_begin_again():
                law.hold(trial)
            meter.cases += 1
            NOW.did(meter.cases)
            held.add(case)
        except LawBroken as broken:
            meter.cases += 1
            failures.append((broken, case))
            NOW.found(str(case), broken.headline)
            meter.clock.from_now_on(Work.SHRINKING)
            check_context(trial, broken, test)
            raise
        except OutOfMemory:
            meter.forget_since(before)
            raise

    if plan.case is not None:
        try:
            holds(plan.case)
        except LawBroken as broken:
            return broken, plan.case, False
        return None, None, False
    drawing, collected, beside_others = _drawing(law, impl, plan), Collected(), None

    def draws(case: Case) -> None:
        try:
            collected.draws(case, holds, plan.goes_on)
        except Undecided:
            if not collected.items and beside_others is None:  # what was found stays found, whatever is left open
                raise
            raise Enough from None

    try:
        if law.together:
            beside_others = _look_together(law, impl, plan, drawing.cases, meter)
        drawing.hold_each(draws if law.collects else holds)
    except Enough:
        pass
    except LawBroken as broken:
        broken.observed += collected.lines
        if not any(case in held for _, case in failures):
            case = next(c for b, c in reversed(failures) if b is broken)
            return *smallest(law, impl, case, broken, holds), False
        return *_not_on_every_run(*_unsteady(failures, held)), True
    except (FlakyFailure, FlakyReplay):
        if undecided and not failures:  # memory sufficed in one run of the case and not in the other
            raise undecided[0] from None
        broken, case = _unsteady(failures, held)
        if case not in held and _fails_again(holds, case):  # only not at the same line of the law each time
            return *smallest(law, impl, case, broken, holds), False
        return *_not_on_every_run(broken, case), True
    if collected.items:
        collected.shrink(law, impl, holds)
        return *collected.broken, False
    if beside_others:  # and no case has shown it by itself
        return *_not_on_every_run(*beside_others), True
    return None, None, False


def _unsteady(failures: list[tuple[LawBroken, Case]], held: set[Case]) -> tuple[LawBroken, Case]:
    """The smallest failure for a case that held, too; the smallest of all if there is none."""
    return min(failures, key=lambda found: (found[1] not in held, size(found[1])))


def _not_on_every_run(broken: LawBroken, case: Case) -> tuple[LawBroken, Case]:
    """The failure of a case that failed once and held once. That is the finding; trying again would hide it."""
    broken.headline = f"not on every run: {broken.headline}"
    return broken, case


def _look_together(
    law: Law, impl: Implementation, plan: Plan, cases: list[Case], meter: Meter
) -> tuple[LawBroken, Case] | None:
    """law.together for the cases that will be judged: what broke the law there, and the last case that was looked at."""
    test, begun = law.test_id(impl.name), []

    def trials() -> Iterator[Trial]:
        for case in cases:
            if str(case) not in plan.lost:
                plan.write_down(f"{test} {case}")
                begun.append(trial_of(impl, case, plan, meter))
                yield begun[-1]

    with meter.clock.counts(Work.LAW):
        try:
            law.look_together(trials())
        except LawBroken as broken:
            if not begun[-1].caller.device_works():  # no case can be judged after this one
                meter.cases += 1
                NOW.found(str(begun[-1].case), broken.headline)
                check_context(begun[-1], broken, test)
            return broken, begun[-1].case
        except Undecided:  # each case is judged by itself
            pass
    return None


def has_cases(law: Law, impl: Implementation, plan: Plan) -> bool:
    """Whether any case can be drawn. Nothing is launched."""
    try:
        return bool(_drawing(law, impl, plan).cases)
    except Unsatisfiable:
        return False


def _fails_again(holds: Callable[[Case], None], case: Case) -> bool:
    """Whether the law is broken each time."""
    for _ in range(REPEATS):
        try:
            holds(case)
            return False
        except LawBroken:
            continue
        except (AnotherCase, Undecided):
            return False
    return True


def _drawing(law: Law, impl: Implementation, plan: Plan) -> Drawing:
    """The cases of this law, implementation and plan."""
    number = zlib.crc32(f"{plan.seed} {law.chapter}.{law.name}.{impl.name}".encode())
    strategy = attention_cases(impl, plan.device, law.draws, small=plan.small)
    return Drawing(strategy, number, plan.cases_for(impl, law.share))
