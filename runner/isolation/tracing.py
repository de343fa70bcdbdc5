"""Traces the case of a GPU failure in a process that sees no GPU.

A plug-in's kernels run in the emulator there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.explain import where_in_bugs
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.traced import (
    TOO_LARGE,
    Traced,
    is_too_large,
    is_traceable,
    not_traced,
    trace_failure,
)
from flash_attest.properties.judging.verdict import FAIL, Result
from flash_attest.properties.law import Law
from flash_attest.properties.progress import NOW
from flash_attest.runner.isolation import crashes
from flash_attest.runner.isolation.endings import Ending

# ((implementation, device), request) -> the answer of a fresh process, or how it ended
Ask = Callable[[tuple[str, str], dict], Ending | dict]
# The number of failures traced for one implementation in one worker. It is small because compiling
# kernels for the emulator takes seconds.
MOST_TRACED = 3


def add_trace(judgement: Judgement, result: Result, traced_before: Counter[str], ask: Ask) -> None:
    """Add to a failure on a GPU what the trace of its case finds.

    Only the first failures are traced. traced_before: the number of failures traced so far, by
    implementation.
    """
    law, impl, plan = judgement.law, judgement.impl, judgement.plan
    if result.verdict != FAIL or not result.smallest or not plan.goes_on:
        return
    if judgement.known_failure.why:
        return  # as expected
    if not is_traceable(judgement) or plan.traces or judgement.device == "cpu":
        return  # nothing can be traced, or the judging process has traced it
    if is_too_large(parse_case(result.smallest)):
        traced = not_traced(TOO_LARGE)
    elif traced_before[impl.name] == MOST_TRACED:
        traced = not_traced(f"{MOST_TRACED} failures of {impl.name} have been")
    else:
        traced_before[impl.name] += 1
        traced = _traced(law, impl, result.smallest, ask)
    if traced.phrase:
        reason = f"{result.reason} ({traced.phrase})"
        result.message = result.message.replace(result.reason, reason, 1)
        result.message = result.message.replace(where_in_bugs(law.bug), where_in_bugs("races"))
        result.reason = reason
    result.message = crashes.with_facts(result.message, traced.lines)


def _traced(law: Law, impl: Implementation, case: str, ask: Ask) -> Traced:
    request = {"kind": "trace", "law": id(law), "impl": id(impl), "device": "cpu", "case": case}
    try:
        answer = ask((impl.name, "cpu"), request)
    except OSError as error:  # no process could be started; the verdict stands
        return not_traced(str(error))
    if isinstance(answer, Ending):
        return not_traced("; ".join((f"where no GPU is visible {answer.sentence}", *answer.observed)))
    return Traced(**answer)


def answer(law: Law, impl: Implementation, case: str) -> dict:
    """Trace a case in the separate process. Returns the fields of Traced."""
    judgement = Judgement(law, impl)
    NOW.begins(f"{judgement.test} {case}")
    return asdict(trace_failure(judgement, parse_case(case)))
