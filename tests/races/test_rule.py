"""The rule of races: executions with a known answer, and properties of all executions."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flash_attest.races.events import Access, Arrival, Barrier, Thread
from flash_attest.races.launch import Launch
from flash_attest.races.rule import common_bytes, conflict, kind, races

A, B, C = Thread(0, 0), Thread(0, 1), Thread(0, 2)
OF_ANOTHER_BLOCK = Thread(1, 0)
AB, BC, AC, ABC = Barrier("A and B"), Barrier("B and C"), Barrier("A and C"), Barrier("all")


def access(words: str) -> Access:
    """Parse "write x 4:8", bytes 4 to 7 of x; without bytes, 0 to 3."""
    what, memory, *which = words.split()
    start, stop = (int(n) for n in which[0].split(":")) if which else (0, 4)
    return Access(what, memory, start, stop - start)


READ, WRITE, ATOMIC = access("read x"), access("write x"), access("atomic x")


def pairs(launch: Launch) -> set[frozenset]:
    """Return each race as two (thread, number of its access). These do not depend on barriers."""
    of_step = {}
    for event in launch.accesses():
        earlier = launch.threads[event.thread][: event.step]
        of_step[event.thread, event.step] = (event.thread, sum(isinstance(e, Access) for e in earlier))
    return {frozenset(of_step[e.thread, e.step] for e in pair) for pair in races(launch)}


def between(*threads: Thread) -> set[frozenset]:
    """Return the races of a launch in which each thread has one access."""
    return {frozenset((thread, 0) for thread in threads)}


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "is_race"),
    [
        ("read", "read", False),
        ("read", "write", True),
        ("write", "write", True),
        ("read", "atomic", True),
        ("write", "atomic", True),
        ("atomic", "atomic", False),
    ],
)
def test_two_threads_race_if_one_writes_and_not_both_are_atomic(one, other, is_race):
    for what in [(one, other), (other, one)]:
        launch = Launch({A: [access(f"{what[0]} x")], B: [access(f"{what[1]} x")]})
        assert pairs(launch) == (between(A, B) if is_race else set())


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("write x 0:4", "read x 0:4", [0, 1, 2, 3]),
        ("write x 0:4", "read x 4:8", []),
        ("write x 4:8", "read x 0:4", []),
        ("write x 0:8", "read x 7:8", [7]),
        ("write x 3:4", "read x 0:4", [3]),
        ("write x 2:6", "read x 5:9", [5]),
        ("write x 0:8", "atomic x 4:8", [4, 5, 6, 7]),
        ("write x 0:4", "read y 0:4", []),
        ("write x 0:0", "write x 0:4", []),
    ],
)
def test_one_common_byte_is_enough(one, other, common):
    one, other = access(one), access(other)
    assert list(common_bytes(one, other)) == list(common_bytes(other, one)) == common
    assert pairs(Launch({A: [one], B: [other]})) == (between(A, B) if common else set())


def test_atomics_of_different_sizes_do_not_race():
    assert not races(Launch({A: [access("atomic x 0:8")], B: [access("atomic x 4:8")]}))


def test_a_thread_does_not_race_with_itself():
    launch = Launch({A: [WRITE, READ, WRITE, ATOMIC]})
    assert not races(launch) and not any(conflict(a, b) for a, b in combinations(launch.accesses(), 2))


def test_a_barrier_between_orders():
    assert not races(Launch({A: [WRITE, AB], B: [AB, READ]}))
    assert not races(Launch({A: [AB, WRITE], B: [READ, AB]}))


def test_a_barrier_before_or_after_both_does_not_order():
    assert pairs(Launch({A: [AB, WRITE], B: [AB, READ]})) == between(A, B)
    assert pairs(Launch({A: [WRITE, AB], B: [READ, AB]})) == between(A, B)


def test_a_barrier_of_others_does_not_order():
    assert pairs(Launch({A: [WRITE], B: [BC], C: [BC, READ]})) == between(A, C)


def test_lanes_outside_the_mask_are_not_ordered():
    launch = Launch({A: [WRITE, AB], B: [AB, READ], C: [READ]})
    assert pairs(launch) == between(A, C)


def test_order_is_transitive_through_a_lane_in_both_masks():
    assert not races(Launch({A: [WRITE, AB], B: [AB, BC], C: [BC, READ]}))


def test_order_does_not_go_against_the_order_of_the_barriers():
    assert pairs(Launch({A: [WRITE, AB], B: [BC, AB], C: [BC, READ]})) == between(A, C)
    # In the other order, an action that precedes C happens before an action that follows A.
    assert not races(Launch({A: [AB, WRITE], B: [BC, AB], C: [READ, BC]}))


def test_two_pairs_of_lanes_without_a_common_lane_are_not_ordered():
    d, cd = Thread(0, 3), Barrier("C and D")
    assert pairs(Launch({A: [WRITE, AB], B: [AB], C: [cd], d: [cd, READ]})) == between(A, d)


def test_order_is_transitive_through_warp_and_block_barriers():
    assert not races(Launch({A: [WRITE, ABC], B: [ABC, BC], C: [ABC, BC, READ]}))
    assert not races(Launch({A: [AB, ABC, WRITE], B: [WRITE, AB, ABC], C: [ABC]}))


def test_a_thread_that_left_counts_at_later_barriers_that_include_it():
    assert not races(Launch({A: [WRITE, Arrival(ABC)], B: [ABC, READ], C: [ABC]}))
    assert pairs(Launch({A: [WRITE], B: [BC, READ], C: [BC]})) == between(A, B)


def test_a_thread_that_left_orders_nothing_between_two_barriers():
    assert pairs(Launch({A: [Arrival(AB), Arrival(AC)], B: [WRITE, AB], C: [AC, READ]})) == between(B, C)
    assert not races(Launch({A: [AB, Arrival(AC)], B: [WRITE, AB], C: [AC, READ]}))


@pytest.mark.parametrize("events, words", [([Arrival(AB), AB], "twice"), ([Arrival(AB), Arrival(AB)], "twice")])
def test_an_arrival_and_a_meeting_at_one_barrier_exclude_each_other(events, words):
    with pytest.raises(ValueError, match=words):
        Launch({A: events, B: [AB]})


def test_nothing_orders_two_blocks():
    launch = Launch({A: [WRITE, AB], B: [AB], OF_ANOTHER_BLOCK: [Barrier("of block 1"), READ]})
    assert pairs(launch) == between(A, OF_ANOTHER_BLOCK)


def test_each_block_has_shared_memory_of_its_own():
    write = [Access("write", ("tile", block), 0, 4) for block in (0, 1)]
    assert not races(Launch({A: [write[0]], OF_ANOTHER_BLOCK: [write[1]]}))


def test_double_buffering_needs_one_barrier_a_round_and_a_single_buffer_two():
    """B reads what A wrote in the round. With a single buffer, A overwrites it in the next
    round.
    """

    def rounds(buffers: int, barriers: int) -> Launch:
        a, b = [], []
        for n in range(3):
            buffer = f"buffer{n % buffers}"
            meetings = [Barrier((n, m)) for m in range(barriers)]
            a += [access(f"write {buffer}"), *meetings]
            b += [*meetings[:1], access(f"read {buffer}"), *meetings[1:]]
        return Launch({A: a, B: b})

    assert not races(rounds(2, 1)) and not races(rounds(1, 2))
    assert pairs(rounds(1, 1)) == {frozenset({(A, 1), (B, 0)}), frozenset({(A, 2), (B, 1)})}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("read", "write", "write after read"),
        ("write", "read", "read after write"),
        ("write", "write", "write after write"),
        ("read", "atomic", "write after read"),
        ("atomic", "read", "read after write"),
    ],
)
def test_the_name_of_a_pair(first, second, words):
    assert kind(access(f"{first} x"), access(f"{second} x")) == words


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        ({A: [AB], OF_ANOTHER_BLOCK: [AB]}, "joins threads of two blocks"),
        ({A: [AB, AB], B: [AB]}, "comes twice in a thread"),
        ({A: [AB, ABC], B: [ABC, AB]}, "comes after itself"),
        ({A: [AB, ABC], B: [BC, AB], C: [ABC, BC]}, "comes after itself"),
    ],
)
def test_impossible_launches_are_refused(threads, message):
    with pytest.raises(ValueError, match=message):
        Launch(threads)


# --- for all executions ---------------------------------------------------------------------------
# An execution is drawn as one sequence of steps: (thread, access), or the threads at a barrier.
# Each thread's events are its part of the sequence, so no barrier comes after itself.

THREADS = [Thread(block, index) for block in (0, 1) for index in range(4)]

ACCESSES = st.builds(
    Access,
    what=st.sampled_from(["read", "write", "atomic"]),
    memory=st.sampled_from("xy"),
    start=st.integers(0, 5),
    size=st.integers(1, 4),
)
MEETINGS = st.builds(
    lambda block, indices: [Thread(block, index) for index in sorted(indices)],
    st.sampled_from([0, 0, 1]),
    st.sets(st.integers(0, 3), min_size=2),
)
STEPS = st.lists(st.tuples(st.sampled_from(THREADS), ACCESSES) | MEETINGS, max_size=14)
POSITIONS = st.integers(0, 14)


def project(steps: list) -> Launch:
    threads = {thread: [] for thread in THREADS}
    for n, step in enumerate(steps):
        if isinstance(step, list):
            for thread in step:
                threads[thread].append(Barrier(n))
        else:
            threads[step[0]].append(step[1])
    return Launch(threads)


def with_accesses(steps: list, change) -> list:
    """Replace each access by change(access), a list of accesses."""
    return [
        new
        for step in steps
        for new in ([step] if isinstance(step, list) else [(step[0], other) for other in change(step[1])])
    ]


@given(STEPS)
def test_vector_clocks_say_the_same(steps):
    """This is the other definition: a thread's clock grows along the sequence, and barriers join
    clocks.
    """
    knows = {thread: dict.fromkeys(THREADS, 0) for thread in THREADS}
    clocks = {}  # (thread, number of its access, from 1) -> its clock at that access
    for step in steps:
        if isinstance(step, list):
            met = {thread: max(knows[one][thread] for one in step) for thread in THREADS}
            knows |= {thread: dict(met) for thread in step}
        else:
            knows[step[0]][step[0]] += 1
            clocks[step[0], knows[step[0]][step[0]]] = dict(knows[step[0]])
    launch = project(steps)
    events = {(thread, n): event for thread in THREADS for n, event in enumerate(of(launch, thread), start=1)}

    for (thread, n), event in events.items():
        for at, later in events.items():
            want = at != (thread, n) and clocks[at][thread] >= n
            assert launch.before(event, later) == want


def of(launch: Launch, thread: Thread) -> list:
    return [event for event in launch.accesses() if event.thread == thread]


@given(STEPS, MEETINGS, POSITIONS)
def test_another_barrier_adds_no_race(steps, meeting, position):
    assert pairs(project([*steps[:position], meeting, *steps[position:]])) <= pairs(project(steps))


@given(STEPS)
def test_a_block_barrier_after_each_step_leaves_races_between_blocks_only(steps):
    blocks = [[thread for thread in THREADS if thread.block == block] for block in (0, 1)]
    launch = project([new for step in steps for new in [step, *blocks]])
    between_blocks = {pair for pair in pairs(project(steps)) if len({thread.block for thread, _ in pair}) == 2}
    assert pairs(launch) == between_blocks


@given(STEPS, st.sampled_from(THREADS[:4]), st.sampled_from(THREADS[:4]))
def test_threads_that_swap_their_names_swap_their_races(steps, one, other):
    def name(thread):
        return {one: other, other: one}.get(thread, thread)

    swapped = [[name(t) for t in step] if isinstance(step, list) else (name(step[0]), step[1]) for step in steps]
    want = {frozenset((name(thread), n) for thread, n in pair) for pair in pairs(project(steps))}
    assert pairs(project(swapped)) == want


@given(STEPS)
def test_an_access_split_into_bytes_races_at_the_same_bytes(steps):
    def racing_bytes(launch):
        return {
            (frozenset([a.thread, b.thread]), a.access.memory, byte)
            for a, b in races(launch)
            for byte in common_bytes(a.access, b.access)
        }

    split = with_accesses(steps, lambda a: [replace(a, start=a.start + n, size=1) for n in range(a.size)])
    assert racing_bytes(project(split)) == racing_bytes(project(steps))


@given(STEPS)
def test_time_reversed_has_the_same_races(steps):
    launch = project(steps)
    count = {thread: len(of(launch, thread)) for thread in THREADS}
    want = {frozenset((thread, count[thread] - 1 - n) for thread, n in pair) for pair in pairs(launch)}
    assert pairs(project(steps[::-1])) == want


@given(STEPS, st.lists(POSITIONS, max_size=30))
def test_another_schedule_of_the_same_events_has_the_same_races(steps, positions):
    """Adjacent steps that have no thread in common are swapped, many times."""

    def threads(step):
        return set(step) if isinstance(step, list) else {step[0]}

    rearranged = list(steps)
    for n in positions:
        if n + 1 < len(steps) and not threads(rearranged[n]) & threads(rearranged[n + 1]):
            rearranged[n : n + 2] = rearranged[n + 1], rearranged[n]
    assert pairs(project(rearranged)) == pairs(project(steps))


@given(STEPS)
def test_each_memory_races_by_itself(steps):
    def count(memories):
        return len(races(project(with_accesses(steps, lambda a: [a] if a.memory in memories else []))))

    assert count("xy") == count("x") + count("y")


@given(STEPS, st.sampled_from(["read", "atomic"]))
def test_reads_alone_and_atomics_alone_do_not_race(steps, what):
    assert not races(project(with_accesses(steps, lambda a: [replace(a, what=what)])))


@given(STEPS)
def test_writes_in_place_of_reads_and_atomics_remove_no_race(steps):
    assert pairs(project(with_accesses(steps, lambda a: [replace(a, what="write")]))) >= pairs(project(steps))
