"""Traces the smallest case of a failure for a race, if its kernels can be traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flash_attest.emulator.errors import EmulatorError
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.fresh_memory import with_effect
from flash_attest.properties.checks.pictures import plural
from flash_attest.properties.failures import AnotherCase, LawBroken, Raises, Undecided
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.law import Law
from flash_attest.properties.trial import Trial
from flash_attest.races.finding import Finding
from flash_attest.races.tracing import MOST_CHOSEN, tracing

TOO_LARGE = "the case is too large"


@dataclass(frozen=True)
class Traced:
    """The result of tracing a failing case, in words.

    phrase: the end of a headline; "" if nothing was found.
    """

    phrase: str = ""
    lines: Sequence[str] = ()


def not_traced(why: str) -> Traced:
    """Return the result for a case that was not traced."""
    return Traced(lines=[f"not traced: {why}"])


def is_traceable(judgement: Judgement) -> bool:
    """Return whether the failure's kernels can be traced, and the law has not done so itself.

    A law that makes calls outside of the contract is not traced, as such a call could cause a
    finding.
    """
    return judgement.impl.traced and not {"traced", "outside"} & {*judgement.law.needs}


def is_too_large(case: Case) -> bool:
    """Return whether tracing a case would take too long."""
    return case.products > MOST_CHOSEN


def trace_failure(judgement: Judgement, case: Case) -> Traced:
    """Trace a failing case on the CPU and return the findings."""
    if is_too_large(case):
        return not_traced(TOO_LARGE)
    law, stopped = judgement.law, ""
    try:
        with tracing(seed=case.seed) as found:
            try:
                _make_calls(law, Trial(judgement.impl, case, "cpu", repeats=2, known=judgement.plan.known))
            except (Raises, Undecided) as error:
                stopped = str(error).partition("\n")[0]
            except (LawBroken, AnotherCase):
                pass
    except EmulatorError as error:
        return not_traced(str(error).partition("\n")[0])
    if findings := [*found.findings, *_with_effect(judgement, case, found.unwritten)]:
        return _with(findings)
    if not found.launches:
        return not_traced(stopped or "no kernel was launched")
    traced = "a plain call of this case, traced" if law.device == "cuda" else "traced"
    launches, until = plural(found.launches, "launch", "launches"), f" until {stopped}" if stopped else ""
    return Traced(lines=[f"{traced} ({launches}){until}: no race, and no access out of bounds"])


def _with_effect(judgement: Judgement, case: Case, unwritten: list[Finding]) -> list[Finding]:
    try:
        return with_effect(Trial(judgement.impl, case, "cpu", known=judgement.plan.known), unwritten)
    except (Undecided, EmulatorError):
        return []


def _make_calls(law: Law, trial: Trial) -> None:
    if law.device == "cuda":  # the law itself needs a GPU
        trial.run(backward=trial.backward)
    else:
        law.hold(trial)


def _with(findings: list[Finding]) -> Traced:
    """Return the findings with a phrase such as "race, fa2_forward.cuh:76 and fa2_forward.cuh:82".

    The phrase names the first finding. There is none if no finding can have changed a value, as
    such findings do not explain the failure.
    """
    ranked = sorted(findings, key=lambda finding: finding.rank)
    changing = [finding for finding in ranked if not finding.keeps_values]
    sites = changing and ", ".join([changing[0].kind.value, " and ".join(dict.fromkeys(map(str, changing[0].sites)))])
    lines = _listed("traced:", changing)
    lines += _listed("traced, and no cause of wrong values:", [f for f in ranked if f.keeps_values])
    return Traced(sites.rstrip(", ") if sites else "", lines)


def _listed(heading: str, findings: list[Finding]) -> list[str]:
    lines = [f"  {line}" for finding in findings for line in str(finding).splitlines()]
    return [heading, *lines] if lines else []
