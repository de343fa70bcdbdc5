"""A mistake: a wrong definition of attention, which may explain outputs of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.oracle.attention import Operands, sink_weight, sum_broadcast
from flash_attest.oracle.rounding import units
from flash_attest.properties.instead.answer import Answer, Changed, Predicted


@dataclass(frozen=True)
class Mistake:
    """One entry of the table.

    words: the end of "out is the one ..." or "dk and dv are the ones ...", for an answer.
    in_backward: what follows them if out and lse are right.
    predict(answer): the outputs under this mistake. There may be several predictions, as a kernel
    may make the mistake in both passes or in one. None if the mistake changes nothing in this case.
    """

    name: str
    words: str | Callable[[Answer], str]
    predict: Callable[[Answer], Iterator[Predicted]]
    in_backward: str = ""

    def said(self, answer: Answer) -> str:
        """Return the words for an answer."""
        return self.words if isinstance(self.words, str) else self.words(answer)


def definition(
    name: str,
    words: str | Callable[[Answer], str],
    *forms: Callable[[Answer], Changed | None],
    in_backward: str = "",
) -> Mistake:
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

    return Mistake(name, words, predict, in_backward)


def with_scores(answer: Answer, s: torch.Tensor) -> Changed:
    """Return the inputs that have the scores s (b, h, i, j) before the mask by position.

    A bias makes them so, without a softcap. The real bias has the gradient of s.
    """
    x = answer.x
    p, *_ = answer.operands(answer.plain)
    bias = (s - p.products(slice(None))).nan_to_num(neginf=-torch.inf)

    def back(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if name != "dbias" or x.bias is None else sum_broadcast(tensor, x.bias)

    return Changed(x.with_(bias=bias), replace(answer.variant, softcap=None, bias=bias), back)


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
    sum_d dout out - dlse with the returned out. The backward computes P' = exp(S - lse), so that
    P' = r P with r = exp(right lse - lse), in which right lse belongs to the changed inputs. The
    same holds for P_sink. So its gradients are

        dv = sum_i P_i r_i dout_i                dS = P (dP' - delta') + P shift

    Here dP' and delta' come from the oracle with dout' = r dout and dlse' = r dlse, and
    shift = delta' - r delta. The oracle with dout' gives the budget, and the part with `shift` adds
    the roundings of its products. None if some number is not finite.
    """
    if not answer.backward:
        return None
    p, probs, usual = answer.operands(changed)
    dout = p.dout
    lse = (answer.got.get("lse", usual) if lse is None else lse).double()
    dead = usual == -torch.inf
    ratio = (usual - lse).masked_fill(dead, 0.0).exp().masked_fill(dead, 0.0)[..., None]
    if delta is None:
        delta = delta_of(p, answer.got["out"])
    shift = ratio * (delta_of(p, (probs @ p.v).transpose(1, 2)) - delta)
    if not bool(ratio.isfinite().all() & shift.isfinite().all()):
        return None
    dlse = None if p.dlse is None else (ratio * p.dlse).squeeze(-1)
    outputs = answer.under(changed, dout=(ratio * dout).transpose(1, 2), dlse=dlse)
    sink_shift = None if p.sinks is None else sink_weight(p.sinks, usual[..., None]) * shift
    more = _of_shift(p, probs * shift, sink_shift)
    want = {name: outputs.want[name] + changed.back(name, more[name]) for name in more if name in answer.got}
    if "dv" in answer.got:
        want["dv"] = outputs.want["dv"]

    def sigma() -> dict[str, torch.Tensor]:
        un = units(answer.case.dtype, answer.impl.precision)
        u = (un.u_p**2 + un.u_mul**2 + (16 + p.q.shape[-1]) * 2.0**-48) ** 0.5
        of_shift = _of_shift(p, probs * shift, sink_shift, squares=True)
        total = outputs.sigma()
        for name in of_shift:
            if name in want:
                total[name] = torch.hypot(total[name], u * changed.back(name, of_shift[name]))
        return total

    return Predicted(want, sigma)


def delta_of(p: Operands, out: torch.Tensor) -> torch.Tensor:
    """out (b, sq, h, dv) -> delta (b, h, sq, 1)."""
    delta = (p.dout * out.double().transpose(1, 2)).sum(-1, keepdim=True)
    return delta if p.dlse is None else delta - p.dlse


def _of_shift(
    p: Operands, t: torch.Tensor, sink: torch.Tensor | None, squares: bool = False
) -> dict[str, torch.Tensor]:
    """Return the part of the gradients from a part t (b, h, i, j) of dS.

    sink (b, h, i, 1): the same part for the sink, or None. squares: the roots of the sums of
    squares of the terms instead.
    """
    slope = p.slope(p.products(slice(None)))
    u = t if slope is None else t * slope
    q, k, root = p.q, p.k, lambda x: x
    if squares:
        t, u, q, k, root = t.square(), u.square(), q.square(), k.square(), torch.sqrt
        sink = None if sink is None else sink.square()
    scale = p.scale**2 if squares else p.scale
    parts = {
        "dq": root(scale * (u @ k)).transpose(1, 2),
        "dk": root(scale * p.sum_group(u.mT @ q)).transpose(1, 2),
    }
    if p.variant.bias is not None:
        parts["dbias"] = root(sum_broadcast(t, p.variant.bias))
    if sink is not None:
        parts["dsink"] = root(sink.sum((0, 2, 3)))
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
