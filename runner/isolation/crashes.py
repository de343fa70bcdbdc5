"""The smallest case that ends the process, or loses its GPU, and the message. Each step has a process of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.judging.explain import section
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import REPEATS
from flash_attest.properties.judging.shrink import steps_from
from flash_attest.properties.judging.verdict import FAIL, Result
from flash_attest.runner.isolation.child import as_result
from flash_attest.runner.isolation.endings import Ending

# (case, seconds for a call) -> what becomes of the case in a process of its own
EndedBy = Callable[[Case, float], Ending | dict]
Found = TypeVar("Found", Ending, Result)
RIGHT_ALONE = "in a fresh process this case alone is right: it fails because of earlier calls, or comes and goes"
MOST_TRIALS, MOST_SECONDS = 60, 20.0
ADVICE = "the implementation declares that it supports this case: support it, or declare less"
OUTSIDE = "the call is outside of what the implementation declares: it should raise an error"


def result(judgement: Judgement, ending: Ending, ended_by: EndedBy, limit: float) -> Result:
    """The verdict of fail for a law in which the implementation ended the process. limit: seconds for a call."""
    case, smallest, made, same = parse_case(ending.case), ending, 0, 0
    stop = time.perf_counter() + MOST_SECONDS
    while made < REPEATS and (made == 0 or time.perf_counter() < stop):
        same += ending.same_as(ended_by(case, limit))
        made += 1
    repeats = f"{same} of {made} repeats, each in a fresh process, end in the same way"
    if same < made:
        repeats += ": what it does hangs on earlier calls, on memory that it does not own, or on the order of threads"
    elif judgement.plan.case is None:
        how = (lambda found: found if ending.same_as(found) else None), ended_by, limit, stop
        case, smallest = _smallest(judgement, case, ending, *how)
    replay = judgement.replay(case)
    advice = OUTSIDE if smallest.called_with else ADVICE
    law = judgement.law
    found = Result(judgement.impl.name, law.chapter, law.name, FAIL, smallest.headline, cases=ending.seen.cases + 1)
    found.smallest, found.replay = str(case), replay
    found.message = message(judgement, smallest.headline, case, [*smallest.observed, repeats, advice], replay)
    return found


def message(judgement: Judgement, headline: str, case: Case | None, observed: list[str], replay: str) -> str:
    """In the form of all messages (properties/judging/explain.py)."""
    parts = [headline, f"  {judgement.impl.name}   {case or ''}".rstrip(), ""]
    parts += [*section("Rule", judgement.law.rule.splitlines()), *section("Observed", observed)]
    parts += section("Replay", [replay] if replay else [])
    return "\n".join(parts).rstrip() + "\n"


def with_facts(message: str, facts: Sequence[str]) -> str:
    """The message with more lines under Observed, which comes before Replay if there is none yet."""
    if not facts:
        return message
    added = "\n".join(f"  {fact}" for fact in facts)
    before, observed, after = message.partition("Observed\n")
    if not observed:
        before, replay, after = message.partition("Replay\n")
        return f"{before}Observed\n{added}\n\n{replay}{after}"
    lines, *rest = re.split(r"^(?=\S)", after, maxsplit=1, flags=re.MULTILINE)  # up to a heading, over empty lines
    return "\n".join([f"{before}{observed}{lines.rstrip()}", f"{added}\n", *rest])


def smaller(judgement: Judgement, result: Result, lost_gpu: str, ended_by: EndedBy, limit: float) -> Result:
    """The result; where the process lost its GPU in its case, a drawn one, that of the smallest case. lost_gpu: in which."""
    failed = result.verdict == FAIL and bool(result.smallest)
    if not failed or lost_gpu != result.smallest or judgement.plan.case is not None:
        return result

    def same(answer: Ending | dict) -> Result | None:
        if isinstance(answer, Ending):
            return None
        found = as_result(answer["result"])
        lost = found.verdict == FAIL and answer["lost_gpu"] == found.smallest
        return found if lost and _cause(found.reason) == _cause(result.reason) else None

    stop = time.perf_counter() + MOST_SECONDS
    _, found = _smallest(judgement, parse_case(result.smallest), result, same, ended_by, limit, stop)
    found.cases = result.cases
    return found


def _cause(reason: str) -> str:
    """What the GPU says. Before it stands which library noticed, which depends on what the process has called before."""
    return reason.rpartition("CUDA error: ")[2]


def _smallest(
    judgement: Judgement,
    case: Case,
    found: Found,
    same: Callable[[Ending | dict], Found | None],
    ended_by: EndedBy,
    limit: float,
    stop: float,
) -> tuple[Case, Found]:
    """The case that no single step makes smaller, as far as time allows, and what becomes of it.

    same: what ended_by gives for a step -> the like of `found`; None if it is something else.
    """
    seen, left = set(), steps_from(judgement, case)
    while (step := next(left, None)) is not None and len(seen) < MOST_TRIALS and time.perf_counter() < stop:
        if step in seen:
            continue
        seen.add(step)
        share = max(1.0, (stop - time.perf_counter()) / 2)  # a step that does not return leaves time for others
        if again := same(ended_by(step, min(share, limit or share))):
            case, found, left = step, again, steps_from(judgement, step)
    return case, found
