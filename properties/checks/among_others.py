"""Results of a call among calls of other sizes and features, for which nothing may be kept."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.calling.meter import MOST_LOOKS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.comparisons import all_same, check_budget
from flash_attest.properties.failures import LawBroken, Reason, Undecided, WrongAlready
from flash_attest.properties.progress import NOW
from flash_attest.properties.trial import Trial

LIMIT = 180.0  # seconds for a call in a new process, which may compile
POLL = 0.05  # seconds
MOST_PROCESSES = 2  # in which a result is wrong, too; further ones are taken to be
MOST_NAMED = 6  # earlier calls
ITSELF = "the case itself"  # the part of the law in which the case comes after shorter ones
SUGGESTS = (
    "something is kept from an earlier call for which it was right: a compiled kernel, a plan or a choice under a key "
    "that lacks what differs, or a buffer of another size"
)


def check_among_others(trial: Trial, others: Sequence[Case]) -> None:
    """Check calls that differ from the case in one thing each, and the case among them, twice.

    It first comes after the calls that are shorter. A wrong result counts if the same call was
    right before, is right afterwards, or is right in a new process.
    """
    shorter = [case for case in others if case.products < trial.case.products]
    others = shorter if trial.part == ITSELF else [case for case in others if trial.tries(_part(trial, case))]
    shorter = [case for case in shorter if case in others]
    calls = list(dict.fromkeys((*shorter, trial.case, *others)))
    done: dict[Case, Outputs] = {}
    for case in calls:
        done[case] = _checked(trial, case, list(done))
    _check_again(trial, done[trial.case], calls)


def _checked(trial: Trial, case: Case, before: list[Case]) -> Outputs:
    """Return the results of a call, which are right."""
    meter, called = trial.meter, trial.of(case)
    trial.write_down(trial.case.changed_in(case) or "nothing changed")
    worst = dict(meter.worst_z)
    got, wrong = _outcome(called)
    if wrong is None:
        return got
    if not before and _outcome(called)[1] is None:
        meter.depends_on_others = True
        raise _kept(trial, wrong, "called after earlier cases; called once more, it is right", before)
    if not meter.depends_on_others:
        meter.worst_z = worst
        if not before:
            _says_nothing(trial)
        elif not (right := meter.looks < MOST_PROCESSES and is_right_alone(trial, case)):
            meter.looks += 1
            raise _not_judged(trial, case, right)
    meter.depends_on_others = True
    raise _kept(trial, wrong, _when(trial, case, before), before, _part(trial, case))


def _part(trial: Trial, case: Case) -> str:
    """Return the part of the law that a call is: the names of the fields that it changes."""
    return " ".join(name for name in vars(case) if getattr(case, name) != getattr(trial.case, name)) or ITSELF


def _outcome(called: Trial) -> tuple[Outputs | None, LawBroken | None]:
    """Return the results of a call, or how they are wrong."""
    try:
        got = called.run(backward=called.backward)
        check_budget(called, got)
        return got, None
    except LawBroken as broken:
        return None, broken


def _says_nothing(trial: Trial) -> None:
    """Raise that the law says nothing about a case whose first call is wrong.

    Once other calls are known to change results, those of earlier cases may have changed this one.
    """
    trial.meter.looks += 1
    if not trial.meter.cases and trial.meter.looks >= MOST_LOOKS:
        raise Undecided("the first call is wrong, too: other laws say how", Reason.WRONG_ALREADY)
    trial.needs(False)


def _not_judged(trial: Trial, case: Case, right: bool | None) -> WrongAlready:
    """Return why a wrong result does not count. right: in a new process; None if there is none."""
    why = "and such results are wrong in a new process, too: other laws say how"
    if right is None:
        why = "and no other process can find this implementation, to tell whether earlier calls matter"
    return WrongAlready(f"not judged: results are wrong {_named(trial, case)}, {why}")


def _check_again(trial: Trial, first: Outputs, calls: list[Case]) -> None:
    """Check that the case is still right. Its bits may change, as a kernel may be chosen again."""
    again = trial.run(backward=trial.backward)
    if all_same([(tensor, getattr(first, name)) for name, tensor in again.items()]):
        return
    try:
        check_budget(trial, again)
    except LawBroken as broken:
        trial.meter.depends_on_others = True
        raise _kept(trial, broken, "called again after others; the first time it was right", calls) from None


def _kept(trial: Trial, broken: LawBroken, when: str, before: list[Case], part: str = "") -> LawBroken:
    named = [_named(trial, case) for case in before]
    more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    listed = [f"called before: {', '.join(named[:MOST_NAMED])}{more}"] if named else []
    return LawBroken(
        f"{broken.headline}; {when}", *broken.observed, *listed, suggests=SUGGESTS, wrong=broken.wrong, part=part
    )


def _when(trial: Trial, case: Case, before: list[Case]) -> str:
    if not before:
        return "called after cases that differ in several things"
    what = "" if case == trial.case else f"{_named(trial, case)} "
    return f"called {what}after others; such a call is right in a new process"


def _named(trial: Trial, case: Case) -> str:
    """Return a call in words: by what differs from the case."""
    what = trial.case.changed_in(case)
    return f"with {what}" if what else "the case itself"


def is_right_alone(trial: Trial, case: Case) -> bool | None:
    """Return whether a case is within its budget in a process that has made no other call.

    None if no other process can find the implementation.
    """
    again = trial.origin.again() if trial.caller.same_process else None
    if trial.alone is None or again is None:
        return None
    command = trial.alone(trial.device, trial.impl.name, [str(case)], again, judged=True)
    end = time.monotonic() + LIMIT
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with subprocess.Popen(command, **quiet) as process:
        while process.poll() is None:
            NOW.lives()
            time.sleep(POLL)
            if time.monotonic() > end:
                process.kill()
    return process.returncode == 0
