"""Writes the report: results.json and index.html, from the start of the run to its end; the table on the terminal."""

from __future__ import annotations

import functools
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flash_attest.properties.judging.beside import ALSO
from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, WORST_FIRST
from flash_attest.runner.green import EXCUSED
from flash_attest.runner.page.run import run_page
from flash_attest.runner.plugin.folder import ANOTHER, Folder, FolderError, Pace
from flash_attest.runner.plugin.saved import JOURNAL, RESULTS
from flash_attest.runner.untrusted.observed import sentences

COLOURS = {PASS: "green", FAIL: "bold red", REFUSED: "bright_black", UNKNOWN: "yellow"}
COLOURS["known failure"] = "yellow"
COUNTED = (PASS, FAIL, UNKNOWN, REFUSED)
PACKAGES = ("torch", "triton", "numba", "numba-cuda", "numpy", "pytest", "pytest-xdist", "hypothesis")
PAGE = "index.html"
# `state` in the environment: how far the run has come, or how it ended.
RUNNING, COMPLETE, INTERRUPTED, STOPPED = "running", "complete", "interrupted", "ended early"


def environment(device: str, **more: object) -> dict:
    """The environment of a run: versions, device, and what the caller adds (seed, profile, command, name of the GPU)."""
    versions = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "versions": versions,
        "installed": installed(),
        "device": device,
        "device_name": cpu_name(),
        "platform": platform.platform(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **more,
    }


@functools.cache
def installed() -> dict[str, str]:
    """The version of each installed package, by name, as the folder NAME-VERSION.dist-info says: to read them takes 0.1 s."""
    folders = (folder.stem.partition("-") for path in reversed(sys.path) for folder in Path(path).glob("*.dist-info"))
    return dict(sorted((name.lower().replace("_", "-"), version) for name, _, version in folders))


@functools.cache
def cpu_name() -> str:
    """ "AMD EPYC ..." from /proc/cpuinfo, otherwise the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


class Report:
    """Keeps the results so far on disk, so that a run that ends in any way loses no verdict.

    results.json is rewritten after each verdict while that takes next to no time, which is so in runs of ordinary size. In
    larger ones verdicts go to a journal in between (saved.py reads both). index.html is rewritten from time to time.
    """

    def __init__(self, directory: Path, tell: Callable[[str], None] = lambda text: None):
        self.directory = directory
        self.folder = Folder(directory, tell)
        self.environment: dict = {}
        self.results: list[dict] = []
        self._written: list[str] = []  # each result as JSON, so that it is converted only once
        self._place: dict[tuple[str, str], int] = {}  # (law, impl) -> which result it is
        self._journalled = False
        self._results_pace, self._page_pace = Pace(share=0.02, free=0.5), Pace(share=0.01)

    @property
    def planned(self) -> int:
        """How many laws there were to judge; 0 before the start."""
        return self.environment.get("planned", 0)

    def start(self, environment: dict, planned: int, kept: Iterable[dict] = ()) -> None:
        """Hold the folder and replace what is in it, so that an old page never stands beside new results.

        `planned`: how many laws there are to judge; `kept`: results of an earlier run, to begin with.
        Raises FolderError if the folder is in use or cannot be written to.
        """
        self.folder.take(environment["command"])
        for result in kept:
            self._keep(result)
        progress = {"complete": False, "state": RUNNING, "decided": len(self.results), "planned": planned}
        self.environment = all_plain(environment | progress)
        self.folder.remove(PAGE)
        self._write_results()
        if not self.folder.trouble:  # what is in the journal is in there now, or was not asked for
            self.folder.remove(JOURNAL)
            self._write_page()
        if trouble := self.folder.trouble:
            self.folder.release()
            self.environment = {}
            raise FolderError(f"--report {self.directory}: {trouble}: free some space, or {ANOTHER}")

    def add(self, *results: dict) -> None:
        """Add verdicts. They are on disk when this returns."""
        new = [result for result in map(all_plain, results) if self._keep(result)]
        if not new:
            return
        self.environment["decided"] = len(self.results)
        if self._results_pace.due():
            with self._results_pace.writing():
                self._write_results()
        else:
            self.folder.append(JOURNAL, "".join(f"\n{json.dumps(result)}" for result in new))
            self._journalled = True
        if self._page_pace.due():
            with self._page_pace.writing():
                self._write_page()

    def _keep(self, result: dict) -> bool:
        """Add a result, or put it in place of the earlier one of its law and implementation; False if that is the same."""
        place = self._place.setdefault((result["law"], result["impl"]), len(self.results))
        if place < len(self.results) and self.results[place] == result:
            return False
        self.results[place : place + 1] = [result]
        self._written[place : place + 1] = [json.dumps(result, indent=1)]
        return True

    def finish(self, ended: str = STOPPED, **more: object) -> None:
        """Write both files a last time and let others have the folder; `more` is what the environment still lacks.

        `ended`: how the run ended, if not all of its laws have a verdict.
        """
        complete = len(self.results) >= self.planned
        self.environment |= all_plain(more) | {"complete": complete, "state": COMPLETE if complete else ended}
        self._write_results()
        self._write_page()
        self.folder.release()

    def _write_results(self) -> None:
        results = ",\n".join(self._written)
        environment = json.dumps(self.environment, indent=1)
        written = self.folder.write(RESULTS, f'{{"environment": {environment},\n"results": [\n{results}\n]}}\n')
        if written and self._journalled:
            self.folder.remove(JOURNAL)
            self._journalled = False

    def _write_page(self) -> None:
        """index.html needs no network and no other file."""
        self.folder.write(PAGE, run_page(self.results, self.environment))

    def counts(self) -> Counter:
        """How many results have each verdict."""
        return Counter(result["verdict"] for result in self.results)


def by_chapter(results: list[dict]) -> dict[str, list[dict]]:
    """impl -> one line per chapter: verdict, laws by verdict, cases, worst z (and of which tensor), seconds."""
    groups: dict[str, dict[str, list[dict]]] = {}
    for result in sorted(results, key=lambda r: (r["impl"], r["chapter"])):
        groups.setdefault(result["impl"], {}).setdefault(result["chapter"], []).append(result)
    return {impl: [_line(chapter, laws) for chapter, laws in chapters.items()] for impl, chapters in groups.items()}


def _line(chapter: str, laws: list[dict]) -> dict:
    shown = Counter("known failure" if law["known"] else law["verdict"] for law in laws)
    applicable = {law["verdict"] for law in laws if law.get("why") not in EXCUSED and not law["known"]}
    zs = [(float(z), tensor) for law in laws for tensor, z in law["worst_z"].items()]
    z, tensor = max(zs, default=(None, ""))
    return {
        "chapter": chapter.removeprefix("test_"),
        "verdict": next(
            (v for v in WORST_FIRST if v in applicable), "known failure" if shown["known failure"] else UNKNOWN
        ),
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
        if all(line["verdict"] == UNKNOWN for line in lines):
            continue
        for n, line in enumerate(lines):
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
    for impl, text in sentences(report.results):
        console.print(f"[cyan]observed[/] {escape(impl)}  {escape(text)}", highlight=False, soft_wrap=True)
    counts = report.counts()
    console.print("   ".join(f"[{COLOURS[v]}]{counts[v]} {v}[/]" for v in COUNTED if counts[v]))
