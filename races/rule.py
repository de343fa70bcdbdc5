"""The definition of a race, for every detector, and a brute-force checker that tests detectors.

Two accesses of one launch are a race if

    they access a common byte (their sizes may differ),
    different threads make them (an agent is a thread, see below),
    at least one writes (an atomic operation writes, even a compare-and-swap that fails),
    not both are atomic, and
    neither happens before the other.

`a` happens before `b` if a path leads from a to b. A path has these kinds of steps:

    along a thread, from each event to the next (program order)
    at a barrier, from any thread at it to each thread that waits: everything that the former did
      before the barrier happens before everything that the latter does after it
    from a thread that issues an agent to the agent, and from an agent to each thread that waits
      for its end
    from a thread that arrives at an mbarrier, and from a copy that completes on it, to each thread
      that waits for the same phase

There are no other steps. This has consequences:

- Order is transitive. Take a barrier of lanes 0 and 1, then one of lanes 1 and 2: everything that
  lane 0 did before the first happens before everything that lane 2 does after the second. With the
  barriers in the opposite order it does not.
- Two blocks are not ordered, because no barrier joins threads of two blocks, unless they are in one
  cluster (see below).
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

cp.async.mbarrier.arrive is an arrival (see below) that comes when the earlier copies of its thread
have ended. So it releases them with what the thread has done before it. What comes after a wait for
its phase comes after these copies, and they are over there, in their own thread, too. Before such a
wait they are under way, however long ago the thread executed the instruction.

An agent is work that the async proxy does beside the threads: a bulk copy, or one warp's part of a
wgmma. It is a thread of its own, with two events: all its reads, then all its writes. What a thread
did before it issued the agent happens before the agent, and the agent happens before what a thread
does after it has waited for the agent's end. For a wgmma all lanes of the warp issue and wait. A
wait for the reads alone (wait_group.read) orders the reads alone. Every access has a proxy: async
if an agent makes it, otherwise generic. That includes cp.async and ldmatrix. If two accesses have
different proxies, the path between them counts only if

    it passes a proxy fence (fence.proxy.async) for the memory that they access, or
    it begins in an agent and leaves it by its end, which contains a fence.

For agents this means:

- The fence may stand before a barrier or after it, in any thread on the path. A fence of a thread
  beside the path, a fence before the first access, or one after the issue does not count.
- A thread and the agent that it issues are two threads. What the thread wrote before, without a
  fence, is a race, and so is what it writes before the end.
- No path passes through an agent. Its end does not order what its issuers did before, or what
  other agents do. And the fence in its end is one for its own accesses only.
- But at a byte that an agent overwrites, all that comes before the agent's write comes before all
  that comes after it. A read that cannot see the agent's value cannot see a later one, and a write
  before the agent's is not seen after it (`unordered_bytes`). What adds to a byte does not
  overwrite it.
- Two agents have one proxy: wgmma reads what a bulk copy wrote if a path leads to it, without a
  fence.
- wgmma.fence orders registers only, so it is not among the events.

A tensor map that lies in memory is read by the bulk copy that uses it, with its other reads, in a
third proxy. What has written the map before comes before the copy only if the path passes a release
(fence.proxy.tensormap::generic.release) and behind it an acquire of this map (fence...acquire), in
any threads. Neither a proxy fence of the async proxy nor the end of an agent replaces them. What
overwrites the map after the copy's reads have been waited for needs neither.

- tensormap.replace reads and writes the whole map, as its thread.
- tensormap.cp_fenceproxy is executed by a warp together, so its copy comes after what all lanes did
  before, and before what they do next. The manual does not say so, and Triton relies on it: one
  lane changes the map, and the warp copies it. A release is at its end.

An mbarrier orders phase by phase. An arrival (with .release) happens before each wait (with
.acquire) that returned true on the phase of the arrival, and a bulk copy happens before each wait
that returned true on the phase in which its complete_tx falls. That is the copy's end, with the
fence in it.

- A wait for one phase orders nothing of another phase, even of the same parity. It may be legal to
  wait with the wrong parity; what it leaves unordered is a race.
- .relaxed orders nothing, and neither does expect_tx.
- An arrival releases what its own thread did, and not what other lanes of the warp did.
- complete_tx orders its copy and nothing else: neither what the issuing thread did before, nor
  another copy of the same thread.
- A stage is free when its readers have arrived, and a wait for that arrival comes before the next
  copy into it. For readers of the generic proxy, a proxy fence has to be on that path.

`misuses` of mbarriers.py has what else is undefined about mbarriers.

The threads of a cluster of blocks have barrier.cluster, whose phases order as those of an mbarrier:
an arrival happens before each wait for the same phase. A thread may arrive at the mbarrier of
another block, but only threads of its own block wait there. Scopes count between two blocks:

- An arrival and a wait of two blocks order what the former has written only if both have .cluster
  scope. barrier.cluster has it. Without a scope it is .cta, and the written value need not be seen
  in the other block.
- What the former has read they order with any scope: the value has been returned before the
  arrival, and a read publishes nothing. By the letter of the manual this is not ordered either, but
  each pipeline of CUTLASS with multicast hands stages back like that.
- What an agent has written they order with any scope, too, because the fence in its end is there.
- .relaxed orders nothing. But what precedes a fence (fence.acq_rel.cluster: Publish) happens before
  what follows the wait, if the thread then arrives at barrier.cluster with .relaxed.
- A copy to several blocks (multicast) is an agent for each of them, which completes on an mbarrier
  of its block. A wait in one block says nothing about the others.

`outlived` of lifetimes.py has the uses of a block's shared memory that may come after its end.

An access in conflict with one of an agent, after its issue and not after its end, is a race, and
`during` has it, too (ASYNC): in this case something is missing between the access and the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from flash_attest.races.events import Access, Agent, AnyEvent, Arrive, Copy, Done, Phase
from flash_attest.races.launch import Event, Launch


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
    return [(a, b) for a, b in combinations(launch.accesses(), 2) if conflict(a, b) and unordered_bytes(launch, a, b)]


def unordered_bytes(launch: Launch, a: Event, b: Event) -> list[int]:
    """Return the bytes that both access and at which neither access happens before the other."""
    if launch.ordered(a, b):
        return []
    common = common_bytes(a.access, b.access)
    over = [w for w in launch.overwrites() if w not in (a, b) and common_bytes(w.access, a.access)]
    return [
        byte
        for byte in common
        if not any(
            _through(launch, *pair, [w for w in over if byte in common_bytes(w.access, a.access)])
            for pair in ((a, b), (b, a))
        )
    ]


def _through(launch: Launch, a: Event, b: Event, over: Sequence[Event]) -> bool:
    """Return whether a happens before b because some of these writes of agents come between."""
    return any(
        launch.before(a, w) and (launch.before(w, b) or _through(launch, w, b, [v for v in over if v != w]))
        for w in over
    )


def lacks_fence(launch: Launch, a: Event, b: Event) -> bool:
    """Return whether two accesses are a race only because their path passes no proxy fence."""
    return not launch.ordered(a, b) and (launch.path(a.point, b.point) or launch.path(b.point, a.point))


def kind(first: Access, second: Access) -> str:
    """Return the name of a pair if `first` ran first: "write after read", ..."""
    return " after ".join("read" if access.what == "read" else "write" for access in (second, first))


def during(launch: Launch) -> list[tuple[Event, Event, bool]]:
    """Return the accesses to the target of a copy that is in flight, and the accesses in conflict
    with an agent's that is at work.

    Each is (the copy's write or the agent's access, the access, whether this happens in every
    schedule).
    """
    return [*during_copies(launch), *during_agents(launch)]


def during_copies(launch: Launch) -> Iterator[tuple[Event, Event, bool]]:
    for thread, events in launch.threads.items():
        for step, copy in enumerate(events):
            if not isinstance(copy, Copy):
                continue
            issue = Event(thread, step, copy.target)
            done = thread, events.index(Done(copy))
            ends, arrival = [done, *launch.over_at(copy)], None
            if copy.completes:  # it may be over from the arrival on
                arrival = thread, next(n for n in range(step, len(events)) if is_arrival(events[n], copy.completes))
            for other in launch.accesses():
                if other.point in (issue.point, done) or not common_bytes(copy.target, other.access):
                    continue
                if launch.path(other.point, issue.point) or any(launch.path(end, other.point) for end in ends):
                    continue
                always = launch.path(issue.point, other.point) and (
                    launch.path(other.point, arrival or done) or (other.thread == thread and not arrival)
                )
                yield issue, other, always


def is_arrival(event: AnyEvent, phase: Phase) -> bool:
    return isinstance(event, Arrive) and event.phase == phase


def during_agents(launch: Launch) -> Iterator[tuple[Event, Event, bool]]:
    every = launch.accesses()
    for own in every:
        if not isinstance(own.thread, Agent):
            continue
        ends = [end for part in range(own.step, 2) for end in launch.ends.get((own.thread, part), ())]
        for other in every:
            if not conflict(own, other) or launch.path(own.point, other.point):
                continue
            issued = any(launch.path(issue, other.point) for issue in launch.issues[own.thread])
            if issued and unordered_bytes(launch, own, other):
                yield own, other, not ends or any(launch.path(other.point, end) for end in ends)
