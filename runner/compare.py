"""Compares two reports: verdicts that changed, laws that came or went, and z that moved.

Verdicts are ordered: pass, then refused and not here, unknown, known failure, fail. A law whose
verdict went down in this order got worse. Of an implementation that both reports have, a law that
held and has no verdict any more got worse, too, and so did a law that is new and fails. An
implementation that only one report has is listed and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, WORST_FIRST
from flash_attest.runner.page.records import complete, size
from flash_attest.runner.page.words import ELSEWHERE, KNOWN, UNLOADED, plural
from flash_attest.runner.plugin.saved import RESULTS, NoReport, read

ORDER = {PASS: 0, REFUSED: 1, ELSEWHERE: 1, UNKNOWN: 2, KNOWN: 3, FAIL: 4, UNLOADED: 4}
ABSENT = ""  # a law without a verdict
# A z has moved if it has at least doubled or halved, and the larger one is above 1, which is
# what rounding explains.
FACTOR, FLOOR = 2.0, 1.0
MOVED = f"z moved: at least doubled or halved, and the larger one above {FLOOR:g}"
NEEDED = ("impl", "chapter", "law", "verdict")
FACTS = ("device", "emulated", "device_name", "profile", "cases_per_law", "seed", "repeats")


@dataclass(frozen=True)
class Change:
    """A law whose verdict differs. before, after: kinds of verdict, or ABSENT."""

    impl: str
    chapter: str
    law: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True)
class Moved:
    """A z that moved, of one output in one law. before, after: as in results.json."""

    impl: str
    chapter: str
    law: str
    tensor: str
    before: object
    after: object

    @property
    def factor(self) -> float:
        """How many times larger the later z is."""
        return size(self.after) / max(size(self.before), 1e-3)


@dataclass
class Comparison:
    """The differences of two reports. common: how many laws have a verdict in both."""

    common: int = 0
    worse: list[Change] = field(default_factory=list)
    better: list[Change] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    gone: list[Change] = field(default_factory=list)
    new: list[Change] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    only_before: dict[str, int] = field(default_factory=dict)  # implementation -> how many laws
    only_after: dict[str, int] = field(default_factory=dict)
    differs: list[tuple[str, object, object]] = field(default_factory=list)  # a fact of the runs, before and after

    @property
    def verdict(self) -> str:
        """Say it in a line."""
        if self.worse:
            kinds = {
                "fell": sum(ABSENT not in (c.before, c.after) for c in self.worse),
                "held and have no verdict in B": sum(c.after == ABSENT for c in self.worse),
                "are new and fail": sum(c.before == ABSENT for c in self.worse),
            }
            parts = [f"{n} {what}" for what, n in kinds.items() if n]
            return f"{plural(len(self.worse), 'law')} got worse: {', '.join(parts)}"
        return f"nothing got worse: {self.common} laws compared"


def report(path: Path) -> dict:
    """Read the report in a folder, or a results.json. Raises NoReport, which names the path."""
    if not path.exists():
        raise NoReport(f"{path}: there is no such folder or file")
    if path.is_dir() and not (path / RESULTS).exists():
        raise NoReport(f"{path}: has no {RESULTS}")
    record = all_plain(read(path))
    for n, result in enumerate(record["results"]):
        if lacking := [name for name in NEEDED if not isinstance(result.get(name), str)]:
            raise NoReport(f"{path}: result {n} has no {lacking[0]}")
        if result["verdict"] not in WORST_FIRST:
            raise NoReport(
                f"{path}: result {n} has the verdict {result['verdict']!r}: should be one of {', '.join(WORST_FIRST)}"
            )
    return record


def compare(before: dict, after: dict) -> Comparison:
    """Compare two reports, each as results.json has it."""
    first, second = _by_law(before), _by_law(after)
    impls = {impl for impl, _ in first} & {impl for impl, _ in second}
    found = Comparison(common=len(first.keys() & second.keys()))
    found.differs = _differs(before["environment"], after["environment"])
    for key, there in sorted((first | second).items(), key=lambda item: (item[0][0], item[1]["chapter"], item[0][1])):
        if there["impl"] not in impls:
            side = found.only_before if key in first else found.only_after
            side[there["impl"]] = side.get(there["impl"], 0) + 1
        else:
            _add(found, first.get(key), second.get(key))
    found.moved.sort(key=lambda moved: -max(moved.factor, 1 / max(moved.factor, 1e-9)))
    return found


def _by_law(record: dict) -> dict[tuple[str, str], dict]:
    results = complete(record["results"], record["environment"])
    return {(result["impl"], result["law"]): result for result in results}


def _add(found: Comparison, one: dict | None, other: dict | None) -> None:
    """Add what differs between the results of a law, of which one may be missing."""
    there = other or one
    was, now = (result["kind"] if result else ABSENT for result in (one, other))
    reason = (other or {}).get("reason") or (one["reason"] if one and was != PASS else "")
    change = Change(there["impl"], there["chapter"], there["law"], was, now, reason)
    if one is None:
        (found.worse if now in (FAIL, UNLOADED) else found.new).append(change)
    elif other is None:
        (found.worse if was == PASS else found.gone).append(change)
    elif was != now:
        step = ORDER[now] - ORDER[was]
        (found.worse if step > 0 else found.better if step < 0 else found.changed).append(change)
    if one and other:
        for tensor in one["worst_z"].keys() & other["worst_z"].keys():
            moved = Moved(*(there[name] for name in ("impl", "chapter", "law")), tensor, *(
                result["worst_z"][tensor] for result in (one, other)))  # fmt: skip
            if _has_moved(size(moved.before), size(moved.after)):
                found.moved.append(moved)


def _has_moved(before: float, after: float) -> bool:
    low, high = sorted((before, after))
    return high > FLOOR and high >= FACTOR * low and high != low


def _differs(one: dict, other: dict) -> list[tuple[str, object, object]]:
    """Return what the two runs do not have in common and verdicts may depend on."""
    rows = [(name.replace("_", " "), one.get(name), other.get(name)) for name in FACTS]
    versions = [environment.get("versions", {}) for environment in (one, other)]
    rows += [
        (name, *(version.get(name) for version in versions)) for name in dict.fromkeys((*versions[0], *versions[1]))
    ]
    return [row for row in rows if row[1] != row[2]]
