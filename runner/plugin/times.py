"""Shows where the time of a run went, by implementation, law and kind of work.

    flash-attest times [attest-report] [--slowest 20]

Seconds are those of workers: two workers that judge for a minute are 120 s. The line "pytest and
xdist" has the time that is charged to no law: start-up, collecting, sending results, waiting for
the last worker.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from flash_attest.properties.machine.clock import Work
from flash_attest.runner.plugin.saved import read

KINDS = tuple(work.value for work in Work)
OTHER = "other"  # the kind of all other seconds of a result
AROUND = "pytest and xdist"
COLUMNS = (*KINDS, OTHER, AROUND)
TABLES = {"impl": "implementation", "law": "law"}  # field of a result: heading


@dataclass
class Line:
    """A row of the table: seconds by kind of work, and their sum."""

    name: str
    seconds: dict[str, float]
    whole: float


def lines_by(results: list[dict], field: str) -> list[Line]:
    """Return a line for each value of a field of the results ("impl", "law"), longest first."""
    by_name: dict[str, Counter] = {}
    for result in results:
        counted = by_name.setdefault(result[field], Counter())
        counted.update(result["seconds_of"])
        counted[OTHER] += max(0.0, result["seconds"] - sum(result["seconds_of"].values()))
    found = [Line(name, dict(seconds), sum(seconds.values())) for name, seconds in by_name.items()]
    return sorted(found, key=lambda line: -line.whole)


def total(results: list[dict], environment: dict) -> Line:
    """Return the sum of all results, with `pytest and xdist` if the run has ended."""
    seconds: Counter = Counter()
    for line in lines_by(results, "impl"):
        seconds.update(line.seconds)
    if "seconds" in environment:
        seconds[AROUND] = max(0.0, environment["seconds"] * environment["workers"] - sum(seconds.values()))
    return Line("all", dict(seconds), sum(seconds.values()))


def sentence(results: list[dict], environment: dict) -> str:
    """Return a sentence for the end of a run: "of 610 worker seconds: running 48 %, oracle 12 %,
    ...".
    """
    line = total(results, environment)
    if not line.whole:
        return "no time was spent"
    shares = sorted(line.seconds.items(), key=lambda item: -item[1])
    named = ", ".join(f"{kind} {share:.0%}" for kind, s in shares if (share := s / line.whole) >= 0.005)
    return f"of {line.whole:.0f} worker seconds: {named}"


def table(lines: list[Line], heading: str) -> Table:
    """Return lines as a table for the terminal."""
    kinds = [kind for kind in COLUMNS if any(line.seconds.get(kind, 0) >= 0.05 for line in lines)]
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column(heading, no_wrap=True)
    for name in ("seconds", *kinds):
        made.add_column(name, justify="right")
    for line in lines:
        made.add_row(line.name, *(f"{s:.1f}" if s else "" for s in (line.whole, *map(line.seconds.get, kinds))))
    return made


def show(report: str, slowest: int) -> None:
    """Print the tables of a report. Raises NoReport."""
    record = read(report)
    results, environment = record["results"], record["environment"]
    whole = total(results, environment)
    console = Console(width=200)
    if "seconds" in environment:
        console.print(
            f"{environment['seconds']:.1f} s on {environment['workers']} workers, {environment['device_name']}"
        )
    for field, heading in TABLES.items():
        lines = lines_by(results, field)
        console.print(table(lines[:slowest] if field == "law" else [*lines, whole], heading), "")
