"""Draws random small programs with bulk copies and mbarriers (bulk_programs.py).

Before a step that would be a race, most programs get the wait, barrier or proxy fence that the rule
asks for; some of these are left out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from flash_attest.races.events import Access, Agent
from flash_attest.races.launch import Event
from flash_attest.races.rule import races
from tests.emulator.ptx.bulk_programs import (
    COUNTS,
    FENCES,
    SIZE,
    Builder,
    BulkProgram,
    commit_bulk,
    proxy_fence,
    store,
    wait_bulk,
)
from tests.emulator.ptx.programs import GLOBAL, SEEN, SHAPES, SHARED, THREADS, Step, commit, copy, touch, wait

SLOTS = 12
ACTIVE = [0, 1, 33, 64]  # threads, of three warps
TOUCHES = [("write", 4), ("read", 4), ("read", 16), ("write", 16), ("write", 8), ("atomic", 4), ("read", 1)]


class Slot(NamedTuple):
    """One step, drawn; which of the values count depends on its kind."""

    kind: str
    thread: int
    bar: str
    shared: str
    memory: str
    what: tuple[str, int]
    start: int
    option: int
    cure: str


KINDS = [
    "nothing", *["touch"] * 8, "copy", "copy",
    "commit copies", "wait copies", "arrive behind copies",
    *["load"] * 5, *["store"] * 3, *["arrive"] * 3, *["wait"] * 4, "commit", "wait bulk", "fence",
    "barrier",
]  # fmt: skip
# How a race is prevented: what is left out, or is something else.
CURES = ["all"] * 8 + ["no wait", "no fence", "no barrier", "nothing"] + ["another fence", "relaxed"] * 2


@cache
def slots() -> st.SearchStrategy:
    slot = st.builds(
        Slot, st.sampled_from(KINDS), st.sampled_from(ACTIVE), st.sampled_from([*COUNTS]), st.sampled_from(SHARED[:2]),
        st.sampled_from(GLOBAL[:2]), st.sampled_from(TOUCHES), st.integers(0, 15), st.integers(0, 3), st.sampled_from(CURES),
    )  # fmt: skip
    return st.lists(slot, min_size=SLOTS, max_size=SLOTS)


def apply(builder: Builder, slot: Slot) -> None:
    """Add the step of a slot."""
    thread, bar = slot.thread, slot.bar
    if slot.kind == "touch":
        memory = slot.memory if slot.option == 0 else slot.shared
        builder.add(touch(0, thread, slot.what, memory, slot.start, slot.option == 1))
    elif slot.kind == "load":
        builder.load(thread, slot.shared, slot.memory, bar)
    elif slot.kind == "store":
        builder.add(store(thread, slot.shared, slot.memory, slot.option == 3))
    elif slot.kind == "arrive":
        builder.arrive(thread, bar, slot.option != 3)
    elif slot.kind == "copy":
        builder.add(copy(0, thread, 16, (slot.shared, slot.memory), (0, 0), 0))
    elif slot.kind == "commit copies":
        builder.add(commit(0, thread))
    elif slot.kind == "wait copies":
        builder.add(wait(0, thread, slot.option % 3 - 1))
    elif slot.kind == "arrive behind copies":
        builder.arrive(thread, bar, behind_copies=True)
    elif slot.kind == "wait":
        builder.wait(thread, bar, slot.option != 3)
    elif slot.kind == "commit":
        builder.add(commit_bulk(thread))
    elif slot.kind == "wait bulk":
        builder.add(wait_bulk(thread, slot.option % 2, slot.option > 1))
    elif slot.kind == "fence":
        builder.add(proxy_fence(thread, [*FENCES][slot.option % 3]))
    elif slot.kind == "barrier":
        builder.join([thread, ACTIVE[slot.option]], slot.option == 3)


def last_races(steps: list[Step], shape: tuple[int, int, int]) -> list[tuple[Event, Event]]:
    """Return the races of the last step with earlier ones, each with the last step second."""
    last = len(steps) - 1
    pairs = races(BulkProgram(shape, steps).launch())
    return [(a, b) if b.access.step == last else (b, a) for a, b in pairs if last in (a.access.step, b.access.step)]


def cure(builder: Builder, slot: Slot, earlier: Event, later: Event) -> None:
    """Add what orders the two, without what the slot leaves out."""
    step = builder.steps[earlier.access.step]
    issuer = earlier.thread.name[1] if isinstance(earlier.thread, Agent) else earlier.thread.index
    if step.kind == "bulk load":
        bar = step.phase.mbarrier
        while builder.number[bar] <= step.phase.number:
            builder.arrive(issuer, bar)
        if slot.cure == "no wait":
            return
        if builder.over(bar) == step.phase:
            return builder.wait(slot.thread, bar, slot.cure != "relaxed")
    if step.kind == "copy" and slot.cure != "no wait":
        if slot.option % 2:
            builder.arrive(issuer, bar := slot.bar, behind_copies=True)
            return builder.wait(slot.thread, bar, slot.cure != "relaxed") if builder.number[bar] else None
        builder.add(wait(0, issuer, -1))
    if step.kind == "bulk store" and slot.cure != "no wait":
        builder.add(commit_bulk(issuer))
        builder.add(wait_bulk(issuer, 0, slot.option > 1))
    of_global = earlier.access.memory[0] in GLOBAL
    name = (".shared::cta" if of_global else ".global") if slot.cure == "another fence" else ""
    fences = not earlier.is_async and later.is_async and slot.cure != "no fence"
    if fences and slot.option % 2:
        builder.add(proxy_fence(issuer, f"fence.proxy.async{name}"))
    if issuer != slot.thread and slot.cure != "no barrier":
        if slot.option == 3:  # an mbarrier instead
            builder.arrive(issuer, "bar0", slot.cure != "relaxed" or slot.start % 2 == 0)
            builder.wait(slot.thread, "bar0", slot.cure != "relaxed" or slot.start % 2 == 1)
        else:
            builder.join([issuer, slot.thread], slot.option == 2)
    if fences and not slot.option % 2:
        builder.add(proxy_fence(slot.thread, f"fence.proxy.async{name}"))


@st.composite
def programs(draw) -> BulkProgram:
    shape = draw(st.sampled_from(SHAPES))
    builder, cures = Builder(THREADS, [*SEEN]), draw(st.sampled_from([True, True, True, False]))
    for slot in draw(slots()):
        if cures and slot.cure != "nothing" and slot.kind in ("touch", "load", "store", "copy"):
            cured = set()
            for earlier, later in last_races([*builder.steps, tried(slot)], shape):
                if earlier.access.step not in cured:
                    cured.add(earlier.access.step)
                    cure(builder, slot, earlier, later)
        apply(builder, slot)
    steps = builder.steps
    fences = [n for n, step in enumerate(steps) if step.kind == "proxy fence"]
    missing = draw(st.integers(0, 11))
    if missing < len(fences):
        del steps[fences[missing]]
    return BulkProgram(shape, steps, draw(st.booleans()))


def tried(slot: Slot) -> Step:
    """Return a step with the accesses of a slot. A load is tried without its mbarrier."""
    if slot.kind == "touch":
        return touch(0, slot.thread, slot.what, slot.memory if slot.option == 0 else slot.shared, slot.start, False)
    if slot.kind == "copy":
        return copy(0, slot.thread, 16, (slot.shared, slot.memory), (0, 0), 0)
    step = store(slot.thread, slot.shared, slot.memory, slot.option == 3)
    if slot.kind == "store":
        return step
    accesses = Access("write", step.source.memory, 0, SIZE), Access("read", step.access.memory, 0, SIZE)
    return replace(step, access=accesses[0], source=accesses[1])
