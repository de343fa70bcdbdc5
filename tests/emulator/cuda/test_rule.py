"""Compares the emulator with the race rule, on random small programs (cuda/sources/programs.py)."""

from __future__ import annotations

import functools
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from flash_attest.emulator.cuda import load
from flash_attest.emulator.observation import Action, Kind, Space
from flash_attest.races.events import Barrier, Thread
from flash_attest.races.launch import Event, Launch
from flash_attest.races.rule import conflict, races
from flash_attest.races.tracing import trace
from tests.emulator.cuda.sources.programs import (
    BYTES,
    GLOBAL,
    SHAPES,
    THREADS,
    Program,
    access_sets,
    block_barrier,
    leave,
    programs,
    touch,
    warp_barrier,
)

SOURCE = Path(__file__).parent / "sources" / "programs.cu"
SCHEDULES = st.tuples(st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.5]))  # seed and switch of trace


@pytest.fixture(scope="module")
def run():
    """Return a function run(program, (seed, switch)) -> the tracer's findings."""
    interpret = load(SOURCE, "interpret")["interpret"]

    def run(program: Program, schedule: tuple[int, float] = (0, 0.0)) -> list:
        code = program.instructions()
        tensors = [torch.zeros(BYTES, dtype=torch.uint8) for _ in range(4)]
        sink = torch.zeros(code.shape[0] * THREADS, dtype=torch.int32)
        launch = interpret.launch(grid=program.blocks, block=program.shape, shared=BYTES)
        return trace(lambda: launch(code, code.shape[2], *tensors, sink), seed=schedule[0], switch=schedule[1])

    return run


@functools.lru_cache(maxsize=1)
def racing_in(program: Program) -> list[tuple[Event, Event]]:
    """Return the races that the rule finds. A program is run with several schedules."""
    return races(program.launch())


def disagreements(program: Program, findings: list) -> list[str]:
    """Return descriptions of the differences between the tracer's findings and the rule."""
    racing = racing_in(program)
    want = {pair[0].access.memory[0] for pair in racing}
    got = {finding.tensor for finding in findings if finding.kind is Kind.RACE}
    wrong = [
        f"missed: {next(pair for pair in racing if pair[0].access.memory[0] == name)}" for name in sorted(want - got)
    ]
    for finding in findings:
        if finding.kind is Kind.RACE and not any(stands_for(finding, pair, program.shape) for pair in racing):
            wrong.append(f"no such race: {finding}")
        # Memory is left uninitialised. A program is one sequence, so no thread waits forever, and
        # no other mistake is possible.
        if finding.kind not in (Kind.RACE, Kind.UNINITIALISED):
            wrong.append(f"nothing of this kind is in the program: {finding}")
    return wrong


def stands_for(finding, pair: tuple[Event, Event], shape: tuple[int, int, int]) -> bool:
    """Return whether the finding is about this pair: threads, actions, lines, and an element that
    one of them accesses.
    """
    name = pair[0].access.memory[0]
    is_global = name in GLOBAL
    sides = Counter((thread_of(side, shape), side.what, side.site.text) for side in finding.sides)
    touched = {
        (byte // unit,)
        for _, _, access, _ in pair
        for byte in range(access.start, access.start + access.size)
        # An element of shared memory has the size of the access, and 16 bytes may be accessed in
        # parts.
        for unit in ([1] if is_global else [1, 2, 4, 8, 16])
        if unit <= access.size
    }
    return (
        (finding.tensor, finding.space) == (name, Space.GLOBAL if is_global else Space.SHARED)
        and sides == Counter((event.thread, Action(event.access.what), event.access.line) for event in pair)
        and finding.index in touched
    )


def thread_of(side, shape: tuple[int, int, int]) -> Thread:
    x, y, z = side.thread
    return Thread(side.block[0], x + shape[0] * (y + shape[1] * z))


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.thorough)])
def test_the_tracer_says_what_the_rule_says(run, count):
    @settings(max_examples=count, suppress_health_check=[HealthCheck.too_slow])
    @given(program=programs() | access_sets(), schedule=SCHEDULES)
    def agree(program, schedule):
        for one in [(0, 0.0), schedule]:
            wrong = disagreements(program, run(program, one))
            assert not wrong, "\n".join([f"seed={one[0]} switch={one[1]}", repr(program), *wrong])

    agree()


READ, ATOMIC, WRITE = ("read", 4), ("atomic", 4), ("write", 4)
FOUND = {  # regressions: programs that the test above found, and similar ones
    "readers of one set on different lines": [
        warp_barrier(0, [0, 1]), touch(0, 0, READ, "s0", 0, 1), touch(0, 1, WRITE, "s0", 0, 0), touch(0, 2, READ, "s0", 0, 0),
    ],
    "shared memory of a block that ran earlier": [touch(0, 33, WRITE, "s1", 0, 0), touch(1, 0, ATOMIC, "s1", 0, 1)],
    "returned before the barrier": [
        touch(0, 31, WRITE, "g1", 0, 1), leave(0, 31), block_barrier(0, "__syncthreads"), touch(0, 39, ATOMIC, "g1", 0, 1),
    ],
    "returned before the barrier of its warp": [
        touch(0, 2, WRITE, "g1", 0, 1), leave(0, 2), warp_barrier(0, [0, 2]), touch(0, 0, WRITE, "g1", 0, 1),
    ],
    "returned, after a barrier with another lane": [
        touch(0, 33, READ, "g0", 0, 1), warp_barrier(0, [33, 39]), leave(0, 33), block_barrier(0, "__syncthreads"),
        touch(0, 32, WRITE, "g0", 0, 0),
    ],
    "returned, in another warp than the first reader": [
        touch(0, 0, READ, "g0", 0, 0), touch(0, 33, READ, "g0", 0, 1), leave(0, 33), block_barrier(0, "__syncthreads"),
        touch(0, 1, WRITE, "g0", 0, 0),
    ],
    "returned, the second reader of another warp": [
        touch(0, 0, READ, "g0", 0, 0), touch(0, 32, READ, "g0", 0, 0), touch(0, 33, READ, "g0", 0, 0), leave(0, 33),
        block_barrier(0, "__syncthreads"), touch(0, 1, WRITE, "g0", 0, 0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
def test_regressions(run, steps):
    program = Program(SHAPES[0], steps)
    for schedule in [(0, 0.0), (1, 0.0), (2, 0.5)]:
        assert not disagreements(program, run(program, schedule))


def test_drawn_programs_have_races_and_orders():
    """Many of the memories with conflicting accesses have a race and many do not, some of them
    because order is transitive.
    """
    seen = Counter()

    @settings(max_examples=120, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @seed(0)
    @given(programs() | access_sets())
    def count(program):
        launch = program.launch()
        conflicts = [pair for pair in combinations(launch.accesses(), 2) if conflict(*pair)]
        racing = {pair[0].access.memory[0] for pair in races(launch)}
        in_conflict = {pair[0].access.memory[0] for pair in conflicts}
        passed_on = {a.access.memory[0] for a, b in conflicts if launch.ordered(a, b) and not meet(launch, a, b)}
        seen.update(in_conflict=len(in_conflict), racing=len(racing), passed_on=len(passed_on - racing))

    count()
    assert 0.25 < seen["racing"] / seen["in_conflict"] < 0.75 and seen["passed_on"] > 5, seen


def meet(launch: Launch, a: Event, b: Event) -> bool:
    """Return whether a barrier that both threads take part in lies between the two accesses."""
    for first, second in [(a, b), (b, a)]:
        after = launch.threads[first.thread][first.step :]
        before = launch.threads[second.thread][: second.step]
        if any(isinstance(event, Barrier) and event in before for event in after):
            return True
    return False
