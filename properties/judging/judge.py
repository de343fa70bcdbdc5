"""Judges one implementation by one law: draws cases, runs them, shrinks what fails, explains it once.

The way of a case: cases/strategies.py draws it, cases/inputs.py builds its tensors, trial.py runs the implementation through
impls/call.py, checks/comparisons.py compares, shrink.py takes the last steps, explain.py writes the message.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from hypothesis.errors import FlakyFailure, FlakyReplay, Unsatisfiable

from impls.contract import ContractError, Implementation
from properties.cases.case import Case
from properties.cases.drawing import draw_each
from properties.cases.strategies import attention_cases
from properties.cases.support import missing, not_here, unsupported
from properties.clock import Work
from properties.failures import AnotherCase, LawBroken, Reason, Undecided
from properties.judging import conformance
from properties.judging.explain import REPEATS, explain, replay_command
from properties.judging.plan import Plan
from properties.judging.shrink import smallest
from properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from properties.law import Law
from properties.trial import Meter, Trial


class ContextLost(BaseException):
    """The GPU context is lost: this process can launch nothing more, and Hypothesis must stop."""

    def __init__(self, broken: LawBroken, case: Case):
        super().__init__(broken.headline)
        self.broken, self.case = broken, case


_lost_in = ""  # the test in which this process lost its GPU context


@dataclass
class Outcome:
    """Becomes a Result: verdict, reason, kind of reason, message, smallest failing case."""

    verdict: str
    reason: str = ""
    why: Reason | None = None
    message: str = ""
    case: Case | None = None


def judge(law: Law, impl: Implementation, plan: Plan) -> Result:
    """The verdict of one law on one implementation. Never raises for what the implementation does."""
    started = time.perf_counter()
    meter = Meter()
    if law.device == "cpu" and not missing(impl, law.needs):  # every machine with a GPU has a CPU, too
        plan = replace(plan, device="cpu")
    outcome = _outcome(law, impl, plan, meter)
    result = Result(impl.name, law.chapter, law.name, outcome.verdict, outcome.reason, outcome.why)
    result.message, result.cases, result.worst_z = outcome.message, meter.cases, meter.worst_z
    result.seconds = time.perf_counter() - started
    result.seconds_of = {work.value: seconds for work, seconds in meter.clock.seconds.items()}
    if outcome.case is not None:
        result.smallest, result.replay = str(outcome.case), replay_command(law, impl, outcome.case, plan.origin)
    return result


def _outcome(law: Law, impl: Implementation, plan: Plan, meter: Meter) -> Outcome:
    if outcome := _not_judged(law, impl, plan):
        return outcome
    try:
        with meter.clock.counts(Work.RUNNING):
            problems = conformance.problems(impl, plan.device, plan.write_down) if plan.try_contract else []
        if problems:
            what = f"the contract is broken (see test_contract): {problems[0]}"
            return Outcome(UNKNOWN, what, Reason.CONTRACT)
        if plan.case is not None:
            if reason := unsupported(impl, plan.case):
                return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
            if reason := law.draws.excludes(plan.case):
                return Outcome(REFUSED, reason, Reason.NO_CASE)
        with meter.clock.counts(Work.DRAWING):
            broken, case, flaky = _search(law, impl, plan, meter)
    except Undecided as undecided:
        return Outcome(UNKNOWN, str(undecided), undecided.why)
    except ContractError as error:
        return Outcome(FAIL, error.problems[0], message="\n".join(error.problems))
    except AnotherCase:
        return Outcome(REFUSED, meter.note or "the law says nothing about this case", Reason.NO_CASE)
    except Unsatisfiable:
        if meter.unknown:
            return Outcome(UNKNOWN, meter.unknown, Reason.INTERPRETER)
        none = "no case that the law wants lies in what the implementation supports"
        return Outcome(REFUSED, meter.note or none, Reason.NO_CASE)
    except ContextLost as lost:
        message = explain(law, impl, lost.case, lost.broken, plan, again=False)
        return Outcome(FAIL, lost.broken.headline, message=message, case=lost.case)
    if broken is None and meter.unknown:
        cases = f"; {meter.cases} cases of other dtypes hold"
        return Outcome(UNKNOWN, meter.unknown + cases, Reason.INTERPRETER)
    if broken is None:
        return Outcome(PASS, meter.note)
    with meter.clock.counts(Work.SHRINKING):
        message = explain(law, impl, case, broken, plan, flaky=flaky)  # this may add to the headline
    return Outcome(FAIL, broken.headline, message=message, case=case)


def _not_judged(law: Law, impl: Implementation, plan: Plan) -> Outcome | None:
    """The outcome where nothing is launched; None if the law is to be judged."""
    if reason := not_here(impl, plan.device):
        return Outcome(UNKNOWN, reason, Reason.OTHER_DEVICE)
    if _lost_in:
        return Outcome(UNKNOWN, f"the GPU context of this process was lost in {_lost_in}", Reason.CONTEXT_LOST)
    if reason := missing(impl, law.needs):
        return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
    if law.device not in (None, plan.device):
        if law.device not in {*impl.devices, *impl.unavailable}:
            reason = f"the law applies on {law.device}, where this implementation never runs"
            return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
        reason = f"law not applicable on {plan.device}, only on {law.device}"
        return Outcome(UNKNOWN, reason, Reason.LAW_OF_OTHER_DEVICE)
    return None


def _search(law: Law, impl: Implementation, plan: Plan, meter: Meter) -> tuple[LawBroken | None, Case | None, bool]:
    """Run the law on drawn cases (or the given one): the smallest failure, its case, whether it comes and goes."""
    failures: list[tuple[LawBroken, Case]] = []
    undecided: list[Undecided] = []
    held: set[Case] = set()
    test = law.test_id(impl.name)

    def holds(case: Case) -> None:
        if meter.unknown and case.dtype == torch.bfloat16:
            raise AnotherCase
        plan.write_down(f"{test} {case}")
        trial = Trial(impl, case, plan.device, meter, plan.repeats_for(impl))
        try:
            with meter.clock.counts(Work.LAW):
                law.hold(trial)
            meter.cases += 1
            held.add(case)
        except LawBroken as broken:
            meter.cases += 1
            failures.append((broken, case))
            meter.clock.from_now_on(Work.SHRINKING)
            if plan.device == "cuda" and not trial.device_works():
                global _lost_in
                _lost_in = test
                raise ContextLost(broken, case) from None
            raise
        except Undecided as reason:
            if reason.why is Reason.INTERPRETER and plan.case is None:  # the law goes on with cases of other dtypes
                meter.unknown = str(reason)
                raise AnotherCase from None
            undecided.append(reason)
            raise

    if plan.case is not None:
        try:
            holds(plan.case)
        except LawBroken as broken:
            return broken, plan.case, False
        return None, None, False
    try:
        _draw_each(law, impl, plan, holds)
    except LawBroken as broken:
        case = next(c for b, c in reversed(failures) if b is broken)
        return *smallest(law, impl, case, broken, holds), False
    except (FlakyFailure, FlakyReplay):
        if undecided and not failures:  # memory sufficed in one run of the case and not in the other
            raise undecided[0] from None
        broken, case = min(failures, key=lambda found: (found[1] not in held, _size(found[1])))
        if case not in held and _fails_again(holds, case):  # only not at the same line of the law each time
            return *smallest(law, impl, case, broken, holds), False
        # The same case failed once and held once. That is the finding; trying again would hide it.
        broken.headline = f"not on every run: {broken.headline}"
        return broken, case, True
    return None, None, False


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


def _draw_each(law: Law, impl: Implementation, plan: Plan, holds: Callable[[Case], None]) -> None:
    """holds(case) for the cases of this law, implementation and plan."""
    number = zlib.crc32(f"{plan.seed} {law.chapter}.{law.name}.{impl.name}".encode())
    strategy = attention_cases(impl, plan.device, law.draws, small=plan.small)
    draw_each(strategy, number, plan.cases_for(impl, law.share), holds)


def _size(case: Case) -> tuple[int, ...]:
    return (case.seqlen_q + case.seqlen_k, case.batch * case.nheads, case.headdim, case.seed)
