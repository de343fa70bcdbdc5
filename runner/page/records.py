"""Reads results for pages: fills in what older files lack, counts and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.runner.green import Asked, Group, group_of
from flash_attest.runner.page.words import ELSEWHERE, KNOWN, UNLOADED, VERDICTS, number

# What pages read of a result and a test or an older file may lack.
EMPTY = Result("", "", "", "").as_dict()
KINDS = dict.fromkeys(Group, ELSEWHERE) | {
    Group.NOT_LOADED: UNLOADED, Group.FAILS: FAIL, Group.UNDECIDED: UNKNOWN, Group.HOLDS: PASS, Group.KNOWN: KNOWN,
    Group.NOT_APPLYING: REFUSED,
}  # fmt: skip


def complete(results: Iterable[dict], environment: dict) -> list[dict]:
    """Return the results with all fields, and with `kind`: which of VERDICTS it has.

    results, environment: as in results.json, of any format.
    """
    named = Asked.of(environment).named
    made = [EMPTY | result for result in results]
    return [result | {"kind": KINDS[group_of(result, asked_for=named)]} for result in made]


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
