"""Judges laws and contracts in this process, by one plan. It needs no pytest."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.impls.contract.registry import Entry, Unloadable
from flash_attest.places import document
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.support import not_here
from flash_attest.properties.failures import Reason, Undecided, words_of
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.judgement import Judgement, replay_of
from flash_attest.properties.judging.origin import OURS, Origin, OwnRun
from flash_attest.properties.judging.plan import Plan, contract_test
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.properties.law import Law
from flash_attest.properties.machine import gpu_memory
from flash_attest.properties.machine.gpus import visible_gpus
from flash_attest.properties.progress import NOW
from flash_attest.runner import alone
from flash_attest.runner.plugin.last_case import LastCase
from flash_attest.runner.plugin.sources import in_checkout, shown
from flash_attest.runner.untrusted.caller import caller_of
from flash_attest.runner.untrusted.records import record_of
from flash_attest.runner.untrusted.remote import remote_of

# Triton and Numba kernels run on the GPU if the process sees one, and then do not accept CPU
# tensors.
SEES_GPU = (
    "law not applicable on cuda, only on cpu, in a process that sees no GPU: with --no-isolation, or for a file that uses "
    "CUDA when it is imported, there is no such process; judge it with --device cpu"
)


class Judge:
    """Judges laws, and the contract that comes before them.

    plan: how to judge. entries: what may be judged. report_dir: where this worker keeps the case in
    progress. origin_of: says where an entry comes from, for replay commands and for other processes
    that call it.
    """

    def __init__(
        self,
        plan: Plan,
        entries: list[Entry],
        report_dir: Path,
        worker: str,
        origin_of: Callable[[Entry], Origin] = lambda entry: OwnRun(entry.option),
    ):
        self.plan = plan
        self.device_name = ""  # the GPU's name
        self.origins = {entry.name: origin_of(entry) for entry in entries}
        self.threads = {entry.name: entry.threads for entry in entries}
        self.plug_ins = {entry.name for entry in entries if entry.plug_in}
        self.last_case = LastCase(report_dir / f"last-case-{worker}.txt")
        plan.write_down, plan.caller_of, plan.alone = self.write_down, caller_of, alone.command

    def write_down(self, text: str) -> None:
        """Write the case about to be launched to disk, so that it is known if the process dies."""
        NOW.begins(text)
        self.last_case.write(text)

    def close(self) -> None:
        """Remove the file of the last case, because the process ends normally."""
        self.last_case.remove()

    @contextmanager
    def changed(self, **changes: object) -> Iterator[None]:
        """Replace fields of the plan in this block.

        Values are given as in JSON, so a case is a string.
        """
        plan = self.plan
        if "case" in changes:
            changes["case"] = parse_case(str(changes["case"]))
        self.plan = replace(plan, **changes)
        try:
            yield
        finally:
            self.plan = plan

    def sees_gpu(self, impl: Implementation) -> bool:
        """Return whether this plug-in's kernels run on a GPU in this process."""
        return impl.name in self.plug_ins and bool(visible_gpus())

    def judgement(self, law: Law, impl: Implementation) -> Judgement:
        """Return the object that judges a law on an implementation with this run's settings."""
        origin = self.origins.get(impl.name, OURS)
        return Judgement(law, impl, replace(self.plan, origin=origin, traces=not self.sees_gpu(impl)))

    def law(self, law: Law, impl: Implementation) -> Result:
        """Return the verdict of a law."""
        judgement = self.judgement(law, impl)
        impl = impl.on(judgement.device)
        if self.sees_gpu(impl) and judgement.device != self.plan.device:
            return Result(impl.name, law.chapter, law.name, UNKNOWN, SEES_GPU, Reason.LAW_OF_OTHER_DEVICE)
        try:
            result = judge(law, impl, judgement.plan)
        except Exception as error:
            result = suite_raised(error, Result(impl.name, law.chapter, law.name, UNKNOWN))
        finally:
            gpu_memory.give_back()
        if remote := remote_of(impl):
            result.observed = remote.take_observed()
        return result

    def contract(self, impl: Implementation | Absent | Unloadable) -> Result:
        """Return the verdict of the contract check, in the same form as a law's verdict."""
        result = contract_result(impl.name, PASS)
        started, problems, judged = time.perf_counter(), [], NOT_JUDGED
        if isinstance(impl, Unloadable):
            problems, result.verdict = [impl.problem], FAIL
        elif isinstance(impl, Absent):
            problems, result.verdict, result.reason, result.why = [], REFUSED, impl.reason, Reason.NOT_INSTALLED
        elif reason := not_here(impl, self.plan.device):
            problems, result.verdict, result.reason, result.why = [], UNKNOWN, reason, Reason.OTHER_DEVICE
        else:
            try:
                tried = conformance.tried(impl, self.plan)
                problems, judged, result.reason = tried.problems, _judged(tried), "; ".join(tried.remarks)
                if tried.undecided is not None:
                    raise tried.undecided
            except Undecided as undecided:
                result.verdict, result.reason, result.why = UNKNOWN, str(undecided), undecided.why
            except Exception as error:
                return suite_raised(error, result)
        if problems:
            result.verdict, result.reason = FAIL, problems[0].splitlines()[0]
            # If all problems are calls that hung, the contract check is undecided rather than
            # failed.
            unclear = [lost.words for lost in self.plan.lost.values() if not lost.breaks]
            if all(problem.startswith(tuple(unclear)) for problem in problems):
                result.verdict, result.why = UNKNOWN, Reason.TIMED_OUT
            result.replay = replay_of(self.origins.get(impl.name, OURS), contract_test(impl.name))
            result.message = _contract_message(impl.name, problems, judged, result.replay)
        if remote := remote_of(impl):
            result.observed = remote.take_observed() | {"declared": record_of(impl)}
        result.seconds = time.perf_counter() - started
        return result


def contract_result(impl: str, verdict: str, reason: str = "", why: Reason | None = None) -> Result:
    """Return a result of the contract check."""
    return Result(impl, "test_contract", "test_contract_is_kept", verdict, reason, why)


def suite_raised(error: Exception, result: Result) -> Result:
    """Turn a result into "unknown" because the suite itself raised an exception, and name where."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = ([frame for frame in frames if in_checkout(frame.filename)] or frames)[-1]
    text, where = words_of(error).strip(), f"{shown(frame.filename)}:{frame.lineno}"
    result.verdict, result.why = UNKNOWN, Reason.SUITE
    result.reason = f"the suite raised {type(error).__name__}: {text.splitlines()[0] if text else ''} ({where})"
    result.message = f"{result.reason}\n\n{''.join(traceback.format_exception(error))}"
    return result


def compare_with_known(result: Result, impl: Implementation | Absent | Unloadable) -> None:
    """Compare a result with known_failures.

    A failure listed there is expected. A pass listed there fails, because the list is out of date.
    A broken contract cannot be listed, because that would hide the laws that are then not judged.
    """
    known = getattr(impl, "known_failures", {}).get(result.law) if result.chapter != "test_contract" else None
    if result.verdict == FAIL and known:
        result.known = known
    if result.verdict == PASS and known:
        result.verdict, result.reason = FAIL, f"passes, but known_failures lists it ({known}): take it off the list"
        result.message = f"{result.law}: {result.reason}"


NOT_JUDGED = "Its laws are not judged until it keeps the contract."


def _judged(tried: conformance.Tried) -> str:
    """Return what a message says about the laws of an implementation that breaks the contract."""
    if not tried.judged:
        return NOT_JUDGED
    return f"Its laws are judged without {tried.without}." if tried.left_out else "Its laws are judged."


def _contract_message(name: str, problems: list[str], judged: str, replay: str) -> str:
    first, *rest = problems[0].splitlines()
    lines = [f"{name} does not keep the contract: {first}", *(f"  {line}" for line in rest)]
    lines += [f"  {line}" for problem in problems[1:] for line in problem.splitlines()]
    lines += ["", f"The contract: {document('use/implementation-reference.md')}. {judged}", ""]
    return "\n".join([*lines, "Replay", f"  {replay}", ""])
