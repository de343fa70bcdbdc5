"""Keeps what a run has to say beside its verdicts: remarks, and processes that had to be ended.

Workers pass it to their controller when they end.
"""

from __future__ import annotations

from collections import Counter

from flash_attest.runner.isolation.leftovers import counted, sentences

KEY = "attest_aside"  # in a worker's output


class Aside:
    """Remarks, and processes that had to be ended: implementation -> command -> how many."""

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self.left: dict[str, Counter[str]] = {}

    def add(self, remarks: list[str], left: dict[str, dict[str, int]]) -> None:
        """Add what a judge has to say."""
        self.remarks += [remark for remark in remarks if remark not in self.remarks]
        for impl, commands in left.items():
            counted(self.left, impl, list(Counter(commands).elements()))

    def add_of(self, judge: object) -> None:
        """Add what a judge has to say, if it is one that starts processes."""
        self.add(list(getattr(judge, "remarks", ())), getattr(judge, "left", {}))

    def add_of_worker(self, node: object) -> None:
        """Add what a worker of pytest-xdist has to say. One that died has no output."""
        if said := getattr(node, "workeroutput", {}).get(KEY):
            self.add(**said)

    def for_controller(self) -> dict:
        """Return everything as plain data, for a worker's output."""
        return {"remarks": self.remarks, "left": {impl: dict(commands) for impl, commands in self.left.items()}}

    @property
    def lines(self) -> list[str]:
        """Return everything in sentences, for the end of a run."""
        return [*self.remarks, *sentences(self.left)]

    def facts(self) -> dict:
        """Return the fields of the environment in results.json."""
        facts = {"remarks": self.lines, "ended_processes": self.for_controller()["left"]}
        return {name: value for name, value in facts.items() if value}
