"""Finds the smallest case that ends the process or loses its GPU, and writes the message.

Each step runs in a fresh process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from flash_attest.properties.calling.raised import ADVICE
from flash_attest.properties.cases.case import Case, CaseError, parse_case
from flash_attest.properties.failures import AnotherCase
from flash_attest.properties.judging.explain import named, section
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import REPEATS
from flash_attest.properties.judging.repeats import wanted
from flash_attest.properties.judging.shrink import steps_from
from flash_attest.properties.judging.verdict import FAIL, Result, law_name
from flash_attest.runner.isolation.child import as_result
from flash_attest.runner.isolation.endings import Ending

# (case, seconds for a call) -> the answer of a fresh process, or how it ended
EndedBy = Callable[[Case, float], Ending | dict]
Found = TypeVar("Found", Ending, Result)
RIGHT_ALONE = "in a fresh process this case alone is right: it fails because of earlier calls, or comes and goes"
RULE = """No kernel may end the process, or run forever: a call returns, or raises an error.

This holds whatever the inputs are, and whichever law makes the call."""
MOST_TRIALS, MOST_SECONDS = 60, 20.0
OUTSIDE = "the call is outside of what the implementation declares: it should raise an error"


@dataclass(frozen=True)
class Known:
    """The smallest case that ends the process, found with an earlier law."""

    law: str
    case: Case
    ending: Ending


def result(
    judgement: Judgement, ending: Ending, ended_by: EndedBy, limit: float, known: list[Known] | None = None
) -> Result:
    """Return the failing verdict of a law in which the implementation ended the process.

    limit: seconds for a call. known: what earlier laws found, to which this law's case is added. If
    one of those cases ends the process in the same way with this law, no other one is shrunk.
    """
    known = [] if known is None else known
    case, smallest, repeats_run, same = parse_case(ending.case), ending, 0, 0
    before = _as_before(judgement, ending, ended_by, limit, known)
    if before is not None:
        case, smallest = before.case, before.ending
    # Repeat the case, to learn whether it alone ends the process.
    stop = time.perf_counter() + MOST_SECONDS
    while repeats_run < REPEATS and (repeats_run == 0 or time.perf_counter() < stop):
        same += ending.same_as(ended_by(case, limit))
        repeats_run += 1
    repeats = f"{same} of {repeats_run} repeats, each in a fresh process, end in the same way"
    if same < repeats_run:
        repeats += ": the outcome depends on earlier calls, on memory that it does not own, or on the order of threads"
    elif before is not None:
        repeats += f"; its sizes were shrunk with {law_name(before.law)}"
    elif judgement.plan.case is None:
        how = (lambda answer: answer if ending.same_as(answer) else None), ended_by, limit, stop
        case, smallest = _smallest(judgement, case, ending, *how)
        known.append(Known(judgement.law.name, case, smallest))
    replay = judgement.replay(case)
    advice = OUTSIDE if smallest.called_with else ADVICE
    law = judgement.law
    verdict = Result(judgement.impl.name, law.chapter, law.name, FAIL, smallest.headline, cases=ending.seen.cases + 1)
    verdict.smallest, verdict.replay = str(case), replay
    verdict.message = message(judgement, smallest.headline, case, [*smallest.observed, repeats, advice], replay)
    return verdict


def _as_before(
    judgement: Judgement, ending: Ending, ended_by: EndedBy, limit: float, known: list[Known]
) -> Known | None:
    """Return an earlier law's case, changed to what this law wants, if it ends the process in the
    same way.
    """
    if judgement.plan.case is not None:
        return None
    for before in known:
        if ending.same_as(before.ending):
            with suppress(AnotherCase, CaseError):
                case = wanted(judgement.law, judgement.impl, before.case)
                if judgement.takes(case) and ending.same_as(again := ended_by(case, limit)):
                    return Known(before.law, case, again)
    return None


def message(
    judgement: Judgement, headline: str, case: Case | None, observed: list[str], replay: str, rule: str = RULE
) -> str:
    """Return a message laid out as in properties/judging/explain.py.

    rule: the rule that is broken. It is the law's only if the law was judged.
    """
    parts = [headline, *([f"  {judgement.impl.name}"] if case is None else named(judgement.impl, case)), ""]
    parts += [*section("Rule", rule.splitlines()), *section("Observed", observed)]
    parts += section("Replay", [replay] if replay else [])
    return "\n".join(parts).rstrip() + "\n"


def with_facts(message: str, facts: Sequence[str]) -> str:
    """Return the message with more lines under Observed.

    A message without that section gets one, before Replay.
    """
    if not facts:
        return message
    added = "\n".join(f"  {fact}" for fact in facts)
    before, observed, after = message.partition("Observed\n")
    if not observed:
        before, replay, after = message.partition("Replay\n")
        return f"{before}Observed\n{added}\n\n{replay}{after}"
    lines, *rest = re.split(r"^(?=\S)", after, maxsplit=1, flags=re.MULTILINE)  # up to the next heading
    return "\n".join([f"{before}{observed}{lines.rstrip()}", f"{added}\n", *rest])


def smaller(judgement: Judgement, result: Result, lost_gpu: str, ended_by: EndedBy, limit: float) -> Result:
    """Shrink a drawn case in which the process lost its GPU.

    Returns the result of the smallest case. Any other result is returned unchanged. lost_gpu: the
    case in which the GPU was lost, or "".
    """
    failed = result.verdict == FAIL and bool(result.smallest)
    if not failed or lost_gpu != result.smallest or judgement.plan.case is not None:
        return result

    def same(answer: Ending | dict) -> Result | None:
        if isinstance(answer, Ending):
            return None
        other = as_result(answer["result"])
        lost = other.verdict == FAIL and answer["lost_gpu"] == other.smallest
        return other if lost and _cause(other.reason) == _cause(result.reason) else None

    stop = time.perf_counter() + MOST_SECONDS
    _, smallest = _smallest(judgement, parse_case(result.smallest), result, same, ended_by, limit, stop)
    smallest.cases = result.cases
    return smallest


def _cause(reason: str) -> str:
    """Return the GPU's error.

    The text before it names the library that noticed it, which depends on earlier calls of the
    process.
    """
    return reason.rpartition("CUDA error: ")[2]


def _smallest(
    judgement: Judgement,
    case: Case,
    outcome: Found,
    same: Callable[[Ending | dict], Found | None],
    ended_by: EndedBy,
    limit: float,
    stop: float,
) -> tuple[Case, Found]:
    """Shrink a case as far as time allows. Returns the smallest case and its outcome.

    same: converts the result of ended_by to an outcome like `outcome`, or to None if the step ended
    differently.
    """
    seen, steps = set(), steps_from(judgement, case)
    while (step := next(steps, None)) is not None and len(seen) < MOST_TRIALS and time.perf_counter() < stop:
        if step in seen:
            continue
        seen.add(step)
        share = max(1.0, (stop - time.perf_counter()) / 2)  # a hanging step leaves time for others
        if again := same(ended_by(step, min(share, limit or share))):
            case, outcome, steps = step, again, steps_from(judgement, step)
    return case, outcome
