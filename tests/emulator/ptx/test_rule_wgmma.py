"""Compares the PTX machine with the race rule, on random small programs with wgmma
(wgmma_programs.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations, islice

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from flash_attest.races.events import Access, End, Fence, Issue
from flash_attest.races.launch import Launch
from flash_attest.races.rule import conflict, during, lacks_fence, races
from tests.emulator.ptx.drawn_wgmma import programs
from tests.emulator.ptx.programs import Program
from tests.emulator.ptx.test_rule import SCHEDULES, disagreements, pair_of, run, steps_of
from tests.emulator.ptx.wgmma_programs import WarpgroupProgram

COUNTS = pytest.mark.parametrize("count", [100, pytest.param(20_000, marks=pytest.mark.thorough)])


def compare(count: int, of: SearchStrategy) -> None:
    """Fail if the machine and the rule differ about a drawn program."""

    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(program=of, schedule=SCHEDULES)
    def agree(program, schedule):
        for one in [(0, 0.0), schedule]:
            wrong = disagreements(program, run(program, one))
            assert not wrong, "\n".join([f"seed={one[0]} switch={one[1]}", repr(program), *wrong])

    agree()


@COUNTS
def test_the_machine_says_what_the_rule_says(count):
    compare(count, programs())


def drawn(count: int, of: SearchStrategy) -> list[Program]:
    result = []

    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @seed(0)
    @given(of)
    def draw(program):
        result.append(program)

    draw()
    return result


@pytest.fixture(scope="module")
def some(pytestconfig):
    """Return programs with their launches and the races that the rule finds."""
    launches = [
        (program, program.launch())
        for program in drawn(300 if pytestconfig.getoption("--thorough") else 90, programs())
    ]
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
    assert seen["right"] > len(some) / 6 and min(seen["unfenced"], seen["met"]) > len(some) / 12, seen


class Through(Launch):
    """The end of an agent carries what its issuers did before."""

    def _after(self, start, memory=None, in_time=False, wide=False):
        return super()._after(start, memory, True)


class Unfenced(Launch):
    """No path needs a proxy fence."""

    def before(self, a, b):
        return self.path(a.point, b.point)


def changed(change):
    """Return a function that replaces each event of a program's launch by change(event)."""

    def launch(program: Program) -> Launch:
        threads = program.launch().threads
        return Launch(
            {thread: [new for event in events for new in change(event)] for thread, events in threads.items()}
        )

    return launch


def fence_behind(kind: type):
    return changed(lambda event: [event, Fence()] if isinstance(event, kind) else [event])


def without(kind: type):
    return changed(lambda event: [] if isinstance(event, kind) else [event])


def ends_at_issue(event) -> list:
    return [event, End(event.agent)] if isinstance(event, Issue) else [] if isinstance(event, End) else [event]


def fences_too_late(program: WarpgroupProgram) -> Launch:
    threads = program.launch().threads
    return Launch({
        thread: [new for n, event in enumerate(events) for new in (
            [event, Fence()] if n and isinstance(events[n - 1], Fence) and isinstance(event, Access) else [event]
        )]
        for thread, events in threads.items()
    })  # fmt: skip


def waits_for_all(program: WarpgroupProgram) -> Launch:
    steps = [replace(step, groups=0) if step.kind == "wait products" else step for step in program.steps]
    return WarpgroupProgram(program.shape, steps).launch()


# What a machine could do wrong: a program's launch as the rule is then asked about it.
MISTAKES = {
    "the end of a wgmma carries what the warp did before": lambda program: Through(program.launch().threads),
    "no fence is needed": lambda program: Unfenced(program.launch().threads),
    "a fence is never seen": without(Fence),
    "a fence of global memory is one of shared memory": changed(lambda e: [Fence() if isinstance(e, Fence) else e]),
    "a wait is a fence for all that came before": fence_behind(End),
    "an issue is a fence": fence_behind(Issue),
    "a fence covers the next access, too": fences_too_late,
    "a wait ends all groups": waits_for_all,
    "a wait ends nothing": without(End),
    "a wgmma ends at its issue": changed(ends_at_issue),
}


def some_quick(mistakes: dict[str, Callable[[Program], Launch]], *quick: str) -> pytest.MarkDecorator:
    """Return the parameters of a test that takes a mistake; those that are not quick are
    thorough.
    """
    assert {*quick} <= {*mistakes}
    thorough = {name: () if name in quick else pytest.mark.thorough for name in mistakes}
    each = [pytest.param(mistake, id=name, marks=thorough[name]) for name, mistake in mistakes.items()]
    return pytest.mark.parametrize("mistake", each)


def shows(mistake: Callable[[Program], Launch], some: Iterable[tuple[Program, list]]) -> None:
    """Fail unless the rule with a mistake in it finds other races than the rule in three of the
    programs, each with its races.
    """
    differ = (
        program
        for program, racing in some
        if {steps_of(pair_of(a, b)) for a, b in races(mistake(program))} != {steps_of(pair_of(a, b)) for a, b in racing}
    )
    assert len(list(islice(differ, 3))) == 3


@some_quick(MISTAKES, "no fence is needed", "a wait ends nothing", "a wait ends all groups")
def test_drawn_programs_show_a_machine_that_is_wrong(some, mistake):
    shows(mistake, ((program, racing) for program, _, racing in some))
