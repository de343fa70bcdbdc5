"""Compares the PTX machine with the race rule, on random small programs (programs.py)."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from itertools import combinations
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from flash_attest.emulator.observation import Action, Kind
from flash_attest.emulator.ptx import load
from flash_attest.races.events import Thread
from flash_attest.races.launch import Event
from flash_attest.races.rule import common_bytes, conflict, during, races, unordered_bytes
from flash_attest.races.tracing import trace
from tests.emulator.ptx.drawn import programs
from tests.emulator.ptx.programs import (
    DYNAMIC,
    SHAPES,
    Program,
    block_barrier,
    copy,
    lanes_barrier,
    leave,
    some_warps,
    touch,
    wait,
)

# Of a bulk copy that nothing waits for. Its races are compared as those of the others.
LEFT = "the block ends while this copy"
SCHEDULES = st.tuples(st.integers(1, 1000), st.sampled_from([0.0, 0.1, 0.5]))  # seed and switch of trace


def run(program: Program, schedule: tuple[int, float] = (0, 0.0)) -> list:
    """Return the tracer's findings."""
    text, _ = program.text()
    tensors = [torch.zeros(size, dtype=torch.uint8) for size in program.sizes]
    launch = load(text)["program"].launch(program.blocks, program.shape, shared=program.shared)
    return trace(lambda: launch(*tensors, names=list(program.names)), seed=schedule[0], switch=schedule[1])


class Expected(NamedTuple):
    """Holds what the rule says of a program, which is run with several schedules."""

    steps: dict  # from lines
    racing: dict  # for two sides: the bytes
    raced_at: dict  # for two steps: the bytes
    copied: list  # (bytes, side, whether it is always so) of accesses during a copy
    at_work: set  # pairs of which one is an agent at work


@functools.lru_cache(maxsize=1)
def expected(program: Program) -> Expected:
    launch, (_, steps) = program.launch(), program.text()
    racing, raced_at = defaultdict(set), defaultdict(set)
    for a, b in races(launch):
        here = {(a.access.memory, byte) for byte in unordered_bytes(launch, a, b)}
        racing[pair_of(a, b)] |= here
        raced_at[steps_of(pair_of(a, b))] |= here
    during_it = [*during(launch)]
    copied = [(bytes_of(own, other), side_of(other), always) for own, other, always in during_it if not own.is_async]
    return Expected(
        steps, racing, raced_at, copied, {pair_of(own, other) for own, other, _ in during_it if own.is_async}
    )


def disagreements(program: Program, findings: list) -> list[str]:
    """Return descriptions of the differences between the tracer's findings and the rule: pairs of
    steps, and bytes with a mistake.
    """
    steps, racing, raced_at, copied, at_work = expected(program)
    wrong, raced, met = [], set(), set()
    for finding in findings:
        sides = [(thread_of(side, program.shape), side.what, steps.get(side.site.line)) for side in finding.sides]
        pair = frozenset(sides)
        if finding.kind is Kind.RACE or (finding.kind is Kind.ASYNC and len(sides) == 2):
            # The warps of a wgmma are at one line, so one of them stands for the others.
            if pair in (racing if finding.kind is Kind.RACE else at_work):
                raced |= raced_at[steps_of(pair)]
                continue
        elif finding.kind is Kind.ASYNC:
            here = [bytes for bytes, side, _ in copied if side == sides[0]]
            met |= set().union(*here)
            if here:
                continue
        elif finding.kind is Kind.UNINITIALISED or finding.detail.startswith(LEFT):
            continue
        wrong.append(f"not in the program: {finding}")
    missed = {byte: pair for pair, bytes in racing.items() for byte in bytes if byte not in raced}
    wrong += [f"missed at {byte}: {set(pair)}" for byte, pair in list(missed.items())[:2]]
    for bytes, side, always in copied:
        if always and not bytes <= met:
            wrong.append(f"missed at {bytes - met}, a copy under way: {side}")
    return wrong


def side_of(event: Event) -> tuple:
    """Return what a finding says of it. For an agent, that is the first thread of its warp."""
    who = Thread(*event.thread.name[:2]) if event.is_async else event.thread
    return who, Action(event.access.what), event.access.step


def pair_of(a: Event, b: Event) -> frozenset:
    return frozenset((side_of(a), side_of(b)))


def steps_of(pair: frozenset) -> frozenset:
    return frozenset((what, step) for _, what, step in pair)


def bytes_of(a: Event, b: Event) -> set:
    return {(a.access.memory, byte) for byte in common_bytes(a.access, b.access)}


def thread_of(side, shape: tuple[int, int, int]) -> Thread:
    x, y, z = side.thread
    return Thread(side.block[0], x + shape[0] * (y + shape[1] * z))


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.thorough)])
def test_the_machine_says_what_the_rule_says(count):
    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(program=programs(), schedule=SCHEDULES, other=SCHEDULES)
    def agree(program, schedule, other):
        for one in [(0, 0.0), schedule, other]:
            wrong = disagreements(program, run(program, one))
            assert not wrong, "\n".join([f"seed={one[0]} switch={one[1]}", repr(program), *wrong])

    agree()


READ, WRITE, ATOMIC = ("read", 4), ("write", 4), ("atomic", 4)
FOUND = {  # regressions: programs that the test above found, and similar ones
    "a warp with 8 lanes counts as 32 threads": [
        touch(0, 64, WRITE, "s0", 0, False), some_warps(0, (0, 2)), touch(0, 0, READ, "s0", 0, False),
    ],
    "a warp from which a lane has returned": [
        touch(0, 1, WRITE, "s0", 0, False), leave(0, 1), some_warps(0, (1,), (0,)), touch(0, 33, READ, "s0", 0, False),
    ],
    "a lane returns while its warp waits": [
        touch(0, 33, WRITE, "s0", 0, True), some_warps(0, (0, 1)), leave(0, 2), some_warps(0, (0, 1)),
        touch(0, 0, WRITE, "s0", 0, True),
    ],
    "arrived before a barrier of the block, waited for after it": [
        some_warps(0, (1,), (0,)), touch(0, 0, WRITE, "g0", 0, False), touch(0, 33, READ, "g0", 0, False),
    ],
    "arrived, then a barrier of the block, then a write": [
        block_barrier(0), some_warps(0, (1, 2), (0,)), block_barrier(0), touch(0, 0, WRITE, "g0", 0, False),
        some_warps(0, (1,), (2,)), touch(0, 33, READ, "g0", 0, False),
    ],
    "order passed on by a third warp": [
        touch(0, 0, WRITE, DYNAMIC, 0, False), some_warps(0, (2,), (0,)), some_warps(0, (1, 2)),
        touch(0, 33, ATOMIC, DYNAMIC, 0, True),
    ],
    "order not passed on, the barriers being the other way round": [
        touch(0, 0, WRITE, DYNAMIC, 0, False), some_warps(0, (1, 2)), some_warps(0, (2,), (0,)),
        touch(0, 33, ATOMIC, DYNAMIC, 0, True),
    ],
    "the end of one copy does not end another": [
        copy(0, 0, 4, ("s0", "g0"), (0, 0), 0), copy(0, 1, 4, ("s0", "g0"), (0, 0), 2), wait(0, 1, -1),
        lanes_barrier(0, [1, 2]), touch(0, 2, READ, "s0", 0, False), wait(0, 0, -1),
    ],
    "a read after a barrier without the wait": [
        copy(0, 0, 16, ("s1", "g1"), (0, 0), 0), block_barrier(0), touch(0, 33, READ, "s1", 8, False),
    ],
    "the source is written behind the issue": [
        copy(0, 0, 8, ("s1", "g1"), (0, 8), 0), block_barrier(0), touch(0, 33, WRITE, "g1", 12, True), wait(0, 0, -1),
    ],
}  # fmt: skip


NAMED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry named()
{
    .reg .pred %p;
    .reg .b32 %w, %t;
    .shared .align 4 .u32 x;
    mov.u32 %t, %tid.x;
    setp.gt.u32 %p, %t, 31;
    @%p bra SECOND;
    {FIRST}
    ret;
SECOND:
    {SECOND}
    ret;
}
"""
ARRIVE, MEET, EVERYBODY = "bar.arrive 1, 64;", "bar.sync 1, 64;", "bar.sync 0;"
STORE, LOAD = "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [x], 1;", "ld.shared.u32 %w, [x];"


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        ([STORE, ARRIVE, EVERYBODY], [EVERYBODY, MEET, LOAD], set()),
        # A program of steps cannot express this.
        ([ARRIVE, EVERYBODY, STORE], [EVERYBODY, MEET, LOAD], {Kind.RACE}),
        ([ARRIVE, STORE], [MEET, LOAD], {Kind.RACE}),
        ([STORE, ARRIVE, ARRIVE], [MEET, LOAD], {Kind.BARRIER}),  # if it arrives again too soon
        ([ARRIVE, MEET], ["ret;"], set()),  # it counts twice, so nobody has to wait for it
        ([STORE, ARRIVE, MEET, EVERYBODY], [EVERYBODY, LOAD], set()),
        ([ARRIVE, MEET, STORE], [LOAD], {Kind.RACE}),  # the barrier orders one warp only
    ],
)
def test_two_warps_at_a_named_barrier(first, second, kinds):
    text = NAMED.replace("{FIRST}", " ".join(first)).replace("{SECOND}", " ".join(second))
    launch = load(text)["named"].launch(1, 64)
    seen = set()
    for order in range(20):
        mistakes = {finding.kind for finding in trace(launch, seed=order)} - {Kind.UNINITIALISED}
        assert mistakes == kinds or kinds == {Kind.BARRIER}, (order, mistakes)
        seen |= mistakes
    assert kinds <= seen


@pytest.mark.parametrize("sections", [False, True])
@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
def test_regressions(steps, sections):
    program = Program(SHAPES[0], steps, sections)
    for schedule in [(0, 0.0), (1, 0.0), (2, 0.5), (3, 0.1)]:
        assert not disagreements(program, run(program, schedule))


def test_drawn_programs_have_mistakes_and_orders():
    """Many of the memories with conflicting accesses have a race and many do not; copies are
    accessed, and waited for.
    """
    seen = Counter()

    @settings(max_examples=60, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @seed(0)
    @given(programs())
    def count(program):
        launch = program.launch()
        conflicts = [pair for pair in combinations(launch.accesses(), 2) if conflict(*pair)]
        in_conflict = {pair[0].access.memory for pair in conflicts}
        racing = {pair[0].access.memory for pair in races(launch)}
        met = {issue.access.memory for issue, _, always in during(launch) if always}
        copied = {step.access.memory for step in program.steps if step.kind == "copy"}
        seen.update(in_conflict=len(in_conflict), racing=len(racing), copied=len(copied), met=len(met))
        seen.update(some_warps=sum("{" in s.code or len(s.arriving) > 0 for s in program.steps))

    count()
    assert 0.25 < seen["racing"] / seen["in_conflict"] < 0.75, seen
    assert 0.1 < seen["met"] / seen["copied"] < 0.8 and seen["some_warps"] > 10, seen
