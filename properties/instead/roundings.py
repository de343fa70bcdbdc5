"""The roundings that `Precision` can declare, tried on outputs that are wrong by little.

A kernel is named as exact as one that declares a rounding if each wrong output is within the budget
that this declaration gives, and

- where the rounding comes before the softmax, lse (or out, if there is no lse) is what the rounded
  numbers give, to the accuracy of the declared precision (emulated.py),
- otherwise, the errors have both signs, as roundings have, and no other rounding that fits has a
  smaller budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.oracle import roundoff
from flash_attest.properties.instead import emulated
from flash_attest.properties.instead.answer import Answer, Changed
from flash_attest.properties.instead.mistake import given, only
from flash_attest.texts import all_of

MOST_ROUNDINGS = 2  # that fit alike
ALIKE = 4.0  # two budgets that differ by less than this factor
MISSED = 64.0  # a rounding whose sigma is larger by this shows in an output
FEWEST_ROWS = 12  # in which errors are counted by sign
MOST_OF_ONE_SIGN = 0.85
# The relative errors of exp that are tried: 8.8e-5 belongs to FlashAttention-4's cubic polynomial,
# 4.9e-4 to exp in float16.
EXPS = (1e-5, 3e-5, 1e-4, 2e-4, 5e-4)


@dataclass(frozen=True)
class Rounding:
    """One entry: the declaration, what it means in words, and how it is avoided.

    emulated(answer): inputs that have the rounding in them, if it comes before the softmax. shows:
    whether the rounding must show in each output whose budget it widens. Which sums a kernel keeps
    in a half dtype differs.
    """

    declared: dict[str, Any]
    words: str
    instead: str
    emulated: Callable[[Answer], Iterator[Changed]] | None = None
    dtypes: tuple[torch.dtype, ...] = field(default=(torch.float16, torch.bfloat16))
    shows: bool = True

    @property
    def advice(self) -> str:
        for name in ("exp", "tanh"):
            if name in self.declared:
                return f"declare its largest one, Precision({name}=...), or use a more exact {name}"
        values = ", ".join(f"{name}={value!r}" for name, value in self.declared.items()).replace("'", '"')
        return f"declare Precision({values}){f', or {self.instead}' if self.instead else ''}"


IEEE = 'multiply in float32 (input_precision="ieee", or allow_tf32 = False)'
FLOAT32 = (torch.float32,)
ANY = (torch.float32, torch.float16, torch.bfloat16)
NARROW = {"accumulate": "operand", "statistics": "operand", "row_sum": "operand"}
# The most specific first: of two that fit alike, the first is named.
ROUNDINGS = (
    Rounding({"multiply": "tf32"}, "tf32", IEEE, emulated.in_tf32(emulated.nearest_tf32), FLOAT32),
    Rounding({"multiply": "tf32_cut"}, "float32 cut to tf32", IEEE, emulated.in_tf32(emulated.cut_tf32), FLOAT32),
    Rounding({"multiply": "tf32x3"}, "three products in tf32", IEEE, None, FLOAT32),
    Rounding({"scaled": "q"}, "q scaled and rounded before the product", "scale the scores", emulated.scaled("q")),
    Rounding({"scaled": "k"}, "k scaled and rounded before the product", "scale the scores", emulated.scaled("k")),
    Rounding({"scaled": "both"}, "q and k scaled and rounded before the product", "scale the scores",
             emulated.scaled("q", "k")),
    Rounding({"scaled_in_backward": "k"}, "k scaled and rounded in the backward", "scale dS", emulated.scaled("k")),
    Rounding({"scores": "operand"}, "scores rounded to the dtype of q", "keep them in float32", emulated.narrow_scores),
    *(
        Rounding({"quantize": kind, "quantize_by": by}, f"q and k in {kind}, with a step for each {by}", "",
                 emulated.quantized(kind, by), ANY)
        for kind in ("int8", "fp8") for by in ("tensor", "head", "block")
    ),
    Rounding({"row_sum": "operand"}, "a row sum l of the cast P", "sum P before its cast"),
    Rounding({"accumulate_in_backward": "operand"}, "gradients summed in the dtype of q", "keep them in float32",
             shows=False),
    Rounding({"accumulate": "operand"}, "sums kept in the dtype of q", "keep them in float32", shows=False),
    Rounding({"statistics": "operand"}, "m and l kept in the dtype of q", "keep them in float32"),
    Rounding({"tile_sum": 64}, "P v summed in the dtype of q over a tile", "sum it in float32"),
    Rounding(NARROW, "sums, m and l kept in the dtype of q", "keep them in float32"),
    Rounding({"merge": "lse"}, "parts merged by float32 lse", "", None, ANY),
    Rounding({"merge": "lse", "parts": "operand"}, "parts of out rounded to the dtype of q",
             "keep them in float32"),
)  # fmt: skip

# Tried where every case has a softcap: its errors have one sign, as those of exp do.
TANH = Rounding({"tanh": 2.0**-11}, "a relative error of tanh of about 2^-11", "", None, ANY, shows=False)


def rounding_of(answers: list[Answer], larger: Callable[[], list[Answer]] | None = None) -> list[str]:
    """Return a statement that says which rounding explains all wrong answers; [] if none does.

    larger(): answers to inputs with large scores. They are asked for only if they decide, as they
    do whether exp is inexact.
    """
    if not all(answer.telling for answer in answers) or all(answer.dead for answer in answers):
        return []
    fitting = [
        rounding
        for rounding in _candidates(answers)
        if any(_shows(answer, rounding) for answer in answers) and all(_fits(answer, rounding) for answer in answers)
    ]
    exact = [rounding for rounding in fitting if rounding.emulated]
    if not exact and not all(map(_both_signs, answers)):
        fitting = []
    if not fitting and all(answer.case.softcap is not None for answer in answers):
        fitting = [TANH] if all(_fits(answer, TANH) for answer in answers) else []
    if not fitting and larger is not None:
        fitting = _of_exp(answers, larger())
    sizes = {id(rounding): _size(answers[0], rounding) for rounding in exact or fitting}
    least = min(sizes.values(), default=0.0)
    best = [rounding for rounding in exact or fitting if sizes[id(rounding)] <= least + math.log(ALIKE)]
    best = [r for r in best if not any(o.declared.items() < r.declared.items() for o in best)][:MOST_ROUNDINGS]
    if not best:
        return []
    names = [name for name in answers[0].got if any(name in answer.wrong for answer in answers)]
    starts = (f"{all_of(names)} {'are' if len(names) > 1 else 'is'} as exact as with", "or with")
    return [f"{start} {each.words}: {each.advice}" for start, each in zip(starts, best, strict=False)]


def _candidates(answers: list[Answer]) -> Iterator[Rounding]:
    """Yield the roundings that differ from the declared ones in all of these answers."""
    declared = answers[0].impl.precision
    for rounding in ROUNDINGS:
        differs = any(getattr(declared, name) != value for name, value in rounding.declared.items())
        if differs and all(answer.case.dtype in rounding.dtypes for answer in answers):
            yield rounding


def _of_exp(answers: list[Answer], larger: list[Answer]) -> list[Rounding]:
    """Return an inexact exp, with the least error of EXPS that explains all answers.

    larger: answers whose scores are large. They must need no larger error, as the error of exp is
    relative. The error of a wrong scale is not.
    """
    for value in EXPS:
        exp = Rounding({"exp": value}, f"a relative error of exp of about {value:g}", "", None, ANY)
        if all(_fits(answer, exp) for answer in answers):
            return [exp] if all(_fits(answer, exp) for answer in larger) else []
    return []


def _precision(answer: Answer, rounding: Rounding) -> Precision:
    return replace(answer.impl.precision, **rounding.declared)


def _sigma(answer: Answer, rounding: Rounding) -> dict[str, torch.Tensor]:
    def make() -> dict[str, torch.Tensor]:
        return answer.under(answer.plain, _precision(answer, rounding)).sigma()

    return answer.kept(repr(rounding.declared), make)


def _fits(answer: Answer, rounding: Rounding) -> bool:
    """Return whether all outputs are within the budget of a rounding, and as it predicts."""
    if rounding.emulated and not _as_predicted(answer, rounding):
        return False
    sigma, form = _sigma(answer, rounding), answer.form_of(_precision(answer, rounding))
    if rounding.shows and not rounding.emulated and any(_should_show(answer, name, sigma[name]) for name in answer.got):
        return False
    return all(answer.score(name, answer.right.want[name], sigma[name], form).within for name in answer.got)


def _should_show(answer: Answer, name: str, sigma: torch.Tensor) -> bool:
    """Return whether an output is right by the declared precision, though a rounding would show."""
    if name in answer.wrong:
        return False
    u = 2.0**-24 if name == "lse" else roundoff(answer.case.dtype)
    ratio = sigma / (answer.right_sigma[name] + u * answer.right.want[name].abs())
    return bool((ratio[ratio.isfinite()] > MISSED).double().mean() > 0.5)


def _shows(answer: Answer, rounding: Rounding) -> bool:
    """Return whether some output is wrong in which a rounding before the softmax shows."""
    return not rounding.emulated or any(name in answer.wrong for name in _predicted(answer, rounding))


def _predicted(answer: Answer, rounding: Rounding) -> list[str]:
    """Return the outputs that emulated inputs predict: lse, or out without lse.

    For a rounding of the backward, they are the wrong gradients.
    """
    if "scaled_in_backward" in rounding.declared:
        return [name for name in answer.wrong if name in GRADIENTS]
    return ["lse" if "lse" in answer.got else "out"]


def _as_predicted(answer: Answer, rounding: Rounding) -> bool:
    """Return whether an answer is what the rounded inputs give."""
    names = _predicted(answer, rounding)
    for inputs in rounding.emulated(answer):
        predicted = given(answer, inputs) if "scaled_in_backward" in rounding.declared else answer.under(inputs)
        if predicted and answer.fits(only(predicted, *names), names).keys() == {*names}:
            return True
    return False


def _both_signs(answer: Answer) -> bool:
    """Return whether the errors of wrong out and lse go to both sides, if there are enough rows."""
    for name in answer.wrong.keys() & {"out", "lse"}:
        got, want = answer.got[name].double(), answer.right.want[name]
        error = (got - want) * want
        rows = error.flatten() if name == "lse" else error.sum(-1).flatten()
        rows = rows[rows.isfinite() & (rows != 0)]
        if len(rows) >= FEWEST_ROWS:
            share = (rows > 0).double().mean().item()
            if not 1 - MOST_OF_ONE_SIGN <= share <= MOST_OF_ONE_SIGN:
                return False
    return True


def _size(answer: Answer, rounding: Rounding) -> float:
    """Return the size of a rounding's budget: the mean logarithm of sigma over wrong outputs."""
    sigma = _sigma(answer, rounding)
    return sum(sigma[name].clamp(min=1e-300).log().mean().item() for name in answer.wrong)
