"""Compares the PTX machine with the race rule, on random small programs with wgmma
(wgmma_programs.py).
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from flash_attest.races.events import Access, End, Fence, Issue
from flash_attest.races.launch import Launch
from flash_attest.races.rule import conflict, during, lacks_fence, races
from tests.emulator.ptx.drawn_wgmma import programs
from tests.emulator.ptx.test_rule import SCHEDULES, disagreements, pair_of, run, steps_of
from tests.emulator.ptx.wgmma_programs import (
    WarpgroupProgram,
)


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.thorough)])
def test_the_machine_says_what_the_rule_says(count):
    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(program=programs(), schedule=SCHEDULES)
    def agree(program, schedule):
        for one in [(0, 0.0), schedule]:
            wrong = disagreements(program, run(program, one))
            assert not wrong, "\n".join([f"seed={one[0]} switch={one[1]}", repr(program), *wrong])

    agree()


def drawn(count: int) -> list[WarpgroupProgram]:
    result = []

    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @seed(0)
    @given(programs())
    def draw(program):
        result.append(program)

    draw()
    return result


@pytest.fixture(scope="module")
def some():
    """Return programs with their launches and the races that the rule finds."""
    launches = [(program, program.launch()) for program in drawn(300)]
    return [(program, launch, races(launch)) for program, launch in launches]


def test_drawn_programs_have_mistakes_and_orders(some):
    """Many programs have an access in conflict with a wgmma; many of these race and many do not;
    some lack only a fence, and some accesses are made during a wgmma.
    """
    seen = Counter()
    for _, launch, racing in some:
        pairs = [pair for pair in combinations(launch.accesses(), 2) if conflict(*pair)]
        in_conflict = any(a.is_async != b.is_async for a, b in pairs)
        seen.update(
            in_conflict=in_conflict,
            racing=any(a.is_async != b.is_async for a, b in racing),
            right=in_conflict and not racing,
            unfenced=any(lacks_fence(launch, a, b) for a, b in racing),
            met=any(own.is_async for own, _, _ in during(launch)),
        )
    assert seen["in_conflict"] > 0.5 * len(some) and 0.25 < seen["racing"] / seen["in_conflict"] < 0.75, seen
    assert seen["right"] > 50 and seen["unfenced"] > 25 and seen["met"] > 25, seen


class Through(Launch):
    """The end of an agent carries what its issuers did before."""

    def _after(self, start, memory=None, through_agents=False):
        return super()._after(start, memory, True)


class Unfenced(Launch):
    """No path needs a proxy fence."""

    def before(self, a, b):
        return self.path(a.point, b.point)


def changed(events: list, change) -> list:
    return [new for n, event in enumerate(events) for new in change(events, n, event)]


def with_fence_at(kind: type):
    def change(events, n, event):
        return [event, Fence()] if isinstance(event, kind) else [event]

    return change


def without_fences(events, n, event):
    return [] if isinstance(event, Fence) else [event]


def fences_all(events, n, event):
    return [Fence()] if isinstance(event, Fence) else [event]


def ends_all(events, n, event):
    """A wait ends the products of all groups."""
    if not isinstance(event, End):
        return [event]
    issued = [e.agent for e in events[:n] if isinstance(e, Issue)]
    ended = {e.agent for e in events[:n] if isinstance(e, End)}
    return [End(agent) for agent in issued if agent not in ended]


def ends_at_issue(events, n, event):
    return [event, End(event.agent)] if isinstance(event, Issue) else [] if isinstance(event, End) else [event]


def without_ends(events, n, event):
    return [] if isinstance(event, End) else [event]


def fence_late(events, n, event):
    """A fence counts for what its thread does next, too."""
    later = n and isinstance(events[n - 1], Fence) and isinstance(event, Access)
    return [event, Fence()] if later else [event]


# Mistakes that a machine could make, as changes to the launch of which the rule is then asked.
MISTAKES = {
    "the end of a wgmma carries what the warp did before": lambda launch: Through(launch.threads),
    "no fence is needed": lambda launch: Unfenced(launch.threads),
    "a fence is never seen": without_fences,
    "a fence of global memory is one of shared memory": fences_all,
    "a wait is a fence for all that came before": with_fence_at(End),
    "an issue is a fence": with_fence_at(Issue),
    "a fence covers the next access": fence_late,
    "a wait ends all groups": ends_all,
    "a wait ends nothing": without_ends,
    "a wgmma reads at its issue": ends_at_issue,
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_drawn_programs_show_a_machine_that_is_wrong(some, mistake):
    """The rule itself, with a mistake in it, differs from the rule on several programs."""
    differ = 0
    for _, launch, racing in some:
        if mistake.__name__ == "<lambda>":
            wrong = mistake(launch)
        else:
            wrong = Launch({thread: changed(events, mistake) for thread, events in launch.threads.items()})
        told, right = ({steps_of(pair_of(a, b)) for a, b in found} for found in (races(wrong), racing))
        differ += told != right
    assert differ >= 3, differ
