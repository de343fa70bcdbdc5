"""Joins the files of several sweeps (the shards of several hosts, or several nights) into one, and writes its report.

flash-attest merge one.db two.db --into both.db
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rich.console import Console

from flash_attest.runner.parts import Shard
from flash_attest.sweep import report
from flash_attest.sweep.records import DONE, REPORTED, Finding, Run
from flash_attest.sweep.store import Store


class MergeError(ValueError):
    """The files do not belong together."""


def merged(files: list[Path], into: Path) -> list[str]:
    """Write all runs of the files to a new one, which is there whole or not at all. Returns remarks.

    Raises MergeError if two files have another run of the same number, StoreError for a file that is no sweep.
    """
    sessions: dict[str, tuple] = {}
    runs: dict[tuple[int, int], tuple[Run, Path]] = {}
    findings: dict[tuple, Finding] = {}
    shards: dict[tuple[int, int], set[int]] = {}
    for file in files:
        with closing(Store(file)) as store:
            if not store.merged:
                shards.setdefault((store.seed, store.shard.of), set()).add(store.shard.part)
            for row in store.rows("SELECT * FROM sessions"):
                sessions[row["id"]] = max(sessions.get(row["id"], tuple(row)), tuple(row), key=ended)
            for row in store.rows("SELECT * FROM runs"):
                _add_run(runs, Run(**row), file)
            for finding in store.findings():
                there = findings.get(finding.place)
                findings[finding.place] = finding if there is None else _one_of(there, finding)
    if not sessions:
        raise MergeError(f"{', '.join(map(str, files))}: nothing was swept")
    seed = min((seed for seed, _ in runs), default=0)
    unfinished = into.with_name(f"{into.name}.merging")
    unfinished.unlink(missing_ok=True)
    with closing(Store.made(unfinished, seed, Shard(1, 1), merged=True)) as store:
        store.fill(sessions.values(), [run for run, _ in runs.values()], findings.values())
    unfinished.replace(into)
    return [
        f"shard {part}/{of} of seed {seed} is not among the files"
        for (seed, of), there in sorted(shards.items())
        for part in range(1, of + 1)
        if part not in there
    ]


def ended(session: tuple) -> str:
    """When a session (a row of the table) ended; "" if it has not, or the file is an older copy."""
    return session[2]


def _add_run(runs: dict, run: Run, file: Path) -> None:
    """Add a run; of two that are one, an older copy of a file say, the one with an end."""
    place = (run.seed, run.number)
    there, where = runs.get(place, (None, None))
    if there is None or there.state != DONE:
        runs[place] = (run, file)
    elif run.state == DONE and (run.session, run.started) != (there.session, there.started):
        raise MergeError(
            f"{where} and {file} have different runs {run.number} of seed {run.seed}: shards of one sweep need --shard I/N, "
            "each another I"
        )


def _one_of(one: Finding, other: Finding) -> Finding:
    """Of two findings that are one: the reported one, or the earlier one, with the runs of both."""
    first = min((one, other), key=lambda f: (f.state != REPORTED, f.found))
    same = (one.seed, one.number) == (other.seed, other.number)
    first.times = max(one.times, other.times) if same else one.times + other.times
    return first


def join(files: list[Path], into: Path, folder: Path | None = None, console: Console | None = None) -> int:
    """Join, report to a folder (that of `into`). Returns 0 if nothing was found, 1 otherwise.

    Raises MergeError, StoreError or OSError, in words.
    """
    if into.exists():
        raise MergeError(f"--into {into}: is there already: name another file")
    remarks = merged(files, into)
    console = console or report.console()
    for remark in remarks:
        console.print(f"[yellow]{remark}[/]", highlight=False)
    with closing(Store(into)) as store:
        return report.write_report(store, folder or into.parent, console)
