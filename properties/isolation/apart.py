"""Traces the case of a failure on a GPU in a process that sees none: there a plug-in's kernels run in the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.contract import Implementation
from properties.gpus import visible_gpus
from properties.isolation import crashes
from properties.isolation.endings import Ending
from properties.judging.traced import Traced, is_traceable
from properties.judging.verdict import FAIL, Result
from properties.law import Law

if TYPE_CHECKING:
    from properties.isolation.isolated import Isolated

MOST_TRACED = (
    3  # failures of one implementation: each takes seconds, for a process that compiles the kernels for the emulator
)


def add_trace(isolated: Isolated, law: Law, impl: Implementation, result: Result) -> None:
    """Add to a failure what the trace of its case finds. Only the first failures are traced."""
    judge = isolated.judge
    if result.verdict != FAIL or not result.smallest or not judge.plan.goes_on or not is_traceable(law, impl):
        return
    if impl.name not in judge.plug_ins or not visible_gpus() or isolated.traced_apart[impl.name] == MOST_TRACED:
        return  # the judging process has traced it, if it was to be traced
    isolated.traced_apart[impl.name] += 1
    request = {"kind": "trace", "law": id(law), "impl": id(impl), "device": "cpu", "case": result.smallest, "lost": {}}
    answer = isolated.ask_another((impl.name, "cpu"), request, isolated.limit)
    if isinstance(answer, Ending):
        answer = {"phrase": "", "lines": Traced(why_not=f"where no GPU is visible {answer.sentence}").lines}
    if answer["phrase"]:
        reason = f"{result.reason} ({answer['phrase']})"
        result.message = result.message.replace(result.reason, reason, 1)
        result.reason = reason
    result.message = crashes.with_facts(result.message, answer["lines"])
