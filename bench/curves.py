"""Pictures of a benchmark: the rate over the seqlen, a line for each implementation.

There is a picture for each dtype, pass, mask and head dim. It shows the papers' sizes, as the PNG
does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from flash_attest.bench.cells import TIMED, column
from flash_attest.bench.report import mask, number, on_curves, unit
from flash_attest.runner.page.svg import Logarithmic, element, line, picture, text
from flash_attest.runner.page.words import slug
from flash_attest.runner.page.worst import SHAPES

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 250, 52, 16, 26, 40
COLOURS = 6  # of --series-0, ...; the shape of a mark tells two lines of one colour apart
FEWEST = 2  # lengths that make a line


def drawn(report: dict) -> list[tuple[str, Markup]]:
    """Return (heading, picture) for each group of cells that has a line; [] if none has."""
    about = report["environment"]
    name, factor = unit(about["device"])
    groups: dict[tuple, list[dict]] = {}
    for cell in on_curves(report["results"], about["device"]):
        if cell["verdict"] == TIMED:
            key = cell["dtype"], cell["pass"], mask(cell["causal"]), cell["headdim"]
            groups.setdefault(key, []).append(cell)
    groups = {key: cells for key, cells in groups.items() if len({cell["seqlen"] for cell in cells}) >= FEWEST}
    looks = {impl: n for n, impl in enumerate(
        sorted({cell["impl"] for cells in groups.values() for cell in cells}, key=column))}  # fmt: skip
    pictures = []
    for (dtype, which, visible, headdim), cells in sorted(groups.items(), key=_in_order):
        heading = f"{dtype} {which}, {visible}, headdim {headdim}"
        peak = factor * report["peak"][dtype]["tflops"]
        pictures.append((heading, _picture(heading, cells, factor, name, peak, looks)))
    return pictures


def _in_order(group: tuple[tuple, list[dict]]) -> tuple:
    """Return the sort key: by dtype, forward first, full before causal, then by head dim."""
    dtype, which, visible, headdim = group[0]
    return dtype, which != "forward", visible == "causal", headdim


def _picture(heading: str, cells: list[dict], factor: float, name: str, peak: float, looks: dict[str, int]) -> Markup:
    rates = {(cell["impl"], cell["seqlen"]): factor * cell["tflops"] for cell in cells}
    lengths = sorted({cell["seqlen"] for cell in cells})
    lines = {impl: [(n, rates[impl, n]) for n in lengths if (impl, n) in rates] for impl in looks}
    lines = {impl: points for impl, points in lines.items() if points}
    legend = math.ceil(len(lines) / 2)
    x = Logarithmic(lengths[0], lengths[-1], LEFT + 8, WIDTH - RIGHT - 8)
    low = 10 ** math.floor(math.log10(min(rates.values())))
    y = Logarithmic(low, 1.15 * max(peak, *rates.values()), HEIGHT - BOTTOM, TOP)
    parts = [text(2, 14, f"{name}, log scale", 11.5, class_="quiet")]
    for value, words in y.powers():
        parts += [line(LEFT, y(value), WIDTH - RIGHT, y(value), "line", stroke_width=0.8),
                  text(LEFT - 6, y(value) + 4, words, 10.5, "end", class_="quiet")]  # fmt: skip
    for length in lengths:
        parts.append(text(x(length), HEIGHT - BOTTOM + 16, _short(length), 10.5, "middle", class_="quiet"))
    parts += [line(LEFT, y(peak), WIDTH - RIGHT, y(peak), "limit", stroke_dasharray="5 4", stroke_width=1.2),
              text(WIDTH - RIGHT, y(peak) - 5, "matrix product", 10.5, "end", class_="quiet")]  # fmt: skip
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 8, "seqlen", 11.5, "middle", class_="quiet"))
    for impl, points in lines.items():
        parts += _line(impl, [(x(n), y(rate), n, rate) for n, rate in points], looks[impl])
    for n, impl in enumerate(lines):
        left, top = LEFT + (n % 2) * 200, HEIGHT + 12 + 18 * (n // 2)
        parts += [_mark(left, top - 4, looks[impl]), text(left + 10, top, impl, 11.5, class_="mono")]
    fastest = max(rates, key=rates.__getitem__)
    says = f"The fastest is {fastest[0]} at seqlen {fastest[1]} with {number(rates[fastest])} {name}; "
    says += f"a matrix product reaches {number(peak)}."
    return picture(
        slug("curve", heading), f"Rate over seqlen: {heading}", says, WIDTH, HEIGHT + 12 + 18 * legend, *parts
    )


def _line(impl: str, points: Sequence[tuple[float, float, int, float]], look: int) -> list[Markup]:
    path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
    dash = None if look < COLOURS else "2 3"
    parts = [element("path", d=path, fill="none", stroke=_colour(look), stroke_width=1.6, stroke_dasharray=dash)]
    for x, y, length, rate in points:
        parts.append(_mark(x, y, look, f"{impl}, seqlen {length}: {number(rate)}"))
    return parts


def _mark(x: float, y: float, look: int, says: str = "") -> Markup:
    title = [element("title", says)] if says else []
    return element("path", *title, d=SHAPES[look % len(SHAPES)], fill=_colour(look),
                   transform=f"translate({x:.1f},{y:.1f}) scale(.85)")  # fmt: skip


def _colour(look: int) -> str:
    return f"var(--series-{look % COLOURS})"


def _short(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)
