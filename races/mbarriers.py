"""Uses of mbarriers that the PTX manual leaves undefined, besides races (rule.py).

An mbarrier.init has to happen before every other operation on its mbarrier. Before the complete_tx
of a bulk copy, a barrier or a fence (fence.mbarrier_init, fence.proxy.async) has to be on the path.
A phase takes as many arrivals as init says, and is over when these and all expected bytes have
come. Before an arrival in one phase, a wait has to have returned true on the phase before (PTX ISA,
"Phase of the mbarrier object").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from flash_attest.races.events import (
    Arrival,
    Arrive,
    Barrier,
    Expect,
    Fence,
    Init,
    InitFence,
    Phase,
    Wait,
)
from flash_attest.races.launch import Launch, Point


class Misuse(NamedTuple):
    """A mistake, and where: a point of the launch, or a phase."""

    what: str
    where: Point | Phase


def misuses(launch: Launch) -> list[Misuse]:
    """Return the mistakes in the use of mbarriers for which the launch has an Init."""
    inits, counts = {}, {}
    for point, event in points_of(launch):
        if isinstance(event, Init):
            inits[event.mbarrier], counts[event.mbarrier] = point, event.count
    return [*uses_before_init(launch, inits), *wrong_counts(launch, counts), *unobserved(launch)]


def uses_before_init(launch: Launch, inits: dict) -> Iterator[Misuse]:
    for point, event in points_of(launch):
        phase = event.phase if isinstance(event, (Arrive, Expect, Wait)) else None
        if phase and phase.mbarrier in inits and not launch.path(inits[phase.mbarrier], point):
            yield Misuse("used before init", point)
    kinds = Fence, InitFence, Barrier, Arrival
    between = [point for point, event in points_of(launch) if isinstance(event, kinds)]
    for agent in launch.issues:
        init = inits.get(agent.completes.mbarrier) if agent.completes else None
        if init and not any(launch.path(init, middle) and launch.path(middle, (agent, 0)) for middle in between):
            yield Misuse("completed without a fence or barrier after init", (agent, 1))


def wrong_counts(launch: Launch, counts: dict) -> Iterator[Misuse]:
    arrived, expected, given = (defaultdict(int) for _ in range(3))
    for _, event in points_of(launch):
        if isinstance(event, Arrive):
            arrived[event.phase] += event.count
        if isinstance(event, Expect):
            expected[event.phase] += event.bytes
    for agent in launch.issues:
        given[agent.completes] += agent.bytes
    for phase in {*arrived, *expected, *given} - {None}:
        count = counts.get(phase.mbarrier)
        if count is not None and arrived[phase] > count:
            yield Misuse("more arrivals than init says", phase)
        elif count == arrived[phase] and expected[phase] != given[phase]:
            yield Misuse(f"never over: {expected[phase]} bytes expected, {given[phase]} come", phase)


def unobserved(launch: Launch) -> Iterator[Misuse]:
    for point, event in points_of(launch):
        if isinstance(event, Arrive) and event.phase.number:
            before = Phase(event.phase.mbarrier, event.phase.number - 1)
            if not any(launch.path(wait, point) for wait in launch.waits.get(before, ())):
                yield Misuse("arrives though nobody has waited for the phase before", point)


def points_of(launch: Launch) -> Iterator[tuple[Point, object]]:
    for thread, events in launch.threads.items():
        for step, event in enumerate(events):
            yield (thread, step), event
