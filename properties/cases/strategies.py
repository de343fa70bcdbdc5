"""Hypothesis strategies for cases that an implementation supports, near sizes where kernels break.

Simple values come first everywhere, and sizes are drawn before everything else. So a failing case
shrinks to the shortest sequences that still fail, then to the fewest heads, then to the plainest
inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from hypothesis import reject
from hypothesis import strategies as st

from flash_attest.impls.contract.record import LARGEST_HEADDIM, Implementation
from flash_attest.properties.cases.bias_masks import masks_of
from flash_attest.properties.cases.case import ADDED, Case
from flash_attest.properties.cases.draws import ANYTHING, Draws
from flash_attest.properties.cases.features import BIAS_DETAILS, FEATURES
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.failures import AnotherCase

HEADS = ((1, 1), (1, 3), (3, 1), (2, 2), (2, 3), (3, 2), (1, 8), (5, 1), (67, 1))  # (batch, nheads_k)
SHORT = 40  # keys and queries, for laws that make many calls and learn nothing from longer sequences
GROUPS = (2, 3, 4, 5, 7, 8, 16)  # query heads for each key head, with GQA
APART = (16, 32, 64, 128)  # how many more keys than queries; the causal diagonal then meets the edges of tiles
USUAL_TILE = (128, 128)  # for implementations that declare no tile
LONG = 8  # the factor of lengths for laws that need no oracle for the whole case
FAR = 1040  # keys, more than 1024, from where kernels split, wrap around or round positions


@dataclass(frozen=True)
class Limits:
    """The limits of cases on a device. On a CPU cases are small, as kernels may be emulated."""

    seqlen: int
    headdim: int
    elements: int  # in all score matrices, which the oracle holds at once; q, k and v may each have four times as many
    heads: int = 10**6  # the largest batch * nheads; a case with more gets one key head
    stretch: int = LONG  # the largest factor of lengths that a law may ask for

    @classmethod
    def on(cls, device: str, share: float = 1.0, small: bool = False) -> Limits:
        """Return the limits for "cpu" or "cuda".

        They are lower for an implementation that is judged on a share of the cases. small: on a
        CPU, lengths go only a little beyond a tile of 64, with few heads, because emulators are
        slow.
        """
        if small and device == "cpu":
            return cls(70, 70, int(2**14 * share), heads=6, stretch=LONG // 2)
        stretch = LONG if share >= 0.5 else LONG // 2
        if device == "cpu":
            # In an emulator each head takes long, even with short sequences, and a thousand keys
            # take seconds.
            heads = cls.heads if share == 1 else 12
            return cls(130, 130, int(2**18 * share), heads, stretch)
        return cls(1100, 256, int(2**23 * share), stretch=stretch)

    def factor(self, want: Draws) -> int:
        """Return the factor by which a law's sequences are longer than usual."""
        return min(max(want.stretch, -(-want.reach // self.seqlen)), self.stretch)

    def longest(self, want: Draws, tile: tuple[int, int] | None) -> int:
        """Return the longest length, for a law and the tile that an implementation declares."""
        most = self.seqlen * self.factor(want)
        if not want.two_tiles:
            return most
        return max(most, min(2 * (tile or USUAL_TILE)[1] + 2, self.seqlen * self.stretch))


def one_of(values: tuple) -> st.SearchStrategy:
    """Draw one of these values. The first is the simplest.

    Strategies are cached: making one costs more than drawing from it.
    """
    return _one_of(values, tuple(map(type, values)))


@lru_cache(maxsize=1000)
def _one_of(values: tuple, types: tuple[type, ...]) -> st.SearchStrategy:  # types: as (True,) == (1,)
    return st.sampled_from(values) if values else st.nothing()


def edges(most: int, least: int = 1) -> list[int]:
    """Return t - 1, t, t + 1, t + 2 and 2 t + 1 for every power of two t, near the ends of tiles.

    Only numbers within least .. most are returned.
    """
    near = {t + d for t in (2**p for p in range(15)) for d in (-1, 0, 1, 2)} | {2 * 2**p + 1 for p in range(15)}
    return sorted(n for n in near if least <= n <= most)


@lru_cache(maxsize=1000)
def seqlens(most: int, least: int = 1) -> st.SearchStrategy[int]:
    """Draw any length from least to most, or one near the edge of a tile."""
    return st.one_of(st.integers(least, most), st.sampled_from(edges(most, least) or [least]))


@lru_cache(maxsize=1000)
def seqlens_k(most: int, least: int = 1) -> st.SearchStrategy[int]:
    """Draw as `seqlens` does, or a negative number: -64 stands for 64 more keys than queries."""
    further = [-n for n in APART if n < most]
    return st.one_of(seqlens(most, least), st.sampled_from(further)) if further else seqlens(most, least)


def headdims(impl: Implementation, most: int) -> st.SearchStrategy[int]:
    """Draw a supported head dim: any up to `most`, one near an edge, or sometimes a larger one.

    If all supported head dims are larger than `most`, the smallest is drawn.
    """
    return _headdims(tuple(impl.supports.headdim_list), most)


@lru_cache(maxsize=1000)
def _headdims(supported: tuple[int, ...], most: int) -> st.SearchStrategy[int]:
    fitting = [d for d in supported if d <= most] or supported[:1]
    near = [d for d in edges(most) if d in fitting] or fitting
    larger = [d for d in (*edges(LARGEST_HEADDIM), *supported[-1:]) if d in supported and d > most]
    often = max(1, len(fitting) // len(near))  # edges as often as all others together, larger ones sometimes
    return st.sampled_from(sorted([*fitting, *(near * often), *(larger * max(1, often // 4))]))


def attention_cases(
    impl: Implementation, device: str, draws: Draws = ANYTHING, *, small: bool = False
) -> st.SearchStrategy[Case]:
    """Draw cases that `impl` supports and `draws` wants. small: only small ones."""
    limits = Limits.on(device, impl.share_on(device), small)
    return _cases(impl, limits, draws, _Choices.of(impl, limits, draws))


@dataclass(frozen=True)
class _Choices:
    """The strategies that do not depend on drawn values. Making them costs more than drawing."""

    seqlen: int  # the longest
    headdim: st.SearchStrategy[int]
    together: st.SearchStrategy[tuple]  # a value for each feature of TOGETHER
    bias: st.SearchStrategy[str | None] | None  # which kind; None if there is nothing to draw

    @classmethod
    def of(cls, impl: Implementation, limits: Limits, want: Draws) -> _Choices:
        together = _together(*(_typed(want.values(name, impl)) for name in TOGETHER))
        kinds = want.values("bias", impl)
        wanted = any(kind is not None for kind in want.features.get("bias", kinds))
        most = limits.longest(want, impl.tile)
        return cls(most, headdims(impl, limits.headdim), together, one_of(kinds) if wanted else None)


@st.composite
def _cases(draw: st.DrawFn, impl: Implementation, limits: Limits, want: Draws, choices: _Choices) -> Case:
    # Sizes come first, so that they shrink first.
    s, most = impl.supports, choices.seqlen
    seqlen_q = draw(seqlens(want.seqlen_q[1] if want.seqlen_q[1] is not None else most, want.seqlen_q[0]))
    cross = want.cross if want.cross is not None else s.cross and draw(BOOLEANS)
    if cross:
        longest = want.seqlen_k[1] if want.seqlen_k[1] is not None else most
        seqlen_k = draw(seqlens_k(longest, want.seqlen_k[0]))
        if seqlen_k < 0:
            seqlen_k = min(seqlen_q - seqlen_k, longest)
    else:
        seqlen_k = seqlen_q
    batch, nheads = draw(one_of(HEADS))
    gqa = want.gqa if want.gqa is not None else s.gqa and draw(BOOLEANS)
    nheads_k, nheads = (nheads, nheads * draw(one_of(GROUPS))) if gqa else (nheads, nheads)
    # Then the features, the head dim before the others.
    fields: dict[str, Any] = {"headdim": draw(choices.headdim)}
    fields |= zip(TOGETHER, draw(choices.together), strict=True)
    if (kind := None if choices.bias is None else draw(choices.bias)) is not None:
        details = draw(_bias_details(kind, want.bias_mask, batch, nheads, fields["dtype"]))
        fields |= {"bias": kind, **dict(zip(BIAS_DETAILS, details, strict=True))}
    # Then the case is adapted to what the law wants, the device's limits, and `accepts`.
    case = Case(batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nheads=nheads, nheads_k=nheads_k, **fields)
    try:
        case = fitted(impl, _within(want.toward(case), limits, want), want)
    except AnotherCase:
        reject()
    return case.but(seed=draw(SEEDS))


BOOLEANS, SEEDS = st.booleans(), st.integers(0, 999)
TOGETHER = tuple(feature.name for feature in FEATURES.values() if feature.together)


@lru_cache(maxsize=1000)
def _together(*choices: tuple) -> st.SearchStrategy[tuple]:
    """Draw one of each in a single draw, as drawing takes most of the suite's own time."""
    return one_of(tuple(itertools.product(*(values for values, _ in choices))))


def _typed(values: Iterable) -> tuple[tuple, tuple]:
    """Return values with their types, so that (True,) and (1,) are different keys."""
    values = tuple(values)
    return values, tuple(map(type, values))


@lru_cache(maxsize=1000)
def _bias_details(
    kind: str, masks: tuple[str, ...], batch: int, nheads: int, dtype: torch.dtype
) -> st.SearchStrategy[tuple]:
    """Draw BIAS_DETAILS of a bias of this kind."""
    return _together(
        _typed(m for m in masks if m in masks_of(kind)),
        _typed((False,)),  # bias_keeps_key: `fitted` sets it if needed
        _typed(sorted({1, batch})),
        _typed(sorted({1, nheads})),
        _typed((torch.float32, *({dtype} - {torch.float32})) if kind in ADDED else (torch.float32,)),
    )


def _within(case: Case, limits: Limits, want: Draws) -> Case:
    """Return the case with fewer heads, if its tensors or score matrices exceed the limits.

    The tensors are checked, too, because the score matrix of a single query is small for any number
    of keys.
    """
    if not want.limited:
        return case
    elements = limits.elements * limits.factor(want)
    heads = case.batch * case.nheads
    matrix = case.seqlen_q * case.seqlen_k
    rows = max(case.seqlen_q, case.seqlen_k) * case.headdim
    if heads <= limits.heads and heads * matrix <= elements and heads * rows <= 4 * limits.elements:
        return case
    group = case.nheads // case.nheads_k
    return case.but(batch=1, nheads=min(group, max(2, elements // max(1, matrix))), nheads_k=1)


def short(case: Case) -> Case:
    """Return the case with short lengths, so that many calls take little time (`Draws.toward`)."""
    return case.but(seqlen_q=min(case.seqlen_q, SHORT), seqlen_k=min(case.seqlen_k, SHORT))
