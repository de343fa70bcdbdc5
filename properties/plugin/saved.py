"""Reads the results.json of a report."""

from __future__ import annotations

import json
from pathlib import Path


class NoReport(ValueError):
    """There is no results.json, or it is not one that this version wrote."""


def read(report: str | Path) -> dict:
    """The folder of a report, or its results.json -> {"environment": ..., "results": [...]}. Raises NoReport."""
    given = Path(report)
    file = given if given.is_file() else given / "results.json"
    try:
        record = json.loads(file.read_text())
        _ = record["environment"]["versions"], [result["seconds_of"] for result in record["results"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoReport(f"{file} should be the results.json of a run ({type(error).__name__}: {error})") from None
    return record
