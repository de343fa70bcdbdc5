"""Reads results for pages: fields that an older file lacks are empty, and results are counted and grouped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flash_attest.runner.page.words import VERDICTS, kind, number

EMPTY = {
    "reason": "", "why": "", "cases": 0, "seconds": 0.0, "seconds_of": {}, "worst_z": {}, "message": "", "replay": "",
    "smallest": "", "beside": "", "observed": {}, "known": "", "before": "", "findings": [], "repeats": 0, "clue": "",
    "tried": [], "wrong": None, "declared_at": "",
}  # fmt: skip


def complete(results: Iterable[dict]) -> list[dict]:
    """Return the results with all fields. Format 1 has no `clue`, `tried`, `wrong`, `declared_at`."""
    return [EMPTY | result for result in results]


def counted(results: Iterable[dict]) -> dict[str, int]:
    """Return how many results have each kind of verdict, the worst kind first. Kinds without results are left out."""
    counts = Counter(map(kind, results))
    return {name: counts[name] for name in VERDICTS if counts[name]}


def worst(results: Iterable[dict]) -> tuple[object, str]:
    """Return the largest z of results as it is written there, and its tensor; (None, "") if none was measured."""
    zs = [(z, tensor) for result in results for tensor, z in result["worst_z"].items() if number(z) is not None]
    return max(zs, key=lambda pair: size(pair[0]), default=(None, ""))


def size(z: object) -> float:
    """Return a z as a number that orders: NaN is worse than infinity, and no z is less than any."""
    read = number(z)
    if read is None:
        return -1.0
    return float("inf") if read != read else min(read, 1e300)


def grouped(results: Iterable[dict], *fields: str) -> dict[tuple, list[dict]]:
    """Return the results by the values of some fields, in the order of the first result of each group."""
    groups: dict[tuple, list[dict]] = {}
    for result in results:
        groups.setdefault(tuple(result[field] for field in fields), []).append(result)
    return groups
