"""Mistakes in the last step of the forward: the division by l, and the number stored as lse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from flash_attest import oracle
from flash_attest.properties.cases.case import text_of
from flash_attest.properties.instead.answer import Answer, Predicted
from flash_attest.properties.instead.mistake import Mistake


def _not_divided(answer: Answer) -> Iterator[Predicted]:
    """Yield out times the row sum l = exp(lse - m)."""
    right, m = answer.right, oracle.row_maximum(answer.x.q, answer.x.k, answer.variant)
    l = (right.want["lse"] - m).exp().transpose(1, 2)[..., None]
    yield Predicted({"out": right.want["out"] * l}, lambda: {"out": right.sigma()["out"] * l})


def _lse(name: str, words: str | Callable[[Answer], str], change: Callable[[torch.Tensor], torch.Tensor]) -> Mistake:
    """Return the mistake of storing another function of lse."""

    def predict(answer: Answer) -> Iterator[Predicted]:
        right = answer.right
        if "lse" in answer.got:
            yield Predicted({"lse": change(right.want["lse"])}, right.sigma)

    return Mistake(name, words, predict)


def _rounded(dtype: torch.dtype) -> Callable[[Answer], str]:
    def words(answer: Answer) -> str:
        declare = ', or declare Precision(statistics="operand")' if answer.case.dtype == dtype else ""
        return f"rounded to {text_of(dtype)}: keep it in float32{declare}"

    return words


def _of_unscaled(answer: Answer) -> Iterator[Predicted]:
    right, scale = answer.right, answer.case.scale
    if answer.case.softcap is not None or answer.case.sinks is not None:
        return
    if scale and scale != 1 and "lse" in answer.got:
        m = oracle.row_maximum(answer.x.q, answer.x.k, answer.variant)
        lse = right.want["lse"] + m * (1 / scale - 1)
        yield Predicted({"lse": lse}, lambda: {"lse": right.sigma()["lse"] * max(1.0, 1 / abs(scale))})


RESULTS = (
    Mistake("not divided by l", "before it is divided by the row sum l", _not_divided),
    _lse("lse in base 2", "in base 2: multiply it by ln 2", lambda lse: lse / math.log(2)),
    _lse("lse times ln 2", "times ln 2, as if it had been in base 2", lambda lse: lse * math.log(2)),
    _lse("lse plus ln 2", "plus ln 2: the row sum l has a factor of 2", lambda lse: lse + math.log(2)),
    *(
        _lse(f"lse in {text_of(dtype)}", _rounded(dtype), lambda lse, dtype=dtype: lse.to(dtype).double())
        for dtype in (torch.float16, torch.bfloat16)
    ),
    Mistake("unscaled maximum", "with a row maximum m that is not multiplied by softmax_scale", _of_unscaled),
)
