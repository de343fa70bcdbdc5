"""Arrivals that come when earlier cp.async of their thread have ended (cp.async.mbarrier.arrive),
waits for one phase alone, and fences of one block's shared memory.
"""

from __future__ import annotations

import pytest

from flash_attest.emulator.observation import Kind
from flash_attest.races.events import Phase
from tests.emulator.ptx.bulk_programs import BulkProgram, arrive, arrive_behind_copies, load, wait_for
from tests.emulator.ptx.cluster_programs import ClusterProgram, copies, fence, meet
from tests.emulator.ptx.cluster_programs import arrive as arrive_in
from tests.emulator.ptx.cluster_programs import touch as touch_in
from tests.emulator.ptx.cluster_programs import wait_for as wait_in_cluster
from tests.emulator.ptx.programs import SHAPES, THREADS, block_barrier, commit, copy, touch, wait
from tests.emulator.ptx.test_rule import disagreements, run

FULL = Phase("bar0")
COPIED, BEHIND = copy(0, 0, 16, ("s0", "g0"), (0, 0), 0), arrive_behind_copies(0, FULL)
READ, WRITE = ("read", 4), ("write", 4)
SCHEDULES = [(0, 0.0), (1, 0.0), (2, 0.5), (3, 0.1)]


def kinds(program) -> set[Kind]:
    """Return the kinds of what the latest schedule shows. In all schedules it is what the rule
    says.
    """
    for schedule in SCHEDULES:
        assert not disagreements(program, run(program, schedule)), schedule
    return {finding.kind for finding in run(program)} - {Kind.UNINITIALISED}


ARRIVALS = {  # steps, and what they show
    "another thread reads behind its wait": (
        [COPIED, BEHIND, wait_for(33, FULL), touch(0, 33, READ, "s0", 0, False)], set(),
    ),
    "the arrival is one more": (
        [
            COPIED, arrive_behind_copies(0, FULL, False), arrive(0, FULL), wait_for(33, FULL),
            touch(0, 33, READ, "s0", 0, False),
        ],
        set(),
    ),
    "its thread reads behind its wait": (
        [COPIED, BEHIND, wait_for(0, FULL), touch(0, 0, READ, "s0", 0, False)], set(),
    ),
    "waited for by the thread, and for the phase by another one": (
        [COPIED, BEHIND, wait(0, 0, -1), wait_for(33, FULL), touch(0, 33, READ, "s0", 0, False)], set(),
    ),
    "nothing to wait for": (
        [touch(0, 0, WRITE, "s0", 0, False), BEHIND, wait_for(33, FULL), touch(0, 33, READ, "s0", 0, False)],
        set(),
    ),
    "its thread reads at once": (
        [COPIED, BEHIND, touch(0, 0, READ, "s0", 0, False), wait_for(0, FULL)], {Kind.ASYNC},
    ),
    "another thread reads behind a barrier": (
        [COPIED, BEHIND, block_barrier(0), touch(0, 33, READ, "s0", 0, False), wait_for(33, FULL)],
        {Kind.ASYNC},
    ),
    "the target is written behind the arrival": (
        [COPIED, BEHIND, touch(0, 0, WRITE, "s1", 0, False), wait_for(33, FULL), touch(0, 33, READ, "s1", 0, False)],
        {Kind.RACE},
    ),
    "a later copy": (
        [
            COPIED, BEHIND, copy(0, 0, 16, ("s1", "g1"), (0, 0), 0), wait_for(33, FULL),
            touch(0, 33, READ, "s1", 0, False),
        ],
        {Kind.RACE},
    ),
    "an earlier group": (
        [
            COPIED, commit(0, 0), copy(0, 0, 16, ("s1", "g1"), (0, 0), 0), commit(0, 0), wait(0, 0, 1), BEHIND,
            wait_for(33, FULL), touch(0, 33, READ, "s0", 0, False), touch(0, 33, READ, "s1", 0, False),
        ],
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("steps, shown", ARRIVALS.values(), ids=ARRIVALS)
def test_an_arrival_waits_for_earlier_copies_of_its_thread(steps, shown):
    assert kinds(BulkProgram(SHAPES[0], steps)) == shown


def phases(relaxed: bool) -> BulkProgram:
    """Return a program with a copy in phase 0 of bar0, for which thread 0 waits. Then it arrives in
    phase 1, for which thread 33 waits. That thread reads what the copy has written.
    """
    return BulkProgram(SHAPES[0], [
        load(0, "s0", "g0", FULL), arrive(0, FULL), wait_for(0, FULL, not relaxed), block_barrier(0),
        arrive(0, Phase("bar0", 1)), wait_for(33, Phase("bar0", 1)), touch(0, 33, READ, "s0", 0, False),
    ])  # fmt: skip


def test_a_wait_orders_no_copy_of_an_earlier_phase():
    assert kinds(phases(relaxed=True)) == {Kind.RACE}
    assert kinds(phases(relaxed=False)) == set()


def to_the_other(way: str, by: int) -> ClusterProgram:
    """Return a program in which thread 0 of block 0 writes to block 1's shared memory. A copy of
    block 1 reads it, behind a fence of a thread of block `by`.
    """
    fenced = fence(by, 0, True, way)
    meets = [meet(block, THREADS, 0, waits) for waits in (False, True) for block in (0, 1)]
    copied = copies(1, 0, "s1", "s0", 0, (0,))
    steps = [touch_in(0, 0, ("write", 16), "s0", 1, 0, 1), *([fenced, *meets] if by == 0 else [*meets, fenced]), copied]
    ends = [meet(block, THREADS, 1, waits) for waits in (False, True) for block in (0, 1)]
    return ClusterProgram(SHAPES[0], [*steps, wait_in_cluster(0, 0, 0), *ends])


@pytest.mark.parametrize(
    "way, by, shown",
    [
        (".shared::cta", 1, set()), (".shared::cta", 0, {Kind.RACE}), (".shared", 0, {Kind.RACE}),
        (".shared::cluster", 0, set()), ("", 0, set()), (".global", 1, {Kind.RACE}),
    ],
)  # fmt: skip
def test_a_fence_of_a_block_covers_its_own_shared_memory(way, by, shown):
    assert kinds(to_the_other(way, by)) == shown


def test_a_store_that_a_copy_overwrites_comes_before_what_follows_the_copy():
    """The copy is ordered with any scope. The store is not, but nothing can see it behind the copy
    (docs/why/races.md).
    """
    ends = [meet(block, THREADS, 0, waits) for waits in (False, True) for block in (0, 1)]
    steps = [
        touch_in(0, 0, ("write", 16), "s0", 0, 0, 0), fence(0, 0, True), copies(0, 0, "s0", "g1", 0, (0,)),
        wait_in_cluster(0, 0, 0), arrive_in(0, 0, 1, 1, wide=False), wait_in_cluster(1, 0, 1),
        touch_in(1, 0, ("write", 16), "s0", 0, 0, 1), *ends,
    ]  # fmt: skip
    assert kinds(ClusterProgram(SHAPES[0], steps)) == set()
