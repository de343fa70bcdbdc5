"""A picture of the worst z of each output of each implementation, against what is allowed."""

from __future__ import annotations

from markupsafe import Markup

from flash_attest.oracle import Z_LIMIT
from flash_attest.runner.page.records import grouped, size
from flash_attest.runner.page.svg import Logarithmic, element, line, picture, rect, text
from flash_attest.runner.page.words import number, z

WIDTH, ROW, HEAD, FOOT = 460, 19, 44, 30
LEFT, RIGHT = 132, 14  # for names; for the end of the scale
LONGEST = 20  # letters of a name
LEAST, MOST = 0.1, 1e6  # the ends of the scale: what lies outside is drawn there
KNOWN = ("out", "lse", "dq", "dk", "dv", "dbias")  # each has a shape of its own; other outputs share the last one
SHAPES = ("M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", "M0,-5L5,0L0,5L-5,0z", "M0,-5L4.6,4H-4.6z", "M0,5L4.6,-4H-4.6z",
          "M-3.8,-3.8H3.8V3.8H-3.8z", "M-1.6,-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6z",
          "M-3.6,-5L0,-1.4L3.6,-5L5,-3.6L1.4,0L5,3.6L3.6,5L0,1.4L-3.6,5L-5,3.6L-1.4,0L-5,-3.6z")  # fmt: skip


def worst_of(results: list[dict]) -> dict[str, dict[str, object]]:
    """Return implementation -> tensor -> its largest z in all laws, as results.json has it."""
    table: dict[str, dict[str, object]] = {}
    for (impl,), own in sorted(grouped(results, "impl").items()):
        largest: dict[str, object] = {}
        for result in own:
            for tensor, value in result["worst_z"].items():
                if number(value) is not None and size(value) > size(largest.get(tensor)):
                    largest[tensor] = value
        if largest:
            table[impl] = largest
    return table


def drawn(results: list[dict]) -> Markup | None:
    """Return the picture, or None if no z was measured."""
    table = worst_of(results)
    if not table:
        return None
    greatest = max(size(value) for zs in table.values() for value in zs.values())
    scale = Logarithmic(LEAST, min(max(100.0, greatest * 1.5), MOST), LEFT, WIDTH - RIGHT)
    bottom = HEAD + ROW * len(table)
    parts = [*_grid(scale, bottom), *_legend({tensor for zs in table.values() for tensor in zs})]
    for n, (impl, zs) in enumerate(table.items()):
        y = HEAD + ROW * (n + 0.5)
        name = impl if len(impl) <= LONGEST else impl[: LONGEST - 1] + "…"
        parts.append(text(LEFT - 8, y + 4, name, 11.5, "end", class_="mono"))
        parts.append(line(LEFT, y, WIDTH - RIGHT, y, "line", stroke_width=0.6))
        # The largest is drawn last, so that nothing hides it.
        parts += [_mark(impl, tensor, zs[tensor], scale, y) for tensor in sorted(zs, key=lambda name: size(zs[name]))]
    parts.append(text(LEFT, bottom + 26, f"worst z, log scale; {Z_LIMIT:g} is allowed", 11.5, class_="quiet"))
    impl, tensor, value = max(
        ((impl, tensor, value) for impl, zs in table.items() for tensor, value in zs.items()),
        key=lambda found: size(found[2]),
    )
    above = sum(any(size(value) > Z_LIMIT for value in zs.values()) for zs in table.values())
    says = (
        f"The largest is {z(value)}, of {tensor} of {impl}. {above} of {len(table)} implementations exceed {Z_LIMIT:g}."
    )
    return picture("worst", "Worst z of each output, by implementation", says, WIDTH, bottom + FOOT + 4, *parts)


def _grid(scale: Logarithmic, bottom: float) -> list[Markup]:
    limit = scale(Z_LIMIT)
    parts = [rect(limit, HEAD - 4, WIDTH - RIGHT - limit, bottom - HEAD + 8, "fail-ground", opacity=0.6)]
    for value, words in scale.powers():
        parts.append(line(scale(value), HEAD - 2, scale(value), bottom + 2, "line", stroke_width=0.8))
        words = f"{words} or more" if value == MOST else words
        anchor = "end" if value == MOST else "middle"
        parts.append(text(scale(value), bottom + 12, words, 10.5, anchor, class_="quiet"))
    parts.append(line(limit, HEAD - 8, limit, bottom + 4, "limit", stroke_width=1.6))
    parts.append(text(limit, HEAD - 12, f"{Z_LIMIT:g}", 12, "middle", font_weight=700, style="fill:var(--limit)"))
    return parts


def _shape(tensor: str) -> tuple[str, str]:
    """Return the path and the colour of an output."""
    n = KNOWN.index(tensor) if tensor in KNOWN else len(KNOWN)
    return SHAPES[n], f"var(--series-{n})"


def _mark(impl: str, tensor: str, value: object, scale: Logarithmic, y: float) -> Markup:
    path, colour = _shape(tensor)
    says = element("title", f"{impl}: {tensor} has z {z(value)}")
    where = f"translate({scale(size(value) if size(value) > 0 else LEAST):.1f},{y:.1f})"
    return element("path", says, d=path, transform=where, fill=colour, stroke="var(--ground)", stroke_width=0.8)


def _legend(tensors: set[str]) -> list[Markup]:
    parts, x = [], 10.0
    for tensor in [name for name in KNOWN if name in tensors] + (["other"] if tensors - set(KNOWN) else []):
        path, colour = _shape(tensor)
        parts.append(element("path", d=path, transform=f"translate({x:.1f},12)", fill=colour))
        parts.append(text(x + 9, 16, tensor, 11.5))
        x += 9 + 7.2 * len(tensor) + 18
    return parts
