"""Hypothesis strategies: cases inside what an implementation supports, near the edges where kernels break.

Simplest values come first everywhere and sizes are drawn before everything else, so a failing case shrinks to the
shortest sequences that still fail, then to the fewest heads, then to the plainest inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch
from hypothesis import reject
from hypothesis import strategies as st

from impls.contract import DTYPES, LARGEST_HEADDIM, Implementation
from properties.cases.case import BIAS_MASKS, LAYOUTS, REGIMES, Case
from properties.cases.support import unsupported
from properties.failures import AnotherCase

SCALES = (0.5, 0.1, 1.0, -0.25)  # beside the default; 0 and more of the negative are test_extremes'
HEADS = (
    (1, 1),
    (1, 3),
    (3, 1),
    (2, 2),
    (2, 3),
    (3, 2),
    (1, 8),
)
LONG = 8  # how many times longer sequences get for laws that need no oracle for the whole
GROUPS = (2, 3, 4, 8)  # query heads per key head, with GQA


@dataclass(frozen=True)
class Sizes:
    """How large cases get on a device: the CPU's are small, because an interpreter may stand behind a call."""

    seqlen: int
    headdim: int
    elements: int  # of the score matrix over all heads: what the float64 oracle holds at once

    @classmethod
    def on(cls, device: str, share: float = 1.0) -> Sizes:
        """The sizes for "cpu" or "cuda"; fewer elements for an implementation that is judged on a share only."""
        return cls(130, 130, int(2**18 * share)) if device == "cpu" else cls(1100, 256, int(2**23 * share))


def one_of(values: tuple) -> st.SearchStrategy:
    """One of these values, the first being the simplest. Kept, as making a strategy costs more than drawing from it."""
    return _one_of(values, tuple(map(type, values)))


@lru_cache(maxsize=1000)
def _one_of(values: tuple, types: tuple[type, ...]) -> st.SearchStrategy:  # types keep (True,) and (1,) apart
    return st.sampled_from(values) if values else st.nothing()


def edges(most: int, least: int = 1) -> list[int]:
    """t - 1, t, t + 1, t + 2 and 2 t + 1 for every power of two t, within least .. most: where tiles end."""
    near = {t + d for t in (2**p for p in range(15)) for d in (-1, 0, 1, 2)} | {2 * 2**p + 1 for p in range(15)}
    return sorted(n for n in near if least <= n <= most)


@lru_cache(maxsize=1000)
def seqlens(most: int, least: int = 1) -> st.SearchStrategy[int]:
    """Any length from least to most, or one near an edge."""
    return st.one_of(st.integers(least, most), st.sampled_from(edges(most, least) or [least]))


def headdims(impl: Implementation, most: int) -> st.SearchStrategy[int]:
    """A supported head dim up to `most` (the smallest if all are larger), one near an edge, or now and then a larger one."""
    return _headdims(tuple(impl.supports.headdim_list), most)


@lru_cache(maxsize=1000)
def _headdims(supported: tuple[int, ...], most: int) -> st.SearchStrategy[int]:
    fitting = [d for d in supported if d <= most] or supported[:1]
    near = [d for d in edges(most) if d in fitting] or fitting
    larger = [d for d in (*edges(LARGEST_HEADDIM), *supported[-1:]) if d in supported and d > most]
    often = max(1, len(fitting) // len(near))  # edges as often as all others together, larger ones now and then
    return st.sampled_from(sorted([*fitting, *(near * often), *(larger * max(1, often // 4))]))


Choice = bool | None


@dataclass(frozen=True)
class Draws:
    """What a law wants its cases to be; None leaves it to the implementation's promise.

    causal, cross, gqa: True, False or None. bias: False (none), True (always one), "matrix", or None (with or without).
    scales: further softmax_scales beside the default; None means SCALES, () the default alone.
    seqlen_q, seqlen_k: (least, most) or one number, where the law needs it; most=None follows the device.
    where: a last condition, for what the fields cannot say; toward: makes it likely, by changing a drawn case.
    """

    causal: Choice = None
    cross: Choice = None
    gqa: Choice = None
    bias: bool | str | None = None
    bias_masks: tuple[str, ...] = BIAS_MASKS
    regimes: tuple[str, ...] = REGIMES
    scales: tuple[float, ...] | None = None
    default_scale: bool = True
    dtypes: tuple[torch.dtype, ...] = DTYPES
    layouts: tuple[str, ...] = ("contiguous",)
    seqlen_q: tuple[int, int | None] = (1, None)
    seqlen_k: tuple[int, int | None] = (1, None)
    stretch: int = 1  # how many times longer than usual sequences may be
    where: Callable[[Case], bool] | None = None
    toward: Callable[[Case], Case] = lambda case: case

    @property
    def all_scales(self) -> tuple[float | None, ...]:
        """Every softmax_scale that may be drawn; None is the default one."""
        return ((None,) if self.default_scale else ()) + (SCALES if self.scales is None else self.scales)

    def excludes(self, case: Case) -> str | None:
        """Why a given case is none of those wanted, in words of its fields; None if it is one."""
        wanted = [
            (self.causal in (None, case.causal), f"causal={self.causal}"),
            (self.cross is not False or case.seqlen_q == case.seqlen_k, "seqlen_q = seqlen_k"),
            (self.gqa in (None, case.nheads != case.nheads_k), f"nheads_k {'<' if self.gqa else '='} nheads"),
            (self.bias is not True or case.bias is not None, "a bias"),
            (self.bias is not False or case.bias is None, "no bias"),
            (not isinstance(self.bias, str) or case.bias == self.bias, f"bias={self.bias}"),
            (case.bias is None or case.bias_mask in self.bias_masks, f"bias_mask in {', '.join(self.bias_masks)}"),
            (case.regime in self.regimes, f"regime in {', '.join(self.regimes)}"),
            (case.dtype in self.dtypes, f"dtype in {', '.join(map(str, self.dtypes))}"),
            (
                (self.scales is None and case.softmax_scale is not None) or case.softmax_scale in self.all_scales,
                f"softmax_scale in {self.all_scales}",
            ),
            (case.layout in self.layouts, f"layout in {', '.join(self.layouts)}"),
            (_between(case.seqlen_q, self.seqlen_q), f"seqlen_q from {self.seqlen_q[0]} to {self.seqlen_q[1]}"),
            (_between(case.seqlen_k, self.seqlen_k), f"seqlen_k from {self.seqlen_k[0]} to {self.seqlen_k[1]}"),
            (self.where is None or self.where(case), "another case (see the law's `where`)"),
        ]
        return next((f"the law wants {what}" for fits, what in wanted if not fits), None)


def _between(n: int, bounds: tuple[int, int | None]) -> bool:
    return bounds[0] <= n and (bounds[1] is None or n <= bounds[1])


def attention_cases(impl: Implementation, device: str, draws: Draws = Draws()) -> st.SearchStrategy[Case]:
    """Cases that `impl` supports, as `draws` wants them."""
    sizes = Sizes.on(device, impl.share_on(device))
    return _cases(impl, sizes, draws, _Choices.of(impl, sizes, draws))


@dataclass(frozen=True)
class _Choices:
    """What hangs on no drawn value: made once for all cases, as making it costs more than drawing from it."""

    headdim: st.SearchStrategy[int]
    plain: st.SearchStrategy[tuple]  # dtype, causal, regime, softmax_scale, layout
    bias: st.SearchStrategy[str | None] | None  # which kind; None where there is nothing to draw

    @classmethod
    def of(cls, impl: Implementation, sizes: Sizes, want: Draws) -> _Choices:
        return cls(headdims(impl, sizes.headdim), _together(*_plain_choices(impl, want)), _bias_kind(impl, want))


@st.composite
def _cases(draw: st.DrawFn, impl: Implementation, sizes: Sizes, want: Draws, choices: _Choices) -> Case:
    s = impl.supports
    most = sizes.seqlen * want.stretch
    seqlen_q = draw(seqlens(want.seqlen_q[1] if want.seqlen_q[1] is not None else most, want.seqlen_q[0]))
    cross = want.cross if want.cross is not None else s.cross and draw(BOOLEANS)
    if cross:
        seqlen_k = draw(seqlens(want.seqlen_k[1] if want.seqlen_k[1] is not None else most, want.seqlen_k[0]))
    else:
        seqlen_k = seqlen_q
    batch, nheads = draw(one_of(HEADS))
    gqa = want.gqa if want.gqa is not None else s.gqa and draw(BOOLEANS)
    nheads_k, nheads = (nheads, nheads * draw(one_of(GROUPS))) if gqa else (nheads, nheads)
    headdim = draw(choices.headdim)
    dtype, causal, regime, scale, layout = draw(choices.plain)
    kind = None if choices.bias is None else draw(choices.bias)
    bias = {}
    if kind is not None:
        drawn = draw(_biases(kind, want.bias_masks, batch, nheads, dtype))
        bias = {"bias": kind, **dict(zip(BIAS_FIELDS, drawn, strict=True))}
    case = Case(
        batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nheads=nheads, nheads_k=nheads_k, headdim=headdim,
        dtype=dtype, causal=causal, softmax_scale=scale, regime=regime, layout=layout, **bias,
    )  # fmt: skip
    try:
        case = fitted(impl, _within(want.toward(case), sizes, want), want)
    except AnotherCase:
        reject()
    return case.but(seed=draw(SEEDS))


BOOLEANS, SEEDS = st.booleans(), st.integers(0, 999)
BIAS_FIELDS = ("bias_mask", "bias_batch", "bias_nheads", "bias_dtype")  # what is drawn with a bias, beside its kind


@lru_cache(maxsize=1000)
def _together(*choices: tuple) -> st.SearchStrategy[tuple]:
    """One of each, in a single draw: drawing is most of what the suite itself costs."""
    return one_of(tuple(itertools.product(*(values for values, _ in choices))))


def _typed(values: Iterable) -> tuple[tuple, tuple]:
    """Values with their types, as a key in which (True,) is not (1,)."""
    values = tuple(values)
    return values, tuple(map(type, values))


def _plain_choices(impl: Implementation, want: Draws) -> tuple:
    """What dtype, causal, regime, scale and layout may be."""
    s = impl.supports
    declared = {"never": (False,), "always": (True,), "optional": (False, True)}[s.causal]
    return (
        _typed(t for t in DTYPES if t in s.dtypes and t in want.dtypes),
        _typed(c for c in declared if want.causal in (None, c)),
        _typed(want.regimes),
        _typed(scale for scale in want.all_scales if scale is None or s.softmax_scale),
        _typed(name for name in LAYOUTS if name in want.layouts and (s.strides or name == "contiguous")),
    )


def _bias_kind(impl: Implementation, want: Draws) -> st.SearchStrategy[str | None] | None:
    kinds: tuple[str | None, ...] = impl.supports.bias_kinds
    if want.bias is False or not (kinds or want.bias):
        return None
    if isinstance(want.bias, str):
        kinds = tuple(kind for kind in kinds if kind == want.bias)
    return one_of((None, *kinds) if want.bias is None else kinds)


@lru_cache(maxsize=1000)
def _biases(kind: str, masks: tuple[str, ...], batch: int, nheads: int, dtype: torch.dtype) -> st.SearchStrategy[tuple]:
    """BIAS_FIELDS of a bias of this kind."""
    return _together(
        _typed(m for m in masks if m != "dead_row" or kind == "matrix"),
        _typed(sorted({1, batch})),
        _typed(sorted({1, nheads})),
        _typed((torch.float32, *({dtype} - {torch.float32}))),
    )


def _within(case: Case, sizes: Sizes, want: Draws) -> Case:
    """The case with fewer heads, if its score matrix would pass what the device is given at once."""
    elements = sizes.elements * want.stretch
    if case.batch * case.nheads * case.seqlen_q * case.seqlen_k <= elements:
        return case
    return case.but(batch=1, nheads=case.nheads // case.nheads_k, nheads_k=1)


def fitted(impl: Implementation, case: Case, want: Draws) -> Case:
    """The case, or the nearest one that the implementation accepts and the law wants: lengths rounded up to a multiple.

    Nearness matters: an implementation that takes "multiples of 32 only" would refuse 31 of 32 drawn lengths.
    """

    def fits(c: Case) -> bool:
        return unsupported(impl, c) is None and want.excludes(c) is None

    if fits(case):
        return case
    if impl.supports.accepts is not None or impl.empty_rows != "zero":
        for candidate in _nearby(case, may_differ=want.cross is not True):
            if fits(candidate):
                return candidate
    raise AnotherCase


def _nearby(case: Case, may_differ: bool) -> Iterable[Case]:
    """Each once: making a case costs more than all else here."""
    kept = dict(bias=case.bias, bias_mask=case.bias_mask)
    unmasked, without = kept | dict(bias_mask="none"), dict(bias=None, bias_mask="none", bias_batch=1, bias_nheads=1)
    seen = set()
    for multiple in (1, 8, 16, 32, 64, 128):
        q, k = (-(-n // multiple) * multiple for n in (case.seqlen_q, case.seqlen_k))
        square = [(q, q, kept), (q, q, unmasked), (q, q, without)] if may_differ else []
        for seqlen_q, seqlen_k, bias in [(q, k, kept), (q, k, unmasked), *square]:
            key = (seqlen_q, seqlen_k, bias["bias"], bias["bias_mask"])
            if key not in seen:
                seen.add(key)
                yield case.but(seqlen_q=seqlen_q, seqlen_k=seqlen_k, **bias)
