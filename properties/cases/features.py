"""The features of attention: one table for everything that varies them or reads declarations.

A case has a value of each feature. The table defines what strategies draw, what shrinking tries,
which cases are refused and in which words, what the contract check tries, the keywords of a call,
the oracle's variant, and the table of features in docs/use/implementation-reference.md (python -m
flash_attest.properties.cases.features prints it).

A new feature needs an entry here, a field of Case (case.py), a declaration in Supports, and its
mathematics in the oracle. If implementations get a keyword, it also needs an entry in KEYWORDS
(impls/contract/supports.py, like Supports).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flash_attest.impls.contract.supports import DTYPES, HIDDEN_KINDS, KEYWORDS, WINDOW_KINDS, Supports
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.oracle import Mask, Variant
from flash_attest.properties.cases import form_features, mistaken
from flash_attest.properties.cases.case import (
    ADDED,
    BIASES,
    BLOCKED,
    HIDDEN,
    LAYOUTS,
    LISTED,
    REGIMES,
    SINKS,
    Case,
    Window,
    text_of,
)
from flash_attest.properties.cases.feature import Feature, Need, Part

SCALES = (None, 0.1, 1.0, -0.25)  # laws in test_extremes add 0 and other negative scales
# A cap shows where scores reach it. A usual one, 30, does so in the regimes with large scores.
SOFTCAPS = (None, 5.0, 2.0, 2.5, 30.0, 1e4)
TENSORS = ("bias", "sinks", "block_mask", "kv_indices")  # keywords that are tensors


def kind_of_window(window: Window | None) -> str | None:
    """Return the sides on which a window is bounded: "left", "right", "both", or None."""
    if window is None:
        return None
    return "both" if None not in window else "right" if window[0] is None else "left"


WINDOWS: dict[str | None, Window | None] = {None: None, "left": (2, None), "right": (None, 1), "both": (2, 1)}


def _with_window(case: Case, kind: str | None) -> Case:
    """Return the case with a window of this kind. Sides that it has already keep their size."""
    window = WINDOWS[kind]
    if window is not None and case.window is not None:
        window = tuple(n if n is None or old is None else old for n, old in zip(window, case.window, strict=True))
    return case.but(window=window)


def _with_declared_pair(case: Case, supports: Supports) -> Case:
    """Return the case with the declared headdim and headdim_v that are nearest to its own."""
    if case.headdim_v == case.headdim or not supports.headdims_v:
        return case
    pair = min(supports.headdims_v, key=lambda pair: (abs(pair[0] - case.headdim), pair))
    return case.but(headdim=pair[0], headdim_v=pair[1])


def _takes_hidden(supports: Supports, kind: str | None) -> bool:
    notations = dict(zip(HIDDEN_KINDS, (BLOCKED, LISTED), strict=True))
    return kind is None or any(kind in notations[notation] for notation in supports.hidden_kinds)


def in_declared_blocks(case: Case, supports: Supports) -> Case:
    """Return the case with its hidden keys in blocks of the declared size, or as lists of keys."""
    blocked = case.hidden in BLOCKED and "blocks" in supports.hidden_kinds
    if not blocked and case.hidden not in LISTED:
        return case
    return case.but(hidden_block=tuple(supports.hidden_block) if blocked else None)


def _yes_or_no(yes: str, no: str) -> Callable[[bool], str]:
    return lambda value: yes if value else no


REFUSED_LAYOUTS = {  # by each value of `strides`
    True: (),
    "last_contiguous": ("last_strided",),
    "aligned": ("last_strided", "offset", "odd_rows"),
    False: LAYOUTS[1:],
}


_TABLE = (
    Feature(
        name="dtype",
        values=DTYPES,
        takes=lambda s, dtype: dtype in s.dtypes,
        words=lambda dtype: f"dtype {text_of(dtype)}",
        declare="`dtypes={torch.float32, ...}`",
        together=True,
        tried=DTYPES,
    ),
    Feature(
        name="headdim",
        values=(),  # sizes.headdims finds them for each implementation
        of=lambda case: case.headdim if case.headdim_v == case.headdim else (case.headdim, case.headdim_v),
        takes=lambda s, dims: dims in (s.headdims_v if isinstance(dims, tuple) else s.headdims),
        words=lambda dims: (
            "headdim {} and headdim_v {}".format(*dims) if isinstance(dims, tuple) else f"headdim {dims}"
        ),
        with_value=lambda case, headdim: case.but(headdim=headdim),
        declare="`headdims=range(1, 129)`",
    ),
    Feature(
        name="causal",
        values=(False, True),
        takes=lambda s, causal: s.causal in ("optional", "always" if causal else "never"),
        words=_yes_or_no("causal", "not causal"),
        declare='`causal="optional"` or `"always"`',
        neutral=False,
        together=True,
        part=Part.MASK,
        advice='supports.causal="never" or "always"',
        needs={"causal": Need((True,), "never causal"), "not causal": Need((False,), "always causal")},
        tried=(True,),
        mistaken=mistaken.CAUSAL,
    ),
    Feature(
        name="bias",
        values=BIASES,
        takes=lambda s, kind: kind is None or kind in s.bias_kinds,
        words=lambda kind: "no bias" if kind is None else f"bias {kind}",
        with_value=lambda case, kind: case.but(bias=kind) if kind else case.but(**NO_BIAS),
        declare='`bias={"vector", "matrix"}`, `{"boolean_matrix"}`, ...',
        advice='supports.bias="none"',
        needs={
            "bias": Need(BIASES[1:], "takes no bias"),
            "added bias": Need(ADDED, "takes boolean masks alone, which are not added to the scores"),
            "matrix bias": Need(("matrix",), "takes no matrix bias"),
        },
        unnamed=(None, *ADDED),  # laws about the mask itself name boolean masks, too
        tried=BIASES[1:],
    ),
    Feature(
        name="cross",
        values=(False, True),
        takes=lambda s, cross: s.cross or not cross,
        words=_yes_or_no("seqlen_q != seqlen_k", "seqlen_q = seqlen_k"),
        of=lambda case: case.seqlen_q != case.seqlen_k,
        with_value=lambda case, cross: case.but(seqlen_k=2 * case.seqlen_q if cross else case.seqlen_q),
        declare="`cross=True`",
        neutral=False,
        needs={"cross": Need((True,), "takes no seqlen_q != seqlen_k")},
        tried=(True,),
    ),
    Feature(
        name="gqa",
        values=(False, True),
        takes=lambda s, gqa: s.gqa or not gqa,
        words=_yes_or_no("nheads_k < nheads", "nheads_k = nheads"),
        of=lambda case: case.nheads_k != case.nheads,
        with_value=lambda case, gqa: case.but(nheads=case.nheads_k * (2 if gqa else 1), nheads_k=case.nheads_k),
        declare="`gqa=True`",
        neutral=False,
        tried=(True,),
    ),
    Feature(
        name="regime",
        values=REGIMES,
        takes=lambda s, regime: True,
        words=lambda regime: f"regime {regime}",
        together=True,
    ),
    Feature(
        name="softmax_scale",
        values=SCALES,
        takes=lambda s, scale: scale is None or s.softmax_scale is True or (bool(s.softmax_scale) and scale > 0),
        words=lambda scale: "the default softmax_scale" if scale is None else f"softmax_scale {scale}",
        declare="`softmax_scale=True`",
        together=True,
        part=Part.VARIANT,
        advice="supports.softmax_scale=False",
        needs={
            "softmax_scale": Need((1.0,), "takes no softmax_scale"),
            "scales of 0 and less": Need((0.0,), "takes no softmax_scale of 0 or less"),
        },
        tried=(0.5,),
    ),
    Feature(
        name="window",
        values=(None, *WINDOW_KINDS),
        takes=lambda s, kind: kind is None or kind in s.window_kinds,
        words=lambda kind: {None: "no window", "both": "window on both sides"}.get(kind, f"window on the {kind}"),
        of=lambda case: kind_of_window(case.window),
        with_value=_with_window,
        declare='`window={"left", "right", "both"}`',
        alone=True,
        part=Part.MASK,
        advice='supports.window="none"',
        needs={"window": Need(WINDOW_KINDS, "takes no window")},
        tried=WINDOW_KINDS,
        mistaken=mistaken.WINDOW,
    ),
    Feature(
        name="softcap",
        values=SOFTCAPS,
        takes=lambda s, cap: cap is None or s.softcap,
        words=lambda cap: "no softcap" if cap is None else f"softcap {cap}",
        declare="`softcap=True`",
        alone=True,
        part=Part.VARIANT,
        advice="supports.softcap=False",
        needs={"softcap": Need(SOFTCAPS[1:], "takes no softcap")},
        tried=(30.0,),
        mistaken=mistaken.SOFTCAP,
    ),
    Feature(
        name="sinks",
        values=SINKS,
        takes=lambda s, kind: kind is None or s.sinks,
        words=lambda kind: "no sinks" if kind is None else f"sinks {kind}",
        declare="`sinks=True`",
        alone=True,
        advice="supports.sinks=False",
        needs={"sinks": Need(SINKS[1:], "takes no sinks")},
        tried=("count",),
        mistaken=mistaken.SINK,
    ),
    Feature(
        name="headdim_v",
        values=(False, True),
        takes=lambda s, differs: not differs or bool(s.headdims_v),
        words=_yes_or_no("headdim_v != headdim", "headdim_v = headdim"),
        of=lambda case: case.headdim_v != case.headdim,
        with_value=lambda case, differs: case.but(headdim_v=2 * case.headdim if differs else case.headdim),
        adapted=_with_declared_pair,
        declare="`headdims_v={(192, 128)}`",
        neutral=False,
        alone=True,
        needs={"headdim_v": Need((True,), "takes no headdim_v that differs from headdim")},
        tried=(True,),
        mistaken=mistaken.HEADDIM_V,
    ),
    Feature(
        name="dlse",
        values=(False, True),
        takes=lambda s, dlse: s.lse_grad or not dlse,
        words=_yes_or_no("a gradient of lse", "no gradient of lse"),
        declare="`lse_grad=True`",
        neutral=False,
        alone=True,
        needs={"dlse": Need((True,), "takes no gradient of lse")},
        tried=(True,),
        mistaken=mistaken.DLSE,
    ),
    Feature(
        name="hidden",
        values=HIDDEN,
        takes=_takes_hidden,
        words=lambda kind: "no hidden keys" if kind is None else f"hidden {kind}",
        with_value=lambda case, kind: case.but(hidden=kind, **({"hidden_block": (64, 64)} if kind in BLOCKED else {})),
        adapted=in_declared_blocks,
        declare='`hidden={"blocks", "indices"}` with `hidden_block=(64, 128)`',
        alone=True,
        advice='supports.hidden="none"',
        needs={
            "hidden": Need(HIDDEN[1:], "takes no hidden keys"),
            "kv_indices": Need(("topk",), "takes no kv_indices"),
        },
        tried=HIDDEN[1:],
        mistaken=mistaken.HIDDEN,
    ),
    Feature(
        name="shared_kv",
        values=(False, True),
        takes=lambda s, shared: s.shared_kv in ("optional", "always" if shared else "never"),
        words=_yes_or_no("a v that is the first columns of k", "a v of its own"),
        declare='`shared_kv="optional"` or `"always"`',
        neutral=False,
        alone=True,
        needs={"own v": Need((False,), "v is always the first columns of k, and this law sets it alone")},
        tried=(True,),
    ),
    Feature(
        name="layout",
        values=LAYOUTS,
        takes=lambda s, layout: layout not in REFUSED_LAYOUTS[s.strides],
        words=lambda layout: f"layout {layout}",
        declare='`strides=True`, `"last_contiguous"` or `"aligned"`',
        neutral="contiguous",
        unnamed=("contiguous",),
        together=True,
        needs={"strides": Need(("gapped",), "takes contiguous inputs only")},
        tried=("transposed",),
    ),
    *form_features.TABLE,
)
FEATURES: dict[str, Feature] = {feature.name: feature for feature in _TABLE}
OF_KEYWORD = {"block_mask": "hidden", "kv_indices": "hidden"}  # the others have the name of their feature
# Fields that have no meaning without a bias.
BIAS_DETAILS = ("bias_mask", "bias_keeps_key", "bias_batch", "bias_nheads", "bias_dtype")
NO_BIAS = {"bias": None} | {name: getattr(Case, name) for name in BIAS_DETAILS}


def keywords_of(case: Case) -> dict[str, Any]:
    """Return the keywords of a call, without those that are tensors."""
    return {name: getattr(case, name) for name in KEYWORDS if name not in TENSORS}


def mask_of(case: Case, alignment: str) -> Mask:
    """Return the mask by position of a case. (Its bias may hide further keys.)"""
    return Mask(alignment=alignment, **_of_part(case, Part.MASK))


def variant_of(case: Case, alignment: str, x: Inputs) -> Variant:
    """Return what the oracle needs besides q, k and v, for a case and its inputs."""
    bias = None if x.bias is None else numbers_of(x.bias)
    return Variant(mask_of(case, alignment), bias, sinks=x.sinks, hidden=hidden_of(case, x),
                   **_of_part(case, Part.VARIANT))  # fmt: skip


def hidden_of(case: Case, x: Inputs) -> torch.Tensor | None:
    """Return which keys block_mask or kv_indices hide: (b, h, sq, sk); None without them."""
    if x.block_mask is not None:
        rows, columns = case.hidden_block
        shown = x.block_mask.repeat_interleave(rows, 2).repeat_interleave(columns, 3)
        return ~shown[:, :, : case.seqlen_q, : case.seqlen_k]
    if x.kv_indices is None:
        return None
    keys = x.kv_indices.transpose(1, 2).long()  # (b, hk, sq, topk)
    hidden = torch.ones(*keys.shape[:3], case.seqlen_k + 1, dtype=torch.bool, device=keys.device)
    hidden.scatter_(3, torch.where(keys < 0, case.seqlen_k, keys), False)  # padding shows a key behind the last
    return hidden[..., : case.seqlen_k].repeat_interleave(case.nheads // case.nheads_k, 1)


def seen_of(case: Case, alignment: str, x: Inputs) -> torch.Tensor:
    """Return bool, broadcastable to (b, h, sq, sk): which keys each query sees, without those that
    are hidden. (A bias may hide more.)
    """
    seen = mask_of(case, alignment).visible(case.seqlen_q, case.seqlen_k, device=x.q.device)
    return seen if (hidden := hidden_of(case, x)) is None else seen & ~hidden


def _of_part(case: Case, part: Part) -> dict[str, Any]:
    return {feature.name: getattr(case, feature.name) for feature in _TABLE if feature.part is part}


def numbers_of(bias: torch.Tensor) -> torch.Tensor:
    """Return what is added to the scores: of a boolean mask, 0 where it is True, else -inf."""
    if bias.dtype != torch.bool:
        return bias
    return torch.zeros_like(bias, dtype=torch.float32).masked_fill(~bias, -torch.inf)


def documentation() -> str:
    """Return the table of features, as docs/use/implementation-reference.md shows it."""
    lines = ["| feature | declared by | keyword of forward and backward | drawn values |", "|---|---|---|---|"]
    for feature in _TABLE:
        if feature.declare:
            keyword = " or ".join(f"`{name}`" for name in KEYWORDS if OF_KEYWORD.get(name, name) == feature.name)
            values = ", ".join(f"`{text_of(value)}`" for value in feature.values)
            lines.append(f"| {feature.name} | {feature.declare} | {keyword} | {values} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(documentation())
