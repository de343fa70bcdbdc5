"""Helpers: summaries of a sweep that found nothing, and of one that has something of everything."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from flash_attest.properties.judging.verdict import FAIL, REFUSED, UNKNOWN
from flash_attest.sweep.summary import summary
from tests.sweep.sweeps import finding, passed, run, store

HEADLINE = "race: dynamic shared memory[70], write after read, no barrier between, fa2.cu:83 and fa2.cu:27"


def green(folder: Path) -> dict:
    """Make a summary of thirty runs of one implementation."""
    with closing(store(folder / "green.db")) as file:
        for number in range(30):
            file.done(passed(number))
        return summary(file)


def red(folder: Path) -> dict:
    """Make a summary with every kind of finding, an undecided run, a layer that is not swept."""
    trace = dict(layer="trace", law="test_no_race_is_traced")
    long = dict(
        headline=HEADLINE,
        key="race",
        message=f"{HEADLINE}\n\nRule\n  " + "No two threads " * 20,
        repeated="found again in 20 of 20",
    )
    with closing(store(folder / "red.db")) as file:
        file.done(passed(0))
        file.done(run(1, version="0", started="2025-12-31", verdict=FAIL), [finding(1, version="0", key="old")])
        file.done(run(2, verdict=FAIL, **trace), [finding(2, **trace, **long)])
        file.done(run(3, verdict=FAIL), [finding(3, message="<script>alert(1)</script>")])
        file.done(run(4, impl="known", verdict=FAIL), [finding(4, impl="known", known="#3")])
        file.done(run(5, verdict=UNKNOWN, why="timed out", reason="forward does not return within 120 s", **trace))
        file.done(run(6, impl="refuses", verdict=REFUSED, why="no case"))
        file.note("s", "left_out", ["mine", "sanitizer", "it needs a GPU"])
        file.note("s", "given_up", ["refuses", "trace", "no case lies in what it supports"])
        file.note("s", "remarks", "worker w0 ended by signal 9")
        return summary(file)
