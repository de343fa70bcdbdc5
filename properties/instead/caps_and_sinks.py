"""Mistakes about softcaps, sinks and gradients of lse that no other case expresses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from flash_attest import oracle
from flash_attest.oracle.attention import sink_weight, sum_broadcast
from flash_attest.properties.instead.answer import Answer, Changed, Predicted
from flash_attest.properties.instead.mistake import Mistake, definition, given, of_gradients, only, with_scores

# --- softcap --------------------------------------------------------------------------------------


def _of_scores(answer: Answer, s: torch.Tensor, slopes: tuple[torch.Tensor, ...]) -> Iterator[Predicted]:
    """Yield the outputs of the scores s (b, h, i, j), with each of these slopes of S in R."""
    p, *_ = answer.operands(answer.plain)
    changed = with_scores(answer, s)
    predicted = answer.under(replace(changed, back=lambda name, tensor: tensor))
    if not answer.backward:
        yield predicted
        return
    for slope in slopes:
        dr = predicted.want["dbias"] * slope
        more = {
            "dq": p.scale * (dr @ p.k).transpose(1, 2),
            "dk": p.scale * p.sum_group(dr.mT @ p.q).transpose(1, 2),
            "dbias": changed.back("dbias", predicted.want["dbias"]),
        }
        yield Predicted(predicted.want | more, lambda: answer.under(changed).sigma())


def _of_biased(answer: Answer) -> Iterator[Predicted]:
    """Yield the outputs of S = softcap tanh((R + bias) / softcap), where -inf becomes -softcap."""
    cap, bias = answer.variant.softcap, answer.variant.bias
    if cap is None or bias is None:
        return
    p, *_ = answer.operands(answer.plain)
    t = torch.tanh((p.products(slice(None)) + bias.double()) / cap)
    for predicted in _of_scores(answer, cap * t, (1 - t * t,)):
        if answer.backward:
            full = answer.under(replace(with_scores(answer, cap * t), back=lambda name, tensor: tensor))
            predicted.want["dbias"] = sum_broadcast(full.want["dbias"] * (1 - t * t), bias)
        yield predicted


def _times_its_tanh(answer: Answer) -> Iterator[Predicted]:
    """Yield the outputs of S = R tanh(R) + bias. The backward may have the slope of another."""
    if answer.variant.softcap is None:
        return
    p, *_ = answer.operands(answer.plain)
    r = p.products(slice(None))
    t, bias = torch.tanh(r), answer.variant.bias
    s = r * t if bias is None else r * t + bias.double()
    yield from _of_scores(answer, s, (t + r * (1 - t * t), 1 - t * t))


def _without_slope(answer: Answer) -> Predicted | None:
    """Return the gradients with dR = dS."""
    if answer.variant.softcap is None:
        return None
    p, *_ = answer.operands(answer.plain)
    scores = p.capped(p.products(slice(None)))
    changed = with_scores(answer, scores if answer.x.bias is None else scores + answer.x.bias.double())
    return only(given(answer, changed) or answer.under(changed), "dq", "dk")


# --- sinks ----------------------------------------------------------------------------------------


def _other_sinks(name: str, words: str, change: Callable[[Answer, torch.Tensor], torch.Tensor]) -> Mistake:
    """Return the mistake of other sinks. change: (answer, sinks (h) in float64) -> the others."""

    def changed(answer: Answer) -> Changed | None:
        if answer.x.sinks is None:
            return None
        sinks = answer.x.sinks.double()
        other = change(answer, sinks)
        if bool((other == sinks).all()) or not bool((other < torch.inf).all()):  # -inf times a scale of 0 or less
            return None
        return Changed(answer.x, replace(answer.variant, sinks=other))

    return definition(name, words, changed)


def _in_blocks(
    index: Callable[[Answer, torch.Tensor], torch.Tensor],
) -> Callable[[Answer, torch.Tensor], torch.Tensor]:
    """Return the change to the sinks of other heads: (answer, numbers of heads) -> their numbers.

    In the order modulo, heads have other numbers than the words say, so nothing is changed.
    """

    def change(answer: Answer, sinks: torch.Tensor) -> torch.Tensor:
        blocks = answer.impl.gqa_order == "blocks"
        return sinks[index(answer, torch.arange(len(sinks)))] if blocks else sinks

    return change


def _without_sinks(answer: Answer) -> Changed:
    return Changed(answer.x.with_(sinks=None), replace(answer.variant, sinks=None))


def _capped(answer: Answer, sinks: torch.Tensor) -> torch.Tensor:
    cap = answer.variant.softcap
    return sinks if cap is None else cap * torch.tanh(sinks / cap)


def _raw(answer: Answer, of_maximum: bool) -> Iterator[Predicted]:
    """Yield out and lse of l = sum_j exp(S - m) + sink, with or without a row maximum m.

    A sink below 0 gives another weight, too, but perhaps no lse.
    """
    if answer.x.sinks is None:
        return
    x, keys = answer.x, answer.under(_without_sinks(answer))
    variants = (answer.variant, replace(answer.variant, sinks=None)) if of_maximum else ()
    maxima = [oracle.row_maximum(x.q, x.k, variant) for variant in variants]
    for m in maxima or [torch.zeros_like(keys.want["lse"])]:
        l = (keys.want["lse"] - m).exp()
        total = l + x.sinks.double()[:, None]
        share = torch.where(total == 0, 0.0, l / total).transpose(1, 2)[..., None]
        if bool(share.isfinite().all()):
            want = {"out": keys.want["out"] * share}
            if bool((total >= 0).all()):
                want["lse"] = m + total.log()
            yield Predicted(want, lambda share=share: keys.sigma() | {"out": keys.sigma()["out"] * share.abs()})


def _rebuilt_without_sink(answer: Answer) -> Predicted | None:
    if answer.x.sinks is None:
        return None
    lse = answer.under(_without_sinks(answer)).want["lse"]
    return given(answer, answer.plain, lse=lse.masked_fill(lse == -torch.inf, torch.inf))


def _of_dsink(name: str, words: str, weight: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Mistake:
    """Return the mistake of another dsink. weight: (P_sink, delta), each (b, h, sq, 1) -> what is
    summed over batches and queries.
    """

    def predicted(answer: Answer) -> Predicted | None:
        if "dsink" not in answer.got:
            return None
        p, right = answer.operands(answer.plain)[0], answer.right.want
        delta = (p.dout * right["out"].transpose(1, 2)).sum(-1, keepdim=True)
        delta = delta if p.dlse is None else delta - p.dlse
        dsink = weight(sink_weight(p.sinks, right["lse"][..., None]), delta)
        return Predicted({"dsink": dsink.sum((0, 2, 3))}, lambda: only(answer.right, "dsink").sigma())

    return of_gradients(name, words, predicted)


# --- dlse -----------------------------------------------------------------------------------------


def _other_dlse(name: str, words: str, factor: float) -> Mistake:
    """Return the mistake of a factor of dlse."""

    def predicted(answer: Answer) -> Predicted | None:
        if answer.x.dlse is None:
            return None
        changed = Changed(answer.x.with_(dlse=answer.x.dlse * factor), answer.variant)
        return given(answer, changed)

    return of_gradients(name, words, predicted)


FORWARD = (
    Mistake("softcap of the biased score", "with the softcap applied to score + bias, not to the score alone",
            _of_biased),
    Mistake("score times its tanh", "with score * tanh(score) in place of softcap * tanh(score / softcap)",
            _times_its_tanh),
    Mistake("raw sink", "with the sink itself added to the row sum: exp(sink - m) is what counts",
            lambda answer: _raw(answer, of_maximum=True)),
    Mistake("raw sink without maximum", "with the sink itself added to sum_j exp(score): exp(sink) is what counts",
            lambda answer: _raw(answer, of_maximum=False)),
    _other_sinks("sinks twice", "with each sink counted twice", lambda a, sinks: sinks + math.log(2)),
    _other_sinks("sink of the next head", "with the sink of the next head", lambda a, sinks: sinks.roll(-1)),
    _other_sinks("sink of head 0", "with the sink of head 0 in every head", lambda a, sinks: sinks[:1].expand_as(sinks)),
    _other_sinks("sink of the key head", "with the sink of the key head, h // group, in place of the query head",
                 _in_blocks(lambda a, head: head // a.group)),
    _other_sinks("sink of the head modulo", "with the sink of head h % nheads_k in place of h",
                 _in_blocks(lambda a, head: head % a.case.nheads_k)),
    _other_sinks("sink capped", "with the sink under the softcap", _capped),
    _other_sinks("sink scaled", "with the sink times softmax_scale", lambda a, sinks: sinks * a.case.scale),
)  # fmt: skip
BACKWARD = (
    of_gradients("no slope of the softcap", "without the slope of the softcap, 1 - tanh(score / softcap)^2",
                 _without_slope),
    of_gradients("P without the sink", "with P that is computed again without the sink", _rebuilt_without_sink),
    _of_dsink("dsink without delta", "without delta: -P_sink in place of -P_sink delta", lambda p, delta: -p),
    _of_dsink("dsink of batch 0", "of batch 0 alone, where it should be a sum", lambda p, delta: -(p * delta)[:1]),
    _of_dsink("dsink of the last batch", "of the last batch alone, where it should be a sum",
              lambda p, delta: -(p * delta)[-1:]),
    _other_dlse("dlse negated", "with the sign of dlse wrong: delta is sum dout out - dlse", -1.0),
    _other_dlse("dlse times ln 2", "with dlse times ln 2", math.log(2)),
    _other_dlse("dlse over ln 2", "with dlse divided by ln 2", 1 / math.log(2)),
)  # fmt: skip
