"""Judges one implementation by one law: draws cases, runs them, shrinks what fails, explains it once.

The way of a case: search.py has it drawn by cases/strategies.py, cases/inputs.py builds its tensors, trial.py runs the
implementation through impls/contract/call.py, checks/comparisons.py compares, shrink.py takes the last steps, beside.py
goes on without what is special about it, explain.py writes the message.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.support import missing, not_here, unsupported
from flash_attest.properties.failures import AnotherCase, LawBroken, Reason, Undecided
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.beside import look_beside
from flash_attest.properties.judging.clues import leaving_out
from flash_attest.properties.judging.explain import explain, replay_command
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.search import ContextLost, Search, has_cases, lost_in
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.properties.law import Law
from flash_attest.properties.machine.clock import Work


@dataclass
class Outcome:
    """Becomes a Result: verdict, reason, kind of reason, message, smallest failing case, what is beside it."""

    verdict: str
    reason: str = ""
    why: Reason | None = None
    message: str = ""
    case: Case | None = None
    beside: str = ""
    findings: tuple[str, ...] = ()


def judge(law: Law, impl: Implementation, plan: Plan) -> Result:
    """The verdict of one law on one implementation. Never raises for what the implementation does."""
    started = time.perf_counter()
    meter = Meter()
    plan = replace(plan, device=device_of(law, impl, plan))
    outcome = _outcome(law, impl, plan, meter)
    result = Result(impl.name, law.chapter, law.name, outcome.verdict, outcome.reason, outcome.why)
    result.beside, result.findings = outcome.beside, list(outcome.findings)
    result.message, result.cases, result.worst_z = outcome.message, meter.cases, meter.worst_z
    result.repeats = meter.repeats or meter.launches
    result.seconds = time.perf_counter() - started
    result.seconds_of = {work.value: seconds for work, seconds in meter.clock.seconds.items()}
    if outcome.case is not None:
        result.smallest = str(outcome.case)
        result.replay = replay_command(law, impl, outcome.case, plan.origin, plan.perturbations)
    return result


def device_of(law: Law, impl: Implementation, plan: Plan) -> str:
    """Where a law judges: every machine with a GPU has a CPU, too."""
    return "cpu" if law.device == "cpu" and not _missing(law, impl, plan) else plan.device


def _missing(law: Law, impl: Implementation, plan: Plan) -> str | None:
    """What the law needs and the implementation, or its caller, does not have."""
    return missing(impl, law.needs, same_process=plan.caller_of(impl).same_process)


def _outcome(law: Law, impl: Implementation, plan: Plan, meter: Meter) -> Outcome:
    if outcome := _not_judged(law, impl, plan):
        return outcome
    contract, whole = conformance.Tried([]), (law, impl, plan)
    try:
        with meter.clock.counts(Work.RUNNING):
            if plan.try_contract:
                contract = conformance.tried(impl, plan.device, plan.write_down, plan.lost)
        if not contract.judged or (plan.case and any(group.holds(plan.case) for group in contract.left_out)):
            return _contract_is_broken(contract)
        if contract.left_out:
            impl, law = contract.narrowed(impl), replace(law, draws=leaving_out(law.draws, *contract.left_out))
        if plan.case is not None:
            if reason := unsupported(impl, plan.case):
                return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
            if reason := law.draws.excludes(plan.case):
                return Outcome(REFUSED, reason, Reason.NO_CASE)
        with meter.clock.counts(Work.DRAWING):
            found = Search(law, impl, plan, meter).run()
    except Undecided as undecided:
        return Outcome(UNKNOWN, str(undecided), undecided.why)
    except ContractError as error:
        return Outcome(FAIL, error.problems[0], message="\n".join(error.problems))
    except (AnotherCase, Unsatisfiable) as none:
        if contract.left_out and plan.case is None and has_cases(*whole):  # what is left out may be what the law wants
            return _contract_is_broken(contract)
        why = "the law says nothing about this case"
        if isinstance(none, Unsatisfiable):
            why = "no case that the law wants lies in what the implementation supports"
        return Outcome(REFUSED, meter.note or why, Reason.NO_CASE)
    except ContextLost as lost:
        message = explain(law, impl, lost.case, lost.broken, plan, again=False)
        return Outcome(FAIL, lost.broken.headline, message=message, case=lost.case, findings=_all(lost.broken))
    broken, case = found.broken, found.case
    if broken is None:
        left_out = f"judged without {contract.without}, where the contract is broken" if contract.left_out else ""
        return Outcome(PASS, "; ".join(filter(None, (meter.note, left_out))))
    with meter.clock.counts(Work.SHRINKING):
        # What collects findings has not stopped at the first.
        goes_on = plan.goes_on and plan.case is None and not found.flaky and not law.collects
        beside = look_beside(law, impl, case, broken, plan, meter) if goes_on else None
        again = not lost_in()
        # This may add to the headline.
        message = explain(law, impl, case, broken, plan, flaky=found.flaky, again=again, beside=beside)
    line = beside.line if beside else ""
    return Outcome(FAIL, broken.headline, message=message, case=case, beside=line, findings=_all(broken))


def _all(broken: LawBroken) -> tuple[str, ...]:
    """Everything that is wrong, in an order that stays."""
    return tuple(sorted(broken.findings))


def _contract_is_broken(contract: conformance.Tried) -> Outcome:
    """The outcome where a broken contract leaves nothing to judge."""
    return Outcome(UNKNOWN, f"the contract is broken (see test_contract): {contract.problems[0]}", Reason.CONTRACT)


def _not_judged(law: Law, impl: Implementation, plan: Plan) -> Outcome | None:
    """The outcome where nothing is launched; None if the law is to be judged."""
    if reason := not_here(impl, plan.device):
        return Outcome(UNKNOWN, reason, Reason.OTHER_DEVICE)
    if lost_in():
        return Outcome(UNKNOWN, f"the GPU context of this process was lost in {lost_in()}", Reason.CONTEXT_LOST)
    if reason := _missing(law, impl, plan):
        return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
    if law.device not in (None, plan.device):
        if law.device not in {*impl.devices, *impl.unavailable}:
            reason = f"the law applies on {law.device}, where this implementation never runs"
            return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
        reason = f"law not applicable on {plan.device}, only on {law.device}"
        return Outcome(UNKNOWN, reason, Reason.LAW_OF_OTHER_DEVICE)
    return None
