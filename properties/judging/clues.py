"""Finds the clues in a smallest failing case, and draws cases without them.

A clue is a property that the failure needs, as shrinking could not remove it: a negative scale, a
mask, a head dim, a dtype, and so on. The cases that have all clues of the failure can then be left
out. If the law still fails, there is another defect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.bias_masks import masks_of, may_have_empty_rows
from flash_attest.properties.cases.case import Case, CaseError, text_of
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.cases.features import BIAS_DETAILS, FEATURES, NO_BIAS
from flash_attest.properties.cases.form_features import OF_FORM
from flash_attest.properties.cases.strategies import ALONE, TOGETHER
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.law import Law

# Shorter lengths are no clue: without the longer ones hardly any case is left to judge.
SHORT = 8
MANY = 8  # more heads than that, in all batches, make a case less plain
VARIED = (*TOGETHER, *ALONE, "bias")
# Features whose values are one clue: which neighbours a value gives follows from the seed.
RANDOM = {"neighbours": "neighbours", "slack": "rows of slack"}


@dataclass(frozen=True)
class Clue:
    """A property of a case. without(case): a similar case without it, or CaseError.

    added(case): a similar case with it; None if it is a size, which says nothing alone. is_length:
    whether it is about lengths.
    """

    words: str
    has: Callable[[Case], bool]
    without: Callable[[Case], Case]
    added: Callable[[Case], Case] | None = None
    is_length: bool = False


@dataclass(frozen=True)
class LeftOut:
    """The cases that have all of these clues. not_alone: a right case with the only clue."""

    clues: tuple[Clue, ...]
    not_alone: Case | None = None

    def __str__(self) -> str:
        together = " together" if len(self.clues) > 1 else ""
        return " and ".join(clue.words for clue in self.clues) + together

    def holds(self, case: Case) -> bool:
        """Return whether a case has all the clues, so that it is left out."""
        return all(clue.has(case) for clue in self.clues)

    def hold_but_lengths(self, case: Case) -> bool:
        """Return whether a case has all the clues that are not about lengths."""
        return all(clue.has(case) for clue in self.clues if not clue.is_length)

    def lacking(self, case: Case | None = None) -> str:
        """Return the clues that a case lacks, in words; without a case, any of them."""
        clues = [clue.words for clue in self.clues if case is None or not clue.has(case)]
        return " or without ".join(clues) if case is None else " and without ".join(clues)


def leaving_out(draws: Draws, *groups: LeftOut) -> Draws:
    """Return draws that never give the cases of these groups.

    A case that would be left out is changed to lack one clue, so nearly as many cases remain.
    """

    def where(case: Case) -> bool:
        return not any(group.holds(case) for group in groups) and (draws.where is None or draws.where(case))

    def toward(case: Case) -> Case:
        case = draws.toward(case)
        for group in groups:
            case = next(_lacking_one(group, case), case) if group.holds(case) else case
        return case

    def _lacking_one(group: LeftOut, case: Case):
        for clue in group.clues:
            try:
                changed = clue.without(case)
            except CaseError:
                continue
            if narrowed.excludes(changed) is None:
                yield changed

    narrowed = replace(draws, where=where, toward=toward)
    return narrowed


def value_clue(feature: Feature, values: list, simplest: Any) -> Clue:
    """Return the clue that a feature has one of these values."""
    few = feature.alone or feature.name in OF_FORM  # features that most cases, or most calls, lack
    several = few and {*feature.values} == {*values, feature.neutral} and len(values) > 1
    words = feature.name if several else ", ".join([feature.words(values[0]), *map(text_of, values[1:])])
    words = RANDOM.get(feature.name, words)
    return Clue(
        words,
        lambda case: feature.value(case) in values,
        lambda case: feature.changed(case, simplest),
        lambda case: feature.changed(case, values[0]),
    )


def headdim_clue(impl: Implementation, headdim: int, *, larger: bool) -> Clue:
    """Return the clue that the head dim has this value, or, with `larger`, at least this value."""

    def has(case: Case) -> bool:
        return case.headdim >= headdim if larger else case.headdim == headdim

    others = [d for d in impl.supports.headdim_list if d < headdim or (d > headdim and not larger)]

    def without(case: Case) -> Case:
        if not others:
            raise CaseError(f"no head dim but {headdim}")
        return case.but(headdim=others[case.headdim % len(others)])

    words = f"headdim {headdim}{' or more' if larger else ''}"
    return Clue(words, has, without, lambda case: case.but(headdim=headdim))


def length_clue(n: int, *, larger: bool) -> Clue:
    """Return the clue that one of the lengths is n, or, with `larger`, at least n."""

    def has(case: Case) -> bool:
        return any(m >= n if larger else m == n for m in (case.seqlen_q, case.seqlen_k))

    def shorter(m: int) -> int:
        return 1 + (m - 1) % (n - 1) if m >= n else m

    return Clue(
        f"a length of {n}{' or more' if larger else ''}",
        has,
        lambda case: case.but(seqlen_q=shorter(case.seqlen_q), seqlen_k=shorter(case.seqlen_k)),
        is_length=True,
    )


def heads_clue() -> Clue:
    """Return the clue that there is more than one head."""
    return Clue(
        "more than one head",
        lambda case: case.batch * case.nheads > 1,
        lambda case: case.but(batch=1, nheads=1, nheads_k=1),
    )


def not_plain(judgement: Judgement, case: Case) -> set[str]:
    """Return the names of what is not the plainest in a case, lengths aside."""
    law, impl = judgement.law, judgement.impl
    empty = may_have_empty_rows(case, impl.causal_alignment)
    plain = {
        **{name: FEATURES[name].value(case) in law.draws.values(name, impl)[:1] for name in VARIED},
        **{name: getattr(case, name) == NO_BIAS[name] for name in BIAS_DETAILS},
        "headdim": case.headdim == impl.supports.headdim_list[0],
        "batch": case.batch == 1,
        "nheads": case.nheads == 1,
        "many heads": case.batch * case.nheads <= MANY,
        "gqa": law.draws.gqa is not None or case.nheads == case.nheads_k,
        "cross": law.draws.cross is not None or case.seqlen_q == case.seqlen_k,
        "empty rows": not empty,
    }
    return {name for name, is_plain in plain.items() if not is_plain}


def clues_of(judgement: Judgement, case: Case, fails: Callable[[Case], bool]) -> tuple[Clue, ...]:
    """Return the clues of a smallest failing case, or () if the law has no plainer case.

    fails(case): whether another case fails in the same way. If other values of a feature fail, too,
    they become part of its clue.
    """
    law, impl = judgement.law, judgement.impl
    empty, masks = may_have_empty_rows(case, impl.causal_alignment), {"causal", "bias", "window"}
    clues = [
        _of_empty_rows(impl) if empty else None,
        *(_of_feature(judgement, case, name, fails) for name in VARIED if not empty or name not in masks),
        *([] if empty else _of_bias(law, case, fails)),
        _of_headdim(impl, case, fails),
        *_of_heads(law, case, fails),
        None if empty else _of_cross(law, case, fails),
    ]
    clues = [clue for clue in clues if clue is not None]
    return tuple(clues or _of_lengths(law, case))


def _of_feature(judgement: Judgement, case: Case, name: str, fails: Callable[[Case], bool]) -> Clue | None:
    feature, values = FEATURES[name], judgement.law.draws.values(name, judgement.impl)
    value = feature.value(case)
    if value not in values[1:] or fails(feature.changed(case, values[0])):
        return None
    others = [v for v in values[1:] if v != value and (name in RANDOM or fails(feature.changed(case, v)))]
    return value_clue(feature, [value, *others], values[0])


def _of_bias(law: Law, case: Case, fails: Callable[[Case], bool]) -> list[Clue]:
    """Return the clues that lie in the details of a bias."""
    clues = []
    for name in BIAS_DETAILS if case.bias else ():
        value, plain = getattr(case, name), NO_BIAS[name]
        if name == "bias_mask" and plain not in law.draws.bias_mask:
            plain = law.draws.bias_mask[0]
        if value == plain:
            continue
        right = (plain,)
        if name == "bias_mask":
            masks = [m for m in law.draws.bias_mask if m in masks_of(case.bias)]
            right = tuple(m for m in masks if m != value and not fails(case.but(bias_mask=m)))
        clues.append(_detail(name, value, plain, right))
    return clues


def _detail(name: str, value: Any, plain: Any, right: tuple) -> Clue:
    words = {"bias_batch": "a bias for each batch", "bias_nheads": "a bias for each head"}
    return Clue(
        words.get(name, f"{name} {text_of(value)}"),
        lambda case: case.bias is not None and getattr(case, name) not in right,
        lambda case: case.but(**{name: plain}),
    )


def _of_empty_rows(impl: Implementation) -> Clue:
    """Return the clue that some row sees no key, by any mask."""
    return Clue(
        "rows that may see no key",
        lambda case: may_have_empty_rows(case, impl.causal_alignment),
        lambda case: case.but(bias_mask="none", seqlen_k=max(case.seqlen_q, case.seqlen_k)),
    )


def _of_headdim(impl: Implementation, case: Case, fails: Callable[[Case], bool]) -> Clue | None:
    known = impl.supports.headdim_list
    # The smallest head dim that can be judged decides: a law or `accepts` may refuse smaller ones.
    smaller = (fails(case.but(headdim=d)) for d in known if d < case.headdim)
    if next((fails_there for fails_there in smaller if fails_there is not None), True):
        return None
    next_larger = next((d for d in known if d > case.headdim), None)
    larger = next_larger is not None and fails(case.but(headdim=next_larger))
    return headdim_clue(impl, case.headdim, larger=larger)


def _of_heads(law: Law, case: Case, fails: Callable[[Case], bool]) -> list[Clue]:
    """Return the clues that lie in the numbers of batches and heads.

    A smaller case with fewer heads of one kind has fewer of other kinds, too. So cases with as many
    of another kind are tried: if they fail, the kind is not the cause.
    """
    batch, heads, heads_k = case.batch, case.nheads, case.nheads_k

    def fails_at(batch: int, nheads: int, nheads_k: int) -> bool:
        return fails(case.but(batch=batch, nheads=nheads, nheads_k=nheads_k))

    # As many heads in batches, or as many batches of one head.
    if (batch > 1 == heads and fails_at(1, batch, batch)) or (heads > 1 == batch and fails_at(heads, 1, 1)):
        return [_heads_in_all(batch * heads)]
    clues = []
    if batch > 1:
        clues.append(Clue(f"batch {batch} or more", lambda c: c.batch >= batch, lambda c: c.but(batch=1)))
    if heads != heads_k and law.draws.gqa is None and not fails_at(batch, heads, heads):
        clues.append(value_clue(FEATURES["gqa"], [True], False))
    elif heads > 1 and (heads != heads_k or fails_at(batch, heads, 1)):
        clues.append(Clue(f"{heads} or more heads", lambda c: c.nheads >= heads, lambda c: c.but(nheads=1, nheads_k=1)))
    elif heads_k > 1:
        clues.append(
            Clue(
                f"{heads_k} or more heads of k and v",
                lambda c: c.nheads_k >= heads_k,
                lambda c: c.but(nheads=c.nheads // c.nheads_k, nheads_k=1),
            )
        )
    return clues


def _heads_in_all(n: int) -> Clue:
    """Return the clue that there are this many heads, in all batches together."""
    one = dict(batch=1, nheads=1, nheads_k=1)
    return Clue(f"batch * nheads of {n} or more", lambda c: c.batch * c.nheads >= n, lambda c: c.but(**one))


def _of_cross(law: Law, case: Case, fails: Callable[[Case], bool]) -> Clue | None:
    """Return the clue that the lengths differ, if cases with equal lengths are right.

    Sizes are shrunk one at a time, so lengths may differ although the failure does not need it.
    """
    lengths = case.seqlen_q, case.seqlen_k
    if lengths[0] == lengths[1] or law.draws.cross is not None:
        return None
    if any(fails(case.but(seqlen_q=n, seqlen_k=n)) for n in sorted(lengths, reverse=True)):
        return None
    return value_clue(FEATURES["cross"], [True], False)


def _of_lengths(law: Law, case: Case) -> list[Clue]:
    """Return the clue that lies in the lengths, for a case without other clues."""
    least = {name: max(1, getattr(law.draws, name)[0]) for name in ("seqlen_q", "seqlen_k")}
    tops = {name: n for name in least if (n := getattr(case, name)) > least[name] and n >= SHORT}
    if not tops:
        return []

    def without(c: Case) -> Case:
        return c.but(**{name: least[name] + (getattr(c, name) - least[name]) % (n - least[name])
                        for name, n in tops.items()})  # fmt: skip

    words = " and ".join(f"{name} of {n}" for name, n in tops.items())
    if len(tops) == 2 and case.seqlen_q == case.seqlen_k:
        words = f"lengths of {case.seqlen_q}"
    return [Clue(f"{words} or more", lambda c: all(getattr(c, name) >= n for name, n in tops.items()), without,
                 is_length=True)]  # fmt: skip
