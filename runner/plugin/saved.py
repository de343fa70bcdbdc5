"""Reads the results.json of a report, and the journal beside it if the run was killed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

RESULTS = "results.json"
FORMAT = 2  # the version of results.json; version 1 had none of the fields below
NEW = {"clue": "", "tried": [], "wrong": None, "declared_at": "", "found_at": ""}  # fields that format 1 lacks
JOURNAL = "since-results.jsonl"  # verdicts that are not yet in results.json, one on each line


class NoReport(ValueError):
    """There is no results.json, or it was written by something else or by an incompatible
    version.
    """


def read(report: str | Path) -> dict:
    """Read a report, given by its folder or its results.json. Raises NoReport."""
    given = Path(report)
    file = given if given.is_file() else given / RESULTS
    if not file.exists():
        raise NoReport(f"{given} has no {RESULTS}")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        _ = record["environment"]["versions"]
        _ = [(result["law"], result["impl"], result["seconds_of"]) for result in record["results"]]
        if (newer := record.get("format", 1)) > FORMAT:
            raise NoReport(
                f"{file} has format {newer}, which a newer flash-attest wrote: this one reads up to {FORMAT}"
            )
    except NoReport:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoReport(f"{file} should be the results.json of a run ({type(error).__name__}: {error})") from None
    record["results"] = [NEW | result for result in record["results"]]
    there = {(result["law"], result["impl"]) for result in record["results"]}
    record["results"] += [r for r in _journal(file.with_name(JOURNAL)) if (r["law"], r["impl"]) not in there]
    if "decided" in record["environment"]:
        record["environment"]["decided"] = len(record["results"])
    return record


def _journal(file: Path) -> list[dict]:
    """Read the results of a journal.

    An incomplete line is left out: it was being written when the run was killed or the disk was
    full.
    """
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return [result for result in found if isinstance(result, dict)]
