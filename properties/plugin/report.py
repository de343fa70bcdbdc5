"""Writes the report: results.json, complete after every verdict; index.html; the table on the terminal."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import jinja2
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oracle import Z_LIMIT
from properties.judging.beside import ALSO
from properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, WORST_FIRST
from properties.plugin import times

COLOURS = {PASS: "green", FAIL: "bold red", REFUSED: "bright_black", UNKNOWN: "yellow"}
COLOURS["known failure"] = "yellow"
COUNTED = (PASS, FAIL, UNKNOWN, REFUSED)
PACKAGES = ("torch", "triton", "numba", "numba-cuda", "numpy", "pytest", "pytest-xdist", "hypothesis")
TEMPLATE = Path(__file__).with_name("report.html.j2")


def environment(device: str, **more: object) -> dict:
    """The environment of a run: versions, device, and what the caller adds (seed, profile, command)."""
    versions = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    name = platform.processor() or platform.machine()
    if device == "cuda" and torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
    return {
        "versions": versions,
        "device": device,
        "device_name": name,
        "platform": platform.platform(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **more,
    }


class Report:
    """Keeps the results so far on disk, so that an interrupted run loses no verdict."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.environment: dict = {}
        self.results: list[dict] = []
        self._written: list[str] = []  # each result as JSON, so that it is converted only once

    @property
    def json_file(self) -> Path:
        return self.directory / "results.json"

    def add(self, *results: dict) -> None:
        """Add verdicts. results.json is complete when this returns."""
        self.results += results
        self._written += [json.dumps(result, indent=1) for result in results]
        self._write_results()

    def _write_results(self) -> None:
        results = ",\n".join(self._written)
        environment = json.dumps(self.environment, indent=1)
        self._write(self.json_file, f'{{"environment": {environment},\n"results": [\n{results}\n]}}\n')

    def finish(self, **more: object) -> None:
        """Write index.html, which needs no network and no other file; `more` is what the environment still lacks."""
        self.environment |= more
        self._write_results()
        template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
            TEMPLATE.read_text()
        )
        page = template.render(
            environment=self.environment,
            groups=by_chapter(self.results),
            results=self.results,
            counts=self.counts(),
            times={heading: times.lines_by(self.results, field) for field, heading in times.TABLES.items()},
            whole=times.total(self.results, self.environment),
            kinds=times.COLUMNS,
            z_limit=f"{Z_LIMIT:g}",
        )
        self._write(self.directory / "index.html", page)

    def counts(self) -> Counter:
        """How many results have each verdict."""
        return Counter(result["verdict"] for result in self.results)

    def _write(self, path: Path, text: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(path.suffix + ".part")
        unfinished.write_text(text)
        os.replace(unfinished, path)


def by_chapter(results: list[dict]) -> dict[str, list[dict]]:
    """impl -> one line per chapter: verdict, laws by verdict, cases, worst z (and of which tensor), seconds."""
    groups: dict[str, dict[str, list[dict]]] = {}
    for result in sorted(results, key=lambda r: (r["impl"], r["chapter"])):
        groups.setdefault(result["impl"], {}).setdefault(result["chapter"], []).append(result)
    return {impl: [_line(chapter, laws) for chapter, laws in chapters.items()] for impl, chapters in groups.items()}


def _line(chapter: str, laws: list[dict]) -> dict:
    shown = Counter("known failure" if law["known"] else law["verdict"] for law in laws)
    zs = [(float(z), tensor) for law in laws for tensor, z in law["worst_z"].items()]
    z, tensor = max(zs, default=(None, ""))
    return {
        "chapter": chapter.removeprefix("test_"),
        "verdict": next((v for v in WORST_FIRST if shown[v]), "known failure"),
        "laws": "  ".join(f"{n} {v}" for v in (*COUNTED, "known failure") if (n := shown[v])),
        "cases": sum(law["cases"] for law in laws),
        "worst_z": "" if z is None else f"{z:.3g} {tensor}",
        "seconds": sum(law["seconds"] for law in laws),
    }


def remarks(results: list[dict]) -> list[tuple[str, str, str]]:
    """(impl, verdict, text) of what the table does not show: why laws were refused or undecided, what a pass means."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        if result["reason"] and result["verdict"] != FAIL:
            grouped.setdefault((result["impl"], result["verdict"], result["reason"]), []).append(result["law"])
    found = []
    for (impl, verdict, reason), laws in sorted(grouped.items()):
        what = laws[0] if len(laws) == 1 else f"{len(laws)} laws"
        found.append((impl, verdict, f"{what}: {reason}"))
    return found


def print_table(report: Report, console: Console) -> None:
    """Print verdict, laws, cases, worst z and seconds by implementation and chapter, then reasons, then each failure.

    An implementation without any judged law has no lines in the table.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in [("implementation", "left"), ("chapter", "left"), ("verdict", "left"), ("laws", "left"),
                             ("cases", "right"), ("worst z", "right"), ("seconds", "right")]:  # fmt: skip
        table.add_column(heading, justify=justify, no_wrap=True)
    for impl, lines in by_chapter(report.results).items():
        judged = [line for line in lines if line["verdict"] != UNKNOWN]
        for n, line in enumerate(judged):
            verdict = f"[{COLOURS[line['verdict']]}]{line['verdict']}[/]"
            table.add_row(impl if n == 0 else "", line["chapter"], verdict, line["laws"], str(line["cases"]),
                          line["worst_z"], f"{line['seconds']:.1f}")  # fmt: skip
    if table.row_count:
        console.print(table)
        console.print()
    failures = []
    for result in report.results:
        if result["verdict"] == FAIL:
            text, known = f"{result['law']}: {result['reason']}", result["known"]
            failures.append(
                (result["impl"], "known failure", f"{text} ({known})") if known else (result["impl"], FAIL, text)
            )
            if result.get("beside", "").startswith(ALSO):
                failures.append((result["impl"], failures[-1][1], f"{result['law']}: {result['beside']}"))
    for impl, verdict, text in remarks(report.results) + failures:
        line = f"[{COLOURS[verdict]}]{verdict:7}[/]  {escape(impl)}  {escape(text)}"
        console.print(line, highlight=False, soft_wrap=True)
    counts = report.counts()
    console.print("   ".join(f"[{COLOURS[v]}]{counts[v]} {v}[/]" for v in COUNTED if counts[v]))
