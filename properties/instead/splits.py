"""Mistakes of kernels that split the keys, and of functions that merge parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.properties.calling.caller import NOBODYS
from flash_attest.properties.forms import packed
from flash_attest.properties.instead.answer import Answer, Changed, Predicted
from flash_attest.properties.instead.inputs import Words
from flash_attest.properties.instead.keys import TILES, with_keys
from flash_attest.properties.instead.mistake import Mistake, given, only

FORWARD = ("out", "lse")
Merged = Callable[[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]

# --- splits ---------------------------------------------------------------------------------------


def splitting(name: str, words: Words, changed: Callable[[Answer, int], Changed | None]) -> Mistake:
    """Return a mistake of splits. changed(answer, size): with `size` keys in a split.

    Kernels split keys, or tiles of keys, as evenly as possible.
    """

    def predict(answer: Answer) -> Iterator[Predicted]:
        number, n = answer.case.num_splits, answer.case.seqlen_k
        if number == 1 or answer.impl.supports.form == "parts" or not n:
            return
        sizes = [rounded_up(rounded_up(n, tile), number * tile) // number for tile in (1, *TILES)]
        for size in dict.fromkeys(sizes):
            if (inputs := changed(answer, size)) is not None:
                yield answer.under(inputs)
                if (backward := given(answer, inputs)) is not None:
                    yield backward

    return Mistake(name, words, predict)


def _seeing(some: Callable[[torch.Tensor, int, int], torch.Tensor]) -> Callable[[Answer, int], Changed | None]:
    """some(keys, keys in a split, index of the last split) -> the keys that count."""

    def changed(answer: Answer, size: int) -> Changed | None:
        n = answer.case.seqlen_k
        if size >= n:
            return None
        return with_keys(answer, answer.seen & some(torch.arange(n), size, (n - 1) // size))

    return changed


def _sink_in_each(answer: Answer, size: int) -> Changed | None:
    if answer.x.sinks is None:
        return None
    sinks = answer.x.sinks.double() + math.log(answer.case.num_splits)
    return Changed(answer.x, replace(answer.variant, sinks=sinks))


def _sink_in_full_ones(answer: Answer, size: int) -> Changed | None:
    full = rounded_up(answer.case.seqlen_k, size) // size
    if answer.x.sinks is None or full == 1:
        return None
    return Changed(answer.x, replace(answer.variant, sinks=answer.x.sinks.double() + math.log(full)))


# --- parts ----------------------------------------------------------------------------------------


def merging(name: str, words: Words, merged: Merged) -> Mistake:
    """Return a mistake of a merge. merged(out (n, b, s, h, d), lse (n, b, h, s)) -> its results.

    Both are float64, lse in base e.
    """

    def predict(answer: Answer) -> Iterator[Predicted]:
        if answer.impl.supports.form != "parts" or answer.case.num_splits == 1 or answer.x.sinks is not None:
            return
        x = answer.kept("parts", lambda: packed(answer.impl, answer.case, answer.x, NOBODYS))
        base = math.log(2) if answer.impl.lse == "log2" else 1.0
        want = merged(x.out_parts.double(), x.lse_parts.double() * base)
        yield only(Predicted(want, lambda: answer.right_sigma), *FORWARD)

    return Mistake(name, words, predict)


def _by_weights(outs: torch.Tensor, lses: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the parts merged by exp(lse)."""
    lse = lses.logsumexp(0)
    weight = (lses - lse.masked_fill(lse == -math.inf, 0.0)).exp()
    return {"out": (weight.transpose(-1, -2)[..., None] * outs).sum(0), "lse": lse}


def _times(factor: float) -> Merged:
    """Return the merge by exp(factor lse), whose lse is in the same base."""

    def merged(outs: torch.Tensor, lses: torch.Tensor) -> dict[str, torch.Tensor]:
        result = _by_weights(outs, factor * lses)
        return {"out": result["out"], "lse": result["lse"] / factor}

    return merged


SPLITS = (
    splitting("no last split", "without the keys of the last split", _seeing(lambda j, size, last: j < last * size)),
    splitting("no first split", "without the keys of the first split", _seeing(lambda j, size, last: j >= size)),
    splitting("first split alone", "with the keys of the first split alone", _seeing(lambda j, size, last: j < size)),
    splitting("last split alone", "with the keys of the last split alone",
              _seeing(lambda j, size, last: j >= last * size)),
    splitting("sink in each split", "with the sink counted in each of the splits", _sink_in_each),
    splitting("sink in each split with keys", "with the sink counted in each split that has keys", _sink_in_full_ones),
)  # fmt: skip
PARTS = (
    merging("mean of parts", "with the mean of the parts, without weights", lambda o, lse: {"out": o.mean(0)}),
    merging("sum of parts", "with the sum of the parts, without weights", lambda o, lse: {"out": o.sum(0)}),
    merging("first part alone", "of the first part alone", lambda o, lse: {"out": o[0], "lse": lse[0]}),
    merging("last part alone", "of the last part alone", lambda o, lse: {"out": o[-1], "lse": lse[-1]}),
    merging("no last part", "without the last part", lambda o, lse: _by_weights(o[:-1], lse[:-1])),
    merging("no first part", "without the first part", lambda o, lse: _by_weights(o[1:], lse[1:])),
    merging("parts in base 2", "with weights exp2(lse) of an lse in base e", _times(math.log(2))),
    merging("parts in base e", "with weights exp(lse) of an lse in base 2", _times(1 / math.log(2))),
    merging("largest lse", "of the part with the largest lse: the sum is left out", lambda o, lse: {"lse": lse.amax(0)}),
)  # fmt: skip
