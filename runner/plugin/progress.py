"""Reports, while a run goes on, how much is done and about how long the rest will take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from flash_attest.properties.judging.verdict import FAIL, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.runner.limits import NO_LIMITS, TimeLimits
from flash_attest.texts import duration

FIRST, LONGEST = 15.0, 60.0  # seconds until the first line, and between later ones
SURE = 0.05  # the share of the work that has to be done before the rest is estimated
CONTRACT = 0.2  # weight of the contract check, relative to a law that draws all cases

Judged = tuple[str, str]  # law, implementation


class Progress:
    """Counts judged laws. earlier: the seconds that each law took in an earlier run of the same
    kind, if there was one.
    """

    def __init__(self, planned: Iterable[Judged], earlier: Mapping[Judged, float], limits: TimeLimits = NO_LIMITS):
        self.limits = limits
        self.weights = _weights(list(planned), earlier)
        self.whole = sum(self.weights.values())
        self.done, self.fails, self.judged = 0.0, 0, 0
        self.began = time.perf_counter()
        self.next, self.step = self.began + FIRST, FIRST

    def add(self, result: dict) -> str:
        """Count a result. Return a line about once a minute, otherwise ""."""
        if (result["law"], result["impl"]) not in self.weights:  # an earlier run has judged it
            return ""
        self.judged += 1
        self.done += self.weights[result["law"], result["impl"]]
        self.fails += result["verdict"] == FAIL and not result["known"]
        now = time.perf_counter()
        if now < self.next:
            return ""
        self.step = min(LONGEST, 2 * self.step)
        self.next = now + self.step
        return self.line(now)

    def line(self, now: float) -> str:
        """Return "312 of 1518 laws judged, 2 fail, about 3 min left"."""
        parts = [f"{self.judged} of {len(self.weights)} laws judged"]
        if self.fails:
            parts.append(f"{self.fails} {'fails' if self.fails == 1 else 'fail'}")
        share = self.done / self.whole if self.whole else 0.0
        left = (now - self.began) * (1 - share) / share if share >= SURE else None
        if left is not None and self.judged < len(self.weights):
            parts.append(f"about {duration(left)} left")
        if near := self.limits.near(left):
            parts.append(near)
        return ", ".join(parts)


def seconds_of(record: dict, environment: dict) -> dict[Judged, float]:
    """Return the seconds of each law in an earlier results.json; {} if that run judged under other
    conditions.
    """
    was = record["environment"]
    if any(
        was.get(key) != environment.get(key) for key in ("profile", "device", "emulated", "cases_per_law", "repeats")
    ):
        return {}
    return {(r["law"], r["impl"]): r["seconds"] for r in record["results"] if r["verdict"] != UNKNOWN or r["seconds"]}


def _weights(planned: list[Judged], earlier: Mapping[Judged, float]) -> dict[Judged, float]:
    """Return how long each law takes, compared with the others: the time that it took before, or
    its share of the cases.
    """
    known = laws()
    shares = {judged: known[judged[0]].share if judged[0] in known else CONTRACT for judged in planned}
    measured = [judged for judged in planned if judged in earlier]
    if not measured:
        return shares
    by_law: dict[str, Counter] = {}
    for judged in measured:
        by_law.setdefault(judged[0], Counter()).update(seconds=earlier[judged], n=1)
    scale = sum(earlier[judged] for judged in measured) / sum(shares[judged] for judged in measured)
    typical = {law: total["seconds"] / total["n"] for law, total in by_law.items()}
    return {judged: earlier.get(judged, typical.get(judged[0], scale * shares[judged])) for judged in planned}
