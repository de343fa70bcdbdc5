"""Reads results for pages: fills in what older files lack, counts and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN
from flash_attest.runner.green import EXCUSED
from flash_attest.runner.page.words import ELSEWHERE, KNOWN, VERDICTS, number

EMPTY = {
    "reason": "", "why": "", "cases": 0, "seconds": 0.0, "seconds_of": {}, "worst_z": {}, "message": "", "replay": "",
    "smallest": "", "beside": "", "observed": {}, "known": "", "before": "", "findings": [], "repeats": 0, "clue": "",
    "tried": [], "wrong": None, "declared_at": "",
}  # fmt: skip


def complete(results: Iterable[dict], environment: dict) -> list[dict]:
    """Return the results with all fields, and with `kind`: which of VERDICTS it has.

    Format 1 has no `clue`, `tried`, `wrong` and `declared_at`. environment: as in results.json.
    """
    options = environment.get("options") or {}
    asked_for = bool(options.get("impl") or options.get("impl_from"))
    return [EMPTY | result | {"kind": _kind(result, asked_for)} for result in results]


def _kind(result: dict, asked_for: bool) -> str:
    """asked_for: whether the run was told what to judge, so that each implementation must be."""
    verdict, why = result["verdict"], result.get("why")
    if verdict == FAIL and result.get("known"):
        return KNOWN
    if verdict == UNKNOWN and (why in EXCUSED or (why == Reason.OTHER_DEVICE.value and not asked_for)):
        return ELSEWHERE
    return verdict if verdict in VERDICTS else UNKNOWN


def counted(results: Iterable[dict]) -> dict[str, int]:
    """Return how many results have each kind of verdict, the worst kind first."""
    counts = Counter(result["kind"] for result in results)
    return {name: counts[name] for name in VERDICTS if counts[name]}


def worst(results: Iterable[dict]) -> tuple[object, str]:
    """Return the largest z as it is written there, and its tensor; (None, "") if there is none."""
    zs = [(z, tensor) for result in results for tensor, z in result["worst_z"].items() if number(z) is not None]
    return max(zs, key=lambda pair: size(pair[0]), default=(None, ""))


def size(z: object) -> float:
    """Return a z as a number that orders: NaN is worse than infinity, and no z is less than any."""
    read = number(z)
    if read is None:
        return -1.0
    return float("inf") if read != read else min(read, 1e300)


def grouped(results: Iterable[dict], *fields: str) -> dict[tuple, list[dict]]:
    """Return the results by the values of some fields. Groups come in the order of their firsts."""
    groups: dict[tuple, list[dict]] = {}
    for result in results:
        groups.setdefault(tuple(result[field] for field in fields), []).append(result)
    return groups
