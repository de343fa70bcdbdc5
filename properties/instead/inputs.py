"""Mistakes about softmax_scale, heads, batches, columns, and the values themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.impls.contract.heads import order_of
from flash_attest.properties.instead.answer import Answer, Changed
from flash_attest.properties.instead.mistake import Mistake, definition

Words = str | Callable[[Answer], str]
PADDED = (8, 16, 32, 64, 128)  # to whose multiples kernels pad the head dim
COLUMNS = (32, 64, 128)  # the columns of one load


# --- softmax_scale --------------------------------------------------------------------------------


def scaled(name: str, words: Words, scale: Callable[[Answer], float | None]) -> Mistake:
    """Return the mistake of another softmax_scale. scale(answer): None if it does not apply."""

    def changed(answer: Answer) -> Changed | None:
        other = scale(answer)
        if other is None or math.isclose(other, answer.case.scale, rel_tol=1e-9, abs_tol=1e-30):
            return None
        return Changed(answer.x, replace(answer.variant, softmax_scale=other))

    return definition(name, words, changed)


def _default(answer: Answer) -> float:
    return answer.case.headdim**-0.5


def _of_padded(multiple: int) -> Callable[[Answer], float | None]:
    def scale(answer: Answer) -> float | None:
        return rounded_up(answer.case.headdim, multiple) ** -0.5 if answer.case.softmax_scale is None else None

    return scale


def _of_next_power(answer: Answer) -> float | None:
    return None if answer.case.softmax_scale is not None else (1 << (answer.case.headdim - 1).bit_length()) ** -0.5


def _squared_words(answer: Answer) -> str:
    root = ", or 1 / headdim is taken for 1 / sqrt(headdim)" if answer.case.softmax_scale is None else ""
    return f"with softmax_scale squared: the scale is applied twice{root}"


def _in_base_2(answer: Answer) -> Changed:
    x, variant, factor = answer.x, answer.variant, math.log(2)
    bias = None if x.bias is None else x.bias.double() * factor
    softcap = None if variant.softcap is None else variant.softcap * factor
    changed = replace(variant, bias=bias, softcap=softcap, softmax_scale=answer.case.scale * factor)
    return Changed(x.with_(bias=bias), changed)


def _sinks_in_base_2(answer: Answer) -> Changed | None:
    if answer.x.sinks is None:
        return None
    keys = _in_base_2(answer)
    return Changed(keys.x, replace(keys.variant, sinks=answer.x.sinks.double() * math.log(2)))


SCALES = (
    scaled(
        "default scale",
        lambda a: f"of the default softmax_scale: {a.case.softmax_scale:g}, as given, is ignored",
        lambda a: None if a.case.softmax_scale is None else _default(a),
    ),
    scaled("no scale", "of softmax_scale = 1: the scale is left out", lambda a: 1.0),
    scaled("squared scale", _squared_words, lambda a: a.case.scale**2),
    scaled(
        "inverse scale",
        "with 1 / softmax_scale in place of softmax_scale",
        lambda a: 1 / a.case.scale if a.case.scale else None,
    ),
    scaled(
        "absolute scale",
        "of |softmax_scale|: the sign of the scale is lost",
        lambda a: abs(a.case.scale) if a.case.scale < 0 else None,
    ),
    *(
        scaled(
            f"scale of a multiple of {d}",
            f"of the default scale for a head dim that is padded to a multiple of {d}",
            _of_padded(d),
        )
        for d in PADDED
    ),
    scaled(
        "scale of the next power",
        "of the default scale for a head dim that is padded to a power of two",
        _of_next_power,
    ),
    definition(
        "base 2", "in base 2: exp2 without log2(e) in its argument, a factor of 1.4427", _in_base_2, _sinks_in_base_2
    ),
)


# --- heads, batches, columns and values -----------------------------------------------------------


def other_keys(
    name: str, words: Words, index: Callable[[Answer], torch.Tensor | None], dim: int, names: tuple[str, ...]
) -> Mistake:
    """Return the mistake of taking k or v of another head (dim=2) or batch (dim=0).

    index(answer): for each query head, or batch, where its keys are taken from. Their gradients go
    there, too, or to the right place.
    """

    def changed(answer: Answer, stored: tuple[str, ...] = names) -> Changed | None:
        where = index(answer)
        if where is None:
            return None
        case, x, group = answer.case, answer.x, answer.group
        own = torch.arange(case.nheads) // group if dim == 2 else torch.arange(case.batch)
        if bool((where == own).all()):
            return None
        taken = {n: getattr(x, n).index_select(dim, where if n in names else own) for n in ("k", "v")}

        def back(output: str, tensor: torch.Tensor) -> torch.Tensor:
            if output not in ("dk", "dv"):
                return tensor
            to = where if output[1] in stored else own
            return torch.zeros_like(getattr(x, output[1]), dtype=tensor.dtype).index_add_(dim, to, tensor)

        return Changed(x.with_(**taken), answer.variant, back)

    return definition(name, words, changed, lambda answer: changed(answer, ()))


def in_other_order(answer: Answer) -> torch.Tensor | None:
    """Return the key head of each query head in the order that is not declared; None without GQA.

    The heads of both are in the suite's order.
    """
    case = answer.case
    if answer.group == 1:
        return None
    theirs = torch.arange(case.nheads)  # the heads of the implementation, by their own numbers
    order = order_of(answer.impl, case.nheads, case.nheads_k)
    return theirs % case.nheads_k if order is None else (theirs // answer.group)[order.argsort()]


def words_of_other_order(beginning: str) -> Words:
    """Return the words of a mistake of the order of heads: how they begin, and both orders."""

    def words(answer: Answer) -> str:
        orders = ("h % nheads_k", "h // group")
        of, in_place_of = orders if answer.impl.gqa_order == "blocks" else orders[::-1]
        return f"{beginning} {of} in place of {in_place_of}"

    return words


def _zeros(size: str) -> Callable[[Answer], torch.Tensor]:
    return lambda answer: torch.zeros(getattr(answer.case, size), dtype=torch.long)


def _next(size: str) -> Callable[[Answer], torch.Tensor | None]:
    def index(answer: Answer) -> torch.Tensor | None:
        n = getattr(answer.case, size)
        return (torch.arange(n) + 1) % n if answer.group == 1 or size == "batch" else None

    return index


def _first_columns(n: int) -> Callable[[Answer], Changed | None]:
    def changed(answer: Answer) -> Changed | None:
        x, headdim = answer.x, answer.case.headdim
        if headdim <= n:
            return None
        q, k = x.q.clone(), x.k.clone()
        q[..., n:], k[..., n:] = 0, 0
        return Changed(x.with_(q=q, k=k), answer.variant)

    return changed


def _swapped(answer: Answer) -> Changed | None:
    if answer.case.headdim_v != answer.case.headdim:
        return None
    return Changed(answer.x.with_(k=answer.x.v, v=answer.x.k), answer.variant)


BOTH = ("k", "v")
HEADS = (
    other_keys("heads in the other order", words_of_other_order("with k and v of head"), in_other_order, 2, BOTH),
    other_keys("heads of k in the other order", words_of_other_order("with k of head"), in_other_order, 2, ("k",)),
    other_keys("heads of v in the other order", words_of_other_order("with v of head"), in_other_order, 2, ("v",)),
    other_keys("head 0", "with k and v of head 0 in every head", _zeros("nheads"), 2, BOTH),
    other_keys("k of head 0", "with k of head 0 in every head", _zeros("nheads"), 2, ("k",)),
    other_keys("v of head 0", "with v of head 0 in every head", _zeros("nheads"), 2, ("v",)),
    other_keys("next head", "with k and v of the next head", _next("nheads"), 2, BOTH),
    other_keys("batch 0", "with k and v of batch 0 in every batch", _zeros("batch"), 0, BOTH),
    other_keys("k of batch 0", "with k of batch 0 in every batch", _zeros("batch"), 0, ("k",)),
    other_keys("v of batch 0", "with v of batch 0 in every batch", _zeros("batch"), 0, ("v",)),
)
VALUES = (
    *(
        definition(f"{n} columns", f"with scores of the first {n} columns of q and k alone", _first_columns(n))
        for n in COLUMNS
    ),
    definition("k and v swapped", "with k and v exchanged", _swapped),
)
