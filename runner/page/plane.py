"""A picture of where the wrong elements of a failure lie, in the plane of queries and keys.

It shows which keys each query should see, the tiles, the wrong queries and keys, and the keys that
a query misses or has too many.
"""

from __future__ import annotations

from markupsafe import Markup

from flash_attest.runner.page.svg import element, line, picture, rect, text

SIDE = 330  # of the longer side, in pixels
LEAST_SIDE = 60  # of the shorter one: a single query is still seen
LEFT, TOP, RIGHT, BOTTOM = 50, 30, 24, 64
LEAST = 2.6  # pixels of what must be seen, however many keys there are
MOST_TILES = 80  # lines in one direction; with more of them they would cover the plane
MOST_MARKS = 600


def drawn(id: str, wrong: dict) -> Markup:
    """Return the picture of the field `wrong` of a result. id: unique on the page."""
    rows, columns = max(1, wrong["seqlen_q"]), max(1, wrong["seqlen_k"])
    width, height = _sides(columns, rows)
    dx, dy = width / columns, height / rows

    def band(first: int, last: int, step: float, start: float) -> tuple[float, float]:
        """Return where a range of rows or columns begins, and how thick it is drawn."""
        thick = max(LEAST, (last - first + 1) * step)
        return start + first * step - (thick - (last - first + 1) * step) / 2, thick

    parts = [rect(LEFT, TOP, width, height, "refused-plane")]
    if visible := _visible(rows, columns, wrong.get("start"), wrong["diagonal"], dx, dy):
        parts.append(element("path", d=visible, fill="var(--visible-plane)"))
    for first, last in wrong["queries"]:
        y, thick = band(first, last, dy, TOP)
        says = element("title", _range("query", "queries", first, last) + " wrong")
        parts.append(rect(LEFT, y, width, thick, "limit", says, opacity=0.3))
    for first, last in wrong["keys"]:
        x, thick = band(first, last, dx, LEFT)
        says = element("title", _range("key", "keys", first, last) + " wrong")
        parts.append(rect(x, TOP, thick, height, "series-2", says, opacity=0.3))
    if wrong["tile"]:
        parts += _tiles(wrong["tile"], rows, columns, dx, dy, width, height)
    parts.append(rect(LEFT, TOP, width, height, "none", stroke="var(--quiet)"))
    for i, j in wrong["missing"][:MOST_MARKS]:
        parts.append(_mark(i, j, dx, dy, "missing"))
    for i, j in wrong["extra"][:MOST_MARKS]:
        parts.append(_mark(i, j, dx, dy, "extra"))
    parts += _axes(wrong, rows, columns, dx, dy, width, height)
    legend, below = _legend(wrong, TOP + height + 34)
    parts += legend
    total = max(LEFT + width + RIGHT, 340)
    title = f"Where {wrong['tensor']} is wrong: {rows} queries, {columns} keys"
    return picture(id, title, says_of(wrong), total, below, *parts)


def says_of(wrong: dict) -> str:
    """Return in words what the picture shows."""
    parts = [f"{wrong['tensor']} is wrong"]
    if wrong["queries"]:
        parts.append("in " + ", ".join(_range("query", "queries", *pair) for pair in wrong["queries"][:6]))
    if wrong["keys"]:
        parts.append("at " + ", ".join(_range("key", "keys", *pair) for pair in wrong["keys"][:6]))
    for name in ("missing", "extra"):
        if pairs := wrong[name]:
            (i, j), more = pairs[0], len(pairs) - 1
            parts.append(f"{name}: key {j} of query {i}" + (f" and {more} more" if more else ""))
    if wrong["tile"]:
        parts.append("tiles of {} queries and {} keys".format(*wrong["tile"]))
    return ", ".join(parts) + "."


def _range(one: str, several: str, first: int, last: int) -> str:
    """ "query 64", "queries 64 to 127"."""
    return f"{one} {first}" if first == last else f"{several} {first} to {last}"


def _sides(columns: int, rows: int) -> tuple[float, float]:
    """Return the width and the height of the plane. A very long one is drawn thicker than it is."""
    longer = max(columns, rows)
    return max(LEAST_SIDE, SIDE * columns / longer), max(LEAST_SIDE, SIDE * rows / longer)


def _visible(rows: int, columns: int, start: int | None, diagonal: int | None, dx: float, dy: float) -> str:
    """Return the outline of the pairs that are seen: staircases, or lines if steps are tiny."""
    if diagonal is None and start is None:
        return f"M{LEFT},{TOP}h{columns * dx:.1f}v{rows * dy:.1f}h{-columns * dx:.1f}z"
    left = _side(rows, columns, -rows if start is None else start, dx, dy)
    right = _side(rows, columns, columns if diagonal is None else diagonal + 1, dx, dy)
    corner, *corners = [f"{x:.1f},{y:.1f}" for x, y in (left[0], *right, *left[:0:-1])]
    return f"M{corner}{''.join(f'L{each}' for each in corners)}z"


def _side(rows: int, columns: int, shift: int, dx: float, dy: float) -> list[tuple[float, float]]:
    """Return the corners, from the top, of a side that lies at key i + shift for query i."""
    ends = [LEFT + min(max(i + shift, 0), columns) * dx for i in range(rows)]
    if rows <= 200:
        return [(x, TOP + y * dy) for i, x in enumerate(ends) for y in (i, i + 1)]
    corners = sorted({0, rows - 1, *(min(max(i, 0), rows - 1) for i in (-shift, columns - shift))})
    edges = [(ends[i], TOP + (i + 0.5) * dy) for i in corners]
    return [(ends[0], TOP), *edges, (ends[-1], TOP + rows * dy)]


def _tiles(tile: list[int], rows: int, columns: int, dx: float, dy: float, width: float, height: float) -> list[Markup]:
    dashed = {"stroke_width": 0.9, "stroke_dasharray": "3 3"}
    parts = []
    if tile[0] > 0 and rows / tile[0] <= MOST_TILES:
        for i in range(tile[0], rows, tile[0]):
            parts.append(line(LEFT, TOP + i * dy, LEFT + width, TOP + i * dy, "quiet", **dashed))
    if tile[1] > 0 and columns / tile[1] <= MOST_TILES:
        for j in range(tile[1], columns, tile[1]):
            parts.append(line(LEFT + j * dx, TOP, LEFT + j * dx, TOP + height, "quiet", **dashed))
    return parts


def _mark(i: int, j: int, dx: float, dy: float, name: str) -> Markup:
    """Return a hollow square where a key is missing, and a cross where there is one too many."""
    x, y = LEFT + (j + 0.5) * dx, TOP + (i + 0.5) * dy
    r = max(LEAST, min(dx, dy) / 2)
    says = element("title", f"query {i}: key {j} is {name}")
    if name == "missing":
        return rect(x - r, y - r, 2 * r, 2 * r, "ground", says, stroke="var(--limit)", stroke_width=1.4)
    path = f"M{x - r:.1f},{y - r:.1f}L{x + r:.1f},{y + r:.1f}M{x - r:.1f},{y + r:.1f}L{x + r:.1f},{y - r:.1f}"
    return element("path", says, d=path, stroke="var(--limit)", stroke_width=1.8, fill="none")


def _axes(wrong: dict, rows: int, columns: int, dx: float, dy: float, width: float, height: float) -> list[Markup]:
    """Return the numbers at the edges: the first, the last and the wrong ones that fit."""
    parts = [
        text(LEFT, TOP - 16, "key →", 11.5, class_="quiet"),
        text(2, TOP - 4, "query ↓", 11.5, class_="quiet"),
    ]
    taken: list[float] = []
    for i in [first for pair in wrong["queries"][:20] for first in pair] + [rows - 1, 0]:
        y = TOP + (i + 0.5) * dy + 4
        if all(abs(y - other) > 12 for other in taken) and y > TOP + 4:
            parts.append(text(LEFT - 6, y, i, 11, "end", class_="quiet"))
            taken.append(y)
    taken = []
    named = wrong["keys"][:20] + [[j, j] for _, j in (wrong["missing"] + wrong["extra"])[:3]]
    for j in [first for pair in named for first in pair] + [columns - 1, 0]:
        x = LEFT + (j + 0.5) * dx
        if all(abs(x - other) > 30 for other in taken):
            parts.append(text(x, TOP + height + 14, j, 11, "middle", class_="quiet"))
            taken.append(x)
    return parts


def _legend(wrong: dict, y: float) -> tuple[list[Markup], float]:
    """Return the legend, and how high the picture is with it."""
    masked = wrong["diagonal"] is not None or wrong.get("start") is not None
    entries = [("visible-plane", "seen"), ("refused-plane", "masked")] if masked else []
    entries += [("limit", "wrong query")] if wrong["queries"] else []
    entries += [("series-2", "wrong key")] if wrong["keys"] else []
    parts, x = [], float(LEFT - 40)
    for colour, words in entries:
        faint = 0.4 if words.startswith("wrong") else None
        parts.append(rect(x, y - 9, 11, 11, colour, opacity=faint, stroke="var(--quiet)", stroke_width=0.5))
        parts.append(text(x + 16, y, words, 11.5))
        x += 16 + 6.4 * len(words) + 14
    x, below = float(LEFT - 40), y + 18
    marks = [(name, words) for name, words in (("missing", "□ missing key"), ("extra", "✕ extra key")) if wrong[name]]
    if wrong["tile"]:
        marks.append(("tile", "┄ tiles of {} × {}".format(*wrong["tile"])))
    for _, words in marks:
        parts.append(text(x, below, words, 11.5))
        x += 6.6 * len(words) + 14
    return parts, below + (8 if marks else -10)
