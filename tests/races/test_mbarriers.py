"""The rule of races for mbarriers and bulk copies: executions with a known answer, and the mistakes
that have been published.
"""

from __future__ import annotations

import pytest

from flash_attest.races.events import (
    Access,
    Agent,
    Arrival,
    Arrive,
    Barrier,
    Copy,
    Done,
    End,
    Expect,
    Fence,
    Init,
    InitFence,
    Issue,
    Phase,
    Thread,
    Wait,
)
from flash_attest.races.launch import Launch
from flash_attest.races.mbarriers import misuses
from flash_attest.races.rule import during, lacks_fence, races

A, B, C, D = (Thread(0, index) for index in range(4))  # A and B in one warp, C and D in others
FENCE, INIT_FENCE = Fence(), InitFence()
ALL, AGAIN = Barrier("all"), Barrier("all again")


def read(memory: str = "stage") -> Access:
    return Access("read", memory, 0, 64)


def write(memory: str = "stage") -> Access:
    return Access("write", memory, 0, 64)


def load(name: str, phase: Phase | None, to: str = "stage", since: str = "global") -> Agent:
    """Return a bulk copy to shared memory."""
    return Agent(name, reads=(read(since),), writes=(write(to),), completes=phase, bytes=64)


def store(name: str, since: str = "stage", to: str = "output") -> Agent:
    return Agent(name, reads=(read(since),), writes=(write(to),))


def wgmma(name: str, *stages: str) -> Agent:
    return Agent(name, reads=tuple(map(read, stages or ["stage"])))


FULL, FULL_1 = Phase("full"), Phase("full", 1)
EMPTY, EMPTY_1 = Phase("empty"), Phase("empty", 1)
LOAD, STORE, WGMMA = load("load", FULL), store("store"), wgmma("wgmma")


COPY = Copy("copy", read("global"), write(), FULL)  # by cp.async


@pytest.mark.parametrize(
    "behind, other, found",
    [
        ([Arrive(FULL)], [Wait(FULL), read()], ""),
        ([Arrive(FULL), Wait(FULL), read()], [], ""),
        ([Arrive(FULL), read(), Wait(FULL)], [], "perhaps"),
        ([read(), Arrive(FULL), Wait(FULL)], [], "always"),
        ([Arrive(FULL), ALL], [ALL, read(), Wait(FULL)], "perhaps"),
        ([Arrive(FULL)], [Wait(FULL, acquires=False), read()], "race"),
        ([Arrive(FULL)], [read(), Wait(FULL)], "race"),
        ([Arrive(FULL), write("output")], [Wait(FULL), read("output")], "race"),
    ],
)
def test_a_copy_is_over_behind_the_phase_of_its_arrival(behind, other, found):
    launch = Launch({A: [COPY, *behind, Done(COPY)], B: other})
    met = "".join({"always" if always else "perhaps" for _, _, always in during(launch)})
    assert ("race" if races(launch) else met) == found


def judged(*threads: list) -> str:
    """Return "race", "fence" if only a fence is missing, or ""."""
    launch = Launch(dict(zip((A, B, C, D), threads, strict=False)))
    found = races(launch)
    return "fence" if found and all(lacks_fence(launch, *pair) for pair in found) else "race" if found else ""


def wrong(*threads: list) -> list[str]:
    """Return how mbarriers are misused."""
    return [each.what for each in misuses(Launch(dict(zip((A, B, C, D), threads, strict=False))))]


# --- what each step orders ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_a", "of_b", "is_race"),
    [
        ([write(), Arrive(FULL)], [Wait(FULL), read()], ""),
        ([Arrive(FULL), write()], [Wait(FULL), read()], "race"),
        ([write(), Arrive(FULL)], [read(), Wait(FULL)], "race"),
        ([write(), Arrive(FULL, releases=False)], [Wait(FULL), read()], "race"),
        ([write(), Arrive(FULL)], [Wait(FULL, acquires=False), read()], "race"),
        ([write(), Expect(FULL, 64)], [Wait(FULL), read()], "race"),
        ([write(), Arrive(FULL_1)], [Wait(FULL), read()], "race"),  # a wait for an earlier phase
        ([write(), Arrive(FULL)], [Wait(FULL_1), read()], "race"),  # nor for a later one
        ([write(), Arrive(Phase("full", 2))], [Wait(FULL), read()], "race"),  # of the same parity
        ([read(), Arrive(EMPTY)], [Wait(EMPTY), write()], ""),  # a read counts as a write does
        ([read(), Arrive(EMPTY, releases=False)], [Wait(EMPTY), write()], "race"),
    ],
)
def test_an_arrival_happens_before_a_wait_for_its_phase(of_a, of_b, is_race):
    assert judged(of_a, of_b) == is_race


@pytest.mark.parametrize(
    ("of_a", "of_b", "is_race"),
    [
        ([Issue(LOAD)], [Wait(FULL), read()], ""),  # without a fence: its end contains one
        ([Issue(LOAD)], [Wait(FULL), Issue(WGMMA), End(WGMMA)], ""),
        ([Issue(LOAD)], [read()], "race"),
        ([Issue(LOAD)], [Wait(FULL_1), read()], "race"),
        ([Issue(LOAD)], [Wait(FULL, acquires=False), read()], "race"),
        ([Issue(LOAD), read()], [], "race"),  # the issuer has to wait, too
        ([Issue(LOAD), Arrive(FULL)], [Wait(FULL), read()], ""),
        ([Issue(LOAD), Wait(FULL), read()], [], ""),
        ([Issue(load("load", EMPTY)), Arrive(FULL)], [Wait(FULL), read()], "race"),  # the arrival is not the copy's
    ],
)
def test_a_copy_happens_before_a_wait_for_the_phase_in_which_it_completes(of_a, of_b, is_race):
    assert judged(of_a, of_b) == is_race


def test_complete_tx_orders_its_copy_and_nothing_else():
    assert judged([write("other"), Issue(LOAD)], [Wait(FULL), read("other")]) == "race"
    assert judged([write("other"), Arrive(FULL), Issue(LOAD)], [Wait(FULL), read("other")]) == ""
    # Another copy of the same thread, which completes elsewhere.
    assert judged([Issue(load("q", EMPTY, "q")), Issue(LOAD)], [Wait(FULL), read("q")]) == "race"
    assert judged([Issue(load("q", FULL, "q")), Issue(LOAD)], [Wait(FULL), read("q"), read()]) == ""
    # A copy that was read before by another copy is not passed on either.
    next_load = load("next", EMPTY, "other", since="stage")
    assert judged([Issue(LOAD)], [Wait(FULL), Issue(next_load)], [Wait(EMPTY), read()]) == "race"


def test_a_stage_is_used_again_after_its_readers_have_arrived():
    next_load = load("next", FULL_1)
    producer = [Issue(LOAD), Wait(EMPTY), Issue(next_load)]
    assert judged(producer, [Wait(FULL), Issue(WGMMA), End(WGMMA), Arrive(EMPTY), Wait(FULL_1)]) == ""
    assert judged(producer, [Wait(FULL), Issue(WGMMA), Arrive(EMPTY), End(WGMMA), Wait(FULL_1)]) == "race"
    assert judged([Issue(LOAD), Issue(next_load)], [Wait(FULL), Issue(WGMMA), End(WGMMA), Wait(FULL_1)]) == "race"
    # Generic readers need a fence on the path, on either side of the mbarrier.
    assert judged(producer, [Wait(FULL), read(), Arrive(EMPTY)]) == "fence"
    assert judged(producer, [Wait(FULL), read(), FENCE, Arrive(EMPTY)]) == ""
    assert judged([Issue(LOAD), Wait(EMPTY), FENCE, Issue(next_load)], [Wait(FULL), read(), Arrive(EMPTY)]) == ""


def test_a_write_before_a_wait_is_found_during_the_copy():
    launch = Launch({A: [Issue(LOAD), write(), Wait(FULL)]})
    assert [always for _, _, always in during(launch)] == [True]


def test_a_group_of_bulk_copies_ends_in_the_thread_that_waits_for_it():
    assert judged([FENCE, Issue(STORE), End(STORE, of_reads=True), write()]) == ""
    assert judged([Issue(STORE), End(STORE, of_reads=True), ALL], [ALL, write()]) == ""
    assert judged([Issue(STORE), ALL], [ALL, write()]) == "race"
    assert judged([Issue(STORE), End(STORE, of_reads=True), read("output")]) == "race"
    assert judged([Issue(STORE), End(STORE), read("output")]) == ""


def test_impossible_waits_are_refused():
    for threads in ([Wait(FULL), Arrive(FULL)], [Wait(FULL), Issue(LOAD)]):
        with pytest.raises(ValueError, match="waited for before it can be over"):
            Launch({A: threads})
    with pytest.raises(ValueError, match="before"):
        Launch({A: [Wait(EMPTY), Arrive(FULL, releases=False)], B: [Wait(FULL), Arrive(EMPTY)]})


# --- misuse ---------------------------------------------------------------------------------------

INIT = Init("full", 1)


@pytest.mark.parametrize(
    ("threads", "whats"),
    [
        ([[INIT, ALL, Arrive(FULL)], [ALL, Wait(FULL)]], []),
        ([[INIT, Arrive(FULL)], [Wait(FULL)]], ["used before init"]),  # it may test what is not there yet
        ([[INIT, ALL], [Arrive(FULL), ALL, Wait(FULL)]], ["used before init"]),
        ([[INIT, INIT_FENCE, Expect(FULL, 64), Arrive(FULL), Issue(LOAD), Wait(FULL)]], []),
        ([[INIT, FENCE, Expect(FULL, 64), Arrive(FULL), Issue(LOAD), Wait(FULL)]], []),
        ([[INIT, ALL], [ALL, Expect(FULL, 64), Arrive(FULL), Issue(LOAD)]], []),
        (
            [[INIT, Expect(FULL, 64), Arrive(FULL), Issue(LOAD), Wait(FULL)]],
            ["completed without a fence or barrier after init"],
        ),
        ([[INIT, ALL, Arrive(FULL)], [ALL, Arrive(FULL)]], ["more arrivals than init says"]),
        ([[INIT, Arrive(FULL, count=2)]], ["more arrivals than init says"]),
        (
            [[INIT, INIT_FENCE, Expect(FULL, 128), Arrive(FULL), Issue(LOAD)]],
            ["never over: 128 bytes expected, 64 come"],
        ),
        ([[INIT, Arrive(FULL), Wait(FULL), Arrive(FULL_1)]], []),
        ([[INIT, Arrive(FULL), Arrive(FULL_1)]], ["arrives though nobody has waited for the phase before"]),
        ([[INIT, ALL, Arrive(FULL), AGAIN, Arrive(FULL_1)], [ALL, Wait(FULL), AGAIN]], []),
    ],
)
def test_misuse(threads, whats):
    assert wrong(*threads) == whats


# --- mistakes that were published -----------------------------------------------------------------


def test_generic_writes_before_a_store_or_a_wgmma_need_a_fence():
    """FlashKDA issue 24, tilelang issue 2634."""
    assert judged([write(), ALL], [ALL, Issue(STORE), End(STORE)]) == "fence"
    assert judged([write(), FENCE, ALL], [ALL, Issue(STORE), End(STORE)]) == ""
    # A fence of the thread that stores, ahead of the barrier, covers what it wrote itself.
    assert judged([write(), ALL], [FENCE, ALL, Issue(STORE), End(STORE)]) == "fence"
    assert judged([write(), ALL], [ALL, Issue(WGMMA), End(WGMMA)]) == "fence"


def test_generic_reads_before_a_load_need_a_fence_unless_another_one_is_on_the_path():
    """DeepEP issue 642; flash-attention issue 2462, where a fence nearby was on the path."""
    reader = [Wait(FULL), read()]
    producer = [Issue(LOAD), Wait(EMPTY), Issue(load("next", FULL_1))]
    assert judged(producer, [*reader, Arrive(EMPTY)]) == "fence"
    # The reader fences its own later writes, for a store, before it arrives.
    assert judged(producer, [*reader, write("output tile"), FENCE, Arrive(EMPTY)]) == ""


def test_init_needs_a_fence_before_a_copy_completes():
    """FlashKDA issue 24; Fuser issue 1552, where a barrier of the block is missing."""
    copies = [Expect(FULL, 64), Arrive(FULL), Issue(LOAD)]
    assert wrong([INIT, *copies]) == ["completed without a fence or barrier after init"]
    assert "used before init" in wrong([INIT, FENCE], copies)
    assert wrong([INIT, FENCE, ALL], [ALL, *copies]) == []


def test_a_wrong_parity_leaves_the_new_copy_unordered():
    """tilelang issues 2927, 3087: the second tile is waited for with the parity of the first."""
    producer = [Issue(LOAD), Wait(EMPTY), Issue(load("next", FULL_1))]
    first = [Wait(FULL), Issue(WGMMA), End(WGMMA), Arrive(EMPTY)]
    second = wgmma("second")
    assert judged(producer, [*first, Wait(FULL), Issue(second), End(second)]) == "race"
    assert judged(producer, [*first, Wait(FULL_1), Issue(second), End(second)]) == ""


def test_one_lane_arrives_for_others_that_stored():
    """cudnn-frontend issue 426: an arrival releases what its own thread did."""
    lanes = Barrier("of the warp")
    assert judged([Arrive(FULL)], [write()], [Wait(FULL), read()]) == "race"
    assert judged([lanes, Arrive(FULL)], [write(), lanes], [Wait(FULL), read()]) == ""


def test_memory_is_reused_while_another_warpgroup_reads():
    """triton issue 11047: each warpgroup has waited for its own wgmma alone."""
    other = wgmma("other")
    writes = [Issue(WGMMA), End(WGMMA), write()]
    assert judged(writes, [], [Issue(other), End(other)]) == "race"
    assert judged([Issue(WGMMA), End(WGMMA), ALL, write()], [], [Issue(other), End(other), ALL]) == ""


def test_a_stage_is_released_too_early():
    """tilelang issue 2613: the arrival stands before the wait for the wgmma that reads."""
    producer = [Issue(LOAD), Wait(EMPTY), Issue(load("next", FULL_1))]
    assert judged(producer, [Wait(FULL), Issue(WGMMA), Arrive(EMPTY), End(WGMMA)]) == "race"
    # A loop without its barrier at the end.
    assert judged([write(), ALL, write()], [ALL, read()]) == "race"
    assert judged([write(), ALL, AGAIN, write()], [ALL, read(), AGAIN]) == ""


def test_a_named_barrier_is_taken_twice():
    """flashinfer issue 4732: a second arrival of one warp stands for another warp."""
    named = Barrier("named")
    assert judged([Arrival(named)], [named, read()], [write()]) == "race"
    assert judged([Arrival(named)], [named, read()], [write(), Arrival(named)]) == ""


def test_a_store_is_not_waited_for():
    """cutlass issue 2162: the buffer changes before the store has read it."""
    assert judged([Issue(STORE), write()]) == "race"
    assert judged([Issue(STORE), End(STORE, of_reads=True), write()]) == ""
    # One group is left under way by wait_group.read 1.
    last = store("last", "last stage")
    assert judged([Issue(STORE), Issue(last), End(STORE, of_reads=True), write("last stage")]) == "race"


def test_a_phase_is_read_after_the_other_warps_ran_on():
    """triton issue 11334: nobody has waited for the phase before an arrival in the next one."""
    init = Init("full", 1)
    assert wrong([init, ALL, Arrive(FULL), Arrive(FULL_1)], [ALL, Wait(FULL_1)]) == [
        "arrives though nobody has waited for the phase before"
    ]
