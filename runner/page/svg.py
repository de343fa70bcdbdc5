"""Makes SVG. Text is escaped; colours are variables of style.css, for both colour schemes."""

from __future__ import annotations

import math

from markupsafe import Markup, escape


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element: element("rect", x=1, class_="tile", stroke_width=2).

    Strings among the children are text. An attribute that is None is left out. "_" in a name
    is "-".
    """
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _short(value))
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{}{}>{}</{}>").format(Markup(name), given, Markup("").join(map(escape, children)), Markup(name))


def _short(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def picture(id: str, title: str, says: str, width: float, height: float, *children: Markup) -> Markup:
    """Return a picture with a title, and in words what it shows. id: unique on the page."""
    return element(
        "svg", element("title", title, id=f"{id}.title"), element("desc", says, id=f"{id}.says"), *children,
        viewBox=f"0 0 {_short(float(width))} {_short(float(height))}", width=round(width), role="img",
        aria_labelledby=f"{id}.title {id}.says",
    )  # fmt: skip


def text(x: float, y: float, words: object, size: float = 12, anchor: str = "start", **more: object) -> Markup:
    """Return text; anchor: "start", "middle" or "end"."""
    return element("text", str(words), x=float(x), y=float(y), font_size=size,
                   text_anchor=None if anchor == "start" else anchor, **more)  # fmt: skip


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, **more: object) -> Markup:
    """Return a line. stroke: the name of a colour, as in "line"."""
    return element(
        "line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), stroke=f"var(--{stroke})", **more
    )  # fmt: skip


def rect(x: float, y: float, width: float, height: float, fill: str, *children: Markup, **more: object) -> Markup:
    """Return a rectangle. fill: the name of a colour, or "none"."""
    ground = fill if fill == "none" else f"var(--{fill})"
    return element(
        "rect", *children, x=float(x), y=float(y), width=float(width), height=float(height), fill=ground, **more
    )


class Logarithmic:
    """A logarithmic scale from `low` to `high`, drawn from x = `start` to `stop`.

    Values outside are drawn at its ends.
    """

    def __init__(self, low: float, high: float, start: float, stop: float):
        self.low, self.high, self.start, self.stop = low, high, start, stop

    def __call__(self, value: float) -> float:
        inside = self.high if value != value else min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.stop - self.start)

    def powers(self) -> list[tuple[float, str]]:
        """Return powers of ten on the scale, with their words: at most seven, to leave space."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = 1 + (last - first) // 7
        powers = range(first, last + 1, step)
        return [(10.0**n, f"{10.0**n:g}" if -3 < n < 4 else f"1e{n}") for n in powers]
