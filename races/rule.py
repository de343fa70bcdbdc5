"""The definition of a race, for every detector, and a brute-force checker that tests detectors.

Two accesses of one launch are a race if

    they access a common byte (their sizes may differ),
    different threads make them,
    at least one writes (an atomic operation writes, even a compare-and-swap that fails),
    not both are atomic, and
    neither happens before the other.

`a` happens before `b` if a path leads from a to b. A path has two kinds of steps:

    along a thread, from each event to the next (program order)
    at a barrier, from any thread at it to each thread that waits: everything that the former did
      before the barrier happens before everything that the latter does after it

There are no other steps. This has consequences:

- Order is transitive. Take a barrier of lanes 0 and 1, then one of lanes 1 and 2: everything that
  lane 0 did before the first happens before everything that lane 2 does after the second. With the
  barriers in the opposite order it does not.
- Two blocks are not ordered, because no barrier joins threads of two blocks.
- Shuffles, votes, memory fences, reads of a value, and atomic operations do not order anything.
  So accesses that are protected by an atomic lock are a race here. `__syncthreads` is a barrier of
  its block, `__syncwarp(mask)` a barrier of the lanes in its mask.
- A thread that has returned counts as arrived (Arrival) at every later barrier that includes it,
  because a barrier waits until each thread has arrived or returned. So its accesses happen before
  everything after the barrier. An Arrival does not order anything between two barriers.
- A read and an atomic operation can be a race. Two atomic operations cannot, whatever their sizes
  and scopes.
- Values do not matter: two writes of the same value are a race.
- It does not matter which thread ran first in this execution: another schedule of the same events
  has the same races.

An asynchronous copy (cp.async) reads its source and writes its target at some time between its
issue and the end of its thread's wait for it. Without a wait the copy ends when its thread returns.
It counts as if the thread accessed both at both ends, so another thread's access that is not
ordered with either end is a race. An access to the target between the two ends, by any thread
including its own, is a separate kind of mistake (ASYNC). `during` says which of these accesses
occur in every schedule, and which only may. A write to the source between the ends is reported only
as a race.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple


class Thread(NamedTuple):
    """A thread of a launch: its block's index and its index in the block (numbers or tuples)."""

    block: Hashable
    index: Hashable


@dataclass(frozen=True)
class Access:
    """An access to bytes start .. start + size - 1 of a memory.

    The shared memories of two blocks have different names.
    """

    what: Literal["read", "write", "atomic"]
    memory: Hashable
    start: int
    size: int


@dataclass(frozen=True)
class Barrier:
    """A barrier of threads of one block. Each thread has it once among its events.

    Each barrier has its own name.
    """

    name: Hashable


@dataclass(frozen=True)
class Arrival:
    """An arrival without waiting, as of a returned thread. Order leads only to the barrier."""

    at: Barrier


@dataclass(frozen=True)
class Copy:
    """The issue of an asynchronous copy, with its own name.

    source: a read, or None if the copy writes zeros. target: a write.
    """

    name: Hashable
    source: Access | None
    target: Access


@dataclass(frozen=True)
class Done:
    """The end of a copy: the thread that issued it has waited for it."""

    copy: Copy


class Event(NamedTuple):
    """An access with its thread and its number among the events of that thread."""

    thread: Thread
    step: int
    access: Access


class Launch:
    """One execution of one launch: the events of each thread, in program order."""

    def __init__(self, threads: Mapping[Thread, Sequence[Access | Barrier | Arrival | Copy | Done]]):
        """Check the events. Raises ValueError for an impossible launch.

        A launch is impossible if a barrier joins two blocks, occurs twice in a thread or happens
        before itself, or if a copy has no end.
        """
        self.threads = {thread: tuple(events) for thread, events in threads.items()}
        self._known: dict[tuple[Thread, int], set[tuple[Thread, int]]] = {}
        # The threads that wait at a barrier, each with its step.
        self.waiting: dict[Barrier, list[tuple[Thread, int]]] = defaultdict(list)
        named: dict[Barrier, list[Thread]] = defaultdict(list)  # the waiting threads, and the threads that only arrive
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
        """Yield the next points on a path: in this thread and, at a barrier, in all that wait."""
        event = self.threads[thread][step]
        barrier = event.at if isinstance(event, Arrival) else event
        for other, at in [(thread, step), *self.waiting.get(barrier, ())]:
            if at + 1 < len(self.threads[other]):
                yield other, at + 1

    def _after(self, thread: Thread, step: int) -> set[tuple[Thread, int]]:
        """Return every (thread, step) to which a path leads from here."""
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
    """Return the accesses of an event. A copy accesses both memories at each of its ends."""
    if isinstance(event, Access):
        return [event]
    copy = event if isinstance(event, Copy) else event.copy if isinstance(event, Done) else None
    return [access for access in (copy.source, copy.target) if access] if copy else []


def common_bytes(a: Access, b: Access) -> range:
    """Return the bytes that both access."""
    if a.memory != b.memory:
        return range(0)
    return range(max(a.start, b.start), min(a.start + a.size, b.start + b.size))


def conflict(a: Event, b: Event) -> bool:
    """Return whether two accesses would be a race if they were not ordered."""
    whats = {a.access.what, b.access.what}
    one_writes, both_atomic = whats != {"read"}, whats == {"atomic"}
    return a.thread != b.thread and one_writes and not both_atomic and len(common_bytes(a.access, b.access)) > 0


def races(launch: Launch) -> list[tuple[Event, Event]]:
    """Return every pair of accesses that is a race, once, in the order of launch.accesses()."""
    return [(a, b) for a, b in combinations(launch.accesses(), 2) if conflict(a, b) and not launch.ordered(a, b)]


def kind(first: Access, second: Access) -> str:
    """Return the name of a pair if `first` ran first: "write after read", ..."""
    return " after ".join("read" if access.what == "read" else "write" for access in (second, first))


def during(launch: Launch) -> list[tuple[Event, Event, bool]]:
    """Return the accesses to the target of a copy that is in flight.

    Each is (the copy's write, the access, whether this happens in every schedule).
    """
    results = []
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
                results.append((issue, other, always))
    return results
