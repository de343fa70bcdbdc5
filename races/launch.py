"""The graph of a launch's events, in which the race rule (rule.py) looks for paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from flash_attest.races.events import (
    Access,
    Agent,
    AnyEvent,
    Arrival,
    Arrive,
    Barrier,
    Cluster,
    Copy,
    Done,
    End,
    Fence,
    Issue,
    MapAcquire,
    MapRelease,
    Phase,
    Publish,
    Thread,
    Wait,
)


class Event(NamedTuple):
    """An access with its thread and its number among the events of that thread.

    The reads of an agent are its event 0, the writes its event 1. of_map: it reads its tensor map.
    """

    thread: Thread | Agent
    step: int
    access: Access
    of_map: bool = False

    @property
    def point(self) -> Point:
        return self.thread, self.step

    @property
    def is_async(self) -> bool:
        """Return whether the async proxy makes the access."""
        return isinstance(self.thread, Agent)


Point = tuple[Thread | Agent, int]  # an event: its thread and its number


class Launch:
    """One execution of one launch: the events of each thread, in program order."""

    def __init__(self, threads: Mapping[Thread, Sequence[AnyEvent]]):
        """Check the events. Raises ValueError for an impossible launch.

        A launch is impossible if a barrier or an agent joins two blocks, occurs twice in a thread
        or happens before itself, if a copy has no end, or if a thread waits for an agent or a phase
        before it can end.
        """
        self.threads = {thread: tuple(events) for thread, events in threads.items()}
        # Points are numbered, because a number is found in a dict much sooner than an agent.
        self._numbers: dict[Point, int] = {}
        self._points: list[Point] = []
        self._known: dict[tuple[int, Hashable, bool, bool], dict[int, bool]] = {}
        self._steps: dict[tuple[bool, bool], dict[int, list[tuple[int, Agent | None]]]] = {}
        self._fenced: dict[Hashable, set[int]] = {}
        # Threads with their steps: that wait at a barrier, that issue an agent, that wait for an
        # agent's event 0 (its reads) or 1 (its writes).
        self.waiting: dict[Barrier, list[Point]] = defaultdict(list)
        self.issues: dict[Agent, list[Point]] = defaultdict(list)
        self.ends: dict[Point, list[Point]] = defaultdict(list)
        self.fences: dict[Point, Fence] = {}
        self.map_releases: list[Point] = []
        self.map_acquires: dict[Point, MapAcquire] = {}
        self.waits: dict[Phase, list[Point]] = defaultdict(list)
        self.arrivals: dict[Phase, list[Point]] = defaultdict(list)  # and where copies are issued that complete on it
        joined: dict[Barrier | Agent, list[Thread]] = defaultdict(list)
        for thread, events in self.threads.items():
            for step, event in enumerate(events):
                if isinstance(event, Barrier):
                    self.waiting[event].append((thread, step))
                    joined[event].append(thread)
                elif isinstance(event, Arrival):
                    joined[event.at].append(thread)
                elif isinstance(event, Issue):
                    self.issues[event.agent].append((thread, step))
                    joined[event.agent].append(thread)
                    if event.agent.completes:
                        self.arrivals[event.agent.completes].append((thread, step))
                elif isinstance(event, End):
                    self.ends[event.agent, 0 if event.of_reads else 1].append((thread, step))
                elif isinstance(event, Wait):
                    self.waits[event.phase].append((thread, step))
                elif isinstance(event, Arrive):
                    self.arrivals[event.phase].append((thread, step))
                elif isinstance(event, Fence):
                    self.fences[thread, step] = event
                elif isinstance(event, MapRelease):
                    self.map_releases.append((thread, step))
                elif isinstance(event, MapAcquire):
                    self.map_acquires[thread, step] = event
                elif isinstance(event, Copy) and Done(event) not in events[step:]:
                    raise ValueError(f"{event} of {thread} has no end")
        self._partial = any(fence.memories is not None for fence in self.fences.values())
        self._check(joined)

    def _check(self, joined: Mapping[Barrier | Agent, Sequence[Thread]]) -> None:
        for what, here in joined.items():
            if len({thread.block for thread in here}) > 1:
                raise ValueError(f"{what} joins threads of two blocks: {here}")
            if len(set(here)) < len(here):
                raise ValueError(f"{what} comes twice in a thread: {here}")
        for (agent, _), points in self.ends.items():
            if agent not in self.issues or self._in_time(points, self.issues[agent]):
                raise ValueError(f"{agent} ends before it is issued: {points}")
        for phase, points in self.waits.items():
            if self._in_time(points, self.arrivals.get(phase, ())):
                raise ValueError(f"{phase} is waited for before it can be over: {points}")
        for what, points in [*self.waiting.items(), *self.issues.items()]:
            # From each that waits at a barrier, a path leads to what the others do next.
            if self._in_time(points[:1] if isinstance(what, Barrier) else points, points):
                raise ValueError(f"{what} comes after itself, so its threads wait forever: {points}")

    def _in_time(self, first: Sequence[Point], second: Sequence[Point]) -> bool:
        """Return whether one of the first points has to come before one of the second."""
        later = {self._number(point) for point in second}
        return not all(later.isdisjoint(self._after(start, in_time=True)) for start in first)

    def accesses(self) -> list[Event]:
        parts = [(agent, (agent.reads, agent.writes)) for agent in self.issues]
        every = [(thread, [accesses_of(event) for event in events]) for thread, events in self.threads.items()]
        return [
            Event(who, step, access) for who, events in every + parts for step, of in enumerate(events) for access in of
        ] + [Event(agent, 0, access, True) for agent in self.issues for access in agent.maps]

    def overwrites(self) -> list[Event]:
        """Return the writes of agents, without those that add."""
        return [Event(agent, 1, access) for agent in self.issues for access in agent.writes if access.what == "write"]

    def before(self, a: Event, b: Event) -> bool:
        wide = a.access.what != "read" and not a.is_async
        if b.of_map:
            return self._published(a, b, wide)
        fenced = self._after(a.point, a.access.memory if self._partial else None, wide=wide).get(self._number(b.point))
        return fenced is not None and (fenced or a.is_async == b.is_async)

    def _published(self, a: Event, b: Event, wide: bool) -> bool:
        """Return whether a path leads from a to the read of a tensor map, by a release and then an
        acquire of this map.
        """
        released = [release for release in self.map_releases if self._leads(a.point, release, wide)]
        return any(
            self._leads(release, acquire, wide) and self._leads(acquire, b.point, wide)
            for acquire, of in self.map_acquires.items() if of.covers(b.access) for release in released
        )  # fmt: skip

    def ordered(self, a: Event, b: Event) -> bool:
        return self.before(a, b) or self.before(b, a)

    def path(self, a: Point, b: Point) -> bool:
        """Return whether a path leads from a to b, with or without a proxy fence."""
        return self._leads(a, b)

    def _leads(self, a: Point, b: Point, wide: bool = False) -> bool:
        return self._number(b) in self._after(a, wide=wide)

    def _number(self, point: Point) -> int:
        """Return the number of a point, a new one if it has none."""
        number = self._numbers.setdefault(point, len(self._points))
        if number == len(self._points):
            self._points.append(point)
        return number

    def _next(self, point: Point, in_time: bool, wide: bool) -> list[Point]:
        """Return the next points on a path: in this thread, in all that wait at a barrier, for an
        agent or for a phase, and in an agent that is issued.

        wide: without steps between two blocks that do not have the scope of the cluster.
        """
        thread, step = point
        if isinstance(thread, Agent):
            behind = [*self.ends.get(point, ()), *(self._waits(thread.completes, in_time) if step else ())]
            return [(thread, 1)] * (step == 0) + self._behind(behind)
        event, behind = self.threads[thread][step], [point]
        if isinstance(event, (Barrier, Arrival)):
            behind += self.waiting.get(event.at if isinstance(event, Arrival) else event, ())
        elif isinstance(event, Arrive) and (event.releases or in_time):
            waits = self._waits(event.phase, in_time)
            behind += [other for other in waits if not wide or in_time or self._is_wide(point, other)]
        elif isinstance(event, Publish):
            later = (arrive for arrive in self.threads[thread][step:] if isinstance(arrive, Arrive))
            behind += [
                other for arrive in later if isinstance(arrive.phase.mbarrier, Cluster)
                for other in self._waits(arrive.phase, in_time)
            ]  # fmt: skip
        return [(event.agent, 0), *self._behind(behind)] if isinstance(event, Issue) else self._behind(behind)

    def _is_wide(self, arrive: Point, wait: Point) -> bool:
        """Return whether a wait sees what came before an arrival: in one block, or with .cluster
        scope on both.
        """
        both = all(self.threads[thread][step].wide for thread, step in (arrive, wait))
        return both or arrive[0].block == wait[0].block

    def over_at(self, copy: Copy) -> list[Point]:
        """Return the waits after which a copy is over, because an arrival has waited for it."""
        return self._waits(copy.completes, in_time=False)

    def _waits(self, phase: Phase | None, in_time: bool) -> list[Point]:
        points = self.waits.get(phase, ()) if phase else ()
        return [(thread, step) for thread, step in points if in_time or self.threads[thread][step].acquires]

    def _behind(self, points: Iterable[Point]) -> list[Point]:
        return [(thread, step + 1) for thread, step in points if step + 1 < len(self.threads[thread])]

    def _after(
        self, start: Point, memory: Hashable = None, in_time: bool = False, wide: bool = False
    ) -> dict[int, bool]:
        """Return the number of every point to which a path leads from here, and whether one of
        these paths passes a proxy fence for that memory.

        in_time: paths pass through agents and relaxed operations, too. That is the order in time.
        """
        key = self._number(start), memory, in_time and bool(self.issues or self.waits), wide and bool(self.waits)
        if key in self._known:
            return self._known[key]
        steps, fences = self._steps.setdefault((in_time, wide), {}), self._fences_for(memory)
        reached: dict[int, bool] = {}
        todo = [(key[0], False)]
        while todo:
            point, fenced = todo.pop()
            fenced = fenced or point in fences
            if point not in steps:
                steps[point] = self._steps_from(self._points[point], in_time, wide)
            for new, agent in steps[point]:
                if agent is not None and agent != start[0] and not in_time:
                    continue
                passed = fenced or agent is not None
                if new not in reached or passed > reached[new]:
                    reached[new] = passed
                    todo.append((new, passed))
        self._known[key] = reached
        return reached

    def _steps_from(self, point: Point, in_time: bool, wide: bool) -> list[tuple[int, Agent | None]]:
        """Return the numbers of the next points, each with the agent that the step leaves, if it
        leaves one.
        """
        agent = point[0] if point[0] in self.issues else None
        return [(self._number(new), agent if new[0] != point[0] else None) for new in self._next(point, in_time, wide)]

    def _fences_for(self, memory: Hashable) -> set[int]:
        """Return the numbers of the proxy fences that cover this memory."""
        if memory not in self._fenced:
            self._fenced[memory] = {self._number(at) for at, fence in self.fences.items() if fence.covers(memory)}
        return self._fenced[memory]


def accesses_of(event: AnyEvent) -> list[Access]:
    """Return the accesses of a thread's event. A copy accesses both memories at each of its ends,
    but one that an arrival waits for only at its issue: it may be over before its thread waits.
    """
    if isinstance(event, Access):
        return [event]
    if isinstance(event, Done) and event.copy.completes:
        return []
    copy = event if isinstance(event, Copy) else event.copy if isinstance(event, Done) else None
    return [access for access in (copy.source, copy.target) if access] if copy else []
