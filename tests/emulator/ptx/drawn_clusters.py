"""Draws random small programs of a cluster (cluster_programs.py).

Before a step that would be a race, most programs get what orders it, in several ways; some of these
do not suffice.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from flash_attest.races.events import Agent, Thread
from flash_attest.races.launch import Event
from flash_attest.races.rule import races
from tests.emulator.ptx.cluster_programs import (
    BARS,
    MEMORIES,
    Clustered,
    ClusterProgram,
    arrive,
    copies,
    fence,
    meet,
    sends,
    touch,
    wait_for,
    whole_block,
)
from tests.emulator.ptx.programs import GLOBAL, SHAPES, THREADS, Step

SLOTS = 8
WARPS = (THREADS + 31) // 32
ACTIVE = [0, 1, 33]
TOUCHES = [("write", 4), ("read", 4), ("write", 16), ("read", 16), ("atomic", 4), ("read", 1)]
KINDS = ["nothing", *["touch"] * 8, *["copy"] * 3, "send", "send", "meet", "meet", "block", "publish"]
# How a race is prevented; not all of these always suffice.
CURES = [
    *["cluster", "signal"] * 3, *["narrow wait", "narrow arrival"] * 2,
    "block", "publish", "narrow wait", "relaxed cluster", "narrow arrival", "relaxed arrival",
    "no fence", "nothing",
]  # fmt: skip


WAYS = ["", "", ".shared::cluster", ".shared::cta"]  # of a fence of proxies


class Slot(NamedTuple):
    """One step, drawn; which of the values count depends on its kind."""

    kind: str
    block: int
    thread: int
    memory: str
    of: int
    what: tuple[str, int]
    start: int
    option: int
    cure: str


@cache
def slots() -> st.SearchStrategy:
    block = st.integers(0, 1)
    slot = st.builds(
        Slot, st.sampled_from(KINDS), block, st.sampled_from(ACTIVE), st.sampled_from(MEMORIES), block,
        st.sampled_from(TOUCHES), st.integers(0, 15), st.integers(0, 5), st.sampled_from(CURES),
    )  # fmt: skip
    return st.lists(slot, min_size=SLOTS, max_size=SLOTS)


class Builder:
    """Adds steps, with a new mbarrier for each arrival and copy."""

    def __init__(self, shape: tuple[int, int, int]):
        self.shape, self.steps = shape, []
        self.bars, self.number, self.pending = 0, 0, False

    def bar(self) -> int | None:
        self.bars += 1
        return self.bars - 1 if self.bars <= BARS else None

    def meet(self, orders: bool = True) -> None:
        """Add an arrival of all threads at barrier.cluster, or their wait if they have arrived."""
        self.steps += [meet(block, THREADS, self.number, self.pending, orders) for block in (0, 1)]
        self.number += self.pending
        self.pending = not self.pending

    def meet_now(self, orders: bool = True) -> None:
        if self.pending:
            self.meet()
        self.meet(orders)
        self.meet()

    def signal(self, one: Thread, other: Thread, how: str) -> None:
        if (bar := self.bar()) is None:
            return
        self.steps.append(arrive(*one, bar, other.block, how != "relaxed arrival", how != "narrow arrival"))
        self.steps.append(wait_for(*other, bar, wide=how != "narrow wait"))

    def two_paths(self, one: Thread, other: Thread, option: int) -> None:
        """Add a path of .cluster scope and one of .cta scope, and a fence in front of one of them
        or between them.
        """
        ways = ["narrow wait" if option % 2 else "narrow arrival", ""]
        for n, how in enumerate(ways if option // 2 % 2 else ways[::-1]):
            if n == (option < 4):
                self.steps.append(fence(*one, True))
            self.signal(one, other, how)

    def last_races(self, step: Step) -> list[tuple[Event, Event]]:
        """Return the races of a step with earlier ones, each with the step second."""
        last = len(self.steps)
        pairs = races(ClusterProgram(self.shape, [*self.steps, step]).launch())
        return [(a, b) if b.access.step == last else (b, a) for a, b in pairs if last in (a.access.step, b.access.step)]

    def cure(self, slot: Slot, earlier: Event, later: Event) -> None:
        """Add what orders the two, or less."""
        me, step = Thread(slot.block, slot.thread), self.steps[earlier.access.step]
        before = Thread(*earlier.thread.name[:2]) if isinstance(earlier.thread, Agent) else earlier.thread
        if slot.cure == "nothing":
            return
        if isinstance(step, Clustered) and step.kind == "copies":
            target = earlier.thread.name[3]
            before = me if me.block == target else Thread(target, 0)
            self.steps.append(wait_for(*before, step.bar))
        way = WAYS[slot.start % len(WAYS)]
        fences = later.is_async and not earlier.is_async and slot.cure != "no fence"
        if fences and before.block != me.block and slot.start // 4 % 2:
            return self.two_paths(before, me, slot.option)
        if fences and slot.option % 2:
            self.steps.append(fence(*before, True, way))
        if before == me:
            pass
        elif slot.cure in ("cluster", "no fence"):
            self.meet_now()
        elif slot.cure in ("publish", "relaxed cluster"):
            if slot.cure == "publish":
                self.steps.append(fence(*before, False))
            self.meet_now(False)
        elif slot.cure == "block" and before.block == me.block:
            self.steps.append(whole_block(me.block, THREADS, WARPS))
        else:
            self.signal(before, me, slot.cure)
        if fences and not slot.option % 2:
            self.steps.append(fence(*me, True, way))

    def add(self, slot: Slot, cures: bool) -> None:
        """Add the step of a slot."""
        if slot.kind == "meet":
            return self.meet(slot.option > 1)
        if slot.kind == "block":
            return self.steps.append(whole_block(slot.block, THREADS, WARPS))
        if slot.kind == "publish":
            return self.steps.append(fence(slot.block, slot.thread, False))
        if slot.kind == "touch":
            memory = GLOBAL[0] if slot.option == 5 else slot.memory
            step = touch(slot.block, slot.thread, slot.what, memory, slot.of, slot.start, slot.option)
        elif slot.kind == "copy":
            if (bar := self.bar()) is None:
                return None
            to = (0, 1) if slot.option < 2 else (slot.of,)
            source = GLOBAL[1] if slot.option < 4 else MEMORIES[slot.memory == MEMORIES[0]]
            step = copies(slot.block, slot.thread, slot.memory, source, bar, to)
        elif slot.kind == "send":
            if (bar := self.bar()) is None:
                return None
            step = sends(slot.block, slot.thread, slot.memory, slot.start // 4 * 4, bar, slot.of, slot.option % 2 == 0)
        else:
            return None
        cured = set()
        for earlier, later in self.last_races(step) if cures else ():
            if earlier.access.step not in cured:
                cured.add(earlier.access.step)
                self.cure(slot, earlier, later)
        return self.steps.append(step)


@st.composite
def programs(draw) -> ClusterProgram:
    shape = draw(st.sampled_from(SHAPES))
    builder, cures = Builder(shape), draw(st.sampled_from([True, True, True, False]))
    for slot in draw(slots()):
        builder.add(slot, cures)
    if draw(st.booleans()):
        builder.meet_now()
    return ClusterProgram(shape, builder.steps)
