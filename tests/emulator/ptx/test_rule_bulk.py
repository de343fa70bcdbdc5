"""Compares the PTX machine with the race rule, on random small programs with bulk copies and
mbarriers (bulk_programs.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_attest.races.events import Arrive, End, Fence, Issue, Phase, Wait
from flash_attest.races.launch import Launch
from flash_attest.races.rule import races
from tests.emulator.ptx.bulk_programs import BulkProgram, arrive, commit_bulk, load, store, wait_bulk, wait_for
from tests.emulator.ptx.drawn_bulk import programs
from tests.emulator.ptx.programs import SHAPES, block_barrier, touch
from tests.emulator.ptx.test_rule import disagreements, run
from tests.emulator.ptx.test_rule_wgmma import (
    COUNTS,
    Through,
    Unfenced,
    changed,
    compare,
    drawn,
    fence_behind,
    shows,
    some_quick,
    without,
)


@COUNTS
def test_the_machine_says_what_the_rule_says(count):
    compare(count, programs())


FIRST = Phase("bar0")
FOUND = {  # regressions: programs that a test of drawn programs found, and similar ones
    "a wait behind a barrier for what was before it": [
        arrive(0, FIRST), block_barrier(0), wait_for(1, FIRST), touch(0, 0, ("write", 4), "s0", 0, False),
        touch(0, 1, ("write", 4), "s0", 0, False),
    ],
    "a wait behind a barrier for an arrival behind it": [
        block_barrier(0), touch(0, 0, ("write", 4), "s0", 0, False), arrive(0, FIRST), wait_for(1, FIRST),
        touch(0, 1, ("write", 4), "s0", 0, False),
    ],
    "arrivals before and behind a barrier": [
        arrive(0, Phase("bar1")), block_barrier(0), touch(0, 0, ("write", 4), "s0", 0, False), arrive(33, Phase("bar1")),
        wait_for(1, Phase("bar1")), touch(0, 1, ("write", 4), "s0", 0, False),
    ],
    "a copy overwrites what another has read": [
        store(1, "s0", "g0"), commit_bulk(1), wait_bulk(1, 0), load(1, "s0", "g1", FIRST), commit_bulk(1),
        wait_bulk(1, 0, of_reads=True), arrive(1, FIRST, orders=False), wait_for(0, FIRST), wait_for(0, FIRST, orders=False),
        touch(0, 0, ("write", 4), "s0", 0, False),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
def test_regressions(steps):
    program = BulkProgram(SHAPES[0], steps)
    for schedule in [(0, 0.0), (1, 0.0), (2, 0.5), (3, 0.1)]:
        assert not disagreements(program, run(program, schedule))


@pytest.fixture(scope="module")
def some(pytestconfig):
    """Return programs with the races that the rule finds."""
    return [
        (program, races(program.launch()))
        for program in drawn(150 if pytestconfig.getoption("--thorough") else 70, programs())
    ]


def of_any_phase(program: BulkProgram) -> Launch:
    """A wait is one for all phases of the mbarrier until then."""

    def change(event):
        if not isinstance(event, Wait):
            return [event]
        return [replace(event, phase=Phase(event.phase.mbarrier, n)) for n in range(event.phase.number + 1)]

    return changed(change)(program)


def all_reads_end(event) -> list:
    return [replace(event, of_reads=False)] if isinstance(event, End) else [event]


def all_order(event) -> list:
    if isinstance(event, Arrive):
        return [replace(event, releases=True)]
    return [replace(event, acquires=True)] if isinstance(event, Wait) else [event]


# What a machine could do wrong: a program's launch as the rule is then asked about it.
MISTAKES = {
    "complete_tx carries what the issuer did before": lambda program: Through(program.launch().threads),
    "no fence is needed": lambda program: Unfenced(program.launch().threads),
    "a fence is never seen": without(Fence),
    "a fence is one of all memory": changed(lambda e: [Fence() if isinstance(e, Fence) else e]),
    "a wait for a phase is a fence for all that came before": fence_behind(Wait),
    "an issue is a fence": fence_behind(Issue),
    ".relaxed orders": changed(all_order),
    ".read waits for the writes, too": changed(all_reads_end),
    "a wait for a phase orders nothing": without(Wait),
    "a wait for a group orders nothing": without(End),
}


@some_quick(MISTAKES, "no fence is needed", "a wait for a phase orders nothing", ".relaxed orders")
def test_drawn_programs_show_a_machine_that_is_wrong(some, mistake):
    shows(mistake, some)


def test_many_drawn_programs_are_right(some):
    assert len(some) / 8 < sum(not racing for _, racing in some) < len(some) / 2
