"""Compares the PTX machine with the race rule, on random small programs of a cluster
(cluster_programs.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from flash_attest.emulator.observation import Kind
from flash_attest.races.events import Agent, Arrive, Cluster, Publish, Thread, Wait
from flash_attest.races.launch import Launch
from flash_attest.races.lifetimes import outlived
from flash_attest.races.rule import races
from tests.emulator.ptx.cluster_programs import (
    Clustered,
    ClusterProgram,
    arrive,
    copies,
    fence,
    owner,
    touch,
    wait_for,
)
from tests.emulator.ptx.drawn_clusters import programs
from tests.emulator.ptx.programs import SHAPES
from tests.emulator.ptx.test_rule import SCHEDULES, disagreements, pair_of, run, steps_of, thread_of
from tests.emulator.ptx.test_rule_wgmma import Through, Unfenced, changed, drawn, some_quick, without

LATE = "may have ended"


def late_in(program: ClusterProgram) -> set[Thread]:
    """Return the threads that use another block's shared memory after its end, or a copy of theirs
    does.
    """
    uses = outlived(program.launch(), owner)
    return {Thread(*who.name[:2]) if isinstance(who, Agent) else who for (who, _), _ in uses}


def disagreeing(program: ClusterProgram, schedule: tuple[int, float]) -> list[str]:
    findings = run(program, schedule)
    late = {thread_of(finding.first, program.shape) for finding in findings if LATE in finding.detail}
    wrong = disagreements(program, [finding for finding in findings if LATE not in finding.detail])
    return wrong + [f"late: {late}, should be {late_in(program)}"] * (late != late_in(program))


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_the_machine_says_what_the_rule_says(count):
    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(program=programs(), schedule=SCHEDULES)
    def agree(program, schedule):
        for one in [(0, 0.0), schedule]:
            wrong = disagreeing(program, one)
            assert not wrong, "\n".join([f"seed={one[0]} switch={one[1]}", repr(program), *wrong])

    agree()


FOUND = {  # regressions: programs that the test above found
    "each of two copies reads what the other one writes": [
        copies(0, 0, "s0", "s1", 0, (1,)), copies(1, 0, "s1", "s0", 1, (0,)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
def test_regressions(steps):
    program = ClusterProgram(SHAPES[0], steps)
    for schedule in [(0, 0.0), (1, 0.0), (2, 0.5)]:
        assert not disagreeing(program, schedule)


def told(bar: int, since: tuple[int, int] = (0, 0), to: tuple[int, int] = (1, 0), wide: bool = True) -> list[Clustered]:
    """Return an arrival of a thread, for which another one waits."""
    return [arrive(*since, bar, to[0], wide=wide), wait_for(*to, bar, wide=wide)]


FENCE, WIDE, NARROW = fence(0, 0, True), told(0), told(1, wide=False)
NEAR, OTHERS = fence(0, 0, True, ".shared::cta"), (1, 33)  # a fence of block 0's memory; another thread of block 1
BY_ANOTHER = [fence(*OTHERS, True), *told(3, since=OTHERS)]
# Steps between a thread of block 0 that accesses memory of block 1 and a thread of block 1 that
# copies over it: the access, the steps, the number of races. Two paths lead through the steps.
TWO_PATHS = {
    "a fence before both paths": ("write", [FENCE, *WIDE, *NARROW], 0),
    "a fence behind both paths": ("write", [*WIDE, *NARROW, fence(1, 0, True)], 0),
    "a fence on the wide path": ("write", [*NARROW, FENCE, *WIDE], 0),
    "a fence on the narrow path": ("write", [*WIDE, FENCE, *NARROW], 1),
    "a fence on the narrow path, of a load": ("read", [*WIDE, FENCE, *NARROW], 0),
    "a fence of other memory on the wide path": ("write", [NEAR, *WIDE, FENCE, *NARROW], 1),
    "a wide path to a thread that has a fence": ("write", [*NARROW, *told(2, to=OTHERS), *BY_ANOTHER], 0),
    "a narrow path to a thread that has a fence": ("write", [*WIDE, *told(2, to=OTHERS, wide=False), *BY_ANOTHER], 1),
}  # fmt: skip


@pytest.mark.parametrize("what, between, racing", TWO_PATHS.values(), ids=TWO_PATHS)
def test_a_store_needs_a_fence_on_a_wide_path(what, between, racing):
    steps = [touch(0, 0, (what, 4), "s0", 1, 0, 1), *between, copies(1, 0, "s0", "g1", 4, (1,)), wait_for(1, 0, 4)]
    program = ClusterProgram(SHAPES[0], steps)
    assert len(races(program.launch())) == racing
    found = [finding.detail for finding in run(program) if finding.kind is Kind.RACE]
    assert found == ["no fence.proxy.async between on a path that has .cluster scope"] * racing
    for schedule in [(0, 0.0), (1, 0.0), (2, 0.5)]:
        assert not disagreeing(program, schedule)


@pytest.fixture(scope="module")
def some(pytestconfig):
    """Return programs with the races that the rule finds."""
    return [
        (program, races(program.launch()))
        for program in drawn(400 if pytestconfig.getoption("--thorough") else 130, programs())
    ]


def is_wide(event) -> list:
    return [replace(event, wide=True)] if isinstance(event, (Arrive, Wait)) else [event]


def all_order(event) -> list:
    return [replace(event, releases=True)] if isinstance(event, Arrive) else [event]


def meets(event) -> bool:
    return isinstance(event, (Arrive, Wait)) and isinstance(event.phase.mbarrier, Cluster)


class Narrow(Launch):
    """Between blocks, reads need a wide scope, as writes do."""

    def before(self, a, b):
        return super().before(replace_what(a, "write"), b)


class FencedAnywhere(Launch):
    """A proxy fence counts for a write on a path of any scope, if some path is wide."""

    def before(self, a, b):
        any_scope = super().before(replace_what(a, "read"), b)
        return any_scope and (a.access.what == "read" or a.is_async or b.point in self._after(a.point, wide=True))


def replace_what(event, what):
    return event._replace(access=replace(event.access, what=what))


# What a machine could do wrong: a program's launch as the rule is then asked about it.
MISTAKES = {
    "the scope does not matter": changed(is_wide),
    "reads need the scope, too": lambda program: Narrow(program.launch().threads),
    "a fence on a path of any scope counts for stores": lambda program: FencedAnywhere(program.launch().threads),
    ".relaxed orders": changed(all_order),
    "a fence publishes nothing": without(Publish),
    "barrier.cluster orders nothing": changed(lambda event: [] if meets(event) else [event]),
    "no fence is needed": lambda program: Unfenced(program.launch().threads),
    "complete_tx carries what the issuer did before": lambda program: Through(program.launch().threads),
}


@some_quick(MISTAKES, "no fence is needed", "barrier.cluster orders nothing", ".relaxed orders")
def test_drawn_programs_show_a_machine_that_is_wrong(some, mistake):
    """The rule with a mistake in it finds other races than the rule in several programs."""
    differ = 0
    for program, racing in some:
        wrong, right = ({steps_of(pair_of(a, b)) for a, b in found} for found in (races(mistake(program)), racing))
        differ += wrong != right
    assert differ


def test_many_drawn_programs_are_right_and_many_outlive_a_block(some):
    late = sum(bool(late_in(program)) for program, _ in some)
    assert len(some) / 8 < sum(not racing for _, racing in some) < 3 * len(some) / 4
    assert len(some) / 8 < late < 7 * len(some) / 8, late
