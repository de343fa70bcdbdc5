"""Writes the message of a failure (docs/use/reading-a-failure.md).

The message has a first line that is enough to file an issue, the case, the rule, the observations,
a guess marked as one, and the replay command. Neighbouring sizes and repeats are tried once, after
shrinking.
"""

from __future__ import annotations

import time

from flash_attest.impls.contract.record import ContractError
from flash_attest.places import document
from flash_attest.properties.cases.case import Case, CaseError
from flash_attest.properties.cases.strategies import edges
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided, is_out_of_memory
from flash_attest.properties.judging.beside import Beside
from flash_attest.properties.judging.computed import computed_instead
from flash_attest.properties.judging.context import ContextLost, blaming_calls
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import REPEATS
from flash_attest.properties.judging.search import Found
from flash_attest.properties.judging.traced import is_traceable, trace_failure
from flash_attest.properties.machine.gpu_memory import when_memory_suffices
from flash_attest.properties.progress import NOW

MATCHES = "Matches (within the error budget, on each failing case that was compared)"
UNSTEADY = "a race, an access out of bounds, uninitialised memory, or state kept from an earlier call"
SAME_AGAIN = f"{REPEATS} of {REPEATS} repeats fail in the same way"
NO_RACE = f"{SAME_AGAIN}: repeating shows no race"
SECONDS_OF_LENGTHS = 20.0  # after this time, no further length is tried, as the calls of some laws take seconds


def explain(judgement: Judgement, failure: Found, *, again: bool = True, beside: Beside | None = None) -> str:
    """Return the whole message. This may also extend the headline of the failure.

    again=False: no more calls can be made. beside: the result of the law without the clues of this
    failure.
    """
    law, impl, plan = judgement.law, judgement.impl, judgement.plan
    broken, case, flaky = failure.broken, failure.case, failure.flaky
    observed, unsteady = list(broken.observed), flaky or law.bug == "races"
    # Further calls, and a trace of the smallest case.
    traceable = plan.goes_on and is_traceable(judgement)
    traced = trace_failure(judgement, case) if traceable and again and plan.traces else None
    if again and (flaky or not unsteady):  # a law about races has already repeated the call, and more often
        try:
            observed += _by_further_calls(judgement, failure, unsteady, traceable)
        except ContextLost as lost:
            observed.append(f"a further call loses the GPU: {lost.broken.headline}, with {lost.case}")
    if traced is not None:
        observed += traced.lines
    elif traceable and not plan.traces and not NOW.isolated:  # otherwise a process without a GPU traces it
        observed.append("not traced: this process sees a GPU; with --device cpu it is traced")
    if traced is not None and traced.phrase:
        broken.headline, unsteady = f"{broken.headline} ({traced.phrase})", True
    # The sections of the message.
    parts = [
        broken.headline,
        f"  {impl.name}   {case}",
        "",
        *section("Rule", law.rule.splitlines() if broken.of_rule else []),
        *section("Observed", observed),
        *section(MATCHES, _matches(judgement, failure) if again and plan.goes_on and not unsteady else []),
        *_beside(judgement, beside),
    ]
    guesses = broken.suggests.splitlines() if broken.suggests else []
    if broken.of_rule:
        guesses.append(where_in_bugs("races" if unsteady else law.bug))
    parts += section("Suggests (read off the pattern, not proven)", guesses)
    often = ["(it does not fail on every run: try it several times)"] if flaky else []
    parts += section("Replay", [judgement.replay(case), *often])
    return "\n".join(parts).rstrip() + "\n"


def message_of(judgement: Judgement, broken: LawBroken, replay: str) -> str:
    """Return the message of a failure whose case is not known."""
    parts = [broken.headline, f"  {judgement.impl.name}", "", *section("Observed", broken.observed)]
    return "\n".join([*parts, *section("Replay", [replay])]).rstrip() + "\n"


def where_in_bugs(kind: str) -> str:
    """Return the line of a message that points to known bugs of this kind."""
    return f"bugs of this kind, and who had them: {document(f'why/bugs.md#{kind}')}"


def _matches(judgement: Judgement, failure: Found) -> list[str]:
    """Return what the kernel computed instead; [] after an exception or a lost GPU."""
    try:
        return computed_instead(judgement, [failure.case]) if failure.broken.of_rule else []
    except ContextLost:
        return []


def _beside(judgement: Judgement, beside: Beside | None) -> list[str]:
    if beside is None or beside.broken is None:
        return section(f"Without {beside.without}", [f"right on {beside.cases} cases"]) if beside else []
    lines = [beside.broken.headline, str(beside.case), judgement.replay(beside.case)]
    return section(f"Also wrong without {beside.without}", lines)


def _by_further_calls(judgement: Judgement, failure: Found, unsteady: bool, traceable: bool) -> list[str]:
    """Return lines about repeats of the case and about other lengths. Raises ContextLost."""
    same, repeated = _repeats(judgement, failure)
    if unsteady:
        return [] if same else repeated
    lines = []
    if same:
        lines += _investigated(judgement, failure)
        lines += _neighbours(judgement, failure.case)
    return lines + ([NO_RACE] if repeated == [SAME_AGAIN] and not traceable else repeated)


def _investigated(judgement: Judgement, failure: Found) -> list[str]:
    """Return the lines of the failure's `investigate`, and add its phrase to the headline."""
    broken = failure.broken
    if broken.investigate is None:
        return []
    try:
        with blaming_calls(judgement.trial(failure.case), judgement.test):
            phrase, lines = broken.investigate()
    except LawBroken as another:
        judgement.check_context(judgement.trial(failure.case), another)
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
    """Return a heading with its lines, or nothing if there are no lines."""
    return [title, *(f"  {line}".rstrip() for line in lines), ""] if lines else []


def _outcome(judgement: Judgement, case: Case) -> Exception | None:
    """Return None if the law holds, else LawBroken, AnotherCase or Undecided.

    Raises ContextLost.
    """
    plan = judgement.plan
    if str(case) in plan.lost:
        return AnotherCase()
    try:
        when_memory_suffices(plan.device, plan.known, lambda: judgement.hold_aside(case))
    except (LawBroken, AnotherCase, Undecided) as outcome:
        return outcome
    return None


def _neighbours(judgement: Judgement, case: Case) -> list[str]:
    """Return lines that say which other lengths are right and wrong, with everything else equal."""
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
            if not judgement.takes(other):
                continue
            outcome = _outcome(judgement, other)
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
    """Return a few short lengths, and lengths next to powers of two from at / 2 to 2 at."""
    return {1, 2, 16, 64, at - 1, at + 1, *edges(2 * at + 2, max(1, at // 2))} - {0, -1, at}


def _listed(numbers: list[int]) -> str:
    return " ".join(map(str, sorted(numbers)))


def _repeats(judgement: Judgement, failure: Found) -> tuple[bool, list[str]]:
    """Return (whether the case fails again with the same findings each time, lines that say so)."""
    broken = failure.broken
    outcomes = [_outcome(judgement, failure.case) for _ in range(REPEATS)]
    undecided = [o for o in outcomes if isinstance(o, Undecided)]
    if undecided and None not in outcomes:  # no repeat was right for certain
        return False, [f"{len(undecided)} of {REPEATS} repeats are undecided: {undecided[0]}"]
    failed = [o for o in outcomes if isinstance(o, LawBroken)]
    same = sum(o.findings == broken.findings for o in failed)
    if same == REPEATS:
        return True, [SAME_AGAIN]
    count = f"{len(failed)} of {REPEATS} repeats fail" + (f", {same} in the same way" if failed else "")
    always = broken.findings.intersection(*(o.findings for o in failed))
    if len(failed) == REPEATS and always:
        return True, [count, f"each time with: {min(always)}", f"what differs between repeats may be {UNSTEADY}"]
    return False, [count, f"the same call gives different results: {UNSTEADY}"]
