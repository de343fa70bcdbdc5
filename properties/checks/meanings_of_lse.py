"""Recognises the meaning of a wrong lse: the row sum, the row maximum, another logarithm, ..."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from flash_attest import oracle
from flash_attest.impls.contract.precision import MOST_OF_EXP
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.trial import Trial

NEAR = 0.02  # relative to 1 + |value|: no two candidates are that close in all rows
ROWS = 16  # rows of a case in which the candidates differ; with one key most of them are equal
FEW = 4  # keys beside a sink
RIGHT = "should be m + log l"
TIMES_LN2 = "lse is ln 2 times what it should be: a natural logarithm was taken for one in base 2 and converted again"
LEAST_OF_EXP = 4e-6  # above the rounding errors of float32


class Meaning(NamedTuple):
    """The meaning of a wrong lse: in a few words, and in a sentence that says what it should be.

    another: whether this is another common meaning of "lse", which the contract check reports, and
    not a bug of the kernel.
    """

    short: str
    full: str
    another: bool = False


def meaning_of_lse(trial: Trial, lse: torch.Tensor) -> Meaning | None:
    """Return the meaning of a wrong lse (b, h, sq); None if it is right, or not recognised."""
    want = trial.want().lse
    m = oracle.row_maximum(trial.x.q, trial.x.k, trial.variant())
    seen = want.isfinite()
    got, want, m = lse.detach().double()[seen], want[seen], m[seen]

    def is_near(other: torch.Tensor) -> bool:
        return bool(((got - other).abs() < NEAR * (1 + other.abs())).all())

    if not len(want) or is_near(want):
        return None
    l = (want - m).exp()
    base_2 = 'lse is in base 2: declare lse="log2", or multiply it by ln 2'
    if trial.impl.lse == "log2":  # the suite has multiplied this lse by ln 2
        base_2 = "lse is divided by ln 2 twice: should be log2 sum_j 2^(score / ln 2)"
    known = [
        (want / math.log(2), "in base 2", base_2, True),
        (want * math.log(2), "ln 2 times what it should be", TIMES_LN2, True),
        (-want, "the negative", "lse has the wrong sign: should be log sum_j exp(score)", True),
        (m, "the row maximum m", f"lse equals the row maximum m, without the logarithm of the row sum l: {RIGHT}"),
        (l, "the row sum l", f"lse equals the row sum l, not its logarithm plus the maximum m: {RIGHT}"),
        (want - m, "log l without m", f"lse equals log l, without the maximum m that was subtracted: {RIGHT}"),
        (m + l, "m + l", f"lse equals m + l, without the logarithm of the row sum l: {RIGHT}"),
        (m + (want - m) / math.log(2), "m + log2 l", "lse equals m + log2 l: should be m + ln l"),
        (
            want.exp(),
            "the sum itself",
            "lse is the sum itself, not its logarithm: should be log sum_j exp(score)",
            True,
        ),
    ]
    known += [(value[seen], *words) for value, *words in _without_or_with_two_sinks(trial)]
    if trial.impl.lse == "log2":  # the suite has multiplied this lse by ln 2
        known.insert(0, (want * math.log(2), "in natural log", 'lse is in natural log: declare lse="natural"', True))
    return next((Meaning(*words) for value, *words in known if is_near(value)), None)


def _without_or_with_two_sinks(trial: Trial) -> Iterator[tuple]:
    """Yield lse with a wrong sink (b, h, sq), each with the words of its Meaning."""
    if trial.x.sinks is None:
        return
    x, sink = trial.x, trial.x.sinks.double()[:, None]
    keys = trial.want(x.with_(sinks=None)).lse
    if trial.impl.sink_in_lse:
        alone = "lse is log sum_j exp(score), without the sink: declare sink_in_lse=False if out has the sink"
        yield keys, "without the sink", alone, True
    else:  # the suite has added the sink to this lse
        twice = "lse already contains the sink, which the suite adds again: leave sink_in_lse=False out"
        yield torch.logaddexp(torch.logaddexp(keys, sink), sink), "with the sink counted twice", twice, True
    raw = (keys.exp() + sink).log()
    yield raw, "with the sink itself", "lse is log(sum_j exp(score) + sink): should add exp(sink)"


def what_lse_is(trial: Trial, otherwise: str = "") -> tuple[str, list[str]]:
    """Return the phrase and the lines of LawBroken.investigate about the meaning of a wrong lse.

    otherwise: the phrase if lse is not recognised.
    """
    case = trial.case
    longer = case.but(seqlen_q=max(case.seqlen_q, ROWS), seqlen_k=max(case.seqlen_k, ROWS), regime="spread")
    if case.sinks is not None:  # beside few keys, so that a sink counts for something
        longer = longer.but(seqlen_q=FEW, seqlen_k=FEW, sinks="count")
    if unsupported(trial.impl, longer):
        return otherwise, []
    asked = replace(trial, case=longer, meter=Meter())  # long enough to tell the candidates apart
    lse = asked.run().lse
    if lse is None:
        return otherwise, []
    if meaning := meaning_of_lse(asked, lse):
        return f"lse is {meaning.short}", [meaning.full]
    return otherwise, _as_of_an_inexact_exp(asked, lse)


def _as_of_an_inexact_exp(asked: Trial, lse: torch.Tensor) -> list[str]:
    """Return a line if lse looks like the result of a slightly inexact exp."""
    off = (lse.double() - asked.want().lse).abs()
    off = off[off.isfinite()]
    if not len(off) or not LEAST_OF_EXP < (most := off.max().item()) < MOST_OF_EXP:
        return []
    if not _scores_are_right(asked):
        return []
    return [
        f"lse is off by at most {most:.2g} at other inputs: if exp is made by a polynomial, or in a half dtype, "
        "declare its largest relative error, Precision(exp=...)"
    ]


def _scores_are_right(asked: Trial) -> bool:
    """Return whether lse of one key is its score, up to the error of exp at 0, which is a constant.

    If q, k or the score is rounded, lse of one key is off by another number in each row, and no
    inexact exp explains that.
    """
    alone = dict(seqlen_k=1, window=None, sinks=None)
    one = asked.case.but(**alone, seqlen_q=ROWS, causal=False)
    if unsupported(asked.impl, one):
        one = asked.case.but(**alone, seqlen_q=1, batch=ROWS)
        if unsupported(asked.impl, one):
            return False
    trial = replace(asked, case=one, meter=Meter())
    off = trial.run().lse.double() - trial.want().lse
    return bool(off.isfinite().all()) and bool((off.max() - off.min()) <= LEAST_OF_EXP)
