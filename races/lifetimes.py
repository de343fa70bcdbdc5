"""The shared memory of a block lasts until its last thread has ended.

In a cluster, other blocks use it, and each use has to come before that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from flash_attest.races.events import Agent, Arrive, Return
from flash_attest.races.launch import Launch, Point, accesses_of


def outlived(launch: Launch, owner: Callable[[Hashable], Hashable]) -> list[tuple[Point, Hashable]]:
    """Return each use of shared memory by a thread of another block, or by an agent, that is not
    ordered before the end of the block, with the block.

    owner: the block of a memory or an mbarrier; None if it belongs to none. A use is ordered if a
    path leads from it to the Return of some thread of the block, because that thread is still
    there. Arrivals with .relaxed and expect_tx, which no path leaves, are not among the uses.
    """
    ends = [(thread, step) for thread, events in launch.threads.items() for step, event in enumerate(events)
            if isinstance(event, Return)]  # fmt: skip
    return [
        (point, block)
        for point, block in _uses(launch, owner)
        if not any(thread.block == block and launch.path(point, (thread, step)) for thread, step in ends)
    ]


def _uses(launch: Launch, owner: Callable[[Hashable], Hashable]) -> Iterator[tuple[Point, Hashable]]:
    for thread, events in launch.threads.items():
        for step, event in enumerate(events):
            used = [owner(access.memory) for access in accesses_of(event)]
            if isinstance(event, Arrive) and event.releases:
                used.append(owner(event.phase.mbarrier))
            yield from (((thread, step), block) for block in used if block not in (None, thread.block))
    for agent in launch.issues:
        used = {owner(access.memory) for access in (*agent.reads, *agent.writes)} - {None}
        yield from (((agent, 1), block) for block in used if _completes_elsewhere(agent))


def _completes_elsewhere(agent: Agent) -> bool:
    """Return whether an agent works beside the threads of the block, as a copy that completes on an
    mbarrier does. One that its thread waits for by group is the thread's.
    """
    return agent.completes is not None
