"""Writes the message of a failure (docs/reading-a-failure.md).

It has a first line that is enough to file an issue, the case, the rule, what was observed, a guess marked as one, and the
replay command. Neighbouring sizes and repeats are tried once, after shrinking.
"""

from __future__ import annotations

import time

from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.properties.cases.case import Case, CaseError
from flash_attest.properties.cases.strategies import edges
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase, LawBroken, Raises, Undecided, is_out_of_memory
from flash_attest.properties.judging.beside import Beside
from flash_attest.properties.judging.origin import Origin
from flash_attest.properties.judging.plan import REPEATS, Plan
from flash_attest.properties.judging.search import ContextLost, check_context, trial_of
from flash_attest.properties.judging.traced import is_traceable, trace_failure
from flash_attest.properties.law import Law
from flash_attest.properties.machine.gpu_memory import when_memory_suffices
from flash_attest.properties.machine.gpus import has_gpu, visible_gpus
from flash_attest.properties.progress import NOW

UNSTEADY = "a race, an access out of bounds, uninitialised memory, or state kept from an earlier call"
SAME_AGAIN = f"{REPEATS} of {REPEATS} repeats fail in the same way"
NO_RACE = f"{SAME_AGAIN}: repeating shows no race"
SECONDS_OF_LENGTHS = 20.0  # in which neighbouring lengths are begun: some laws' calls take seconds


def explain(
    law: Law,
    impl: Implementation,
    case: Case,
    broken: LawBroken,
    plan: Plan,
    *,
    flaky: bool = False,
    again: bool = True,
    beside: Beside | None = None,
) -> str:
    """The whole message. `flaky`: the failure came and went while shrinking; `again=False`: nothing can be launched.

    `beside`: what became of the law without what is special about this case.
    """
    observed, unsteady = list(broken.observed), flaky or law.bug == "races"
    traceable = plan.goes_on and is_traceable(law, impl)
    traced = trace_failure(law, impl, case) if traceable and again and plan.traces else None
    if again and (flaky or not unsteady):  # a law about races has already repeated the call, more often
        try:
            observed += _by_further_calls(law, impl, case, broken, plan, unsteady, traceable)
        except ContextLost as lost:
            observed.append(f"a further call loses the GPU: {lost.broken.headline}, with {lost.case}")
    if traced is not None:
        observed += traced.lines
    elif traceable and not plan.traces and not NOW.isolated:  # else a process that sees no GPU traces it
        observed.append("not traced: this process sees a GPU; with --device cpu it is traced")
    if traced is not None and traced.phrase:
        broken.headline, unsteady = f"{broken.headline} ({traced.phrase})", True
    parts = [
        broken.headline,
        f"  {impl.name}   {case}",
        "",
        *section("Rule", [] if isinstance(broken, Raises) else law.rule.splitlines()),
        *section("Observed", observed),
        *_beside(law, impl, beside, plan),
    ]
    guesses = broken.suggests.splitlines() if broken.suggests else []
    if not isinstance(broken, Raises):
        guesses.append(where_in_bugs("races" if unsteady else law.bug))
    parts += section("Suggests (read off the pattern, not proven)", guesses)
    often = ["(it does not fail on every run: try it several times)"] if flaky else []
    parts += section("Replay", [replay_command(law, impl, case, plan.origin, plan.perturbations), *often])
    return "\n".join(parts).rstrip() + "\n"


def where_in_bugs(kind: str) -> str:
    """A line of a message."""
    return f"bugs of this kind, and who had them: docs/bugs.md#{kind}"


def replay_of(origin: Origin, test: str, case: str = "", perturbations: str = "") -> str:
    """The command that judges one law again on this device. test: its id, as Law.test_id has it."""
    device = "cpu" if has_gpu() and not visible_gpus() else ""  # the GPU is hidden (machine/gpus.py)
    return origin.replay(test, case, perturbations, device)


def replay_command(law: Law, impl: Implementation, case: Case, origin: Origin, perturbations: str = "") -> str:
    """The command that runs this law on this implementation and this case alone, under the same perturbations."""
    return replay_of(origin, law.test_id(impl.name), str(case), perturbations if law.bug == "races" else "")


def _beside(law: Law, impl: Implementation, beside: Beside | None, plan: Plan) -> list[str]:
    if beside is None or beside.broken is None:
        return section(f"Without {beside.without}", [f"right on {beside.cases} cases"]) if beside else []
    again = replay_command(law, impl, beside.case, plan.origin, plan.perturbations)
    lines = [beside.broken.headline, str(beside.case), again]
    return section(f"Also wrong without {beside.without}", lines)


def _by_further_calls(
    law: Law, impl: Implementation, case: Case, broken: LawBroken, plan: Plan, unsteady: bool, traceable: bool
) -> list[str]:
    """Whether it fails again, and where it does not. Raises ContextLost."""
    same, repeated = _repeats(law, impl, case, broken, plan)
    if unsteady:
        return [] if same else repeated
    found = []
    if same:
        found += _investigated(law, impl, case, broken, plan)
        found += _neighbours(law, impl, case, plan)
    return found + ([NO_RACE] if repeated == [SAME_AGAIN] and not traceable else repeated)


def _investigated(law: Law, impl: Implementation, case: Case, broken: LawBroken, plan: Plan) -> list[str]:
    """What the check finds out by further calls. Its phrase is added to the headline."""
    if broken.investigate is None:
        return []
    try:
        phrase, lines = broken.investigate()
    except LawBroken as another:
        check_context(trial_of(impl, case, plan), another, law.test_id(impl.name))
        return []
    except (Undecided, ContractError):
        return []
    except RuntimeError as error:
        if is_out_of_memory(error):
            return []
        raise
    if phrase:
        broken.headline += f": {phrase}"
    return lines


def section(title: str, lines: list[str]) -> list[str]:
    """A heading with its lines; nothing without lines."""
    return [title, *(f"  {line}".rstrip() for line in lines), ""] if lines else []


def _outcome(law: Law, impl: Implementation, case: Case, plan: Plan) -> Exception | None:
    """LawBroken; None where the law holds; AnotherCase or Undecided where it says nothing."""
    if str(case) in plan.lost:
        return AnotherCase()
    test = law.test_id(impl.name)

    def held() -> None:
        plan.write_down(f"{test} {case}")
        trial = trial_of(impl, case, plan)
        try:
            law.hold(trial)
        except LawBroken as broken:
            check_context(trial, broken, test)
            raise

    try:
        when_memory_suffices(plan.device, held)
    except (LawBroken, AnotherCase, Undecided) as outcome:
        return outcome
    return None


def _neighbours(law: Law, impl: Implementation, case: Case, plan: Plan) -> list[str]:
    """Which other lengths are right and wrong, all else equal."""
    together = case.seqlen_q == case.seqlen_k
    fields = ("seqlen_q", "seqlen_k")
    lines = []
    for name in ("seqlen_q = seqlen_k",) if together else fields:
        at = case.seqlen_q if together else getattr(case, name)
        right, wrong, cut, stop = [], [], "", time.perf_counter() + SECONDS_OF_LENGTHS
        for n in sorted(_nearby_lengths(at), key=lambda n: abs(n - at)):
            if time.perf_counter() > stop:
                cut = f", as many as were tried in {SECONDS_OF_LENGTHS:g} s"
                break
            try:
                other = case.but(**dict.fromkeys(fields if together else (name,), n))
            except CaseError:
                continue
            if unsupported(impl, other) or law.draws.excludes(other):
                continue
            outcome = _outcome(law, impl, other, plan)
            if outcome is None:
                right.append(n)
            elif isinstance(outcome, LawBroken):
                wrong.append(n)
        if right and wrong:
            lines.append(f"other lengths, {name} = n:   right at {_listed(right)}   wrong at {_listed(wrong)}{cut}")
        elif right or wrong:
            lines.append(
                f"other lengths, {name} = n:   {'right' if right else 'wrong'} at all of {_listed(right or wrong)}{cut}"
            )
    return lines


def _nearby_lengths(at: int) -> set[int]:
    """Lengths to try: a few short ones, and the edges of the powers of two from half of `at` to twice it."""
    return {1, 2, 16, 64, at - 1, at + 1, *edges(2 * at + 2, max(1, at // 2))} - {0, -1, at}


def _listed(numbers: list[int]) -> str:
    return " ".join(map(str, sorted(numbers)))


def _repeats(law: Law, impl: Implementation, case: Case, broken: LawBroken, plan: Plan) -> tuple[bool, list[str]]:
    """Whether the case fails again with the same findings each time, and lines that say so."""
    outcomes = [_outcome(law, impl, case, plan) for _ in range(REPEATS)]
    undecided = [o for o in outcomes if isinstance(o, Undecided)]
    if undecided and None not in outcomes:  # none is right, as far as is known
        return False, [f"{len(undecided)} of {REPEATS} repeats are undecided: {undecided[0]}"]
    failed = [o for o in outcomes if isinstance(o, LawBroken)]
    same = sum(o.findings == broken.findings for o in failed)
    if same == REPEATS:
        return True, [SAME_AGAIN]
    found = f"{len(failed)} of {REPEATS} repeats fail" + (f", {same} in the same way" if failed else "")
    always = broken.findings.intersection(*(o.findings for o in failed))
    if len(failed) == REPEATS and always:
        return True, [found, f"each time with: {min(always)}", f"what comes and goes beside it may be {UNSTEADY}"]
    return False, [found, f"the same call gives different results: {UNSTEADY}"]
