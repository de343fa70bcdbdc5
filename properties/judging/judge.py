"""Judges one implementation by one law: draws cases, runs them, shrinks and explains a failure.

The way of a case: search.py draws it with cases/strategies.py, cases/inputs.py builds its tensors,
trial.py calls the implementation through impls/contract/call.py, checks/comparisons.py compares
results, shrink.py takes the last steps of shrinking, beside.py judges the law without the clues of
the failure, and explain.py writes the message.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.drawing import NothingSaid
from flash_attest.properties.cases.support import not_here
from flash_attest.properties.failures import AnotherCase, LawBroken, Reason, Replaces, Undecided
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.beside import Beside, can_lack, plainest, search_without
from flash_attest.properties.judging.clues import LeftOut, leaving_out
from flash_attest.properties.judging.context import ContextLost, blame, check_functions, check_gpu
from flash_attest.properties.judging.explain import explain, message_of
from flash_attest.properties.judging.judgement import Judgement, replay_of
from flash_attest.properties.judging.plan import CONTRACT_CHECK, Plan
from flash_attest.properties.judging.repeats import (
    Repeat,
    message_of_repeats,
    quickly_shrunk,
    repeat_of,
    right_without,
    with_causes,
)
from flash_attest.properties.judging.search import Found, Search, has_cases
from flash_attest.properties.judging.verdict import FAIL, PASS, PLAIN, REFUSED, UNKNOWN, Result
from flash_attest.properties.law import Law
from flash_attest.properties.machine.clock import Work


@dataclass
class Outcome:
    """The parts of a Result: verdict, reason, kind of reason, message, and details of a failure."""

    verdict: str
    reason: str = ""
    why: Reason | None = None
    message: str = ""
    case: Case | None = None
    replay: str = ""  # if there is no case
    beside: str = ""
    beside_case: Case | None = None
    clue: str = ""
    same_as: str = ""
    broken: LawBroken | None = None


def judge(law: Law, impl: Implementation, plan: Plan) -> Result:
    """Return the verdict of one law on one implementation. Its exceptions never escape."""
    started = time.perf_counter()
    judgement = Judgement(law, impl, plan)
    judgement = replace(judgement, plan=replace(plan, device=judgement.device))
    outcome, meter = _watched(judgement), judgement.meter
    result = Result(impl.name, law.chapter, law.name, outcome.verdict, outcome.reason, outcome.why)
    result.beside, result.clue, result.same_as = outcome.beside, outcome.clue, outcome.same_as
    result.message, result.cases, result.worst_z = outcome.message, meter.cases, meter.worst_z
    result.tried, result.replay = meter.tried, outcome.replay
    result.repeats = meter.repeats or meter.launches
    result.seconds = time.perf_counter() - started
    result.seconds_of = {work.value: seconds for work, seconds in meter.clock.seconds.items()}
    if (broken := outcome.broken) is not None:
        result.findings = sorted(broken.findings)  # a fixed order
        result.matches = list(broken.matches)
        result.wrong = broken.wrong and broken.wrong.as_dict()
        result.found_at = next((f"{s.file}:{s.line}" for finding in broken.found for s in finding.sites if s.line), "")
    if outcome.verdict == FAIL and judgement.known_is_left_out and outcome.case != judgement.known_case:
        result.why = Reason.NOT_AS_KNOWN
    if outcome.verdict == PASS and judgement.known_failure.why:  # may make it a failure
        result.replay = replay_of(plan.origin, judgement.test)
    if outcome.beside_case is not None:
        result.beside_case = str(outcome.beside_case)
    if outcome.case is not None:
        result.smallest, result.replay = str(outcome.case), judgement.replay(outcome.case)
    return result


def _watched(judgement: Judgement) -> Outcome:
    """Return the outcome, unless a call has made it meaningless: it lost the GPU, or replaced code.

    That call is then named, even if it was the suite that raised.
    """
    if outcome := _not_judged(judgement):
        return outcome
    known, device, clock = judgement.plan.known, judgement.plan.device, judgement.meter.clock
    with clock.counts(Work.LAW):
        known.begins(judgement.test)
    try:
        try:
            outcome = _outcome(judgement)
        except Exception as error:
            blame(known, device, error)
            raise
        with clock.counts(Work.LAW):
            check_gpu(known, device)
            check_functions(known)
    except Replaces as replaces:
        if outcome is not None and isinstance(outcome.broken, Replaces):  # with its case
            return outcome
        if judgement.plan.case:
            return _failed(judgement, Found(replaces, judgement.plan.case), again=False)
        replay = replay_of(judgement.plan.origin, judgement.test)
        return Outcome(FAIL, replaces.headline, message=message_of(judgement, replaces, replay), replay=replay)
    except ContextLost as lost:
        if outcome is None or outcome.verdict != FAIL:
            return _failed(judgement, Found(lost.broken, lost.case), again=False)
    except Undecided as undecided:
        return Outcome(UNKNOWN, str(undecided), undecided.why)
    return outcome


def _outcome(judgement: Judgement) -> Outcome:
    whole, plan, meter, contract = judgement, judgement.plan, judgement.meter, conformance.Tried([])
    known: Outcome | None = None
    try:
        with meter.clock.counts(Work.RUNNING):
            if plan.try_contract:
                contract = conformance.tried(judgement.impl, plan)
        if not contract.judged or (plan.case and any(group.holds(plan.case) for group in contract.left_out)):
            return _contract_is_broken(contract)
        if contract.left_out:
            narrowed = judgement.drawing_from(leaving_out(judgement.law.draws, *contract.left_out))
            judgement = replace(narrowed, impl=contract.narrowed(judgement.impl))
        elif contract.restores:
            judgement = replace(judgement, impl=contract.narrowed(judgement.impl))
        if plan.case is not None:
            if reason := judgement.unsupported(plan.case):
                return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
            if reason := judgement.law.draws.excludes(plan.case):
                return Outcome(REFUSED, reason, Reason.NO_CASE)
        with meter.clock.counts(Work.DRAWING):
            known = _known_failure(judgement)
            if known and not judgement.known_is_left_out:
                return known
            failure = Search(judgement, repeat_of).run()
    except Undecided as undecided:
        return Outcome(UNKNOWN, str(undecided), undecided.why)
    except ContractError as error:
        return Outcome(FAIL, error.problems[0], message="\n".join(error.problems))
    except (AnotherCase, Unsatisfiable) as none:
        if meter.cases:  # the case of a known failure, and `accepts` refuses all others
            return known or Outcome(PASS)
        if contract.left_out and plan.case is None and has_cases(whole):  # the law may want only cases left out
            if why := judgement.impl.known_failure(CONTRACT_CHECK, judgement.device).why:
                return Outcome(REFUSED, f"{contract.verdict} with {contract.without}: {why}", Reason.NO_CASE)
            return _contract_is_broken(contract)
        what = "this case" if isinstance(none, AnotherCase) else "any case that the implementation supports"
        why = f"the law says nothing about {what}{f': {none}' if str(none) else ''}"
        if isinstance(none, Unsatisfiable) and not isinstance(none, NothingSaid):
            why = "the implementation supports no case that the law wants"
        return Outcome(REFUSED, meter.note or why, Reason.NO_CASE)
    except ContextLost as lost:
        return _failed(judgement, Found(lost.broken, lost.case), again=False)
    if failure.broken is None and not meter.cases:  # all cases hung or ended the contract check
        return Outcome(REFUSED, "no case is left: the calls of all of them were given up before", Reason.NO_CASE)
    if failure.broken is None and known:
        return known
    if failure.broken is None:
        left_out = f"judged without {contract.without}, where {contract.verdict}" if contract.left_out else ""
        return Outcome(PASS, "; ".join(filter(None, (meter.note, left_out))))
    with meter.clock.counts(Work.SHRINKING):
        return _fails(judgement, failure)


def _known_failure(judgement: Judgement) -> Outcome | None:
    """Return the outcome of a law that fails in the case that its known failure names, as it is:
    nobody reads it to find the cause. None if it holds there, or if there is no such case.
    """
    case = judgement.known_case
    if case is None or judgement.plan.case is not None or not judgement.takes(case):
        return None
    try:
        failure = Search(replace(judgement, plan=replace(judgement.plan, case=case))).run()
    except AnotherCase:
        return None
    return None if failure.broken is None else _failed(judgement, failure, again=False)


def _fails(judgement: Judgement, failure: Found) -> Outcome:
    """Return the outcome of a failure.

    If another law has explained its cause, the law is judged on without the clues of the cause,
    until it holds or fails for a cause of its own.
    """
    whole, plan, repeats, same_as = judgement, judgement.plan, [], ""
    while isinstance(failure, Repeat):
        if failure.says_it_better:
            same_as, failure = failure.cause.law, quickly_shrunk(judgement, failure)
            break
        repeats.append(failure)
        left_out = [repeat.clues for repeat in repeats]
        found = None
        if failure.clues.clues and can_lack(judgement, failure.clues, failure.case):
            found = search_without(whole, left_out, partial(repeat_of, before=repeats))
        if found is None or found[0].broken is None:
            return _repeated(whole, repeats, found[1] if found else 0)
        failure, judgement = found[0], whole.drawing_from(leaving_out(whole.law.draws, *left_out))
    # A law that collects findings has already judged further cases after its first failure. One of
    # a single case has no others.
    done = failure.flaky or judgement.law.collects or judgement.law.once
    clues = beside = None
    if plan.goes_on and plan.case is None and not done:
        failure, clues, beside = plainest(judgement, failure)
    outcome = _failed(judgement, failure, again=not plan.known.lost_in, clues=clues, beside=beside)
    outcome.same_as = same_as
    outcome.message = with_causes(outcome.message, repeats)
    return outcome


def _repeated(judgement: Judgement, repeats: list[Repeat], cases: int) -> Outcome:
    """Return the outcome of a law that fails for explained causes only."""
    first = repeats[0]
    return Outcome(
        FAIL,
        first.broken.headline,
        message=message_of_repeats(judgement, repeats, cases),
        case=first.case,
        beside=right_without(repeats, cases),
        clue=str(first.clues) or PLAIN,
        same_as=first.cause.law,
        broken=first.broken,
    )


def _failed(
    judgement: Judgement,
    failure: Found,
    *,
    again: bool,
    clues: LeftOut | None = None,
    beside: Beside | None = None,
) -> Outcome:
    """Return the outcome of a failure, with its message. again: whether more calls can be made."""
    message = explain(judgement, failure, again=again, clues=clues, beside=beside)  # may extend the headline
    outcome = Outcome(FAIL, failure.broken.headline, message=message, case=failure.case, broken=failure.broken)
    if beside is not None:
        outcome.beside, outcome.beside_case = beside.line, beside.found and beside.found.case
    if clues is not None:
        outcome.clue = str(clues) or PLAIN
    return outcome


def _contract_is_broken(contract: conformance.Tried) -> Outcome:
    """Return the outcome for a broken contract that leaves nothing to judge."""
    return Outcome(UNKNOWN, f"{contract.verdict} (see contract_is_kept): {contract.problems[0]}", Reason.CONTRACT)


def _not_judged(judgement: Judgement) -> Outcome | None:
    """Return the outcome of a law that is not judged; None if it is to be judged."""
    law, impl, device = judgement.law, judgement.impl, judgement.plan.device
    if reason := not_here(impl, device):
        return Outcome(UNKNOWN, reason, Reason.OTHER_DEVICE)
    if lost_in := judgement.plan.known.lost_in:
        return Outcome(UNKNOWN, f"the GPU context of this process was lost in {lost_in}", Reason.CONTEXT_LOST)
    if reason := judgement.missing:
        return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
    if law.device not in (None, device):
        if law.device not in {*impl.devices, *impl.unavailable}:
            reason = f"the law applies on {law.device}, where this implementation never runs"
            return Outcome(REFUSED, reason, Reason.NOT_DECLARED)
        reason = f"law not applicable on {device}, only on {law.device}"
        return Outcome(UNKNOWN, reason, Reason.LAW_OF_OTHER_DEVICE)
    return None
