"""A mistake: a wrong definition of attention, which may explain outputs of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.oracle.attention import Operands, sum_broadcast
from flash_attest.oracle.rounding import units
from flash_attest.properties.instead.answer import Answer, Changed, Predicted


@dataclass(frozen=True)
class Mistake:
    """One entry of the table.

    words: the end of "out is the one ..." or "dk and dv are the ones ...", for an answer.
    predict(answer): the outputs under this mistake. There may be several predictions, as a kernel
    may make the mistake in both passes or in one. None if the mistake changes nothing in this case.
    """

    name: str
    words: str | Callable[[Answer], str]
    predict: Callable[[Answer], Iterator[Predicted]]

    def said(self, answer: Answer) -> str:
        """Return the words for an answer."""
        return self.words if isinstance(self.words, str) else self.words(answer)


def definition(name: str, words: str | Callable[[Answer], str], *forms: Callable[[Answer], Changed | None]) -> Mistake:
    """Return the mistake of computing attention of changed inputs, in both passes or in one.

    forms: each takes an answer and returns the inputs, or None if the mistake does not apply to its
    case. Several forms differ in their gradients.
    """

    def predict(answer: Answer) -> Iterator[Predicted]:
        for changed in forms:
            if (inputs := changed(answer)) is None:
                return
            yield answer.under(inputs)
            if (backward := given(answer, inputs)) is not None:
                yield backward

    return Mistake(name, words, predict)


def of_gradients(
    name: str, words: str | Callable[[Answer], str], predicted: Callable[[Answer], Predicted | None]
) -> Mistake:
    """Return a mistake of the backward alone, which uses out and lse as they were returned."""

    def predict(answer: Answer) -> Iterator[Predicted]:
        if answer.backward and (outputs := predicted(answer)) is not None:
            yield outputs

    return Mistake(name, words, predict)


def given(
    answer: Answer,
    changed: Changed,
    *,
    lse: torch.Tensor | None = None,
    delta: torch.Tensor | None = None,
) -> Predicted | None:
    """Return the gradients that a backward gives with these inputs, and with this lse and delta.

    By default lse is the returned one (without one, lse of these inputs), and delta is
    sum_d dout out with the returned out. The backward computes P' = exp(S - lse), so that P' = r P
    with r = exp(right lse - lse), in which right lse belongs to the changed inputs. So its
    gradients are

        dv = sum_i P_i r_i dout_i                dS = P (dP' - delta') + P shift

    Here dP' and delta' come from the oracle with dout' = r dout, and shift = delta' - r delta.
    The oracle with dout' gives the budget, and the part with `shift` adds the roundings of its
    products. None if some number is not finite.
    """
    if not answer.backward:
        return None
    p, probs = answer.operands(changed)
    plain = answer.right if changed is answer.plain else answer.under(Changed(changed.x, changed.variant))
    usual, dout = plain.want["lse"], p.dout
    lse = (answer.got.get("lse", usual) if lse is None else lse).double()
    dead = usual == -torch.inf
    ratio = (usual - lse).masked_fill(dead, 0.0).exp().masked_fill(dead, 0.0)[..., None]
    if delta is None:
        delta = (dout * answer.got["out"].transpose(1, 2).double()).sum(-1, keepdim=True)
    right_delta = (dout * plain.want["out"].transpose(1, 2)).sum(-1, keepdim=True)
    shift = ratio * (right_delta - delta)
    if not bool(ratio.isfinite().all() & shift.isfinite().all()):
        return None
    outputs = answer.under(changed, dout=(ratio * dout).transpose(1, 2))
    more = _of_shift(p, probs * shift)
    want = {name: outputs.want[name] + changed.back(name, more[name]) for name in more if name in answer.got}
    if "dv" in answer.got:
        want["dv"] = outputs.want["dv"]

    def sigma() -> dict[str, torch.Tensor]:
        un = units(answer.case.dtype, answer.impl.precision)
        u = (un.u_p**2 + un.u_mul**2 + (16 + p.q.shape[-1]) * 2.0**-48) ** 0.5
        of_shift = _of_shift(p, probs * shift, squares=True)
        total = outputs.sigma()
        for name in of_shift:
            if name in want:
                total[name] = torch.hypot(total[name], u * changed.back(name, of_shift[name]))
        return total

    return Predicted(want, sigma)


def _of_shift(p: Operands, t: torch.Tensor, squares: bool = False) -> dict[str, torch.Tensor]:
    """Return the part of dq, dk and dbias from a part t (b, h, i, j) of dS.

    squares: the roots of the sums of squares of its terms instead.
    """
    q, k, root = p.q, p.k, lambda x: x
    if squares:
        t, q, k, root = t.square(), q.square(), k.square(), torch.sqrt
    scale = p.scale**2 if squares else p.scale
    parts = {
        "dq": root(scale * (t @ k)).transpose(1, 2),
        "dk": root(scale * p.sum_group(t.mT @ q)).transpose(1, 2),
    }
    if p.variant.bias is not None:
        parts["dbias"] = root(sum_broadcast(t, p.variant.bias))
    return parts


def only(predicted: Predicted, *names: str) -> Predicted:
    """Return the prediction of these outputs alone."""
    return Predicted({name: predicted.want[name] for name in names if name in predicted.want}, predicted.sigma)


def mapped(predicted: Predicted, change: Callable[[str, torch.Tensor], torch.Tensor], *names: str) -> Predicted:
    """Return a prediction of these outputs with a linear map applied to them."""
    names = names or tuple(name for name in predicted.want if name in GRADIENTS)

    def sigma() -> dict[str, torch.Tensor]:
        return {name: change(name, tensor).abs() for name, tensor in predicted.sigma().items() if name in names}

    return Predicted({name: change(name, predicted.want[name]) for name in names if name in predicted.want}, sigma)
