"""The features of attention: one table for everything that varies them or reads declarations.

A case has a value of each feature. The table defines what strategies draw, what shrinking tries,
which cases are refused and in which words, what the contract check tries, the keywords of a call,
the oracle's variant, and the table of features in docs/use/implementation-reference.md (python -m
flash_attest.properties.cases.features prints it).

A new feature needs an entry here, a field of Case (case.py), a declaration in Supports, and its
mathematics in the oracle. If implementations get a keyword, it also needs an entry in KEYWORDS
(impls/contract/record.py, like Supports).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from flash_attest.impls.contract.record import DTYPES, KEYWORDS, Supports
from flash_attest.oracle import Mask, Variant
from flash_attest.properties.cases.case import ADDED, BIASES, LAYOUTS, REGIMES, Case, text_of

SCALES = (None, 0.5, 0.1, 1.0, -0.25)  # laws in test_extremes add 0 and other negative scales


class Part(Enum):
    """The record of the oracle that takes the feature as an argument."""

    MASK = "mask"
    VARIANT = "variant"


@dataclass(frozen=True)
class Need:
    """A need of a law: the implementation takes one of these values. If not, `reason` is shown."""

    values: tuple
    reason: str


@dataclass(frozen=True)
class Feature:
    """One feature of attention.

    name: the name in laws and tables.
    values: the values to draw, the simplest first.
    takes: (supports, value) -> whether an implementation with this declaration takes the value.
    words: value -> the value in the words of messages: "bias vector".
    of: case -> its value; by default the field of a case that has the feature's name.
    with_value: (case, value) -> the case with that value; by default that field is changed.
    declare: how `Supports` declares it, as documentation shows it.
    neutral: the value that turns the feature off; also None if there is no such value.
    unnamed: the values that a law gets if it does not name the feature; None means all.
    together: whether the value is drawn together with others in a single draw. strategies.py draws
    the other features one by one.
    part: whether it is an argument of oracle.Mask or of oracle.Variant. A bias, which is a tensor,
        is passed separately.
    advice: how to declare an implementation that does not take the keyword.
    needs: the needs that laws may have of this feature, by name.
    tried: the values that the contract check tries, one by one.
    mistaken: what kernels compute instead: (name, words after "out is the one", case -> the case
        that a kernel mistakes it for, or None). Messages name what fits (properties/instead).
    """

    name: str
    values: tuple
    takes: Callable[[Supports, Any], bool]
    words: Callable[[Any], str]
    of: Callable[[Case], Any] | None = None
    with_value: Callable[[Case, Any], Case] | None = None
    declare: str = ""
    neutral: Any = None
    unnamed: tuple | None = None
    together: bool = False
    part: Part | None = None
    advice: str = ""
    needs: Mapping[str, Need] = field(default_factory=dict)
    tried: tuple = ()
    mistaken: tuple[tuple[str, str, Callable[[Case], Case | None]], ...] = ()

    def value(self, case: Case) -> Any:
        """Return the value that a case has."""
        return self.of(case) if self.of else getattr(case, self.name)

    def changed(self, case: Case, value: Any) -> Case:
        """Return the case with another value."""
        return self.with_value(case, value) if self.with_value else case.but(**{self.name: value})

    def wanted(self, want: Any) -> tuple:
        """Return the values that a law wants.

        True means every value except the neutral one, False means only the neutral one.
        """
        if isinstance(want, tuple):
            return want
        if want is True:
            return tuple(value for value in self.values if value != self.neutral)
        return (self.neutral,) if want is False else (want,)

    def drawn(self, supports: Supports, wanted: tuple | None) -> tuple:
        """Return the values to draw for an implementation and a law, the simplest first."""
        if wanted is None:
            wanted = self.values if self.unnamed is None else self.unnamed
        return tuple(value for value in wanted if self.takes(supports, value))


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
        values=(),  # strategies.headdims draws them for each implementation
        takes=lambda s, headdim: headdim in s.headdims,
        words=lambda headdim: f"headdim {headdim}",
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
        mistaken=(
            ("causal ignored", "of causal=False: the causal mask is left out", lambda case: case.but(causal=False)),
            ("causal", "of causal=True: a causal mask is applied, unasked", lambda case: case.but(causal=True)),
        ),
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
        takes=lambda s, scale: s.softmax_scale or scale is None,
        words=lambda scale: "the default softmax_scale" if scale is None else f"softmax_scale {scale}",
        declare="`softmax_scale=True`",
        together=True,
        part=Part.VARIANT,
        advice="supports.softmax_scale=False",
        needs={"softmax_scale": Need((1.0,), "takes no softmax_scale")},
        tried=(0.5,),
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
)
FEATURES: dict[str, Feature] = {feature.name: feature for feature in _TABLE}
# Fields that have no meaning without a bias.
BIAS_DETAILS = ("bias_mask", "bias_keeps_key", "bias_batch", "bias_nheads", "bias_dtype")
NO_BIAS = {"bias": None} | {name: getattr(Case, name) for name in BIAS_DETAILS}


def keywords_of(case: Case) -> dict[str, Any]:
    """Return the keywords of a call, without the bias, which is a tensor."""
    return {name: FEATURES[name].value(case) for name in KEYWORDS if name != "bias"}


def mask_of(case: Case, alignment: str) -> Mask:
    """Return the mask by position of a case. (Its bias may hide further keys.)"""
    return Mask(alignment=alignment, **{f.name: f.value(case) for f in _TABLE if f.part is Part.MASK})


def variant_of(case: Case, alignment: str, bias: torch.Tensor | None) -> Variant:
    """Return what the oracle needs besides q, k and v, for a case and the tensor of its bias."""
    of_variant = {f.name: f.value(case) for f in _TABLE if f.part is Part.VARIANT}
    return Variant(mask_of(case, alignment), None if bias is None else numbers_of(bias), **of_variant)


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
            keyword = f"`{feature.name}`" if feature.name in KEYWORDS else ""
            values = ", ".join(f"`{text_of(value)}`" for value in feature.values)
            lines.append(f"| {feature.name} | {feature.declare} | {keyword} | {values} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(documentation())
