"""Traces the smallest case of a failure, where kernels can be traced: is a race behind it, in whatever order threads run?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from emulator.errors import EmulatorError
from impls.contract import Implementation
from properties.cases.case import Case
from properties.checks.pictures import plural
from properties.failures import AnotherCase, LawBroken, Undecided
from properties.law import Law
from properties.trial import Trial
from races.finding import Finding
from races.tracing import MOST_PRODUCTS, tracing


@dataclass(frozen=True)
class Traced:
    """What tracing a failing case found: the findings, and how many launches were traced."""

    findings: tuple[Finding, ...] = ()
    launches: int = 0
    why_not: str = ""

    @property
    def phrase(self) -> str:
        """The first finding for the end of a headline: "race, fa2_forward.cuh:76 and fa2_forward.cuh:82"; "" without one."""
        if not self.findings:
            return ""
        first = self.findings[0]
        return ", ".join([first.kind.value, " and ".join(dict.fromkeys(map(str, first.sites)))]).rstrip(", ")

    @property
    def lines(self) -> list[str]:
        """What a message says."""
        if self.why_not:
            return [f"not traced: {self.why_not}"]
        if not self.findings:
            return [f"traced ({plural(self.launches, 'launch', 'launches')}): no race, and no access out of bounds"]
        return ["traced:", *(f"  {line}" for finding in self.findings for line in str(finding).splitlines())]


def is_traceable(law: Law, impl: Implementation) -> bool:
    """Whether a failure can be traced: there are kernels that can, and the law has not traced them.

    Not where the law makes calls outside of the promise: a finding would be that of any of them.
    """
    return impl.traced and not {"traced", "outside"} & {*law.needs}


def trace_failure(law: Law, impl: Implementation, case: Case) -> Traced:
    """Trace a failing case on the CPU."""
    if case.products > MOST_PRODUCTS:
        return Traced(why_not="the case is too large")
    try:
        with tracing(seed=case.seed) as found, suppress(LawBroken, AnotherCase, Undecided):
            trial = Trial(impl, case, "cpu", repeats=2)
            if law.device == "cuda":
                trial.run(backward=trial.backward)
            else:
                law.hold(trial)
    except EmulatorError as error:
        return Traced(why_not=str(error).splitlines()[0])
    if not found.launches and not found.findings:
        return Traced(why_not="no kernel was launched")
    return Traced(tuple(sorted(found.findings, key=lambda finding: finding.keeps_values)), found.launches)
