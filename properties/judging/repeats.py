"""Recognises that a law fails for a cause that another law's failure has explained.

Such a failure is not shrunk or explained again: it gets the smallest case of the other law. The law
goes on without the clues of the cause, so that the cause hides no other defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case, CaseError, parse_case
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase, LawBroken, Raises, Undecided
from flash_attest.properties.judging.beside import clues_in
from flash_attest.properties.judging.clues import Clue, LeftOut
from flash_attest.properties.judging.explain import section
from flash_attest.properties.judging.explained import (
    Explained,
    kind_of,
    rank_of,
    special_in,
    without_lengths,
)
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.search import Found
from flash_attest.properties.judging.shrink import smallest
from flash_attest.properties.judging.verdict import FAIL, PLAIN, Result, law_name
from flash_attest.properties.law import Law, laws


@dataclass(frozen=True)
class Repeat(Found):
    """A failure with the cause of an explained one, which is always given.

    cause: that failure. clues: what both need to fail. says_it_better: whether this law describes
    the cause better, so that its message should be whole.
    """

    cause: Explained | None = None
    clues: LeftOut | None = None
    says_it_better: bool = False


def repeat_of(judgement: Judgement, broken: LawBroken, case: Case, before: Sequence[Repeat] = ()) -> Repeat | None:
    """Return how a first failure repeats an explained one; None if it does not.

    It does if the law fails on the other law's smallest case, too, if both need the same there to
    fail, and if the same kind of result is wrong. `case` may fail for another cause: it is then
    judged again, as the law goes on without the clues of this one.

    before: the repeats of this law whose clues are left out. The other failure that the message of
    such a cause names is then repeated, too, if it is. Alone it would be a cause of its own.
    """
    law, plan = judgement.law, judgement.plan
    if not plan.goes_on or plan.case is not None or law.bug == "races":
        return None
    if law.collects or law.together:
        return None
    if law.once:
        return _at_any_size(judgement, broken, case)
    both = {repeat.cause for repeat in before}
    for known in sorted(plan.explained, key=lambda known: known.rank):
        for text in (known.case, known.beside if known in both else ""):
            for again in _cases(judgement, text, case) if text else ():
                if repeat := _repeat(judgement, known, broken, again, is_smallest=text is known.case):
                    return repeat
    return None


def _at_any_size(judgement: Judgement, broken: LawBroken, case: Case) -> Repeat | None:
    """Return how a law of large sizes repeats a failure of the plainest case.

    If its rule does not hold there either, its sizes are not the cause.
    """
    law, impl = judgement.law, judgement.impl
    for known in sorted(judgement.plan.explained, key=lambda known: known.rank):
        small = _with_features(law, impl, parse_case(known.case))
        if known.clue != PLAIN or unsupported(impl, small) or str(small) in judgement.plan.lost:
            continue
        try:
            judgement.hold_aside(small)
        except LawBroken as same:
            alike = type(same) is type(broken) and not isinstance(same, Raises)
            if alike and _are_alike(judgement, known, (same, broken), alone=not special_in(known.case)):
                return Repeat(broken, case, cause=known, clues=LeftOut(()))
        except Exception:  # the law may need its sizes
            continue
    return None


def _repeat(
    judgement: Judgement, known: Explained, broken: LawBroken, case: Case, *, is_smallest: bool
) -> Repeat | None:
    """Return how the law fails on the case of a known failure, if it is the same failure.

    is_smallest: whether it is its smallest case; otherwise it is the one beside it.
    """
    try:
        judgement.hold_aside(case)
        return None
    except LawBroken as failure:
        same = failure
    except (AnotherCase, Undecided):
        return None
    if type(same) is not type(broken):
        return None
    if isinstance(same, Raises) and same.headline != known.reason:
        return None
    clues = clues_in(judgement, Found(same, case))
    if clues is None:
        return None
    if is_smallest and not _need_the_same(judgement, known, clues, case):
        return None
    alone = not clues.clues and not special_in(known.case)
    if not isinstance(same, Raises) and not _are_alike(judgement, known, (same, broken), alone=alone):
        return None
    rank = rank_of(_as_result(judgement, same).as_dict())
    better = rank < known.rank and not isinstance(same, Raises)  # the same exception says the same
    return Repeat(same, case, cause=known, clues=clues, says_it_better=better)


def _need_the_same(judgement: Judgement, known: Explained, clues: LeftOut, case: Case) -> bool:
    """Return whether a known failure has these clues, except those that only one of the two laws
    can find, as the other law wants what they say.
    """
    draws = judgement.law.draws
    wanted = {f.words(f.value(case)) for f in FEATURES.values() if f.name in draws.features}
    own = {without_lengths(clue.words) for clue in clues.clues if not _is_wanted(known, clue)}
    others = set() if known.clue == PLAIN else {*known.clue.removesuffix(" together").split(" and ")}
    return own == {without_lengths(words) for words in others - wanted}


def _is_wanted(known: Explained, clue: Clue) -> bool:
    """Return whether the law of a known failure wants what this clue says, so that it could not
    find the clue.
    """
    try:
        return laws()[known.law].draws.excludes(clue.without(parse_case(known.case))) is not None
    except CaseError:
        return True


def _are_alike(judgement: Judgement, known: Explained, failures: Sequence[LawBroken], *, alone: bool) -> bool:
    """Return whether the same kind of result is wrong in a known failure and in these."""
    kind = kind_of(known.chapter, known.tensor, alone=alone)
    tensors = [broken.wrong.tensor if broken.wrong else "" for broken in failures]
    return all(kind_of(judgement.law.chapter, tensor, alone=alone) == kind for tensor in tensors)


def _as_result(judgement: Judgement, broken: LawBroken) -> Result:
    law, wrong = judgement.law, broken.wrong and broken.wrong.as_dict()
    return Result(judgement.impl.name, law.chapter, law.name, FAIL, wrong=wrong, worst_z=dict(judgement.meter.worst_z))


def _cases(judgement: Judgement, text: str, failing: Case) -> Iterator[Case]:
    """Yield a case of a known failure, changed to what this law wants: with its own seed, with the
    seed of the failing case, and with the heads and the head dim of the failing case.
    """
    law, impl, case = judgement.law, judgement.impl, parse_case(text)
    heads = {name: getattr(failing, name) for name in ("batch", "nheads", "nheads_k", "headdim", "seed")}
    seen = set()
    for changes in ({}, {"seed": failing.seed}, heads):
        try:
            again = wanted(law, impl, case.but(**changes))
        except (AnotherCase, CaseError):
            continue
        if again not in seen and judgement.takes(again) and str(again) not in judgement.plan.lost:
            seen.add(again)
            yield again


def wanted(law: Law, impl: Implementation, case: Case) -> Case:
    """Return the case, changed as little as possible to what a law wants.

    Raises AnotherCase or CaseError.
    """
    case = _with_features(law, impl, case)
    if law.draws.cross is False:
        longer = max(case.seqlen_q, case.seqlen_k)
        case = case.but(seqlen_q=longer, seqlen_k=longer)
    masks = law.draws.bias_mask if case.bias is not None and law.draws.excludes(case) else ()
    masked = (case.but(bias_mask=mask) for mask in masks)
    case = next((each for each in masked if law.draws.excludes(each) is None), case)
    return fitted(impl, law.draws.toward(case), law.draws)


def _with_features(law: Law, impl: Implementation, case: Case) -> Case:
    """Return the case with values of all features that a law wants."""
    for feature in FEATURES.values():
        values = law.draws.values(feature.name, impl)
        if values and feature.value(case) not in values:
            case = feature.changed(case, values[0])
    return case


def quickly_shrunk(judgement: Judgement, repeat: Repeat) -> Found:
    """Return the failure of a law that says it better, shrunk from the case of the other law."""

    same_part = judgement.of_failure(repeat.broken)
    return Found(*smallest(judgement, repeat.case, repeat.broken, same_part.hold_aside), right=repeat.right)


def message_of_repeats(judgement: Judgement, repeats: list[Repeat], cases: int) -> str:
    """Return the short message of a law that fails for explained causes only. cases: how many cases
    without their clues are right.
    """
    first, law = repeats[0], judgement.law
    broken = first.broken
    parts = [
        broken.headline,
        f"  {judgement.impl.name}   {first.case}",
        "",
        *section("Rule", law.rule.splitlines() if broken.of_rule else []),
        *section("Observed", broken.observed),
        *same_causes(repeats, cases),
        *section("Replay", [judgement.replay(first.case)]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def same_causes(repeats: list[Repeat], cases: int = 0) -> list[str]:
    """Return the sections that name the laws with the whole messages."""
    lines = []
    for repeat in repeats:
        needs = f", with {repeat.clues}" if repeat.clues.clues else ""
        fails = f"it fails on the smallest case of that law, too{needs}"
        lines += section(f"Same cause as {law_name(repeat.cause.law)}", [fails])
    if cases:
        lines[-1:] = [f"  {right_without(repeats, cases)}", ""]
    return lines


def right_without(repeats: list[Repeat], cases: int) -> str:
    """Return the line about the cases without the clues of these causes; "" if there are none."""
    without = " and without ".join(repeat.clues.lacking() for repeat in repeats)
    return f"right on {cases} cases without {without}" if cases else ""


def with_causes(message: str, repeats: list[Repeat]) -> str:
    """Return the whole message of a failure, with sections that name the other causes for which its
    law fails, too.
    """
    before, replay, after = message.rpartition("Replay\n")
    return before + "\n".join([*same_causes(repeats), ""] if repeats else []) + replay + after
