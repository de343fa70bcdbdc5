"""Tries the contract of each implementation once, and says what to change.

This checks only what no law can judge: whether calls succeed, and whether their results have the
declared form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.properties.cases.case import Case, CaseError, parse_case
from flash_attest.properties.cases.features import FEATURES, OF_KEYWORD
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.checks.meanings_of_lse import meaning_of_lse
from flash_attest.properties.checks.order_of_heads import other_order_of_heads
from flash_attest.properties.failures import LawBroken, Raises, Reason, Replaces, Undecided, undecided_without_memory
from flash_attest.properties.judging.clues import LeftOut
from flash_attest.properties.judging.context import (
    ContextLost,
    blaming_calls,
    check_context,
    check_functions,
    check_gpu,
)
from flash_attest.properties.judging.contract_cases import all_values, nearest, of_features, other_size, plain_case
from flash_attest.properties.judging.plan import CONTRACT_CHECK, Plan, contract_test
from flash_attest.properties.judging.verdict import law_name
from flash_attest.properties.law import Law, laws
from flash_attest.properties.machine.gpu_memory import when_memory_suffices
from flash_attest.properties.state.randomness import Randomness
from flash_attest.properties.state.thing import Change
from flash_attest.properties.state.watch import Watch
from flash_attest.properties.trial import Trial


@dataclass(frozen=True)
class Tried:
    """The result of trying the contract.

    problems: lines that say what to change; [] if the implementation keeps the contract.
    left_out: the sizes and feature values that show a problem, if others do not. Laws are judged
    without them.
    judged: False if laws cannot be judged, as every call shows a problem or none could be made.
    """

    problems: list[str]
    left_out: tuple[LeftOut, ...] = ()
    judged: bool = True
    in_part: bool = False  # whether every problem shows in left-out cases alone
    lost: str = ""  # the case in which this process lost its GPU context, so that it could try nothing
    undecided: Undecided | None = None  # why some feature was not tried: the emulator may lack it
    timed_out: bool = False  # all problems are calls that did not return in time, so nothing is known
    remarks: tuple[str, ...] = ()  # what is no problem, but worth knowing
    restores: bool = False  # whether each call of `accepts` is watched, too, because it changes global state

    @property
    def without(self) -> str:
        """The left-out cases, in words."""
        return " or ".join(map(str, self.left_out))

    @property
    def verdict(self) -> str:
        """How laws that depend on the contract begin to say what is wrong with it."""
        return "the contract check timed out" if self.timed_out else "the contract is broken"

    def narrowed(self, impl: Implementation) -> Implementation:
        """Return an implementation that does not support the left-out cases, and whose `accepts`
        changes no global state.
        """
        accepts = restoring(impl.supports.accepts) if self.restores else impl.supports.accepts

        def without(case: Case) -> str | None:
            if any(group.holds(case) for group in self.left_out):
                return f"{self.verdict} with {self.without} (see contract_is_kept)"
            return accepts(case) if accepts else None

        return replace(impl, supports=replace(impl.supports, accepts=without))


def restoring(accepts: Callable[[Case], str | None]) -> Callable[[Case], str | None]:
    """Return a function that restores the global state that `accepts` changes."""

    def restored(case: Case) -> str | None:
        with Watch()("supports.accepts"):
            return accepts(case)

    return restored


def problems(impl: Implementation, device: str) -> list[str]:
    """Return the problems that `tried` finds, but do not store the answer."""
    return tried(impl, Plan(device)).problems


def tried(impl: Implementation, plan: Plan) -> Tried:
    """Try the contract on the plan's device. The answer is stored for its process.

    Raises Undecided if this machine cannot tell.
    """
    known, key = plan.known, plan.contract_key(impl, plan.device)
    if known.contract(impl, key) is None:
        try:
            answer = _Trying(impl, plan).answer()
            if answer.undecided and answer.undecided.why is Reason.RESOURCES:  # there may be enough memory next time
                return answer
            known.keep_contract(impl, key, answer)
        except ContractError as error:
            known.keep_contract(impl, key, Tried(error.problems, judged=False))
        except ContextLost as end:
            known.keep_contract(impl, key, Tried(_problems_in(end.broken), judged=False, lost=str(end.case)))
        except Undecided as undecided:
            if undecided.why is not Reason.NO_CASE:
                raise
            known.keep_contract(impl, key, undecided)
    if isinstance(answer := known.contract(impl, key), Undecided):
        raise answer
    return answer


class _Trying:
    """One pass over the contract's cases, and its results so far."""

    def __init__(self, impl: Implementation, plan: Plan):
        self.impl, self.plan = impl, plan
        self.problems: dict[str, list[str]] = {}  # problem -> what showed it, in words; [] if the plain case did
        self.left_out: list[LeftOut] = []
        self.changes: dict[str, str] = {}  # global state -> how a call changed it, in words
        self.remarks: dict[str, None] = {}
        self.undecided: list[Undecided] = []

    def answer(self) -> Tried:
        """Try the plain case, then one case for each value of a feature."""
        watch = Watch()
        with watch("supports.accepts"):
            plain = plain_case(self.impl, self.plan.device)
            fitting = nearest(self.impl, plain)
        self.changed(watch.changes)
        if restores := bool(watch.changes):
            accepts = restoring(self.impl.supports.accepts)
            self.impl = replace(self.impl, supports=replace(self.impl.supports, accepts=accepts))
        # If the plain case is wrong, cases of another size may be right. The features are then
        # tried with that size.
        at_first = self.wrong(fitting) if fitting else []
        size = other_size(self.impl, fitting, self.wrong) if at_first else None
        if size is not None:
            clue, plain = size
            self.left_out.append(LeftOut((clue,)))
            self.shown(at_first, clue.words)
        else:
            self.problems |= {problem: [] for problem in at_first}
        self.try_features(plain)
        if stale := sorted(set(self.impl.known_failures) - {CONTRACT_CHECK, *laws()}):
            self.problems[f"known_failures names {', '.join(map(law_name, stale))}: there is no such law"] = []
        self.problems |= {problem: [] for problem in wrong_cases(self.impl, self.plan.device)}
        try:
            check_functions(self.plan.known)
        except Replaces as replaces:  # they are restored, so laws can still be judged
            self.changes.setdefault(replaces.headline, replaces.headline)
        lines = [f"{each}   [with {', '.join(words)}]" if words else each for each, words in self.problems.items()]
        lines += self.changes.values()
        judged = size is not None or not at_first
        unclear = tuple(lost.words for lost in self.plan.lost.values() if not lost.breaks)
        timed_out = bool(lines) and all(line.startswith(unclear) for line in lines)
        undecided, remarks = next(iter(self.undecided), None), tuple(self.remarks)
        in_part = judged and bool(lines) and all(self.problems.values()) and not self.changes
        return Tried(lines, tuple(self.left_out), judged, in_part, "", undecided, timed_out, remarks, restores)

    def try_features(self, plain: Case) -> None:
        """Try each value of each feature that the plan tries in the plain case; leave out those
        with new problems.
        """
        for feature, value, case in of_features(self.impl, plain):
            if not self.plan.tries(feature, value, plain) or any(group.holds(case) for group in self.left_out):
                continue
            try:
                if problems := self.wrong(case):
                    self.shown(problems, feature.words(value))
                    if not set(problems) <= {problem for problem, words in self.problems.items() if not words}:
                        clue = all_values(self.impl, feature, value, case, plain, self.wrong)
                        self.left_out.append(LeftOut((clue,)))
            except Undecided as reason:  # laws that draw this value raise it, too; other laws can be judged
                self.undecided.append(reason)

    def wrong(self, case: Case) -> list[str]:
        """Return the problems of one case."""
        if str(case) in self.plan.lost:
            return [self.plan.lost[str(case)].words]
        test = contract_test(self.impl.name)
        self.plan.write_down(f"{test} {case}")
        problems, changes, drawn = when_memory_suffices(
            self.plan.device, self.plan.known, lambda: _problems_of(self.impl, case, self.plan, test)
        )
        self.changed(changes)
        self.changes |= {problem: problem for problem in drawn.problems}
        self.remarks |= dict.fromkeys(drawn.remarks)
        return problems

    def changed(self, changes: list[Change]) -> None:
        """Record changes of global state. Laws can still be judged, as the state was restored."""
        self.plan.known.name(self.impl.name, changes)
        for change in changes:
            if not change.draws:
                self.changes.setdefault(change.name, change.text)

    def shown(self, problems: list[str], words: str) -> None:
        """Record what showed these problems, unless the plain case shows them."""
        for problem in problems:
            if self.problems.get(problem) != []:
                self.problems.setdefault(problem, []).append(words)


@undecided_without_memory("while the contract was tried")
def _problems_of(impl: Implementation, case: Case, plan: Plan, test: str) -> tuple[list[str], list[Change], Randomness]:
    """Return (problems, changes of global state, what the call does with random numbers).

    Raises ContextLost.
    """
    trial = replace(plan.trial(impl, case), judges_state=False)
    problems, drawn = [], Randomness()
    try:
        with blaming_calls(trial, test):
            problems, drawn = _tried_on(trial, test)
            check_gpu(trial.known, trial.device)
    except Replaces as replaces:  # the functions are restored, so laws can still be judged
        return problems, [*trial.caller.watch.changes, Change(replaces.headline, replaces.headline)], drawn
    return problems, trial.caller.watch.changes, drawn


def _tried_on(trial: Trial, test: str) -> tuple[list[str], Randomness]:
    """Return the problems that a call shows, and what it does with random numbers.

    Raises ContextLost.
    """
    handed, placed = trial.caller.place(trial.x, fill=0.0)
    try:
        with trial.caller.may_begin_again():
            got = trial.caller.call(handed, backward=trial.backward)
    except LawBroken as broken:
        check_context(trial, broken, test)
        return _problems_in(broken), Randomness()
    # Where new keys belong is the matter of a law, which says where they went.
    appended_to = ("k", "v") if trial.case.append else ()
    modified = [name for name, p in placed.items() if p.written() and name not in appended_to]
    problems = [f"{name} is modified: inputs should come back as they were" for name in modified]
    if got.lse is not None and not modified:
        meaning = meaning_of_lse(trial, got.lse)
        problems += [meaning.full] if meaning and meaning.another else []
    if not modified and (order := other_order_of_heads(trial, got)):
        problems.append(order)
    drawn = Randomness()
    if any(change.draws for change in trial.known.unnamed(trial.impl.name, trial.caller.watch.changes)):
        drawn = trial.caller.randomness(handed, got, backward=trial.backward)
    return problems, drawn


def _problems_in(broken: LawBroken) -> list[str]:
    where = broken.observed[:-1] if isinstance(broken, Raises) else broken.observed  # the last line is only advice
    return [_with_advice(broken.headline), *where]


def _with_advice(headline: str) -> str:
    keyword = re.search(r"unexpected keyword argument '(\w+)'", headline)  # Python's words
    if keyword:
        known = FEATURES.get(OF_KEYWORD.get(keyword[1], keyword[1]))
        return f"{headline}: take the keyword, or declare {known.advice if known else 'less in supports'}"
    absent = re.search(r"missing \d+ required .*argument", headline)
    if absent:
        return f"{headline}: only declared keywords are passed; give the others a default"
    return headline


def wrong_cases(impl: Implementation, device: str) -> list[str]:
    """Return what is wrong with the cases of known failures: they are none, or are not judged in a
    run on a device.
    """
    found = []
    for name, on_devices in impl.known_failures.items():
        law = laws().get(name)
        for on, known in on_devices.items():
            here = law is not None and on == law.judged_on(device) and on in impl.devices
            if problem := _wrong_case(known.case, impl.on(on), law if here else None):
                found.append(f"known_failures[{law_name(name)!r}]: {problem}")
    return list(dict.fromkeys(found))


def _wrong_case(text: str, impl: Implementation, law: Law | None) -> str:
    """Return what is wrong with a known failure's case; "" if nothing. law: the one that is judged
    here; None if it is not.
    """
    try:
        case = parse_case(text)
    except CaseError as error:
        return f"its case: {str(error).removeprefix('--case: ')}"
    if not text or law is None:
        return ""
    reason = unsupported(impl, case, asks_accepts=False) or law.draws.excludes(case)
    return f"its case {text} is not judged: {reason}" if reason else ""
