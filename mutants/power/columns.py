"""A picture of every planted bug: a column each, coloured in the rows of those who catch it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from flash_attest.mutants.power.report import by_chapter
from flash_attest.mutants.power.rules import PEERS
from flash_attest.mutants.power.tables import Row, Table
from flash_attest.runner.page.svg import element, line, picture, rect, text

WIDTH, LEFT, TOP, HEIGHT, GAP = 1080, 112, 22, 17, 7  # GAP: between chapters
LETTER = 6.2  # how wide a letter of a label is


def drawn(table: Table, id: str) -> Markup | None:
    """Return the picture, or None without rows. id: unique on the page."""
    chapters = {name: _ordered(rows) for name, rows in by_chapter(table.rows).items()}
    if not chapters:
        return None
    wide = (WIDTH - LEFT - GAP * len(chapters)) / sum(map(len, chapters.values()))
    parts, x = [], float(LEFT)
    bottom = TOP + (HEIGHT + 3) * (len(PEERS) + 1)
    for name, rows in chapters.items():
        own = wide * len(rows)
        if own > LETTER * len(name):
            parts.append(text(x, TOP - 8, name, 11, class_="quiet"))
        for n, caught in enumerate(_lines(rows)):
            y = TOP + n * (HEIGHT + 3)
            parts.append(rect(x, y, own, HEIGHT, "elsewhere-ground"))
            parts.append(
                element("path", d=_runs(caught, x, y, wide), fill="var(--pass)" if n == 0 else "var(--series-0)")
            )
        parts.append(line(x - GAP / 2, TOP - 16, x - GAP / 2, bottom, "line", stroke_width=0.8))
        x += own + GAP
    for n, title in enumerate(("the laws", *(peer.title for peer in PEERS))):
        parts.append(text(LEFT - 10, TOP + n * (HEIGHT + 3) + 13, title, 11.5, "end"))
    rows = list(table.rows.values())
    says = f"The laws catch {sum(row.caught for row in rows)} of {len(rows)}; "
    says += ", ".join(f"{peer.title} {sum(peer.name in row.rejecting for row in rows)}" for peer in PEERS) + "."
    return picture(id, "Every planted bug, by what catches it", says, WIDTH, bottom + 4, *parts)


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Sort the rows: those that most suites catch come first."""
    return sorted(rows, key=lambda row: (-len(row.rejecting), [peer.name not in row.rejecting for peer in PEERS]))


def _lines(rows: Sequence[Row]) -> list[list[bool]]:
    """Return whether each bug is caught: by the laws, then by each suite."""
    return [[row.caught for row in rows], *([peer.name in row.rejecting for row in rows] for peer in PEERS)]


def _runs(caught: Sequence[bool], x: float, y: float, wide: float) -> str:
    """Return the path of a rectangle for each run of bugs that are caught."""
    path, start = "", None
    for n, one in enumerate([*caught, False]):
        if one and start is None:
            start = n
        elif not one and start is not None:
            path += f"M{x + start * wide:.1f},{y:.1f}h{(n - start) * wide:.1f}v{HEIGHT}H{x + start * wide:.1f}z"
            start = None
    return path
