"""The comparisons that laws end with.

Each one records how close an error came to its limit, or raises LawBroken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from flash_attest import oracle
from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.oracle import LINEAR, RMS_LIMIT, Z_LIMIT, Z_WORST
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.douts import where_it_shows
from flash_attest.properties.checks.meanings_of_lse import what_lse_is
from flash_attest.properties.checks.pictures import element_at, number, place_of, share, where
from flash_attest.properties.checks.reading import Values
from flash_attest.properties.checks.wrong import wrong_in
from flash_attest.properties.checks.wrong_already import stop_if_wrong_alike
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.machine.clock import Work
from flash_attest.properties.trial import Expected, Trial

Investigate = Callable[[str], tuple[str, list[str]]]  # takes the name of a wrong output; see LawBroken.investigate

# Scaling by a power of two is exact except for numbers below 2^-126, which round in other steps or
# are flushed to 0. A sum of some thousand terms with such numbers can be off by 2^-114, so it may
# round to the other neighbour. This matters only below this size: above it, 2^-114 is less than
# 2^-27 of an ulp.
NEGLIGIBLE = 2.0**-64


def check_budget(trial: Trial, got: Outputs, x=None, *names: str, **changed) -> None:
    """Check that every output, or each named one, is within its error budget of the oracle."""
    x = trial.x if x is None else x
    names = names or tuple(name for name, _ in got.items())
    backward = any(name in GRADIENTS for name in names)
    want = trial.want(x, backward=backward, **changed)
    budget = trial.budget(want, x, backward=backward, **changed)
    tensors = [(name, getattr(got, name), getattr(want, name), getattr(budget, name)) for name in names]

    def investigate(name: str) -> tuple[str, list[str]]:
        if name == "lse":
            return what_lse_is(trial)
        return "", where_it_shows(trial, name, x, **changed) if name in GRADIENTS and x.dlse is None else []

    _check_near(trial, tensors, investigate)


def check_near(
    trial: Trial,
    name: str,
    got: torch.Tensor,
    want: torch.Tensor,
    sigma: torch.Tensor,
    right: torch.Tensor | None = None,
) -> None:
    """Check that one tensor is within its budget: the worst z, and the rms of many elements.

    right: the oracle's value, if `want` was computed from results of the implementation. Results
    that are wrong alike raise WrongAlready.
    """
    _check_near(trial, [(name, got, want, sigma)], nan_found_elsewhere=True, right=right)


def _check_near(
    trial: Trial,
    tensors: list[tuple],
    investigate: Investigate | None = None,
    nan_found_elsewhere: bool = False,
    right: torch.Tensor | None = None,
) -> None:
    def scored(name, got, want, sigma):
        return oracle.score(got, want, sigma, stored_dtype(trial, name, got), trial.form)

    tensors, scores = _scored(trial, tensors, scored, nan_found_elsewhere)
    for (name, got, want, sigma), result in zip(tensors, scores, strict=True):
        if right is not None and not result.within:
            differ = ~(result.z <= Z_LIMIT) if result.worst_z > Z_LIMIT else torch.ones_like(got, dtype=torch.bool)
            stop_if_wrong_alike(name, got, want, right, sigma, differ, stored_dtype(trial, name, got), trial.form)
        trial.meter.saw(name, result.worst_z)
        if result.worst_z > Z_LIMIT:
            broken = _beyond_budget(trial, name, got, want, sigma, result.z, "should be", not nan_found_elsewhere)
            broken.observed += _others(tensors, scores, name)
            broken.investigate = investigate and partial(investigate, name)
            raise broken
        if result.rms_ratio > RMS_LIMIT:
            raise LawBroken(
                f"{name}: the error over all elements is {result.rms_ratio:.3g} times what rounding explains "
                f"(rms; {RMS_LIMIT} allowed)",
                *_others(tensors, scores, name),
                f"no single element exceeds its limit: the worst has z {number(result.worst_z)}, {Z_LIMIT:g} allowed",
                suggests="a precision that is not declared: a cast, a sum in a narrow type, tf32, or an inexact exp",
            )


def check_agree(
    trial: Trial,
    name: str,
    got: torch.Tensor,
    want: torch.Tensor,
    sigma: torch.Tensor,
    what: str,
    *,
    right: torch.Tensor,
) -> None:
    """Check that two results of one implementation, which are mathematically equal, agree.

    sigma: the standard deviation of each of the two, by element. right: the oracle's value. Results
    that are wrong alike raise WrongAlready.
    """
    _check_agree(trial, [(name, got, want, sigma)], [right], what)


def check_all_agree(trial: Trial, got: Outputs, want: Outputs, expected: Expected, what: str) -> None:
    """Run `check_agree` for every output of `got`."""
    pairs = [(name, t, getattr(want, name), getattr(expected.sigma, name)) for name, t in got.items()]
    _check_agree(trial, pairs, [getattr(expected.want, name) for name, *_ in pairs], what)


def _check_agree(trial: Trial, pairs: list[tuple], right: list[torch.Tensor], what: str) -> None:
    def scored(name, got, want, sigma):
        return oracle.pair_score(got, want, sigma, sigma, stored_dtype(trial, name, got), trial.form)

    pairs, scores = _scored(trial, pairs, scored, nan_found_elsewhere=True)
    for (name, got, want, sigma), result, value in zip(pairs, scores, right, strict=True):
        if result.worst_z > Z_LIMIT:
            differ = ~(result.z <= Z_LIMIT)
            stop_if_wrong_alike(name, got, want, value, sigma, differ, stored_dtype(trial, name, got), trial.form)
        trial.meter.saw(name, result.worst_z)
        if result.worst_z > Z_LIMIT:
            broken = _beyond_budget(trial, name, got, want, sigma, result.z, what, defined=False)
            broken.observed += _others(pairs, scores, name)
            raise broken


def _others(tensors: list[tuple], scores: list[oracle.Score], wrong: str) -> list[str]:
    """Return a line that says which of the other outputs are right and which are wrong."""
    others = [(name, score.within) for (name, *_), score in zip(tensors, scores, strict=True) if name != wrong]
    parts = [(what, [name for name, within in others if within == is_right])
             for what, is_right in (("right", True), ("wrong, too", False))]  # fmt: skip
    phrases = [f"{what}: {', '.join(names)}" for what, names in parts if names]
    return ["   ".join(phrases)] if phrases else []


def _scored(
    trial: Trial, tensors: list[tuple], scored: Callable[..., oracle.Score], nan_found_elsewhere: bool
) -> tuple[list[tuple], list[oracle.Score]]:
    """Return (name, got, want, sigma) of each tensor, and the scores.

    Scores are read together, as reading waits for a GPU. nan_found_elsewhere: `want` was computed
    by the implementation, too. A NaN in both is then not a difference, and becomes 0 in the
    returned tensors, as the law about the definition finds it.
    """
    with trial.meter.clock.counts(Work.BUDGET):
        scores = [scored(*tensor) for tensor in tensors]
        oracle.read_scores(scores)
    if nan_found_elsewhere:
        for n, (name, got, want, sigma) in enumerate(tensors):
            if scores[n].worst_z == math.inf and bool((nan := got.isnan() & want.isnan()).any()):
                tensors[n] = (name, got.masked_fill(nan, 0.0), want.masked_fill(nan, 0.0), sigma)
                scores[n] = scored(*tensors[n])
    return tensors, scores


def combined(trial: Trial, *sigmas: torch.Tensor) -> torch.Tensor:
    """Return the sigma of a sum of results, each with its own sigma.

    It is the root of the sum of squares, or the plain sum in the worst-case form.
    """
    if trial.form == LINEAR:
        return sum(sigmas)
    return sum(sigma**2 for sigma in sigmas).sqrt()


def storing(trial: Trial, result: torch.Tensor) -> torch.Tensor:
    """Return a bound on the change of each element when a result is rounded to the case's dtype.

    Laws that compute with a stored result need this bound.
    """
    dtype = trial.case.dtype
    return oracle.roundoff(dtype) * result.abs() + oracle.smallest_subnormal(dtype) / 2


def stored_dtype(trial: Trial, name: str, got: torch.Tensor) -> torch.dtype:
    """Return the dtype to which an output was rounded.

    lse is stored in float32, even if it was converted to another dtype afterwards.
    """
    return torch.float32 if name == "lse" else got.dtype if got.dtype != torch.float64 else trial.case.dtype


def _beyond_budget(trial: Trial, name, got, want, sigma, z, should: str, defined: bool) -> LawBroken:
    bad = ~(z <= Z_LIMIT)
    reading = Values.of(name, trial.case, got, want, bad, sigma, defined=defined)
    at = place_of(torch.where(z.isnan(), torch.inf, z).argmax(), z.shape)
    worst, g, w, s = z[at].item(), got[at].item(), want[at].item(), sigma.broadcast_to(z.shape)[at].item()
    headline = f"{element_at(name, at)} is {number(g, w)}, {should} {number(w, g)}"
    if not math.isfinite(worst):
        return LawBroken(
            f"{headline} ({share(bad)} wrong)",
            where(trial, name, bad),
            wrong=wrong_in(trial, name, bad),
            reading=reading,
        )
    return LawBroken(
        f"{headline}: {worst:.3g} times what rounding explains, {Z_LIMIT:g} allowed ({share(bad)} wrong)",
        where(trial, name, bad),
        f"off by {abs(g - w):.3g} there, where rounding explains {_explained(trial, s)}",
        wrong=wrong_in(trial, name, bad),
        reading=reading,
    )


def _explained(trial: Trial, sigma: float) -> str:
    """Return one sigma in words: a standard deviation, or a fraction of the worst case."""
    return f"{Z_WORST * sigma:.3g} at its worst" if trial.form == LINEAR else f"{sigma:.3g} (one sigma)"


def check_same(
    trial: Trial, name: str, got: torch.Tensor, want: torch.Tensor, should: str, *, defined: bool = False
) -> None:
    """Check that two tensors have equal values in every element (0.0 equals -0.0).

    defined: whether `want` is the definition's value, and not another result of the implementation.
    NaN equals NaN: `want` has NaN only if the implementation returned it, and the law about the
    definition finds that.
    """
    bad = ~(got == want)
    if bool(bad.any()) and bool((bad := bad & ~(got.isnan() & want.isnan())).any()):
        at = tuple(int(i) for i in bad.nonzero()[0])
        g, w = got[at].item(), want.broadcast_to(got.shape)[at].item()
        largest = (got.double() - want.double()).abs().nan_to_num(torch.inf).max().item()
        raise LawBroken(
            f"{element_at(name, at)} is {number(g, w)}, {should} {number(w, g)} ({share(bad)} wrong)",
            where(trial, name, bad),
            f"largest difference {largest:.3g}" if math.isfinite(largest) and bad.numel() > 1 else "",
            wrong=wrong_in(trial, name, bad),
            reading=Values.of(name, trial.case, got, want, bad, defined=defined),
        )


def check_copied(
    trial: Trial, got: torch.Tensor, want: torch.Tensor, should: str, lse: torch.Tensor | None = None
) -> None:
    """Check that out is a row of v: the same values, or within the error that bits.py allows.

    bits.py allows errors for float32, tf32 and narrow statistics. lse (b, h, i): the score of the
    key that has all the weight; None if scores are small.
    """
    if lse is not None:
        got = torch.where(bits.copied_whatever_rounds(trial, lse), got, want)
    if allowed := bits.copied_within(trial):
        got = torch.where((got.double() - want.double()).abs() <= allowed * want.double().abs(), want, got)
    check_same(trial, "out", got, want, should, defined=True)


def check_unchanged(
    trial: Trial,
    before: Outputs,
    after: Outputs,
    should: str,
    x: Inputs | None = None,
    *,
    keeps_bits: bool = True,
    other: Inputs | None = None,
    **changed,
) -> None:
    """Check that outputs are unchanged: bit for bit if declared repeatable, else within the budget.

    The budget covers both results. It is computed for the inputs x (by default the case's), and
    only if needed. keeps_bits=False: the declared precision rules out equal bits (bits.py). other:
    the inputs of `after`, if their budget may differ.
    """
    names = [name for name, _ in after.items()]
    exact = [name for name in names if keeps_bits and name in trial.impl.repeatable]
    expected = None
    if len(exact) < len(names):
        backward = any(name in GRADIENTS for name in names)
        of_each = [
            trial.expected(inputs, backward=backward, **changed)
            for inputs in (x, *(() if keeps_bits or other is None else (other,)))
        ]
        largest = {name: torch.stack([getattr(each.sigma, name) for each in of_each]).amax(0) for name in names}
        expected = Expected(of_each[0].want, Outputs(**largest))
    if all_same([(getattr(after, name), getattr(before, name)) for name in exact]):
        names = [name for name in names if name not in exact]
    for name in names:
        check_same_or_agree(trial, name, after, before, expected, should, keeps_bits)


def all_same(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Return whether the tensors of each pair have equal values. This waits for a GPU only once."""
    return not pairs or not bool(torch.stack([(a != b).any() for a, b in pairs]).any())


def check_same_or_agree(
    trial: Trial,
    name: str,
    got: Outputs,
    want: Outputs,
    expected: Expected | None,
    should: str,
    keeps_bits: bool = True,
) -> None:
    """Check that one output is unchanged, in the same way as check_unchanged."""
    a, b = getattr(got, name), getattr(want, name)
    if keeps_bits and name in trial.impl.repeatable:
        check_same(trial, name, a, b, should)
    else:
        sigma, right = (getattr(each, name) for each in (expected.sigma, expected.want))
        check_agree(trial, name, a, b, sigma, should, right=right)
