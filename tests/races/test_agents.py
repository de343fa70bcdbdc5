"""The rule of races for agents of the async proxy: executions with a known answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_attest.races.events import Access, Agent, Arrival, Barrier, Copy, Done, End, Fence, Issue, Thread
from flash_attest.races.launch import Launch
from flash_attest.races.rule import during, lacks_fence, races

A, B, C = Thread(0, 0), Thread(0, 1), Thread(0, 2)
OF_ANOTHER_BLOCK = Thread(1, 0)
AB, AGAIN, BC = Barrier("A and B"), Barrier("A and B again"), Barrier("B and C")
READ, WRITE, ATOMIC = (Access(what, "tile", 0, 4) for what in ("read", "write", "atomic"))
GLOBAL_READ, GLOBAL_WRITE = (Access(what, "global", 0, 4) for what in ("read", "write"))
FENCE = Fence()

WGMMA = Agent("wgmma", reads=(READ, Access("read", "tile", 64, 16)))  # of the warp of A, and of B if it issues it
LOAD = Agent("load", reads=(GLOBAL_READ,), writes=(WRITE,))  # bulk copies
STORE = Agent("store", reads=(READ,), writes=(GLOBAL_WRITE,))


def judged(**threads: list) -> tuple[str, list[bool]]:
    """Return "race", "fence" if only a fence is missing, or "", and, for each access while an
    agent is at work, whether this is so in every schedule.
    """
    launch = Launch({{"a": A, "b": B, "c": C}[name]: events for name, events in threads.items()})
    found = races(launch)
    only_fence = found and all(lacks_fence(launch, *pair) for pair in found)
    return "fence" if only_fence else "race" if found else "", [always for _, _, always in during(launch)]


@pytest.mark.parametrize(
    ("of_a", "of_b", "is_race"),
    [
        ([WRITE, FENCE, AB], [AB, Issue(WGMMA), End(WGMMA)], ""),
        ([WRITE, AB], [AB, FENCE, Issue(WGMMA), End(WGMMA)], ""),  # the fence may stand behind the barrier
        ([WRITE, AB], [AB, Issue(WGMMA), End(WGMMA)], "fence"),
        ([FENCE, WRITE, AB], [AB, Issue(WGMMA), End(WGMMA)], "fence"),  # it is before the write
        ([WRITE, AB, FENCE], [AB, Issue(WGMMA), End(WGMMA)], "fence"),  # it is not on the path
        ([WRITE, AB], [FENCE, AB, Issue(WGMMA), End(WGMMA)], "fence"),  # nor here
        ([WRITE, AB], [AB, Issue(WGMMA), FENCE, End(WGMMA)], "fence"),
        ([WRITE, FENCE], [Issue(WGMMA), End(WGMMA)], "race"),  # a fence alone orders nothing
        ([ATOMIC, AB], [AB, Issue(WGMMA), End(WGMMA)], "fence"),
        ([READ, AB], [AB, Issue(WGMMA), End(WGMMA)], ""),
        ([WRITE, FENCE, Issue(WGMMA), End(WGMMA)], [], ""),
        ([WRITE, Issue(WGMMA), End(WGMMA)], [], "fence"),  # the agent is another thread than its issuer
        # Generic reads before an asynchronous write need it, too.
        ([READ, AB], [AB, Issue(LOAD), End(LOAD)], "fence"),
        ([READ, FENCE, AB], [AB, Issue(LOAD), End(LOAD)], ""),
        ([GLOBAL_WRITE, AB], [AB, Issue(LOAD), End(LOAD)], "fence"),
    ],
)
def test_a_path_to_an_agent_needs_a_fence(of_a, of_b, is_race):
    assert judged(a=of_a, b=of_b) == (is_race, [])


def test_a_fence_orders_the_memories_that_it_names():
    for memories, is_race in [(None, ""), ({"tile", "other"}, ""), ({"global"}, "fence")]:
        fence = Fence(memories if memories is None else frozenset(memories))
        assert judged(a=[WRITE, fence, AB], b=[AB, Issue(WGMMA), End(WGMMA)]) == (is_race, [])


def test_a_fence_of_a_thread_in_the_middle_of_the_path():
    for middle, is_race in [([AB, FENCE, BC], ""), ([AB, BC], "fence"), ([FENCE, AB, BC], "fence")]:
        assert judged(a=[WRITE, AB], b=middle, c=[BC, Issue(WGMMA), End(WGMMA)]) == (is_race, [])


def test_generic_accesses_need_no_fence_and_a_copy_of_the_generic_proxy_does():
    copy = Copy("cp.async", GLOBAL_READ, WRITE)
    assert judged(a=[WRITE, AB], b=[AB, READ]) == ("", [])
    assert judged(a=[copy, Done(copy), FENCE, AB], b=[AB, Issue(WGMMA), End(WGMMA)]) == ("", [])
    assert judged(a=[copy, Done(copy), AB], b=[AB, Issue(WGMMA), End(WGMMA)]) == ("fence", [])
    # A fence before the wait is one before the copy's end.
    assert judged(a=[copy, FENCE, Done(copy), AB], b=[AB, Issue(WGMMA), End(WGMMA)]) == ("fence", [])


@pytest.mark.parametrize(
    ("of_a", "of_b", "is_race", "met"),
    [
        ([Issue(WGMMA), End(WGMMA), WRITE], [], "", []),
        ([Issue(WGMMA), End(WGMMA), AB], [AB, WRITE], "", []),
        ([Issue(WGMMA), WRITE, End(WGMMA)], [], "race", [True]),
        ([Issue(WGMMA), READ, End(WGMMA)], [], "", []),
        ([Issue(WGMMA), Access("write", "tile", 4, 4), End(WGMMA)], [], "", []),  # beside what it reads
        ([Issue(WGMMA), AB, End(WGMMA)], [AB, WRITE], "race", [False]),  # perhaps after the wait
        ([Issue(WGMMA), AB, AGAIN, End(WGMMA)], [AB, WRITE, AGAIN], "race", [True]),
        ([Issue(WGMMA), AB], [AB, WRITE], "race", [True]),  # nobody waits
        ([Issue(WGMMA), End(WGMMA)], [WRITE], "race", []),  # nor is it after the issue
        ([AB, Issue(WGMMA), End(WGMMA)], [AB, WRITE], "race", []),
        # A load from another thread's memory, then reads of what it wrote.
        ([Issue(LOAD), End(LOAD), READ], [], "", []),
        ([Issue(LOAD), End(LOAD), AB], [AB, READ], "", []),
        ([Issue(LOAD), AB, End(LOAD)], [AB, READ], "race", [False]),
        ([Issue(LOAD), READ], [], "race", [True]),
        ([Issue(LOAD), AB], [AB, GLOBAL_WRITE], "race", [True]),
    ],
)
def test_an_agent_works_between_its_issue_and_its_end(of_a, of_b, is_race, met):
    assert judged(a=of_a, b=of_b) == (is_race, met)


def test_a_wait_for_the_reads_orders_the_reads_alone():
    of_reads = End(STORE, of_reads=True)
    assert judged(a=[Issue(STORE), of_reads, WRITE]) == ("", [])
    assert judged(a=[Issue(STORE), of_reads, GLOBAL_READ]) == ("race", [True])
    assert judged(a=[Issue(STORE), of_reads, End(STORE), GLOBAL_READ]) == ("", [])
    assert judged(a=[Issue(STORE), WRITE, of_reads]) == ("race", [True])


def test_the_lanes_of_a_warp_issue_an_agent_together():
    both = [Issue(WGMMA), End(WGMMA)]
    assert judged(a=[WRITE, FENCE, *both], b=both) == ("", [])  # before its own issue
    assert judged(a=[WRITE, *both], b=[FENCE, *both]) == ("fence", [])
    assert judged(a=both, b=[*both, WRITE]) == ("", [])
    assert judged(a=[Issue(WGMMA), WRITE, End(WGMMA)], b=both) == ("race", [True])
    # A lane that does not wait is not ordered by the wait of another.
    assert judged(a=both, b=[Issue(WGMMA), WRITE]) == ("race", [False])


def test_no_path_passes_through_an_agent():
    assert judged(a=[WRITE, Issue(LOAD)], b=[End(LOAD), READ]) == ("race", [])
    other = Access("write", "other", 0, 4)
    # What the issuer did before is not ordered by the end, with a fence or without.
    for before in ([other], [other, FENCE]):
        launch = Launch({A: [*before, Issue(LOAD)], B: [End(LOAD), replace(other, what="read")]})
        assert len(races(launch)) == 1 and not lacks_fence(launch, *races(launch)[0])
    # The issuer's own next actions are after both.
    assert judged(a=[other, FENCE, Issue(LOAD), End(LOAD), replace(other, what="read"), READ]) == ("", [])


@pytest.mark.parametrize(
    ("first", "last", "is_race"),
    [
        ([WRITE, FENCE], [READ], False),
        ([WRITE, FENCE], [WRITE], False),
        ([READ, FENCE], [WRITE], False),
        ([Issue(STORE), End(STORE)], [WRITE], False),
        ([Issue(STORE), End(STORE, of_reads=True)], [WRITE], False),
        ([WRITE, FENCE], [Access("read", "tile", 3, 1)], False),
        ([WRITE, FENCE], [Access("read", "tile", 3, 2)], False),  # the byte behind is of nobody else
        ([Access("write", "tile", 3, 2), FENCE], [Access("read", "tile", 4, 1)], True),  # a byte that stays
        ([Access("write", "tile", 3, 2), FENCE], [Access("read", "tile", 3, 2)], True),
        ([READ], [WRITE], True),  # the copy itself may come before it
        ([Issue(STORE)], [WRITE], True),
    ],
)
def test_what_an_agent_overwrites_comes_before_what_comes_after_the_agent(first, last, is_race):
    """The byte has had the value of the agent in between, and nobody sees an older one."""
    one, other = (Agent(name, writes=(WRITE,)) for name in ("one", "other"))
    expected = "race" if is_race else ""
    assert judged(a=[*first, Issue(one)], b=[End(one), *last])[0] == expected
    assert judged(a=[*first, Issue(one)], b=[End(one), Issue(other)], c=[End(other), *last])[0] == expected


def test_what_adds_to_a_byte_overwrites_nothing():
    adds = Agent("adds", writes=(ATOMIC,))
    assert judged(a=[WRITE, FENCE, Issue(adds)], b=[End(adds), READ]) == ("race", [])


def test_the_fence_in_an_end_is_one_for_the_agent_alone():
    assert judged(a=[WRITE, Issue(WGMMA), End(WGMMA)]) == ("fence", [])
    before = Agent("before", reads=(Access("read", "other", 0, 4),))
    assert judged(a=[WRITE, Issue(before), End(before), Issue(WGMMA), End(WGMMA)]) == ("fence", [])


def test_two_agents_need_a_path_and_no_fence():
    load = replace(LOAD, writes=WGMMA.reads)
    load = replace(load, writes=tuple(replace(each, what="write") for each in load.writes))
    assert judged(a=[Issue(load), End(load), AB], b=[AB, Issue(WGMMA), End(WGMMA)]) == ("", [])
    assert judged(a=[Issue(load), AB], b=[AB, Issue(WGMMA), End(WGMMA)])[0] == "race"
    assert judged(a=[Issue(WGMMA), End(WGMMA), AB], b=[AB, Issue(load), End(load)]) == ("", [])
    assert judged(a=[Issue(WGMMA), AB, End(WGMMA)], b=[AB, Issue(load), End(load)])[0] == "race"
    assert judged(a=[Issue(STORE), Issue(WGMMA), End(STORE), End(WGMMA)]) == ("", [])  # both read


def test_two_reductions_do_not_race():
    one, other = (Agent(name, writes=(ATOMIC,)) for name in "xy")
    assert judged(a=[Issue(one), Issue(other)]) == ("", [])
    assert judged(a=[Issue(one)], b=[ATOMIC]) == ("", [])
    assert judged(a=[Issue(one)], b=[WRITE]) == ("race", [])


def test_nothing_orders_an_agent_with_another_block():
    launch = Launch({A: [Issue(WGMMA), End(WGMMA)], OF_ANOTHER_BLOCK: [FENCE, WRITE]})
    assert len(races(launch)) == 1


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        ({A: [End(WGMMA)]}, "before it is issued"),
        ({A: [End(WGMMA), Issue(WGMMA)]}, "before it is issued"),
        ({A: [Issue(WGMMA)], B: [End(WGMMA), Issue(WGMMA)]}, "before it is issued"),
        ({A: [Issue(WGMMA), Issue(WGMMA)]}, "comes twice in a thread"),
        ({A: [Issue(WGMMA)], OF_ANOTHER_BLOCK: [Issue(WGMMA)]}, "joins threads of two blocks"),
        ({A: [Issue(WGMMA), AB], B: [AB, Issue(WGMMA)]}, "comes after itself"),
        (
            {A: [AB, Issue(LOAD)], B: [End(LOAD), AB]},
            "before it is issued",
        ),  # it waits for what comes after the barrier
    ],
)
def test_impossible_launches_are_refused(threads, message):
    with pytest.raises(ValueError, match=message):
        Launch(threads)


def test_a_thread_that_has_returned_waits_for_nothing():
    launch = Launch({A: [Issue(WGMMA), Arrival(AB)], B: [AB, WRITE]})
    assert len(races(launch)) == 1
