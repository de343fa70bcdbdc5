"""One pytest run in one process: the plan that it judges by, and how verdicts become pytest's outcomes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from impls.contract import Absent, Implementation
from impls.registry import Entry, Unloadable
from properties.cases.support import not_here
from properties.failures import Reason, Undecided
from properties.judging import conformance
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from properties.law import Law
from properties.plugin.process import give_back_gpu_memory


class LawFails(Exception):
    """A verdict of fail on its way to pytest's report, which shows the message and no traceback."""


class Judge:
    """Judges on behalf of the `judge` fixture: laws, and the contract that comes before them."""

    def __init__(self, plan: Plan, entries: list[Entry], report_dir: Path, worker: str):
        self.plan = plan
        self.options = {entry.name: entry.option for entry in entries}
        self.last_case = report_dir / f"last-case-{worker}.txt"
        self._file = None
        plan.write_down = self.write_down

    def write_down(self, text: str) -> None:
        """Keep what is about to be launched on disk, so that the case is known if the process dies."""
        if self._file is None:
            self.last_case.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.last_case, "w")  # noqa: SIM115
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text + "\n")
        self._file.flush()

    def close(self) -> None:
        """Remove the file of the last case: the process ends normally."""
        if self._file is not None:
            self._file.close()
            self.last_case.unlink(missing_ok=True)

    def law(self, law: Law, impl: Implementation) -> Result:
        """The verdict of a law."""
        self.plan.origin = self.options.get(impl.name, "")
        try:
            return judge(law, impl, self.plan)
        finally:
            give_back_gpu_memory()

    def contract(self, impl: Implementation | Absent | Unloadable) -> Result:
        """The verdict of the contract check, in the same form as a law's."""
        result = Result(impl.name, "test_contract", "test_contract_is_kept", PASS)
        started, judged = time.perf_counter(), NOT_JUDGED
        if isinstance(impl, Unloadable):
            found, result.verdict = [impl.problem], FAIL
        elif isinstance(impl, Absent):
            found, result.verdict, result.reason, result.why = [], REFUSED, impl.reason, Reason.NOT_INSTALLED
        elif reason := not_here(impl, self.plan.device):
            found, result.verdict, result.reason, result.why = [], UNKNOWN, reason, Reason.OTHER_DEVICE
        else:
            try:
                tried = conformance.tried(impl, self.plan.device, self.write_down)
                found, judged = tried.problems, _judged(tried)
            except Undecided as undecided:
                found, result.verdict, result.reason, result.why = [], UNKNOWN, str(undecided), undecided.why
        if found:
            result.verdict, result.reason = FAIL, found[0].splitlines()[0]
            result.replay = " ".join(
                f"pytest 'properties/test_contract.py::{result.law}[{impl.name}]' {self.options.get(impl.name, '')}".split()
            )
            result.message = _contract_message(impl.name, found, judged, result.replay)
        result.seconds = time.perf_counter() - started
        return result


def conclude(result: Result, impl: Implementation | Absent | Unloadable) -> None:
    """A result -> pytest's outcome: nothing for pass, skip for refused and unknown, LawFails for fail.

    A failure listed in known_failures is expected. A pass that is listed there is a failure: the list is out of date.
    """
    known = getattr(impl, "known_failures", {}).get(result.law)
    if result.verdict == FAIL and known:
        result.known = known
        pytest.xfail(f"known: {known} ({result.reason})")
    if result.verdict == PASS and known:
        result.verdict, result.reason = FAIL, f"passes, but known_failures lists it ({known}): take it off the list"
        result.message = f"{result.law}: {result.reason}"
    if result.verdict == FAIL:
        raise LawFails(result.message or result.reason)
    if result.verdict in (REFUSED, UNKNOWN):
        pytest.skip(f"{result.verdict}: {result.reason}")


NOT_JUDGED = "Its laws are not judged until it is kept."


def _judged(tried: conformance.Tried) -> str:
    """What becomes of the laws of an implementation that does not keep the contract."""
    if not tried.judged:
        return NOT_JUDGED
    return f"Its laws are judged without {tried.without}." if tried.left_out else "Its laws are judged."


def _contract_message(name: str, problems: list[str], judged: str, replay: str) -> str:
    first, *rest = problems[0].splitlines()
    lines = [f"{name} does not keep the contract: {first}", *(f"  {line}" for line in rest)]
    lines += [f"  {line}" for problem in problems[1:] for line in problem.splitlines()]
    lines += ["", f"The contract is docs/adding-an-implementation.md. {judged}", ""]
    return "\n".join([*lines, "Replay", f"  {replay}", ""])
