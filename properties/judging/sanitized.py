"""Runs cases under compute-sanitizer, in one process for each tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from flash_attest.emulator.observation import Kind
from flash_attest.properties.calling.meter import MOST_LOOKS
from flash_attest.properties.failures import OUT_OF_MEMORY, OutOfMemory, Reason, Undecided, findings_of
from flash_attest.properties.judging.asynchronous import ENDED, ORDER, TWICE, Asynchronous, asynchronous_in
from flash_attest.properties.progress import NOW
from flash_attest.properties.trial import Trial
from flash_attest.races import sanitizer
from flash_attest.races.finding import Finding, merge
from flash_attest.races.sanitizer import Tool

LIMIT = 180.0  # seconds for all tools, which run in parallel; each process compiles a plug-in's Numba kernels
NOT_ALONE = "compute-sanitizer needs a separate process, and no other process can find this implementation"
TRACES = "properties/test_races.py::test_no_race_is_traced[{}]"
MISSING_WAIT = "Missing wait"  # synccheck's words for a thread that arrives at an mbarrier once more, without a wait
DIVERGENT = "Divergent"  # synccheck's word where threads wait and others of the block have ended
TOGETHER = 4  # cases that one process runs one after another


def sanitizer_program() -> str:
    """Return the path of compute-sanitizer. Raises Undecided if it is not installed."""
    program = sanitizer.find()
    if program is None:
        raise Undecided(sanitizer.NOT_FOUND, Reason.NO_SANITIZER)
    return program


def kernels_of(trial: Trial) -> list[str]:
    """Return the names of the kernels that the case launches outside of PyTorch's operators."""
    trial.run(backward=trial.backward)  # compiles; an error here is a failure of the implementation
    try:
        return sanitizer.own_kernels(lambda: trial.run(backward=trial.backward))
    except LookupError as error:
        raise Undecided(str(error)) from error


def watched_together(trials: Iterable[Trial]) -> None:
    """Run several cases in the same watched processes, as a process takes seconds to start.

    Cases without a finding are recorded in meter.clean. Raises LawBroken for any finding. As it is
    not known which case shows the finding, each case is watched alone later. If the only findings
    are races that racecheck cannot judge, meter.beyond has the reason, and no case is watched
    again.
    """
    program, trials, beyond = sanitizer_program(), iter(trials), None
    while some := [(trial, kernels_of(trial)) for trial in islice(trials, TOGETHER)]:
        watched = [trial for trial, kernels in some if kernels]
        try:
            found = watched and sanitized(watched, program, {name for _, kernels in some for name in kernels})
        except Undecided as undecided:
            if undecided.why is not Reason.ASYNCHRONOUS:
                raise
            beyond, found = undecided, []
        if found:
            broken = findings_of(found)
            cases = [f"  {trial.case}" for trial in watched]
            broken.observed += ["with these cases called one after another in one process", *cases]
            raise broken
        meter = some[0][0].meter
        clean = meter.clean
        clean |= {trial.case: kernels for trial, kernels in some}
        if len(clean) >= MOST_LOOKS and not any(clean.values()):
            return
    if beyond:
        meter.beyond = beyond


def sanitized(
    trials: Sequence[Trial], program: str, kernels: Iterable[str], tools: Iterable[Tool] = tuple(Tool)
) -> list[Finding]:
    """Return the tools' findings about these kernels in these cases of one implementation.

    Raises Undecided if a tool gives no answer and no tool has found anything; OutOfMemory if the
    reason is that the process found no memory beside others, so that it is tried again.
    """
    kernels = sorted(kernels)
    first, cases = trials[0], [str(trial.case) for trial in trials]
    if first.known.no_sanitizer:
        raise Undecided(first.known.no_sanitizer, Reason.NO_SANITIZER)
    # Start one process for each tool, and collect what they find.
    again = first.origin.again()
    if first.alone is None or again is None:
        raise Undecided(NOT_ALONE, Reason.NO_SANITIZER)
    target = first.alone(first.device, first.impl.name, cases, again)
    watched = sanitizer.watch(program, target, kernels, tools, LIMIT, NOW.lives)
    findings: list[Finding] = []
    for each in watched:
        merge(findings, _counted(first, each.report.findings))
    # Only in ordinary kernels do races, missing waits and divergence count.
    doubtful, beyond = [finding for finding in findings if why_not_judged(finding)], Asynchronous()
    if doubtful:
        beyond = asynchronous_in(kernels, first.device)
        doubtful = [finding for finding in doubtful if why_not_judged(finding, beyond)]
    if doubtful and beyond.kernels:
        findings = [finding for finding in findings if finding not in doubtful]
        ordinary, beyond = beyond.ordinary(kernels), beyond.hidden(kernels)
        if ordinary:
            races = {finding.kind is Kind.RACE for finding in doubtful}
            again = [Tool.RACECHECK if race else Tool.SYNCCHECK for race in sorted(races)]
            watched += sanitizer.watch(program, target, ordinary, again, LIMIT, NOW.lives)
            for each in watched[-len(again) :]:
                merge(findings, _counted(first, each.report.findings))
    # If nothing is found, a tool without an answer leaves the law undecided.
    undecided = [each.undecided for each in watched if each.undecided]
    if doubtful and beyond.kernels and not findings:
        traced = f"; trace it without a GPU: {_traces(first)}" if first.impl.traced else ""
        why = why_not_judged(doubtful[0])
        text = f"{doubtful[0].headline}: not judged, as {why}, and {beyond}; nothing else is reported{traced}"
        raise Undecided("; ".join([text, *undecided]), Reason.RESOURCES if undecided else beyond.why)
    if undecided and not findings:
        if full := next(filter(None, map(_out_of_memory, watched)), ""):
            raise OutOfMemory(f"out of memory under compute-sanitizer: {full}")
        why = Reason.TIMED_OUT if any(each.status is None for each in watched) else Reason.RESOURCES
        if all(each.refuses_device for each in watched):
            why = Reason.NO_SANITIZER
            first.known.no_sanitizer = "; ".join(undecided)
        raise Undecided("; ".join(undecided), why)
    return findings


def _counted(trial: Trial, findings: list[Finding]) -> list[Finding]:
    """Return the findings without those about copies of a value, which the verdict names."""
    findings, copied = sanitizer.without_copies(findings)
    trial.meter.copied.update(str(finding.first.site) for finding in copied)
    return findings


def _out_of_memory(watched: sanitizer.Watched) -> str:
    """Return the line in which a process that failed says that memory ran out; "" if it did not."""
    lines = watched.printed.splitlines() if watched.status else []
    return next((line.strip() for line in lines if OUT_OF_MEMORY.search(line)), "")


def _traces(trial: Trial) -> str:
    """Return the command that traces the kernels of an implementation on a CPU, compiled for sm_90
    (docs/use/tracing-hopper.md).
    """
    return trial.origin.replay(TRACES.format(trial.impl.name), device="cpu", emulated="90")


def why_not_judged(finding: Finding, beyond: Asynchronous | None = None) -> str:
    """Return why a finding means nothing in a kernel of the asynchronous proxy; "" if it counts.

    beyond: these kernels; None: it is not known yet what they use.
    """
    if finding.kind is Kind.RACE:
        return ORDER
    if finding.kind is Kind.BARRIER and finding.detail.startswith(MISSING_WAIT):
        return TWICE
    divergent = finding.kind is Kind.BARRIER and finding.detail.startswith(DIVERGENT)
    return ENDED if divergent and (beyond is None or beyond.arrive) else ""
