"""Judge one implementation by one law: draw cases, build, run, compare; shrink what fails; explain it once.

This is the way of every case through the suite: properties/strategies.py draws it, regimes.py builds its tensors,
trial.py runs the implementation, checks.py judges, shrink.py makes the last steps, explain.py says what was seen.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, Phase, Verbosity, given, reject, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import FlakyFailure, FlakyReplay, Unsatisfiable

from impls.contract import ContractError, Implementation
from properties.cases.case import Case
from properties.cases.strategies import attention_cases
from properties.cases.support import missing, not_here, unsupported
from properties.failures import AnotherCase, LawBroken, Undecided
from properties.judging import conformance
from properties.judging.explain import explain, replay_command
from properties.judging.plan import Plan
from properties.judging.shrink import smallest
from properties.judging.verdict import FAIL, PASS, REFUSED, SHOWS_ELSEWHERE, UNKNOWN, Result
from properties.law import Law
from properties.trial import Meter, Trial


class ContextLost(BaseException):
    """The GPU's context is gone; nothing can be launched in this process any more. Hypothesis must not go on."""

    def __init__(self, broken: LawBroken, case: Case):
        super().__init__(broken.headline)
        self.broken, self.case = broken, case


_lost_in = ""  # the test after which this process could launch nothing more


def judge(law: Law, impl: Implementation, plan: Plan) -> Result:
    """The verdict of one law on one implementation. Never raises for what the implementation does."""
    started = time.perf_counter()
    meter = Meter()
    if law.device == "cpu" and not missing(impl, law.needs):  # which there is beside every GPU, but not the other way
        plan = replace(plan, device="cpu")
    result = Result(impl.name, law.chapter, law.name, UNKNOWN)
    result.verdict, result.reason, result.message, case = _verdict(law, impl, plan, meter)
    result.cases, result.worst_z = meter.cases, meter.worst_z
    result.seconds = time.perf_counter() - started
    result.seconds_implementation, result.seconds_oracle = meter.in_implementation, meter.in_oracle
    if case is not None:
        result.smallest, result.replay = str(case), replay_command(law, impl, case, plan.origin)
    return result


def _verdict(law: Law, impl: Implementation, plan: Plan, meter: Meter) -> tuple[str, str, str, Case | None]:
    if reason := not_here(impl, plan.device):
        return UNKNOWN, reason, "", None
    if _lost_in:
        return UNKNOWN, f"the GPU context of this process was lost in {_lost_in}", "", None
    if reason := missing(impl, law.needs):
        return REFUSED, reason, "", None
    if law.device not in (None, plan.device):
        if law.device not in {*impl.devices, *impl.unavailable}:
            return REFUSED, f"never on {law.device}, where this shows", "", None
        return UNKNOWN, f"shows on {law.device}{SHOWS_ELSEWHERE}{plan.device}", "", None
    try:
        with meter.clock("in_implementation"):
            problems = conformance.problems(impl, plan.device, plan.write_down)
    except Undecided as undecided:
        return UNKNOWN, str(undecided), "", None
    if problems:
        return UNKNOWN, f"the contract is broken (see test_contract): {problems[0]}", "", None
    try:
        if plan.case is not None and (reason := unsupported(impl, plan.case) or law.draws.excludes(plan.case)):
            return REFUSED, reason, "", None
        broken, case, flaky = _search(law, impl, plan, meter)
    except Undecided as undecided:
        return UNKNOWN, str(undecided), "", None
    except ContractError as error:
        return FAIL, error.problems[0], "\n".join(error.problems), None
    except AnotherCase:
        return REFUSED, meter.note or "the case has nothing of what the law is about", "", None
    except Unsatisfiable:
        return REFUSED, meter.note or "no case that the law wants lies in what the implementation supports", "", None
    except ContextLost as lost:
        return FAIL, lost.broken.headline, explain(law, impl, lost.case, lost.broken, plan, again=False), lost.case
    if broken is None:
        return PASS, meter.note, "", None
    message = explain(law, impl, case, broken, plan, flaky=flaky)  # which may add to the headline
    return FAIL, broken.headline, message, case


def _search(law: Law, impl: Implementation, plan: Plan, meter: Meter) -> tuple[LawBroken | None, Case | None, bool]:
    """Run the law on drawn cases (or the given one): the smallest failure, its case, whether it comes and goes."""
    failures: list[tuple[LawBroken, Case]] = []
    undecided: list[Undecided] = []
    test = law.test_id(impl.name)

    def holds(case: Case) -> None:
        plan.write_down(f"{test} {case}")
        trial = Trial(impl, case, plan.device, meter, plan.repeats_for(impl))
        try:
            law.hold(trial)
            meter.cases += 1
        except LawBroken as broken:
            meter.cases += 1
            failures.append((broken, case))
            if plan.device == "cuda" and not trial.device_works():
                global _lost_in
                _lost_in = test
                raise ContextLost(broken, case) from None
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
        if undecided and not failures:  # there was memory for a case once, and once there was not
            raise undecided[0] from None
        # The same case failed once and held once: that is the finding, not a reason to try again.
        broken, case = min(failures, key=lambda found: _size(found[1]))
        broken.headline = f"not on every run: {broken.headline}"
        return broken, case, True
    return None, None, False


def _drawn(law: Law, impl: Implementation, plan: Plan) -> Callable:
    """holds(case) -> a function that Hypothesis runs on the cases of this law, implementation and plan."""
    name = f"{law.chapter}.{law.name}.{impl.name}"
    configured = settings(
        max_examples=plan.cases_for(impl, law.share),
        database=DirectoryBasedExampleDatabase(plan.database / name) if plan.database else None,
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    strategy = attention_cases(impl, plan.device, law.draws)
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
