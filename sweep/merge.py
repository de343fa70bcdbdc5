"""Joins the files of several sweeps (the shards of several hosts, or several nights) into one, and writes its report.

flash-attest merge one.db two.db --into both.db
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path

import flash_attest.required  # noqa: F401  (first, as what follows needs the packages that it looks for)

# isort: split
from rich.console import Console

from flash_attest.runner.plugin.shard import Shard
from flash_attest.sweep import report
from flash_attest.sweep.records import DONE, REPORTED, Finding, Run
from flash_attest.sweep.store import Store, StoreError


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


def main(arguments: list[str], console: Console | None = None) -> int:
    """Join, report. Returns 0 if nothing was found, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="flash-attest merge", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the files of --db of all hosts")
    parser.add_argument(
        "--into", required=True, type=Path, metavar="FILE", help="the joined file, which must not be there"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="for index.html and summary.json (the folder of --into)"
    )
    options = parser.parse_args(arguments)
    if options.into.exists():
        parser.error(f"--into {options.into}: is there already: name another file")
    if len({file.resolve() for file in options.files}) < len(options.files):
        parser.error("a FILE is given twice")
    try:
        remarks = merged(options.files, options.into)
    except (MergeError, StoreError, OSError) as error:
        parser.error(str(error))
    console = console or report.console()
    for remark in remarks:
        console.print(f"[yellow]{remark}[/]", highlight=False)
    with closing(Store(options.into)) as store:
        return report.write_report(store, options.report or options.into.parent, console)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
