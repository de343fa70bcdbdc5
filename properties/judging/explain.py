"""Writes the message of a failure (docs/use/reading-a-failure.md).

The message has a first line that is enough to file an issue, the case, the rule, the observations,
a guess marked as one, and the replay command. Neighbouring sizes and repeats are tried once, after
shrinking.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from flash_attest.impls.contract.record import Implementation
from flash_attest.places import document
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.reading import Counts, Values
from flash_attest.properties.failures import LawBroken, Undecided
from flash_attest.properties.forms import PLANS
from flash_attest.properties.judging.at_hand import AtHand, at_hand, guesses, investigate, same_kind
from flash_attest.properties.judging.beside import Beside
from flash_attest.properties.judging.clues import LeftOut
from flash_attest.properties.judging.computed import computed_instead
from flash_attest.properties.judging.context import ContextLost
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.neighbours import neighbours, other_headdims, other_windows, outcome_of
from flash_attest.properties.judging.plan import REPEATS
from flash_attest.properties.judging.search import Found
from flash_attest.properties.judging.traced import is_traceable, trace_failure
from flash_attest.properties.progress import NOW

MATCHES = "Matches (within the error budget, on each failing case that was compared)"
UNSTEADY = "a race, an access out of bounds, uninitialised memory, or state kept from an earlier call"
# These lines follow those that say where it is wrong.
VALUES = ("off by", "largest difference", "lse[", "right:", "wrong, too:")
SAME_AGAIN = f"{REPEATS} of {REPEATS} repeats fail in the same way"
NO_RACE = f"{SAME_AGAIN}: repeating shows no race"


def explain(
    judgement: Judgement,
    failure: Found,
    *,
    again: bool = True,
    clues: LeftOut | None = None,
    beside: Beside | None = None,
) -> str:
    """Return the whole message. This may also extend the headline of the failure.

    again=False: no more calls can be made. clues: what the smallest case needs to fail. beside: the
    result of the law without these clues.
    """
    judgement = judgement.of_failure(failure.broken)
    law, impl, plan = judgement.law, judgement.impl, judgement.plan
    broken, case, flaky = failure.broken, failure.case, failure.flaky
    observed, unsteady = list(broken.observed), flaky or law.bug == "races"
    # Further calls, and a trace of the smallest case.
    traceable, cases = plan.goes_on and is_traceable(judgement), _seen(failure)
    traced = trace_failure(judgement, case) if traceable and again and plan.traces else None
    if again and (flaky or not unsteady):  # a law about races has already repeated the call, and more often
        try:
            like = clues.hold_but_lengths if clues is not None else lambda right: False
            lines, cases = _by_further_calls(judgement, failure, unsteady, traceable, like)
            observed += lines
        except ContextLost as lost:
            observed.append(f"a further call loses the GPU: {lost.broken.headline}, with {lost.case}")
    if traced is not None:
        observed += traced.lines
    elif traceable and not plan.traces and not NOW.isolated:  # otherwise a process without a GPU traces it
        observed.append("not traced: this process sees a GPU; with --device cpu it is traced")
    if traced is not None and traced.phrase:
        broken.headline, unsteady = f"{broken.headline} ({traced.phrase})", True
    if clues is not None and clues.not_alone is not None:
        observed.append(f"{clues} alone is not enough: right with {clues.not_alone}")
    matches = broken.matches = _matches(judgement, cases) if again and plan.goes_on and not unsteady else []
    # The sections of the message.
    parts = [
        broken.headline,
        *named(impl, case),
        "",
        *section("Rule", law.rule.splitlines() if broken.of_rule else []),
        *section("Observed", observed),
        *section(MATCHES, matches),
        *_beside(judgement, beside),
    ]
    suggested = broken.suggests.splitlines() if broken.suggests else []
    if not flaky and not (matches and isinstance(broken.reading, Values)):  # what is proven is no guess
        suggested += guesses(judgement, cases)
    if broken.of_rule and (kind := "races" if unsteady else _kind(law.bug, broken)):
        suggested.append(where_in_bugs(kind))
    parts += section("Suggests (read off the pattern, not proven)", suggested)
    often = ["(it does not fail on every run: try it several times)"] if flaky else []
    parts += section("Replay", [judgement.replay(case), *often])
    return "\n".join(parts).rstrip() + "\n"


def named(impl: Implementation, case: Case) -> list[str]:
    """Return the lines below a headline: the case, and where its rows lie in a call of its form."""
    make = PLANS.get(impl.supports.form)
    return [f"  {impl.name}   {case}", *([f"  {make(impl, case).words}"] if make else [])]


def message_of(judgement: Judgement, broken: LawBroken, replay: str) -> str:
    """Return the message of a failure whose case is not known."""
    parts = [broken.headline, f"  {judgement.impl.name}", "", *section("Observed", broken.observed)]
    return "\n".join([*parts, *section("Replay", [replay])]).rstrip() + "\n"


def _kind(kind: str, broken: LawBroken) -> str:
    """Return the kind of bugs that a message points to; "" if the failure does not show it.

    Any mistake makes values wrong, and so breaks laws about masks in which no key was seen to be
    missing.
    """
    keys = broken.wrong is not None and bool(broken.wrong.missing or broken.wrong.extra)
    return "" if kind == "tolerances" or (kind == "masks" and not keys) else kind


def where_in_bugs(kind: str) -> str:
    """Return the line of a message that points to known bugs of this kind."""
    return f"bugs of this kind, and who had them: {document(f'why/bugs.md#{kind}')}"


def _matches(judgement: Judgement, cases: AtHand) -> list[str]:
    """Return what the kernel computed instead; [] after an exception or a lost GPU."""
    broken, _ = cases.failing[0]
    try:
        return computed_instead(judgement, [case for _, case in cases.failing]) if broken.of_rule else []
    except ContextLost:
        return []


def _beside(judgement: Judgement, beside: Beside | None) -> list[str]:
    if beside is None or beside.found is None:
        return section(f"Without {beside.without}", [f"right on {beside.cases} cases"]) if beside else []
    found = beside.found
    lines = [found.broken.headline, str(found.case), judgement.replay(found.case)]
    return section(f"Also wrong without {beside.without}", lines)


def _by_further_calls(
    judgement: Judgement, failure: Found, unsteady: bool, traceable: bool, like: Callable[[Case], bool]
) -> tuple[list[str], AtHand]:
    """Return lines about repeats of the case, other lengths and a specimen, and the cases at hand.

    like(right case): whether it has what the failure needs, lengths aside, so that it can
    contradict a guess. Raises ContextLost.
    """
    same, repeated = _repeats(judgement, failure)
    if unsteady or not same:
        return [] if unsteady and same else repeated, _seen(failure)
    broken, case = failure.broken, failure.case
    lines = _investigated(judgement, failure)
    padding = isinstance(broken.reading, Counts) and broken.reading.padding
    lengths = [] if judgement.law.once else neighbours(judgement, case, padding)  # none is near one of its cases
    windows = other_windows(judgement, case)
    sizes = [*lengths, *windows, *other_headdims(judgement, case)]
    lines += [line for each in sizes if (line := each.line)]
    failures = [*failure.failures, *(failing for each in (*lengths, *windows) for failing in each.failures)]
    right = [*(other for each in lengths for other in each.right_cases), *filter(like, failure.right)]
    cases = at_hand(judgement, (broken, case), failures, right)
    if padding and broken.suggests is None:
        multiples = [each.pattern for each in lengths if "seqlen_k" in each.fields and each.pattern]
        broken.suggests = ": ".join(["padding keys are counted", *multiples])
    lines += _of_specimen(cases)
    return lines + ([NO_RACE] if repeated == [SAME_AGAIN] and not traceable else repeated), cases


def _seen(failure: Found) -> AtHand:
    """Return the cases at hand without a further call."""
    others = [(b, c) for b, c in failure.failures if c != failure.case and same_kind(b, failure.broken)]
    return AtHand([(failure.broken, failure.case), *others])


def _of_specimen(cases: AtHand) -> list[str]:
    """Return the lines that show the specimen: its case, and where it is wrong."""
    if cases.specimen is None:
        return []
    broken, case = cases.specimen
    places = takewhile(lambda line: not line.startswith(VALUES), broken.observed)
    return [f"in two tiles: {case}", f"  {broken.headline}", *(f"  {line}" for line in places)]


def _investigated(judgement: Judgement, failure: Found) -> list[str]:
    """Return the lines of the failure's `investigate`, and add its phrase to the headline."""
    broken = failure.broken
    phrase, lines = investigate(judgement, broken, failure.case)
    if phrase:
        broken.headline += f": {phrase}"
    return lines


def section(title: str, lines: list[str]) -> list[str]:
    """Return a heading with its lines, or nothing if there are no lines."""
    return [title, *(f"  {line}".rstrip() for line in lines), ""] if lines else []


def _repeats(judgement: Judgement, failure: Found) -> tuple[bool, list[str]]:
    """Return (whether the case fails again with the same findings each time, lines that say so)."""
    broken = failure.broken
    outcomes = [outcome_of(judgement, failure.case) for _ in range(REPEATS)]
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
