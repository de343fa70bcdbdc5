"""Draws the two lengths of a case from their classes, near lengths at which kernels break.

A kernel goes wrong where a tile is not full, where the two lengths fill their tiles differently,
where the causal diagonal meets the edge of a tile, where a tile of queries sees no key, and where
it takes one size for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.sizes import TILES

NEAR = ("any", "multiple", "beside")  # whether a length is a multiple of a tile
BESIDE = (-1, 1, 1, 2)  # from a multiple: one row in the last tile shows the most mistakes
APART = (16, 32, 64, 128)  # how many more keys than queries; the causal diagonal then meets the edges of tiles
FEW = 8  # queries, for which kernels that decode have a path of their own
# One key, and lengths that equal other sizes, from which a kernel may guess its dimensions.
AS_MANY = (None, "one", "heads", "headdim")
# In these classes a length is not drawn near a tile, so such a pair would be covered in vain.
OWN_LENGTH = [
    *((("lengths", kind), ("near_k", near)) for kind in ("equal", "apart") for near in NEAR[1:]),
    *((("lengths", "few queries"), ("near_q", near)) for near in NEAR[1:]),
]


def may_differ(impl: Implementation, want: Draws) -> bool:
    """Return whether the two lengths may differ."""
    return want.cross is not False and (impl.supports.cross or want.cross is True)


@dataclass(frozen=True)
class Lengths:
    """Draws lengths for an implementation and a law.

    most: the longest, where the law names none. multiple: of which lengths are taken, else 1.
    """

    impl: Implementation
    want: Draws
    most: int
    multiple: int

    @property
    def classes(self) -> dict[str, tuple]:
        """The values of the factors of a cover that `of` reads, by name."""
        differ = may_differ(self.impl, self.want)
        as_many = AS_MANY if self.want.seqlen_k[1] is None else AS_MANY[:1]
        return {"lengths": self._kinds(), "near_q": NEAR, "near_k": NEAR if differ else NEAR[:1], "as many": as_many}

    def _kinds(self) -> tuple[str, ...]:
        want = self.want
        if not may_differ(self.impl, want):
            return ("equal", "long")
        first = "any" if want.cross else "equal"
        if want.seqlen_q[1] is not None or want.seqlen_k[1] is not None:
            return (first, "any") if first != "any" else (first,)
        few = ("few queries",) if want.seqlen_q[0] <= FEW else ()
        return (first, "long", *few, "apart", "more keys", "more queries")

    def of(self, row: Mapping[str, Any], random: Random) -> tuple[int, int]:
        """Return seqlen_q and seqlen_k of the classes of a row."""
        kind, (tile_q, tile_k) = row["lengths"], self.impl.tile or (None, None)
        (least_q, most_q), (least_k, most_k) = self.want.seqlen_q, self.want.seqlen_k
        most_q, most_k = (self.most if n is None else n for n in (most_q, most_k))

        def queries(least: int = least_q, most: int = most_q) -> int:
            return self._length(row["near_q"], least, max(least, most), tile_q, random)

        def keys(least: int = least_k, most: int = most_k) -> int:
            return self._length(row["near_k"], least, max(least, most), tile_k, random)

        half_q, half_k = max(least_q, most_q // 2), max(least_k, most_k // 2)
        if kind == "equal" or not may_differ(self.impl, self.want):
            return (queries(half_q if kind == "long" else least_q),) * 2
        if kind == "long":
            return queries(half_q), keys(half_k)
        if kind == "few queries":
            return random.randint(least_q, FEW), keys()
        if kind == "more keys":
            return queries(most=(seqlen_k := keys(half_k)) - 1), seqlen_k
        if kind == "more queries":
            return (seqlen_q := queries(half_q)), keys(most=seqlen_q - 1)
        if kind == "apart":
            seqlen_q, apart = queries(), random.choice(APART)
            if seqlen_q + apart > most_k:  # else they would be closer
                seqlen_q = random.randint(least_q, max(least_q, most_k - apart))
            return seqlen_q, max(min(seqlen_q + apart, most_k), least_k)
        return queries(), keys()

    def _length(self, near: str, least: int, most: int, tile: int | None, random: Random) -> int:
        if self.multiple > 1 and least <= most // self.multiple * self.multiple:
            return self.multiple * random.randint(-(-least // self.multiple), most // self.multiple)
        lengths = () if near == "any" else near_tiles(near, most, least, tile)
        return random.choice(lengths) if lengths else random.randint(least, most)

    def as_many(
        self, lengths: tuple[int, int], of: str, heads: tuple[int, int], headdim: int, random: Random
    ) -> tuple[int, int]:
        """Return lengths that equal other sizes, in place of these. Equal lengths stay equal.

        The law names no number of keys. of: a value of AS_MANY. heads: nheads and nheads_k.
        """
        seqlen_q, seqlen_k = lengths
        (size_q, size_k) = {"one": (seqlen_q, 1), "heads": heads, "headdim": (seqlen_q, headdim)}[of]
        if seqlen_q == seqlen_k:
            size_q = size_k = random.choice(heads) if of == "heads" else size_k
        elif self.want.seqlen_q[1] is not None:
            size_q = seqlen_q
        return min(size_q, self.most), min(size_k, self.most)


@lru_cache(maxsize=1000)
def near_tiles(near: str, most: int, least: int, tile: int | None) -> tuple[int, ...]:
    """Return the lengths from least to most that are multiples of a tile, or lie beside one.

    near: "multiple" or "beside". The tiles are those of TILES, with the first three multiples of
    each and the last one. tile: the declared one; its lengths are half of all, or more.
    """

    def lengths(size: int) -> list[int]:
        whole = {size, 2 * size, 3 * size, most // size * size}
        beside = whole if near == "multiple" else [n + d for n in whole for d in BESIDE]
        return [n for n in beside if max(least, 1) <= n <= most]

    usual = [n for size in TILES if size != tile for n in lengths(size)]
    declared = lengths(tile) if tile else []
    return tuple(sorted(usual + declared * max(1, len(usual) // max(1, len(declared)))))


def is_beside(n: int, tile: int) -> bool:
    """Return whether a length lies beside a multiple of a tile."""
    return n >= tile - 1 and any((n - d) % tile == 0 for d in BESIDE)
