"""Draws random small programs that make tensor maps (map_programs.py).

Before a step that would be a race, most programs get what orders it, as those of drawn_bulk.py. A
copy that uses a map gets a release and an acquire, or less.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from flash_attest.races.events import Access
from flash_attest.races.launch import Event
from flash_attest.races.rule import races
from tests.emulator.ptx.bulk_programs import COUNTS, SIZE, commit_bulk, proxy_fence, wait_bulk
from tests.emulator.ptx.drawn_bulk import ACTIVE, cure
from tests.emulator.ptx.map_programs import (
    FREE,
    MAPS,
    MapBuilder,
    MapProgram,
    acquire,
    change,
    copy_map,
    release,
    store_by,
    touch_map,
)
from tests.emulator.ptx.programs import SEEN, SHAPES, SHARED, THREADS, Step

SLOTS = 9
KINDS = [
    "nothing", *["load"] * 5, *["store"] * 3, *["change"] * 3, *["copy"] * 3, *["touch"] * 3, "release", "acquire",
    "acquire", "arrive", "wait", "fence", "barrier", "commit", "wait bulk",
]  # fmt: skip
CURES = [*["all"] * 8, *["no release", "no acquire", "acquire first", "another map"] * 2, "no barrier", "nothing"]


class Slot(NamedTuple):
    """One step, drawn; which of the values count depends on its kind."""

    kind: str
    thread: int
    bar: str
    shared: str
    map: str
    start: int
    option: int
    cure: str


@cache
def slots() -> st.SearchStrategy:
    slot = st.builds(
        Slot, st.sampled_from(KINDS), st.sampled_from(ACTIVE), st.sampled_from([*COUNTS]), st.sampled_from(SHARED[:2]),
        st.sampled_from([*MAPS, "m0"]), st.integers(0, 15), st.integers(0, 3), st.sampled_from(CURES),
    )  # fmt: skip
    return st.lists(slot, min_size=SLOTS, max_size=SLOTS)


def apply(builder: MapBuilder, slot: Slot) -> None:
    """Add the step of a slot."""
    thread, bar, option = slot.thread, slot.bar, slot.option
    if slot.kind == "load":
        builder.load_by(thread, slot.shared, slot.map, bar)
    elif slot.kind == "arrive":
        builder.arrive(thread, bar)
    elif slot.kind == "wait":
        builder.wait(thread, bar)
    elif slot.kind == "barrier":
        builder.join([thread, ACTIVE[option]], option == 3)
    elif slot.kind != "nothing":
        builder.add(alone(slot))


def alone(slot: Slot) -> Step:
    """Return the step of a slot. A load is without its mbarrier."""
    thread, option = slot.thread, slot.option
    if slot.kind == "touch":
        what = "write" if option < 2 else "read"
        return touch_map(thread, what, slot.map, slot.start * 4 if what == "read" else FREE[0] + slot.start % 8 * 4)
    if slot.kind == "load":
        step = store_by(thread, slot.shared, slot.map)
        accesses = Access("write", step.source.memory, 0, SIZE), Access("read", step.access.memory, 0, SIZE)
        return replace(step, access=accesses[0], source=accesses[1])
    return {
        "store": lambda: store_by(thread, slot.shared, slot.map),
        "change": lambda: change(thread, slot.map),
        "copy": lambda: copy_map(thread // 32, slot.map, THREADS),
        "release": lambda: release(thread),
        "acquire": lambda: acquire(thread, slot.map),
        "fence": lambda: proxy_fence(thread),
        "commit": lambda: commit_bulk(thread),
        "wait bulk": lambda: wait_bulk(thread, option % 2, option > 1),
    }[slot.kind]()


def last_races(steps: list[Step], shape: tuple[int, int, int]) -> list[tuple[Event, Event]]:
    """Return the races of the last step with earlier ones, each with the last step second."""
    last = len(steps) - 1
    pairs = races(MapProgram(shape, steps).launch())
    return [(a, b) if b.access.step == last else (b, a) for a, b in pairs if last in (a.access.step, b.access.step)]


def cured(builder: MapBuilder, slot: Slot, earlier: Event, later: Event) -> None:
    """Add what orders the two, without what the slot leaves out."""
    if not later.of_map:
        return cure(builder, slot, earlier, later)
    issuer = earlier.thread.index
    publishes = slot.cure != "no release" and (
        builder.steps[earlier.access.step].kind != "copy map" or slot.option == 0
    )
    map = "m1" if slot.cure == "another map" and slot.map == "m0" else slot.map
    by_issuer = slot.start % 3 == 0
    if slot.cure == "acquire first" or (by_issuer and publishes and slot.start % 2):
        builder.add(acquire(issuer, map))
    if publishes:
        builder.add(release(issuer))
    if by_issuer and slot.cure not in ("no acquire", "acquire first"):
        builder.add(acquire(issuer, map))
    if issuer != slot.thread and slot.cure != "no barrier":
        builder.join([issuer, slot.thread], slot.option == 2)
    if not by_issuer and slot.cure not in ("no acquire", "acquire first"):
        builder.add(acquire(slot.thread, map))


@st.composite
def programs(draw) -> MapProgram:
    shape = draw(st.sampled_from(SHAPES))
    builder, cures = MapBuilder(THREADS, [*SEEN]), draw(st.sampled_from([True, True, True, False]))
    for slot in draw(slots()):
        if cures and slot.cure != "nothing" and slot.kind in ("load", "store", "change", "copy", "touch"):
            done = set()
            for earlier, later in last_races([*builder.steps, alone(slot)], shape):
                if (earlier.access.step, later.of_map) not in done:
                    done.add((earlier.access.step, later.of_map))
                    cured(builder, slot, earlier, later)
        apply(builder, slot)
    return MapProgram(shape, builder.steps, draw(st.booleans()))
