"""Joins the files of several sweeps into one, and writes its report.

    flash-attest merge one.db two.db --into both.db

The files are shards of several hosts, or sweeps of several nights.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rich.console import Console

from flash_attest.runner.parts import Shard
from flash_attest.sweep import report
from flash_attest.sweep.plan import LAYERS
from flash_attest.sweep.records import DONE, REPORTED, Finding, Run
from flash_attest.sweep.store import Store


class MergeError(ValueError):
    """The files do not belong together."""


def merged(files: list[Path], into: Path) -> list[str]:
    """Write all runs of the files to a new file, completely or not at all. Returns remarks.

    Raises MergeError if two files have different runs with the same number, StoreError if a file is
    not from a sweep.
    """
    sessions: dict[str, tuple] = {}
    runs: dict[tuple[int, int], tuple[Run, Path]] = {}
    findings: dict[tuple, Finding] = {}
    shards: dict[tuple[int, int], set[int]] = {}
    for file in files:
        with closing(Store(file)) as store:
            store.check(LAYERS)
            if not store.merged:
                shards.setdefault((store.seed, store.shard.of), set()).add(store.shard.part)
            for row in store.rows("SELECT * FROM sessions"):
                sessions[row["id"]] = max(sessions.get(row["id"], tuple(row)), tuple(row), key=ended)
            for row in store.rows("SELECT * FROM runs"):
                _add_run(runs, Run(**row), file)
            for finding in store.findings():
                earlier = findings.get(finding.place)
                findings[finding.place] = finding if earlier is None else _one_of(earlier, finding)
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
        for (seed, of), parts in sorted(shards.items())
        for part in range(1, of + 1)
        if part not in parts
    ]


def ended(session: tuple) -> str:
    """Return when a session (a row) ended; "" if it has not ended, or if the file is an older
    copy.
    """
    return session[2]


def _add_run(runs: dict, run: Run, file: Path) -> None:
    """Add a run. If an older copy of a file has the same run, the finished one is kept.

    Raises MergeError if another run has the same number.
    """
    key = (run.seed, run.number)
    other, other_file = runs.get(key, (None, None))
    if other is None or other.state != DONE:
        runs[key] = (run, file)
    elif run.state == DONE and (run.session, run.started) != (other.session, other.started):
        raise MergeError(
            f"{other_file} and {file} have different runs {run.number} of seed {run.seed}: shards of one sweep need "
            "--shard I/N, each with its own I"
        )


def _one_of(one: Finding, other: Finding) -> Finding:
    """Join two records of one finding: keep the reported or earlier record, with the runs of
    both.
    """
    first = min((one, other), key=lambda f: (f.state != REPORTED, f.found))
    same = (one.seed, one.number) == (other.seed, other.number)
    first.times = max(one.times, other.times) if same else one.times + other.times
    return first


def join(files: list[Path], into: Path, folder: Path | None = None, console: Console | None = None) -> int:
    """Join files, and write the report to `folder`, by default the folder of `into`.

    Returns 0 if nothing was found, 1 otherwise. Raises MergeError, StoreError or OSError.
    """
    if into.exists():
        raise MergeError(f"--into {into}: already exists: name another file")
    remarks = merged(files, into)
    console = console or report.console()
    for remark in remarks:
        console.print(f"[yellow]{remark}[/]", highlight=False)
    with closing(Store(into)) as store:
        return report.write_report(store, folder or into.parent, console)
