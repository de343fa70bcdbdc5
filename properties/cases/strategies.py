"""Hypothesis strategies for cases that an implementation supports, near sizes where kernels break.

Simple values come first everywhere, and sizes are drawn before everything else. So a failing case
shrinks to the shortest sequences that still fail, then to the fewest heads, then to the plainest
inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from random import Random
from typing import Any

import torch
from hypothesis import reject
from hypothesis import strategies as st

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.bias_masks import masks_of
from flash_attest.properties.cases.case import ADDED, Case, Window
from flash_attest.properties.cases.cover import COURSE, Factors
from flash_attest.properties.cases.draws import ANYTHING, Draws
from flash_attest.properties.cases.features import BIAS_DETAILS, FEATURES, in_declared_blocks
from flash_attest.properties.cases.fitting import fitted, multiple
from flash_attest.properties.cases.kinds import kinds_of, pairs_of, set_of
from flash_attest.properties.cases.lengths import BESIDE, OWN_LENGTH, Lengths, is_beside, may_differ
from flash_attest.properties.cases.limits import Limits, within
from flash_attest.properties.cases.paths import on_path, path_lengths
from flash_attest.properties.cases.sizes import GROUPS, HEADS, TILES, headdim_pairs, headdims
from flash_attest.properties.failures import AnotherCase

# One case in that many has such a value. No two of the numbers have a common divisor, so few cases
# have two such values.
RARE = {"path": 11, "as many": 5, "large": 16}


def one_of(values: tuple) -> st.SearchStrategy:
    """Draw one of these values. The first is the simplest.

    Strategies are cached: making one costs more than drawing from it.
    """
    return _one_of(values, tuple(map(type, values)))


@lru_cache(maxsize=1000)
def _one_of(values: tuple, types: tuple[type, ...]) -> st.SearchStrategy:  # types: as (True,) == (1,)
    return st.sampled_from(values) if values else st.nothing()


@lru_cache(maxsize=1000)
def integers(least: int, most: int) -> st.SearchStrategy[int]:
    """Draw any integer from least to most. Strategies are cached, as in `one_of`."""
    return st.integers(least, most)


def attention_cases(
    impl: Implementation, device: str, draws: Draws = ANYTHING, *, small: bool = False, kinds: int | None = None
) -> st.SearchStrategy[Case]:
    """Draw cases that `impl` supports and `draws` wants.

    small: only small ones. kinds: the seed of a run that combines features with few dtypes and head
    dims; None for all.
    """
    return _cases(_Choices.of(impl, Limits.on(device, impl.share_on(device), small), draws, kinds))


@dataclass(frozen=True, eq=False)
class _Choices:
    """Holds everything that does not depend on drawn values."""

    impl: Implementation
    limits: Limits
    want: Draws
    lengths: Lengths
    longest: int  # length, those of paths included
    pairs: dict[str, tuple]  # of (batch, nheads_k), by class
    headdims: dict[str, tuple[int, ...]]
    headdim_pairs: tuple[tuple[int, int], ...]  # (headdim, headdim_v) that differ
    values: dict[str, tuple]  # of each factor
    impossible: list
    kinds: int | None  # the seed of the run, if it has few kinds
    strategies: dict[str, st.SearchStrategy] = field(default_factory=dict)  # of the fields drawn so far

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print a few words where Hypothesis would print every value in here, which it does for
        each law that refuses a draw, and which takes 0.1 s.
        """
        printer.text(f"the choices of {self.impl.name}")

    @classmethod
    def of(cls, impl: Implementation, limits: Limits, want: Draws, kinds: int | None) -> _Choices:
        taken = multiple(impl)
        most = limits.longest(want, impl.tile, taken)
        lengths = Lengths(impl, want, most, taken)
        dims = headdims(impl, limits.headdim)
        pairs = {name: tuple((b, n) for b, n in some if b * n <= limits.heads) for name, some in HEADS.items()}
        paths = path_lengths(impl, limits, want, most)
        values: dict[str, tuple] = {
            **lengths.classes,
            "heads": tuple(name for name, some in pairs.items() if some),
            "gqa": (want.gqa,) if want.gqa is not None else (False, True) if impl.supports.gqa else (False,),
            "width": tuple(name for name in dims if name != "large"),
            **{name: want.values(name, impl) for name in TOGETHER},
            "bias": want.values("bias", impl),
            **{name: want.values(name, impl) for name in ALONE},
            "large": (False, True) if "large" in dims else (False,),
            "path": (None, *paths),
        }
        masks = {kind: [m for m in want.bias_mask if m in masks_of(kind)] for kind in values["bias"] if kind}
        values["bias"] = tuple(kind for kind in values["bias"] if kind is None or masks[kind])
        impossible: list = list(OWN_LENGTH)
        if values["bias"] and None not in values["bias"]:  # else nearly every case would have one, for pairs of masks
            values["bias_mask"] = tuple(m for m in want.bias_mask if any(m in some for some in masks.values()))
            values["bias_of"] = BIAS_OF
            both = itertools.product(values["bias"], values["bias_mask"])
            impossible += [(("bias", kind), ("bias_mask", mask)) for kind, mask in both if mask not in masks[kind]]
        longest = max([most, *(n for _, n in paths)])
        return cls(
            impl, limits, want, lengths, longest, pairs, dims, headdim_pairs(impl, limits), values, impossible,
            kinds,
        )  # fmt: skip

    @cached_property
    def factors(self) -> Factors:
        """The factors of the cover."""
        off = [name for name in ALONE if FEATURES[name].neutral in self.values[name][:1]]
        return Factors(self.values, RARE, self.impossible, self._sizes, off)

    @cached_property
    def any_pair(self) -> tuple[tuple[int, int], ...]:
        """Every pair of (batch, nheads_k)."""
        return tuple(itertools.chain(*self.pairs.values()))

    @cached_property
    def any_headdim(self) -> tuple[int, ...]:
        """Every head dim, those of the first class first."""
        return tuple(dict.fromkeys(itertools.chain(*self.headdims.values())))

    def draw(self, draw: st.DrawFn, name: str, values: tuple | None = None) -> Any:
        """Draw a field that has one of these values; by default, those of the factor.

        A field has the same values each time.
        """
        values = self.values[name] if values is None else values
        if len(values) == 1:
            return values[0]
        if name not in self.strategies:  # finding one by all of its values takes longer than drawing
            self.strategies[name] = one_of(values)
        with COURSE.drawing(self.factors, name, values):
            return draw(self.strategies[name])

    def draw_window(self, draw: st.DrawFn, kind: str | None) -> Window | None:
        """Draw the number of keys on each side of a window of this kind."""
        if kind is None:
            return None
        return tuple(self._draw_side(draw, side) if kind in (side, "both") else None for side in SIDES)

    def _draw_side(self, draw: st.DrawFn, side: str) -> int:
        with COURSE.drawing(self.factors, side, None):
            return draw(integers(0, self.longest + 1))

    def draw_length(self, draw: st.DrawFn, name: str) -> int:
        """Draw seqlen_q or seqlen_k."""
        least, most = getattr(self.want, name)
        with COURSE.drawing(self.factors, name, None):
            return draw(integers(least, self.longest if most is None else most))

    def _sizes(self, row: dict[str, Any], random: Random) -> dict[str, Any]:
        """Return sizes of the classes of a row."""
        seqlen_q, seqlen_k = self.lengths.of(row, random)
        pair = random.choice(self._heads(row))
        group = random.choice(GROUPS) if row["gqa"] else 1
        headdim = random.choice(self.headdims["large" if row["large"] else row["width"]])
        pairs = {"headdims": random.choice(self.headdim_pairs)} if row["headdim_v"] else {}
        kind = {}
        if self.kinds is not None:
            kind, headdim = self._of_a_kind(row, headdim, random)
            pairs = pairs and {"headdims": random.choice(pairs_of(self.impl, self.kinds, self.headdim_pairs))}
        if row["as many"]:
            heads, of = (group * pair[1], pair[1]), row["as many"]
            seqlen_q, seqlen_k = self.lengths.as_many((seqlen_q, seqlen_k), of, heads, headdim, random)
        if row["path"]:
            seqlen_q, seqlen_k = on_path(
                row["path"], seqlen_q, seqlen_k, self.impl, self.want, self.lengths.most, causal=row["causal"]
            )
        return {
            "seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "cross": seqlen_q != seqlen_k, "pair": pair, "group": group,
            "headdim": headdim, **kind, **pairs, **self._window(row, seqlen_q, seqlen_k, random),
        }  # fmt: skip

    def _heads(self, row: dict[str, Any]) -> Sequence[tuple[int, int]]:
        """Return the pairs (batch, nheads_k) of a row. A length that equals a number of heads shows
        little if there is one.
        """
        if row["as many"] == "heads" and (several := [pair for pair in self.any_pair if pair[1] > 1]):
            return several
        return self.pairs[row["heads"]]

    def _of_a_kind(self, row: dict[str, Any], headdim: int, random: Random) -> tuple[dict[str, Any], int]:
        """Return the dtype and the head dim of one of the run's kinds for the features of a row.

        The head dim is of the row's class if one of the kind is.
        """
        every = tuple(itertools.chain(*self.headdims.values()))
        kinds = kinds_of(self.impl, self.kinds, set_of(row))
        kinds = [kind for kind in kinds if kind.dtype in self.values["dtype"]]
        random.shuffle(kinds)
        for among in (self.headdims["large" if row["large"] else row["width"]], every):
            for kind in kinds:
                if fitting := [d for d in among if kind.has(d, row["layout"])]:
                    return {"dtype": kind.dtype}, random.choice(fitting)
        return {}, headdim

    def _window(self, row: dict[str, Any], seqlen_q: int, seqlen_k: int, random: Random) -> dict[str, int]:
        """Return how many keys the window of a row has on its sides.

        Half of the sizes are any that hide keys. The others are at its edges, at those of a tile,
        between the two lengths, or hide nothing.
        """
        between = sorted((seqlen_q, seqlen_k))

        def size() -> int:
            tile = random.choice(TILES if self.impl.tile is None else (self.impl.tile[1], *TILES))
            others = (0, 1, tile + random.choice(BESIDE), seqlen_k - 1, seqlen_k + 1, random.randint(*between))
            return max(0, random.choice((*(random.randrange(max(seqlen_k, 1)) for _ in others), *others)))

        kind = row["window"]
        return {side: size() for side in SIDES if kind in (side, "both")}


@st.composite
def _cases(draw: st.DrawFn, choices: _Choices) -> Case:
    impl, want = choices.impl, choices.want
    # Sizes come first, so that they shrink first.
    seqlen_q = choices.draw_length(draw, "seqlen_q")
    cross = want.cross or (may_differ(impl, want) and choices.draw(draw, "cross", (False, True)))
    seqlen_k = choices.draw_length(draw, "seqlen_k") if cross else seqlen_q
    batch, nheads_k = choices.draw(draw, "pair", choices.any_pair)
    nheads = nheads_k * (choices.draw(draw, "group", GROUPS) if choices.draw(draw, "gqa") else 1)
    # Then the features, the head dim before the others.
    fields: dict[str, Any] = {"headdim": choices.draw(draw, "headdim", choices.any_headdim)}
    fields |= {name: choices.draw(draw, name) for name in TOGETHER}
    fields |= {name: choices.draw(draw, name) for name in ALONE}
    fields["window"] = choices.draw_window(draw, fields["window"])
    if fields.pop("headdim_v"):
        fields["headdim"], fields["headdim_v"] = choices.draw(draw, "headdims", choices.headdim_pairs)
    if (bias := choices.draw(draw, "bias")) is not None:
        masks, own = want.bias_mask, choices.draw(draw, "bias_of", BIAS_OF)
        if "bias_mask" in choices.values:
            masks = (choices.draw(draw, "bias_mask"),)
        sizes = (batch if own[0] else 1, nheads if own[1] else 1)
        details = draw(_bias_details(bias, masks, *sizes, fields["dtype"]))
        fields |= {"bias": bias, **dict(zip(BIAS_DETAILS, details, strict=True))}
    hidden = fields.pop("hidden")
    fields["shared_kv"] &= fields.get("headdim_v", 0) <= fields["headdim"]
    case = Case(batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nheads=nheads, nheads_k=nheads_k, **fields)
    case = in_declared_blocks(FEATURES["hidden"].changed(case, hidden), impl.supports)
    # Then the case is adapted to what the law wants, the device's limits, and `accepts`.
    shortens = max(seqlen_q, seqlen_k) <= choices.lengths.most
    stays = any(is_beside(n, tile) for n, tile in zip((seqlen_q, seqlen_k), impl.tile or (), strict=False))
    try:
        case = fitted(
            impl, within(want.toward(case), choices.limits, want, shortens, stays, choices.lengths.multiple), want
        )
    except AnotherCase:
        COURSE.refuse()
        reject()
    if COURSE.begun:  # the simplest case alone would not do
        COURSE.accept()
    return case.but(seed=draw(SEEDS))


BIAS_OF = tuple(itertools.product((False, True), repeat=2))  # whether each batch and each head has its own bias
SEEDS = st.integers(0, 999)
TOGETHER = tuple(feature.name for feature in FEATURES.values() if feature.together)
ALONE = tuple(feature.name for feature in FEATURES.values() if feature.alone)
SIDES = ("left", "right")  # of a window


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
        _typed((batch,)),
        _typed((nheads,)),
        _typed((torch.float32, *({dtype} - {torch.float32})) if kind in ADDED else (torch.float32,)),
    )
