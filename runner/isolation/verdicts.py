"""The verdicts of laws whose process ended or did not answer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN, Result
from flash_attest.runner.isolation import crashes
from flash_attest.runner.isolation.endings import Ending


def undecided(judgement: Judgement, reason: str, why: Reason, began: float) -> Result:
    """Return the verdict "unknown", with the time since `began`."""
    return _unknown(judgement, reason, why, seconds=time.perf_counter() - began)


def ended(judgement: Judgement, ending: Ending, why: Reason, more: str = "") -> Result:
    """Return the verdict "unknown", with the case and its replay line."""
    reason = (ending.headline if why is Reason.TIMED_OUT else ending.sentence) + more
    result = _unknown(judgement, reason, why, cases=ending.seen.cases)
    case = parse_case(ending.case) if ending.case else None
    if case is not None:
        result.smallest, result.replay = str(case), judgement.replay(case, timed_out=why is Reason.TIMED_OUT)
    result.message = crashes.message(judgement, reason, case, ending.observed, result.replay)
    return result


def hung(judgement: Judgement, endings: Sequence[Ending], cases: int, more: str, facts: Sequence[str]) -> Result:
    """Return the verdict "unknown", with the smallest of the hanging cases, and more facts under
    Observed.
    """
    smallest, *others = sorted(endings, key=lambda ending: parse_case(ending.case).products)
    result = ended(judgement, smallest, Reason.TIMED_OUT, more)
    lines = [*smallest.observed, *(f"it does not return with {other.case} either" for other in others), *facts]
    result.message = crashes.message(judgement, result.reason, parse_case(smallest.case), lines, result.replay)
    result.cases = cases
    return result


def found_before(judgement: Judgement, ending: Ending) -> Result | None:
    """Return the failure that was found before the process ended while shrinking, or None."""
    if ending.seen.found is None:
        return None
    text, headline = ending.seen.found
    case, law = parse_case(text), judgement.law
    result = Result(judgement.impl.name, law.chapter, law.name, FAIL, headline, cases=ending.seen.cases, smallest=text)
    result.replay = judgement.replay(case)
    lines = ["a smaller case was looked for, but then:", f"  {ending.sentence}", *ending.observed]
    result.message = crashes.message(judgement, headline, case, lines, result.replay, law.rule)
    return result


def _unknown(judgement: Judgement, reason: str, why: Reason, **more: float) -> Result:
    law = judgement.law
    return Result(judgement.impl.name, law.chapter, law.name, UNKNOWN, reason, why, **more)
