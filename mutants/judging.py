"""Judges a mutant by one law, or by the contract check."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import wraps

from flash_attest.emulator.errors import CompileError
from flash_attest.impls import Implementation
from flash_attest.mutants import ALL, by_name
from flash_attest.mutants.mutant import CONTRACT, Mutant, build
from flash_attest.properties.calling.raised import device_works
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import LawBroken, Undecided
from flash_attest.properties.judging import conformance, contract_cases
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN, Result
from flash_attest.properties.law import Law, laws
from flash_attest.properties.trial import Trial
from flash_attest.runner import alone

# Hypothesis stops at the first failure, so a large number of examples costs little for a mutant and
# ensures that it is caught.
EXAMPLES = 300
NOT_BUILT = "could not be built for CUDA tensors"  # part of a message of impls/cuda/extension.py
REPEATS = 12  # a fault in 1 call of 20 must show in 30 cases of 12 repeats


def plan(seed: int = 0, examples: int = EXAMPLES) -> Plan:
    """Return the plan for mutants: on the CPU unless the mutant names another device, with the same
    cases every time.
    """
    return Plan(device="cpu", examples=examples, seed=seed, repeats=REPEATS, goes_on=False)


def judge_mutant(mutant: Mutant, how: Plan) -> Result:
    """Return the verdict of the mutant's law, which should be "fail"."""
    if mutant.law == CONTRACT:
        return contract_result(mutant)
    return judge(laws()[mutant.law], build(mutant), of_mutant(mutant, how))


def of_mutant(mutant: Mutant, how: Plan) -> Plan:
    """Return the plan for the device on which the mutant shows, with the way another process finds
    the mutant.

    Its `share` makes the cases smaller, but not fewer. A law about traced races runs only the
    traced build, while the contract check would also compile the plain one. A law about first calls
    comes before any other call.
    """
    examples = round(how.examples / build(mutant).share_on(mutant.device))
    law = laws().get(mutant.law)
    own_process = law is not None and (law.new_process or "traced" in law.needs)
    return replace(
        how,
        device=mutant.device,
        examples=examples,
        try_contract=how.try_contract and not own_process,
        origin=by_name.origin(mutant),
        alone=alone.command,
    )


def first_failure(law: Law, mutant: Mutant, how: Plan) -> tuple[LawBroken, Case] | Result:
    """Return the first failure and its case as drawn, without shrinking or explanation; the Result
    if nothing fails.
    """
    try:
        at_once = replace(law, function=_ending_at_once(law.function))
        return judge(at_once, build(mutant), of_mutant(mutant, how))
    except _Caught as caught:
        return caught.broken, caught.case


def one_of_all(work: tuple[int, int, int]) -> tuple[Result, float]:
    """Judge a mutant by its law: (number in ALL, seed, examples) -> (Result, seconds).

    It is a function of the module and takes numbers, because it is pickled to run in other
    processes.
    """
    number, seed, examples = work
    started = time.perf_counter()
    return judge_mutant(ALL[number], plan(seed, examples)), time.perf_counter() - started


class _Caught(BaseException):
    """A law failed. This class is not an Exception, so Hypothesis does not shrink the case."""

    def __init__(self, broken: LawBroken, case: Case):
        super().__init__(broken.headline)
        self.broken, self.case = broken, case


def _ending_at_once(function):
    @wraps(function)
    def ending(trial):
        try:
            function(trial)
        except LawBroken as broken:
            raise _Caught(broken, trial.case) from None

    return ending


def contract_result(mutant: Mutant, known: Known | None = None) -> Result:
    """Return the verdict of the contract check, or unknown if the edit does not compile and so was
    not judged.
    """
    impl = build(mutant)
    try:
        problems = conformance.tried(impl, Plan(mutant.device, known=known or Known())).problems
    except Undecided as undecided:  # the edit uses something that the emulator does not cover
        return Result(impl.name, "test_contract", CONTRACT, UNKNOWN, str(undecided))
    verdict, reason = (FAIL, problems[0]) if problems else (PASS, "")
    # A mutant that does not compile was not judged, so it is not caught.
    if problems and device_works(mutant.device) and _does_not_compile(impl, mutant.device):
        verdict = UNKNOWN
    return Result(impl.name, "test_contract", CONTRACT, verdict, reason, message="\n".join(problems))


def _does_not_compile(impl: Implementation, device: str) -> bool:
    """Return whether the edited CUDA file does not compile.

    This is known only after a call, because the contract check returns problems as messages.
    """
    plain = contract_cases.sample(impl)[0]
    try:
        Trial(impl, plain, device).run()
    except LawBroken as broken:
        return broken.__cause__ is not None and is_not_compiled(broken.__cause__)
    return False


def is_not_compiled(error: BaseException) -> bool:
    """Return whether an edited CUDA file could not be compiled, for the CPU or for a GPU. Then the
    mutant was not judged.
    """
    return isinstance(error, CompileError) or (isinstance(error, RuntimeError) and NOT_BUILT in str(error))
