"""The limits of cases on a device, and of laws that make many calls."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.draws import Draws

SHORT = 40  # keys and queries, for laws that make many calls and learn nothing from longer sequences
LONG = 8  # the factor of lengths for laws that need no oracle for the whole case
FAR = 1040  # keys, more than 1024, from where kernels split, wrap around or round positions
USUAL_TILE = (128, 128)  # for implementations that declare no tile
SLOW_TILE = 32  # of kernels that are slow, two tiles of this size are enough to explain a failure
MANY = 8  # more batches and key heads than this get shorter lengths rather than fewer heads


@dataclass(frozen=True)
class Limits:
    """The limits of cases on a device. On a CPU cases are small, as kernels may be emulated."""

    seqlen: int
    headdim: int
    elements: int  # in all score matrices, which the oracle holds at once; q, k and v may each have four times as many
    # The largest batch * nheads. A case with more gets at most half as many, as each takes an
    # emulator long.
    heads: int = 10**6
    stretch: int = LONG  # the largest factor of lengths that a law may ask for

    @classmethod
    def on(cls, device: str, share: float = 1.0, small: bool = False) -> Limits:
        """Return the limits for "cpu" or "cuda".

        They are lower for an implementation that is judged on a share of the cases. small: on a
        CPU, lengths go only a little beyond a tile of 64, with few heads, because emulators are
        slow.
        """
        if small and device == "cpu":
            return cls(70, 70, int(2**14 * share), heads=9, stretch=LONG // 2)
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

    def longest(self, want: Draws, tile: tuple[int, int] | None, multiple: int = 1) -> int:
        """Return the longest length, for a law and the tile that an implementation declares.

        multiple: if it takes only multiples of this number, lengths reach two or three of them.
        """
        most = self.seqlen * self.factor(want)
        most = max(most, multiple * (3 if 9 * multiple**2 <= self.elements else 2) if multiple > 1 else 1)
        if not want.two_tiles:
            return most
        return max(most, min(2 * (tile or USUAL_TILE)[1] + 2, self.seqlen * self.stretch))


def within(case: Case, limits: Limits, want: Draws, shortens: bool, stays: bool = False, multiple: int = 1) -> Case:
    """Return the case, shortened, or with fewer heads and batches, if its tensors or scores exceed
    the limits.

    The tensors are checked, too, because the score matrix of a single query is small for any number
    of keys. shortens: whether lengths may change. They stay multiples of `multiple`. stays: whether
    heads are left out instead, as a length lies beside a tile of the implementation.
    """
    if not want.limited:
        return case
    elements = limits.elements * (limits.factor(want) if shortens else 1)
    heads = case.batch * case.nheads
    matrix = case.seqlen_q * case.seqlen_k
    longest = max(case.seqlen_q, case.seqlen_k)
    if heads <= limits.heads and heads * matrix <= elements and heads * longest * case.headdim <= 4 * limits.elements:
        return case
    fits = min(isqrt(elements // heads), 4 * limits.elements // (heads * case.headdim))
    many = case.batch * case.nheads_k > MANY
    if shortens and not stays and heads <= limits.heads and fits >= (multiple if many else max(multiple, SHORT)):
        fits = fits // multiple * multiple
        lengths = {"seqlen_q": case.seqlen_q, "seqlen_k": case.seqlen_k}
        return case.but(**{name: n if n <= fits else multiple + (n - multiple) % fits for name, n in lengths.items()})
    # Key heads and batches stay as far as they fit: mistakes about them show where several are.
    kept = min(limits.heads // 2, elements // max(1, matrix), 4 * limits.elements // (max(1, longest) * case.headdim))
    group = min(case.nheads // case.nheads_k, max(2, kept))
    nheads_k = min(case.nheads_k, max(1, kept // group))
    batch = min(case.batch, max(1, kept // (group * nheads_k)))
    case = case.but(batch=batch, nheads=group * nheads_k, nheads_k=nheads_k)
    # A single head has any usual length, but a law may turn a path of few queries into one of many.
    return case if matrix <= max(elements, limits.seqlen**2) else case.but(seqlen_q=elements // case.seqlen_k)


def two_tiles(tile: int, more: int, *, slow: bool) -> int:
    """Return a length of two tiles and a bit, at which a failure is explained."""
    return 2 * (min(tile, SLOW_TILE) if slow else tile) + more


def is_slow(impl: Implementation, device: str) -> bool:
    """Return whether kernels run in an emulator, or are slow for another reason."""
    return impl.traced or impl.share_on(device) < 1


def short(case: Case) -> Case:
    """Return the case with short lengths, so that many calls take little time (`Draws.toward`)."""
    return case.but(seqlen_q=min(case.seqlen_q, SHORT), seqlen_k=min(case.seqlen_k, SHORT))
