"""The matrix of implementations and chapters: the worst verdict of each cell, and its largest z."""

from __future__ import annotations

from dataclasses import dataclass

from flash_attest.oracle import Z_LIMIT
from flash_attest.properties.judging.verdict import FAIL
from flash_attest.runner.page.records import counted, grouped, size, worst
from flash_attest.runner.page.words import VERDICTS, chapter_name, plural, slug, z

FIRST = "test_contract"  # the chapter that all others depend on


@dataclass(frozen=True)
class Cell:
    """The laws of one chapter on one implementation. anchor: where they are listed."""

    verdict: str
    z: str
    says: str
    anchor: str


@dataclass(frozen=True)
class Row:
    """An implementation: a cell for each chapter, or None if no law of it has a verdict."""

    impl: str
    anchor: str
    counts: dict[str, int]
    cells: list[Cell | None]


def chapters_of(results: list[dict]) -> list[str]:
    """Return the chapters: the contract, then by name."""
    return sorted({result["chapter"] for result in results}, key=lambda name: (name != FIRST, name))


def rows_of(results: list[dict], chapters: list[str]) -> list[Row]:
    """Return a row for each implementation, those with failures first."""
    rows = []
    order = list(VERDICTS)
    for (impl,), own in grouped(results, "impl").items():
        by_chapter = {chapter: laws for (chapter,), laws in grouped(own, "chapter").items()}
        cells = [_cell(impl, chapter, by_chapter[chapter]) if chapter in by_chapter else None for chapter in chapters]
        rows.append(Row(impl, slug("laws", impl), counted(own), cells))
    return sorted(rows, key=lambda row: (min(map(order.index, row.counts)) if row.counts else 0, row.impl))


def _cell(impl: str, chapter: str, laws: list[dict]) -> Cell:
    counts = counted(laws)
    largest, tensor = worst(laws)
    says = ", ".join(f"{n} {VERDICTS[name].word}" for name, n in counts.items())
    says = f"{impl}, {chapter_name(chapter)}: {says} of {plural(len(laws), 'law')}"
    if tensor:
        says += f"; worst z {z(largest)} of {tensor}"
    verdict = next(iter(counts))
    # Beside a failure of a law that compares exactly, a small z would read as its reason.
    shown = "" if verdict == FAIL and size(largest) <= Z_LIMIT else z(largest)
    return Cell(verdict, shown, says, f"{slug('laws', impl)}.{slug(chapter_name(chapter))}")
