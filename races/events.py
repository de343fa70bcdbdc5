"""The events of a launch, in the words of the race rule (rule.py): accesses, and what orders
them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
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


# ---- barriers ------------------------------------------------------------------------------------


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


# ---- copies of the generic proxy (cp.async) ------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """The issue of an asynchronous copy, with its own name.

    source: a read, or None if the copy writes zeros. target: a write. completes: the phase of an
    arrival of its thread that waits for it (cp.async.mbarrier.arrive).
    """

    name: Hashable
    source: Access | None
    target: Access
    completes: Phase | None = None


@dataclass(frozen=True)
class Done:
    """The end of a copy: the thread that issued it has waited for it."""

    copy: Copy


# ---- agents of the async proxy (wgmma, bulk copies) ----------------------------------------------


@dataclass(frozen=True)
class Agent:
    """Work of the async proxy beside the threads, with its own name: all its reads happen before
    all its writes.

    One warp's part of a wgmma is an agent, and a bulk copy is one.
    """

    name: Hashable
    reads: tuple[Access, ...] = field(default=(), hash=False)
    writes: tuple[Access, ...] = field(default=(), hash=False)  # or atomics, of a bulk copy that reduces
    completes: Phase | None = None  # the phase in which its complete_tx falls
    bytes: int = 0  # of its complete_tx
    maps: tuple[Access, ...] = field(default=(), hash=False)  # its reads of tensor maps, which are in memory


@dataclass(frozen=True)
class Issue:
    """The issue of an agent by this thread. Several threads may issue an agent together."""

    agent: Agent


@dataclass(frozen=True)
class End:
    """The thread has waited for an agent to end, or only for its reads (wait_group.read)."""

    agent: Agent
    of_reads: bool = False


@dataclass(frozen=True)
class Fence:
    """A fence between the generic and the async proxy (fence.proxy.async).

    memories: those that it covers, if it names a state space.
    """

    memories: frozenset[Hashable] | None = None

    def covers(self, memory: Hashable) -> bool:
        return self.memories is None or memory in self.memories


# ---- tensor maps in memory -----------------------------------------------------------------------


@dataclass(frozen=True)
class MapRelease:
    """fence.proxy.tensormap::generic.release, which tensormap.cp_fenceproxy contains."""


@dataclass(frozen=True)
class MapAcquire:
    """fence.proxy.tensormap::generic.acquire of a tensor map: size bytes from start of a memory."""

    memory: Hashable
    start: int
    size: int = 128

    def covers(self, access: Access) -> bool:
        end = self.start + self.size
        return access.memory == self.memory and self.start <= access.start and access.start + access.size <= end


# ---- mbarriers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """A phase of an mbarrier, from 0: each is over when its arrivals and its bytes are complete.

    The phases of barrier.cluster are those of its Cluster.
    """

    mbarrier: Hashable
    number: int = 0


@dataclass(frozen=True)
class Init:
    """mbarrier.init: each phase expects this number of arrivals."""

    mbarrier: Hashable
    count: int


@dataclass(frozen=True)
class Arrive:
    """mbarrier.arrive or barrier.cluster.arrive in a phase. With .relaxed it does not release.

    wide: with .cluster scope, as barrier.cluster always is.
    """

    phase: Phase
    count: int = 1
    releases: bool = True
    wide: bool = False


@dataclass(frozen=True)
class Expect:
    """expect_tx: the phase is not over before this number of bytes has come."""

    phase: Phase
    bytes: int


@dataclass(frozen=True)
class Wait:
    """A test_wait or try_wait that returned true on a phase, or a barrier.cluster.wait. With
    .relaxed it does not acquire. wide: with .cluster scope.
    """

    phase: Phase
    acquires: bool = True
    wide: bool = False


@dataclass(frozen=True)
class InitFence:
    """fence.mbarrier_init: mbarrier.init comes before the complete_tx of later copies, and before
    what follows a barrier.cluster, even with a relaxed arrival.
    """


# ---- clusters ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """The barrier of a cluster (barrier.cluster), which has phases as an mbarrier has."""

    name: Hashable = 0


@dataclass(frozen=True)
class Publish:
    """fence.acq_rel.cluster: later relaxed arrivals at barrier.cluster release what precedes it."""


@dataclass(frozen=True)
class Return:
    """The end of a thread, for which its block waits before its shared memory is gone."""


AnyEvent = (
    Access | Barrier | Arrival | Copy | Done | Issue | End | Fence | MapRelease | MapAcquire | Init | Arrive | Expect
    | Wait | InitFence | Publish | Return
)  # fmt: skip
