"""A picture of all cases that were tried: seqlen by headdim, coloured by the worst z there."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from markupsafe import Markup

from flash_attest.oracle import Z_LIMIT
from flash_attest.runner.page.records import size
from flash_attest.runner.page.svg import element, picture, rect, text
from flash_attest.runner.page.words import number, plural, z

WIDTH, LEFT, TOP, ROW = 460, 62, 26, 22
STEPS = (1.0, 2.0, 4.0, Z_LIMIT)  # where the colour changes: doubling, so the scale is logarithmic


@dataclass
class Bin:
    """The cases of a range of lengths and head dims. z: the worst one, or None."""

    cases: int = 0
    z: object = None
    impl: str = ""

    def add(self, value: object, impl: str) -> None:
        """Count a case."""
        self.cases += 1
        if number(value) is not None and size(value) > size(self.z):
            self.z, self.impl = value, impl


def binned(results: list[dict]) -> dict[tuple[int, int], Bin]:
    """Return (bin of the seqlen, bin of the headdim) -> its cases.

    The seqlen is the larger one of queries and keys.
    """
    bins: dict[tuple[int, int], Bin] = {}
    for result in results:
        for seqlen_q, seqlen_k, headdim, value in result["tried"]:
            place = _bin(max(seqlen_q, seqlen_k)), _bin(headdim)
            bins.setdefault(place, Bin()).add(value, result["impl"])
    return bins


def _bin(number: int) -> int:
    """Return the exponent of the next power of two: 0 for 0 and 1, 1 for 2, 2 for 3 and 4, ..."""
    return max(0, int(number) - 1).bit_length()


def _range(exponent: int) -> str:
    """Return the numbers of a bin: "1", "2", "3..4", "5..8", ..."""
    low, high = (1 << exponent >> 1) + 1, 1 << exponent
    return "1" if exponent == 0 else str(high) if low == high else f"{low}..{high}"


def shade(value: object) -> str:
    """Return the colour of a z."""
    if number(value) is None:
        return "heat-none"
    return f"heat-{sum(size(value) > step for step in STEPS)}"


def drawn(results: list[dict]) -> Markup | None:
    """Return the picture, or None if no case was recorded."""
    bins = binned(results)
    if not bins:
        return None
    columns = range(min(x for x, _ in bins), max(x for x, _ in bins) + 1)
    rows = range(max(y for _, y in bins), min(y for _, y in bins) - 1, -1)
    wide = min(40.0, (WIDTH - LEFT - 4) / len(columns))
    parts = [text(2, TOP - 10, "headdim ↑", 11.5, class_="quiet")]
    for n, y in enumerate(rows):
        top = TOP + n * ROW
        parts.append(text(LEFT - 6, top + 15, _range(y).replace("..", "–"), 10.5, "end", class_="quiet"))
        for m, x in enumerate(columns):
            if cell := bins.get((x, y)):
                parts.append(_cell(cell, _range(x), _range(y), LEFT + m * wide, top, wide))
    bottom = TOP + len(rows) * ROW
    for m, x in enumerate(columns):
        if m % 2 == 0 or wide > 30:
            parts.append(text(LEFT + (m + 0.5) * wide, bottom + 13, _end(x), 10.5, "middle", class_="quiet"))
    parts.append(text(LEFT, bottom + 29, "seqlen up to →", 11.5, class_="quiet"))
    parts += _legend(bottom + 40)
    total = sum(cell.cases for cell in bins.values())
    worst = max(bins.values(), key=lambda cell: size(cell.z))
    above = sum(size(cell.z) > Z_LIMIT for cell in bins.values())
    says = f"{plural(total, 'case')} in {plural(len(bins), 'range')} of seqlen and headdim. "
    says += f"The worst z is {z(worst.z)}, of {worst.impl}. " if number(worst.z) is not None else ""
    says += f"{plural(above, 'range')} with a z above {Z_LIMIT:g}."
    return picture(
        "tried", "All cases tried: seqlen by headdim, coloured by the worst z", says, WIDTH, bottom + 78, *parts
    )


def _end(exponent: int) -> str:
    number = 1 << exponent
    return str(number) if number < 10_000 else f"{number >> 10}k"


def _cell(cell: Bin, seqlens: str, headdims: str, x: float, y: float, wide: float) -> Markup:
    colour = shade(cell.z)
    says = f"seqlen {seqlens}, headdim {headdims}: {plural(cell.cases, 'case')}"
    says += f", worst z {z(cell.z)} ({cell.impl})" if number(cell.z) is not None else ", no z measured"
    ink = "on-heat-4" if colour == "heat-4" else "on-heat"
    words = short(cell.z)
    return element(
        "g", element("title", says), rect(x + 0.5, y + 0.5, wide - 1, ROW - 1, colour, rx=2),
        text(x + wide / 2, y + 15, words, 10 if wide > 24 else 8.5, "middle", style=f"fill:var(--{ink})"),
    )  # fmt: skip


def short(value: object) -> str:
    """Write a z in three letters: "0.3", "12", "9e5", "∞", "nan"; "·" if there is none."""
    read = number(value)
    if read is None:
        return "·"
    if not math.isfinite(read):
        return z(value)
    mantissa, exponent = f"{read:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}" if read >= 999.5 else f"{read:.0f}" if read >= 9.95 else f"{read:.1f}"


def _legend(y: float) -> list[Markup]:
    """Return the colours in words."""
    edges = ["0", *(f"{step:g}" for step in STEPS)]
    names = [f"{low} to {high}" for low, high in itertools.pairwise(edges)] + [f"above {edges[-1]}"]
    parts, x = [], 10.0
    for n, words in enumerate(names):
        parts.append(rect(x, y, 12, 12, f"heat-{n}", rx=2, stroke="var(--line)"))
        parts.append(text(x + 17, y + 10, words, 11))
        x += 17 + 6 * len(words) + 10
    parts.append(rect(10, y + 18, 12, 12, "heat-none", rx=2, stroke="var(--line)"))
    parts.append(text(27, y + 28, "· no z measured: the law compares exactly, or counts", 11))
    return parts
