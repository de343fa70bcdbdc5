"""The definition of a race, for every detector; and a checker that applies it by brute force, to test detectors.

Two accesses of one launch are a race if

    they access a common byte,                                whatever their sizes
    different threads make them,
    at least one writes,                                      an atomic operation writes, even a compare-and-swap that fails
    not both are atomic, and
    neither happens before the other.

`a` happens before `b` if a path leads from a to b, and a path has two kinds of steps:

    along a thread, from each event to the next               program order
    at a barrier, from any thread there to all that wait      what any of them did before it happens before what comes after

There are no other steps. It follows:

- Order is transitive: with a barrier of lanes 0 and 1, then one of lanes 1 and 2, what lane 0 did before the first happens
  before what lane 2 does after the second. With the barriers in the other order it does not.
- Two blocks are not ordered, because no barrier joins threads of two blocks.
- A shuffle, a vote, a memory fence, a value that was read, an atomic operation order nothing, so accesses protected by an
  atomic lock are a race here. `__syncthreads` is a barrier of its block, `__syncwarp(mask)` one of the lanes in its mask.
- A thread that has returned counts at every later barrier that includes it (an Arrival), because a barrier waits until each
  thread has arrived or returned: what it did happens before what comes after. It orders nothing between two barriers.
- A read and an atomic operation can be a race. Two atomic operations cannot, whatever their sizes and scopes.
- Whether the values differ does not matter: two writes of the same value are a race.
- It does not matter which thread ran first in this execution: another schedule of the same events has the same races.

An asynchronous copy (cp.async) reads its source and writes its target at some time between its issue and the end of its
thread's wait for it; without a wait, until its thread returns. It is as if the thread accessed both at both ends, so another
thread's access that is not ordered with either end is a race. An access to the target between the two ends, by any thread,
its own too, is a mistake of its own kind (ASYNC): `during` says which ones are there in every schedule, which may be.
Writes to the source between the ends are only seen as races.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple


class Thread(NamedTuple):
    """A thread of a launch: the index of its block, and its index in the block (numbers, or tuples of them)."""

    block: Hashable
    index: Hashable


@dataclass(frozen=True)
class Access:
    """Bytes start .. start + size - 1 of a memory; the shared memories of two blocks have different names."""

    what: Literal["read", "write", "atomic"]
    memory: Hashable
    start: int
    size: int


@dataclass(frozen=True)
class Barrier:
    """A barrier of threads of one block: those with it among their events, each once. The next barrier has another name."""

    name: Hashable


@dataclass(frozen=True)
class Arrival:
    """An arrival at a barrier without waiting, as of a returned thread: order goes from here to the barrier only."""

    at: Barrier


@dataclass(frozen=True)
class Copy:
    """An asynchronous copy is issued. source: a read, or None if it writes zeros; target: a write. Each copy has its name."""

    name: Hashable
    source: Access | None
    target: Access


@dataclass(frozen=True)
class Done:
    """The thread that issued the copy has waited for it."""

    copy: Copy


class Event(NamedTuple):
    """An access with its thread and its number among all events of that thread."""

    thread: Thread
    step: int
    access: Access


class Launch:
    """One execution of one launch: what each thread did, in program order."""

    def __init__(self, threads: Mapping[Thread, Sequence[Access | Barrier | Arrival | Copy | Done]]):
        """Raises ValueError for an impossible launch.

        A barrier of two blocks, twice in a thread, or after itself; a copy without an end.
        """
        self.threads = {thread: tuple(events) for thread, events in threads.items()}
        self._known: dict[tuple[Thread, int], set[tuple[Thread, int]]] = {}
        # The threads that wait, and at which step.
        self.waiting: dict[Barrier, list[tuple[Thread, int]]] = defaultdict(list)
        named: dict[Barrier, list[Thread]] = defaultdict(list)  # those, and the threads that only arrive
        for thread, events in self.threads.items():
            for step, event in enumerate(events):
                if isinstance(event, Barrier):
                    self.waiting[event].append((thread, step))
                if isinstance(event, (Barrier, Arrival)):
                    named[event.at if isinstance(event, Arrival) else event].append(thread)
        for barrier, here in named.items():
            if len({thread.block for thread in here}) > 1:
                raise ValueError(f"{barrier} joins threads of two blocks: {here}")
            if len(set(here)) < len(here):
                raise ValueError(f"{barrier} comes twice in a thread: {here}")
        for thread, events in self.threads.items():
            for step, event in enumerate(events):
                if isinstance(event, Copy) and Done(event) not in events[step:]:
                    raise ValueError(f"{event} of {thread} has no end")
        for barrier, points in self.waiting.items():
            if any(self.threads[thread][step] == barrier for thread, step in self._after(*points[0])):
                raise ValueError(f"{barrier} comes after itself, so its threads wait forever: {points}")

    def accesses(self) -> list[Event]:
        every = ((thread, step, e) for thread, events in self.threads.items() for step, e in enumerate(events))
        return [Event(thread, step, access) for thread, step, event in every for access in accesses_of(event)]

    def before(self, a: Event, b: Event) -> bool:
        return (b.thread, b.step) in self._after(a.thread, a.step)

    def ordered(self, a: Event, b: Event) -> bool:
        return self.before(a, b) or self.before(b, a)

    def _next(self, thread: Thread, step: int) -> Iterator[tuple[Thread, int]]:
        """The next points on a path: in this thread, and from a barrier in every thread that waits there."""
        event = self.threads[thread][step]
        barrier = event.at if isinstance(event, Arrival) else event
        for other, at in [(thread, step), *self.waiting.get(barrier, ())]:
            if at + 1 < len(self.threads[other]):
                yield other, at + 1

    def _after(self, thread: Thread, step: int) -> set[tuple[Thread, int]]:
        """Every (thread, step) that a path leads to from here."""
        if (thread, step) in self._known:
            return self._known[thread, step]
        reached: set[tuple[Thread, int]] = set()
        todo = list(self._next(thread, step))
        while todo:
            if (point := todo.pop()) not in reached:
                reached.add(point)
                todo += self._next(*point)
        self._known[thread, step] = reached
        return reached


def accesses_of(event: Access | Barrier | Arrival | Copy | Done) -> list[Access]:
    """What an event accesses: a copy at each of its ends, both memories."""
    if isinstance(event, Access):
        return [event]
    copy = event if isinstance(event, Copy) else event.copy if isinstance(event, Done) else None
    return [access for access in (copy.source, copy.target) if access] if copy else []


def common_bytes(a: Access, b: Access) -> range:
    """The bytes that both access."""
    if a.memory != b.memory:
        return range(0)
    return range(max(a.start, b.start), min(a.start + a.size, b.start + b.size))


def conflict(a: Event, b: Event) -> bool:
    """Whether the two would be a race if they were not ordered."""
    whats = {a.access.what, b.access.what}
    one_writes, both_atomic = whats != {"read"}, whats == {"atomic"}
    return a.thread != b.thread and one_writes and not both_atomic and len(common_bytes(a.access, b.access)) > 0


def races(launch: Launch) -> list[tuple[Event, Event]]:
    """Every pair of accesses that is a race: each once, in the order of launch.accesses()."""
    return [(a, b) for a, b in combinations(launch.accesses(), 2) if conflict(a, b) and not launch.ordered(a, b)]


def kind(first: Access, second: Access) -> str:
    """The name of a pair in which `first` ran first: "write after read", "read after write", "write after write"."""
    return " after ".join("read" if access.what == "read" else "write" for access in (second, first))


def during(launch: Launch) -> list[tuple[Event, Event, bool]]:
    """Accesses to the target of a copy under way: (the copy's write, the access, whether it is so in every schedule)."""
    found = []
    for thread, events in launch.threads.items():
        for step, copy in enumerate(events):
            if not isinstance(copy, Copy):
                continue
            issue = Event(thread, step, copy.target)
            done = Event(thread, events.index(Done(copy)), copy.target)
            for other in launch.accesses():
                if (other.thread == thread and other.step in (step, done.step)) or not common_bytes(
                    copy.target, other.access
                ):
                    continue
                if launch.before(other, issue) or launch.before(done, other):
                    continue
                always = launch.before(issue, other) and (launch.before(other, done) or other.thread == thread)
                found.append((issue, other, always))
    return found
