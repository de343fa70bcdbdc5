"""Mistakes about which keys count (causal mask, padding keys, tiles), and about the bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from flash_attest.oracle import Mask
from flash_attest.properties.cases.case import BOOLEAN, Case
from flash_attest.properties.instead.answer import Answer, Changed
from flash_attest.properties.instead.inputs import Words
from flash_attest.properties.instead.mistake import Mistake, definition

TILES = (16, 32, 64, 128)  # the tiles that are tried where none is declared


def tiles_of(answer: Answer) -> Iterable[int]:
    """Return the numbers of keys of a tile that are tried."""
    return (answer.impl.tile[1],) if answer.impl.tile else TILES


# --- visible keys ---------------------------------------------------------------------------------


def seeing(name: str, words: Words, seen: Callable[[Answer], torch.Tensor | None]) -> Mistake:
    """Return the mistake of showing other keys to a query, by position.

    seen(answer): bool (sq, sk), or None if the mistake does not apply.
    """
    return definition(name, words, lambda answer: with_keys(answer, seen(answer)))


def with_keys(answer: Answer, seen: torch.Tensor | None) -> Changed | None:
    """Return the inputs with which each query sees the keys in `seen`; None if it does already.

    The mask becomes a bias of -inf, which the gradient of the real bias has to pass by.
    """
    if seen is None or bool((seen == answer.seen).all()):
        return None
    x, case = answer.x, answer.case
    bias = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -math.inf)[None, None]
    if x.bias is not None:
        bias = bias + x.bias.double()
    variant = replace(answer.variant, mask=Mask(), bias=bias)
    return Changed(x.with_(bias=bias), variant, lambda name, tensor: _of_real_bias(case, name, tensor))


def _of_real_bias(case: Case, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return dbias in the shape of a bias vector, to which a mask has given rows."""
    return tensor.sum(2, keepdim=True) if name == "dbias" and case.bias == "vector" else tensor


def _index(answer: Answer) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(answer.case.seqlen_q)[:, None], torch.arange(answer.case.seqlen_k)


def _moved(by: int) -> Callable[[Answer], torch.Tensor | None]:
    """Return the visible keys if the diagonal is moved by this many keys."""

    def seen(answer: Answer) -> torch.Tensor | None:
        case = answer.case
        if not case.causal:
            return None
        i, j = _index(answer)
        mask = answer.variant.mask
        offset = case.seqlen_k - case.seqlen_q if mask.alignment == "bottom_right" else 0
        return (j <= i + offset + by) & replace(mask, causal=False).visible(case.seqlen_q, case.seqlen_k)

    return seen


def _other_alignment(answer: Answer) -> torch.Tensor:
    case = answer.case
    return replace(answer.variant.mask, alignment=_other(answer)).visible(case.seqlen_q, case.seqlen_k)


def _window_aligned_otherwise(answer: Answer) -> torch.Tensor | None:
    """Return the visible keys if the window alone has the other alignment."""
    case, mask = answer.case, answer.variant.mask
    if not case.causal or case.window is None:
        return None
    lengths = case.seqlen_q, case.seqlen_k
    window = replace(mask, causal=False, alignment=_other(answer)).visible(*lengths)
    return window & replace(mask, window=None).visible(*lengths)


def _other(answer: Answer) -> str:
    return {"bottom_right": "top_left", "top_left": "bottom_right"}[answer.impl.causal_alignment]


def _without_last_keys(tile: int) -> Callable[[Answer], torch.Tensor | None]:
    """Return the visible keys without the last partial tile; tile=1: without the last key."""

    def seen(answer: Answer) -> torch.Tensor | None:
        n = answer.case.seqlen_k
        last = n - 1 if tile == 1 else n // tile * tile
        if not 0 < last < n or (tile > 1 and tile not in tiles_of(answer)):
            return None
        return answer.seen & (torch.arange(n) < last)

    return seen


def _padded(to: int) -> Callable[[Answer], Changed | None]:
    """Return inputs with keys of zeros up to the next multiple of `to`; 1: with one key more.

    A padding key has score 0, without a bias, and v = 0.
    """

    def changed(answer: Answer) -> Changed | None:
        x, n, case = answer.x, answer.case.seqlen_k, answer.case
        extra = 1 if to == 1 else -n % to
        # Under a causal mask that is aligned bottom right, no query reaches a padding key.
        if not extra or case.causal or (to > 1 and to not in {*tiles_of(answer), *TILES}):
            return None
        # A window that is right, counted from each query's own key, may reach padding keys.
        seen = torch.nn.functional.pad(answer.seen, (0, extra), value=True)
        if case.window is not None:
            own = torch.arange(case.seqlen_q)[:, None]
            own = own + (n - case.seqlen_q) * (answer.variant.mask.alignment == "bottom_right")
            ahead, (left, right) = torch.arange(n, n + extra) - own, case.window
            seen[:, n:] = (ahead >= (-torch.inf if left is None else -left)) & (
                ahead <= (torch.inf if right is None else right)
            )
        if not bool(seen[:, n:].any()):
            return None

        def pad(tensor: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(tensor, (0, 0, 0, 0, 0, extra))

        bias = None if x.bias is None else torch.nn.functional.pad(x.bias, (0, extra))
        if not bool(seen.all()):
            hidden = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -math.inf)[None, None]
            bias = hidden if bias is None else hidden + bias.double()

        def back(name: str, tensor: torch.Tensor) -> torch.Tensor:
            if name == "dbias":
                return _of_real_bias(case, name, tensor[..., :n])
            return tensor[:, :n] if name in ("dk", "dv") else tensor

        longer = x.with_(k=pad(x.k), v=pad(x.v), bias=bias)
        hidden = answer.variant.hidden
        hidden = None if hidden is None else torch.nn.functional.pad(hidden, (0, extra))
        return Changed(longer, replace(answer.variant, mask=Mask(), bias=bias, hidden=hidden), back)

    return changed


def _as_padded(to: int) -> str:
    return f"with padding keys counted, as keys of score 0 up to the next multiple of {to}"


KEYS = (
    seeing("other alignment", lambda a: f"of causal_alignment={_other(a)!r}", _other_alignment),
    seeing("window alignment", lambda a: f"with a window that is aligned {_other(a)}, unlike the causal mask",
           _window_aligned_otherwise),
    seeing("one key more", "with one key more in each row: the causal mask ends one key too late", _moved(1)),
    seeing("one key fewer", "with one key fewer in each row: the causal mask ends one key too early", _moved(-1)),
    seeing("no last key", "without the last key", _without_last_keys(1)),
    *(
        seeing(f"no last tile of {tile}", f"without the last, partial tile of {tile} keys", _without_last_keys(tile))
        for tile in TILES
    ),
    definition("one padding key", "with one padding key counted, of score 0", _padded(1)),
    *(definition(f"padding to {tile}", _as_padded(tile), _padded(tile)) for tile in TILES),
)  # fmt: skip


# --- the bias -------------------------------------------------------------------------------------


def biased(name: str, words: Words, other: Callable[[Answer, torch.Tensor], torch.Tensor | None]) -> Mistake:
    """Return the mistake of another bias. other(answer, bias): None if it does not apply.

    dbias is not predicted if the shape changes.
    """

    def changed(answer: Answer) -> Changed | None:
        bias = answer.x.bias
        new = None if bias is None else other(answer, bias)
        if new is None or (new.shape == bias.shape and bool((new.double() == bias.double()).all())):
            return None
        return Changed(answer.x.with_(bias=new), replace(answer.variant, bias=new))

    return definition(name, words, changed)


def _none(answer: Answer) -> Changed | None:
    if answer.x.bias is None:
        return None
    return Changed(answer.x.with_(bias=None), replace(answer.variant, bias=None))


def _first(dim: int) -> Callable[[Answer, torch.Tensor], torch.Tensor | None]:
    def other(answer: Answer, bias: torch.Tensor) -> torch.Tensor | None:
        return bias.narrow(dim, 0, 1).expand_as(bias) if bias.shape[dim] > 1 else None

    return other


def _rolled(dim: int, by: int) -> Callable[[Answer, torch.Tensor], torch.Tensor | None]:
    return lambda answer, bias: bias.roll(by, dim) if bias.shape[dim] > 1 else None


def _transposed(answer: Answer, bias: torch.Tensor) -> torch.Tensor | None:
    return bias.mT if bias.shape[2] == bias.shape[3] > 1 else None


def _row_of_its_tile(answer: Answer, bias: torch.Tensor) -> torch.Tensor | None:
    rows = bias.shape[2]
    tile = answer.impl.tile[0] if answer.impl.tile else TILES[0]
    return bias[:, :, torch.arange(rows) // tile * tile] if rows > 1 else None


def _rounded(dtype: torch.dtype) -> Callable[[Answer, torch.Tensor], torch.Tensor | None]:
    return lambda answer, bias: bias.to(dtype).to(bias.dtype)


def _mask_as(visible: float, hidden: float) -> Callable[[Answer, torch.Tensor], torch.Tensor | None]:
    """Return a boolean mask with other numbers where it is True, and where it is False."""
    return lambda a, bias: torch.where(bias == 0, visible, hidden) if a.case.bias in BOOLEAN else None


BIASES = (
    definition("bias ignored", "without the bias", _none),
    biased("mask inverted", "with the keys that the mask hides: True is taken for hidden", _mask_as(-math.inf, 0.0)),
    biased("mask added", "with the mask added to the scores, as 0 and 1", _mask_as(1.0, 0.0)),
    biased("bias scaled", "with the bias times softmax_scale", lambda a, bias: bias.double() * a.case.scale),
    biased("bias negated", "with the bias subtracted", lambda a, bias: -bias),
    biased("bias in base 2", "with the bias times ln 2: it is added in base 2, without log2(e)",
           lambda a, bias: bias.double() * math.log(2)),
    biased("bias of head 0", "with the bias of head 0 in every head", _first(1)),
    biased("bias of batch 0", "with the bias of batch 0 in every batch", _first(0)),
    biased("bias of query 0", "with the bias row of query 0 in every query", _first(2)),
    biased("bias of the tile's first query", "with the bias row of the first query of each tile", _row_of_its_tile),
    biased("bias of the next head", "with the bias of the next head", _rolled(1, -1)),
    biased("bias of the next batch", "with the bias of the next batch", _rolled(0, -1)),
    biased("bias of the next row", "with the bias row of the next query", _rolled(2, -1)),
    biased("bias of the next key", "with the bias of the next key", _rolled(3, -1)),
    biased("bias transposed", "with the bias transposed", _transposed),
    biased("bias in bfloat16", "with the bias rounded to bfloat16", _rounded(torch.bfloat16)),
    biased("bias in float16", "with the bias rounded to float16", _rounded(torch.float16)),
)  # fmt: skip
