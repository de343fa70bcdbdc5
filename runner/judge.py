"""Judges laws and contracts in this process, by one plan. It needs no pytest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from flash_attest.impls.contract.entry import Entry, Unloadable
from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.places import document
from flash_attest.properties.calling.raised import device_works
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.support import not_here
from flash_attest.properties.failures import Reason, Undecided
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.judgement import Judgement, replay_of
from flash_attest.properties.judging.origin import OURS, Origin, OwnRun
from flash_attest.properties.judging.plan import CONTRACT_CHECK, Plan, contract_test
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result, law_name
from flash_attest.properties.law import Law, laws
from flash_attest.properties.machine.gpus import visible_gpus
from flash_attest.properties.progress import NOW
from flash_attest.properties.state.neutral import neutral
from flash_attest.runner import alone
from flash_attest.runner.explanations import Explanations
from flash_attest.runner.limits import NO_LIMITS, TimeLimits
from flash_attest.runner.plugin.last_case import LastCase
from flash_attest.runner.plugin.sources import in_checkout, shown
from flash_attest.runner.untrusted.caller import caller_of
from flash_attest.runner.untrusted.records import record_of
from flash_attest.runner.untrusted.remote import remote_of
from flash_attest.texts import frames_of, trace_of, type_name, words_of

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
    that call it. limits: of a law and of the run.
    """

    def __init__(
        self,
        plan: Plan,
        entries: list[Entry],
        report_dir: Path,
        worker: str,
        origin_of: Callable[[Entry], Origin] = lambda entry: OwnRun(entry.option),
        limits: TimeLimits = NO_LIMITS,
    ):
        self.plan, self.limits = plan, limits
        self.device_name = ""  # the GPU's name
        self.explanations = Explanations()  # in a process of its own, requests bring them
        self.origins = {entry.name: origin_of(entry) for entry in entries}
        self.entries = {entry.name: entry for entry in entries}
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

    @contextmanager
    def at_home(self, impl: Implementation) -> Iterator[None]:
        """Judge in this block with the settings that this implementation's file chose when it was
        imported, and with none of the program around.
        """
        entry = self.entries.get(impl.name)
        with neutral(), entry.at_home() if entry else nullcontext():
            yield

    def of_import(self, impl: Implementation | Absent | Unloadable) -> tuple[Sequence[str], Sequence[str]]:
        """Return what importing the implementation's file changed: what breaks the contract, and
        what is only worth a remark.
        """
        entry = self.entries.get(impl.name)
        return (entry.broken, entry.remarks) if entry else ((), ())

    def is_over(self, result: Result, device: str) -> bool:
        """Return whether this process, after this result, has lost its GPU context."""
        return bool(self.plan.known.lost_in) or (result.verdict in (FAIL, UNKNOWN) and not device_works(device))

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
        if over := self.limits.over:
            return Result(impl.name, law.chapter, law.name, UNKNOWN, over, Reason.TIME_LIMIT)
        plan = judgement.plan
        if plan.until is None:  # otherwise the process that asks has set it
            deadline = self.limits.of_law()
            plan = replace(plan, until=(deadline.at, deadline.words))
        if not NOW.isolated:
            plan = replace(plan, explained=self.explanations.of(impl.name))
        try:
            with self.at_home(impl):
                result = judge(law, impl, plan)
        except Exception as error:
            result = suite_raised(error, Result(impl.name, law.chapter, law.name, UNKNOWN))
        if remote := remote_of(impl):
            result.observed = remote.take_observed()
        if not NOW.isolated:
            self.explains(judgement, result)
        return result

    def explains(self, judgement: Judgement, result: Result) -> None:
        """Keep a failure, so that other laws do not explain its cause again. A failure that is
        expected must not explain one that is not.
        """
        if not judgement.known_failure.why:
            self.explanations.add(result)

    def contract(self, impl: Implementation | Absent | Unloadable) -> Result:
        """Return the verdict of the contract check, in the same form as a law's verdict."""
        if over := self.limits.over:
            return contract_result(impl.name, UNKNOWN, over, Reason.TIME_LIMIT)
        result = contract_result(impl.name, PASS)
        started, problems, judged, timed_out, in_part = time.perf_counter(), [], NOT_JUDGED, False, False
        broken, remarks = self.of_import(impl)
        if isinstance(impl, Unloadable):
            problems, judged, result.verdict, result.why = [impl.problem], NOT_LOADED, FAIL, Reason.NOT_LOADED
        elif isinstance(impl, Absent):
            problems, result.verdict, result.reason, result.why = [], REFUSED, impl.reason, Reason.NOT_INSTALLED
        elif reason := not_here(impl, self.plan.device):
            problems, result.verdict, result.reason, result.why = [], UNKNOWN, reason, Reason.OTHER_DEVICE
        else:
            try:
                self.plan.known.begins(contract_test(impl.name))
                with self.at_home(impl):
                    tried = conformance.tried(impl, replace(self.plan, only_case=False))
                problems, judged, timed_out = tried.problems, _judged(tried), tried.timed_out
                in_part = tried.in_part
                remarks = [*remarks, *tried.remarks]
                if tried.undecided is not None:
                    raise tried.undecided
            except Undecided as undecided:
                result.verdict, result.reason, result.why = UNKNOWN, str(undecided), undecided.why
            except Exception as error:
                return suite_raised(error, result)
            problems, result.reason = [*problems, *broken], result.reason or "; ".join(remarks)
        if problems:
            result.verdict, result.reason = FAIL, problems[0].splitlines()[0]
            timed_out = timed_out and not broken
            if timed_out:
                result.verdict, result.why = UNKNOWN, Reason.TIMED_OUT
            hangs = timed_out or (isinstance(impl, Unloadable) and DOES_NOT_END in problems[0])
            limit = self.plan.case_timeout if hangs else 0.0
            result.replay = replay_of(self.origins.get(impl.name, OURS), contract_test(impl.name), limit=limit)
            headline = f"{impl.name} {BROKEN.get(result.why, DOES_NOT_KEEP)}"
            result.message = _contract_message(headline, problems, judged, result.replay)
            if in_part and not broken:
                result.known = impl.known_failure(CONTRACT_CHECK, self.plan.device).why
        if remote := remote_of(impl):
            result.observed = remote.take_observed() | {"declared": record_of(impl)}
        result.seconds = time.perf_counter() - started
        return result


def contract_result(impl: str, verdict: str, reason: str = "", why: Reason | None = None) -> Result:
    """Return a result of the contract check."""
    return Result(impl, "test_contract", "test_contract_is_kept", verdict, reason, why)


def suite_raised(error: Exception, result: Result) -> Result:
    """Turn a result into "unknown" because the suite itself raised an exception, and name where."""
    frames = frames_of(error)
    frame = ([frame for frame in frames if in_checkout(frame.filename)] or frames)[-1]
    text, where = words_of(error).strip(), f"{shown(frame.filename)}:{frame.lineno}"
    result.verdict, result.why = UNKNOWN, Reason.SUITE
    result.reason = f"the suite raised {type_name(error)}: {text.splitlines()[0] if text else ''} ({where})"
    result.message = f"{result.reason}\n\n{trace_of(error)}"
    return result


def compare_with_known(result: Result, impl: Implementation | Absent | Unloadable, device: str) -> None:
    """Compare a result of a run on a device with known_failures.

    A failure listed there is expected, and so is a law whose results are wrong already by the
    definition, unless it is found apart from the case that is listed. A pass listed there fails,
    because the list is out of date, unless the failure need not show on every run. A broken
    contract is expected only if laws are judged on the rest, as it would hide all of them
    otherwise.
    """
    if not isinstance(impl, Implementation):
        return
    law = laws().get(result.law)  # None for the contract
    known, _, every_run = impl.known_failure(result.law, law.judged_on(device) if law else device)
    if result.why is Reason.NOT_AS_KNOWN:
        return
    if known and result.law != CONTRACT_CHECK and (result.verdict == FAIL or result.why is Reason.WRONG_ALREADY):
        result.verdict, result.known, result.why = FAIL, known, None
    if result.verdict == PASS and known and every_run:
        result.verdict, result.reason = FAIL, f"passes, but known_failures lists it ({known}): take it off the list"
        replay = f"\n\nReplay\n  {result.replay}" if result.replay else ""
        result.message = f"{law_name(result.law)}: {result.reason}{replay}\n"


DOES_NOT_END = "importing it does not end"  # in runner/isolation/importing.py
NOT_JUDGED = "Its laws are not judged until it keeps the contract."
NO_RETURN = "Its laws are not judged until this call returns, or has more time (--case-timeout)."
NOT_LOADED = "Nothing in the file is judged until it can be loaded."
DOES_NOT_KEEP = "does not keep the contract"
BROKEN = {
    Reason.NOT_LOADED: "cannot be loaded",
    Reason.TIMED_OUT: "did not return in time when its contract was tried",
}


def _judged(tried: conformance.Tried) -> str:
    """Return what a message says about the laws of an implementation that breaks the contract."""
    if not tried.judged:
        return NO_RETURN if tried.timed_out else NOT_JUDGED
    return f"Its laws are judged without {tried.without}." if tried.left_out else "Its laws are judged."


def _contract_message(broken: str, problems: list[str], judged: str, replay: str) -> str:
    """Return the message of a contract that is not kept. broken: how its headline begins."""
    first, *rest = problems[0].splitlines()
    lines = [f"{broken}: {first}", *(f"  {line}" for line in rest)]
    lines += [f"  {line}" for problem in problems[1:] for line in problem.splitlines()]
    lines += ["", f"The contract: {document('use/implementation-reference.md')}. {judged}", ""]
    return "\n".join([*lines, "Replay", f"  {replay}", ""])
