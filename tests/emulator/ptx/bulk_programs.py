"""Random small programs with bulk copies and mbarriers, as programs.py has them without.

Which phase an operation falls in must not depend on the order of threads. So a thread waits for a
phase before it arrives or copies in the next one, and a phase is over only after all threads that
wait for the phase before have done so (Builder).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from flash_attest.races.events import Access, Agent, AnyEvent, Arrive, End, Expect, Fence, Issue, Phase, Thread, Wait
from tests.emulator.ptx.programs import (
    GLOBAL,
    HEADER,
    SHARED,
    Program,
    Step,
    StepAccess,
    block_barrier,
    place,
    some_warps,
    whole_warp,
)

SIZE = 16  # bytes of a bulk copy: all of a memory
COUNTS = {"bar0": 1, "bar1": 2}  # the mbarriers, and the arrivals that their phases expect


@dataclass(frozen=True, repr=False)
class Asynchronous(Step):
    """A step with an mbarrier or a bulk copy."""

    phase: Phase | None = None  # that it arrives in, waits for or completes on
    orders: bool = True  # not .relaxed
    of_reads: bool = False

    def agent(self, n: int) -> Agent:
        """Return the bulk copy."""
        reads = (StepAccess("read", self.source.memory, 0, SIZE, n),)
        writes = (StepAccess(self.access.what, self.access.memory, 0, SIZE, n),)
        return Agent((self.block, self.threads[0], n), reads, writes, self.phase, SIZE)


def arrive(thread: int, phase: Phase, orders: bool = True) -> Asynchronous:
    how = "" if orders else ".relaxed.cta"
    code = f"mbarrier.arrive{how}.shared::cta.b64 _, [{phase.mbarrier}]"
    return Asynchronous(0, (thread,), "arrive", code, phase=phase, orders=orders)


def arrive_behind_copies(thread: int, phase: Phase, counts: bool = True) -> Asynchronous:
    """Return an arrival that waits for the thread's cp.async. counts: it is one that init expects;
    else another one has to be.
    """
    code = f"cp.async.mbarrier.arrive{'.noinc' if counts else ''}.shared::cta.b64 [{phase.mbarrier}]"
    return Asynchronous(0, (thread,), "arrive behind copies", code, phase=phase)


def wait_for(thread: int, phase: Phase, orders: bool = True) -> Asynchronous:
    """Return a loop that waits for a phase. Phase -1 is over from the start."""
    how = "" if orders else ".relaxed.cta"
    code = (
        f"again<n>: mbarrier.try_wait.parity{how}.shared::cta.b64 %done, [{phase.mbarrier}], {phase.number & 1}; "
        "@!%done bra again<n>"
    )
    return Asynchronous(0, (thread,), "wait for phase", code, phase=phase, orders=orders)


def load(thread: int, to: str, since: str, phase: Phase) -> Asynchronous:
    bar = phase.mbarrier
    code = (
        f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{bar}], {SIZE}; cp.async.bulk.shared::cluster.global"
        f".mbarrier::complete_tx::bytes {place(to, 0, False)}, {place(since, 0, False)}, {SIZE}, [{bar}]"
    )
    accesses = Access("write", (to, 0), 0, SIZE), Access("read", (since, None), 0, SIZE)
    return Asynchronous(0, (thread,), "bulk load", code, *accesses, phase=phase)


def store(thread: int, since: str, to: str, adds: bool = False) -> Asynchronous:
    name, end = ("cp.reduce", ".add.f32") if adds else ("cp", "")
    code = (
        f"{name}.async.bulk.global.shared::cta.bulk_group{end} {place(to, 0, False)}, {place(since, 0, False)}, {SIZE}"
    )
    write = Access("atomic" if adds else "write", (to, None), 0, SIZE)
    return Asynchronous(0, (thread,), "bulk store", code, write, Access("read", (since, 0), 0, SIZE))


def commit_bulk(thread: int) -> Asynchronous:
    return Asynchronous(0, (thread,), "commit bulk", "cp.async.bulk.commit_group")


def wait_bulk(thread: int, groups: int, of_reads: bool = False) -> Asynchronous:
    code = f"cp.async.bulk.wait_group{'.read' if of_reads else ''} {groups}"
    return Asynchronous(0, (thread,), "wait bulk", code, groups=groups, of_reads=of_reads)


FENCES = {
    "fence.proxy.async": None,
    "fence.proxy.async.shared::cta": frozenset((name, 0) for name in SHARED),
    "fence.proxy.async.global": frozenset((name, None) for name in GLOBAL),
}


def proxy_fence(thread: int, code: str = "fence.proxy.async") -> Asynchronous:
    return Asynchronous(0, (thread,), "proxy fence", code)


class BulkProgram(Program):
    @property
    def header(self) -> str:
        objects = "".join(f"    .shared .align 8 .b64 {bar};\n" for bar in COUNTS)
        inits = " ".join(f"@%p mbarrier.init.shared::cta.b64 [{bar}], {count};" for bar, count in COUNTS.items())
        return (
            HEADER.replace("sm_80", "sm_90a").replace(".version 8.0", ".version 8.6")
            .replace("%p, %true", "%p, %true, %done").replace("    .shared", objects + "    .shared", 1)
        ) + f"\n    setp.eq.u32 %p, %t, 0; {inits}\n    bar.sync 0;"  # fmt: skip

    def events_of(self, n: int, thread: Thread) -> list[AnyEvent]:
        step = self.steps[n]
        if step.kind in ("arrive", "arrive behind copies"):
            return [Arrive(step.phase, releases=step.orders)]
        if step.kind == "wait for phase":
            return [Wait(step.phase, step.orders)] if step.phase.number >= 0 else []
        if step.kind == "bulk load":
            return [Expect(step.phase, SIZE), Issue(step.agent(n))]
        if step.kind == "bulk store":
            return [Issue(step.agent(n))]
        if step.kind == "wait bulk":
            return [End(self.steps[m].agent(m), step.of_reads) for m in self.stored(n)]
        if step.kind == "proxy fence":
            return [Fence(FENCES[step.code])]
        return []

    def completes(self, n: int) -> Phase | None:
        """Return the phase of the first arrival behind the copy of step n while it is under way."""
        own = [step for step in self.steps[n:] if step.threads == self.steps[n].threads]
        behind = 0  # groups committed
        for step in own:
            behind += step.kind == "commit"
            if step.kind == "arrive behind copies":
                return step.phase
            if step.kind == "wait" and (step.groups < 0 or behind > step.groups):
                return None
        return None

    def stored(self, n: int) -> list[int]:
        """Return the stores that this wait waits for: those in groups but the last ones."""
        groups = [[]]
        for m, step in enumerate(self.steps[:n]):
            if step.threads != self.steps[n].threads:
                continue
            if step.kind == "bulk store":
                groups[-1].append(m)
            if step.kind == "commit bulk":
                groups.append([])
        return [m for group in groups[: max(len(groups) - 1 - self.steps[n].groups, 0)] for m in group]

    def _add_guarded(self, add, n: int) -> None:
        step = self.steps[n]
        if step.kind not in ("wait for phase", "bulk load"):
            return super()._add_guarded(add, n)
        add(f"    setp.eq.u32 %p, %me, {step.threads[0]};")
        add(f"    @!%p bra after{n};")
        add(f"    {step.code.replace('<n>', str(n))};", n)
        add(f"after{n}:")

    def text(self) -> tuple[str, dict[int, int]]:
        text, steps = super().text()
        lines = text.splitlines()
        for line, n in steps.items():
            lines[line - 1] = lines[line - 1].replace("<n>", str(n))
        return "\n".join(lines) + "\n", steps


class Builder:
    """Adds steps so that each operation on an mbarrier falls in one phase, in any order of threads.

    time: for each thread, what comes before its next step in time: waits, copies, and phases that
    are over.
    """

    def __init__(self, size: int, threads: list[int]):
        self.size, self.steps = size, []
        self.time: dict[int, set] = {thread: set() for thread in threads}
        self.number = dict.fromkeys(COUNTS, 0)  # of the current phase
        self.pending = dict(COUNTS)
        self.of_phase: dict[Phase, set] = defaultdict(set)  # what comes before its end in time
        self.before_end: dict[str, set] = defaultdict(set)  # what has to come before an arrival of the current phase

    def over(self, bar: str) -> Phase:
        """Return the last phase that is over."""
        return Phase(bar, self.number[bar] - 1)

    def add(self, step: Step) -> None:
        self.steps.append(step)
        if step.kind in ("warps", "lanes"):
            met = [thread for thread in step.threads if thread in self.time]
            joined = set().union(*(self.time[thread] for thread in met))
            for thread in met:
                self.time[thread] |= joined

    def barrier(self) -> None:
        self.add(block_barrier(0, "bar.sync 0", self.size))

    def enter(self, thread: int, bar: str) -> None:
        """Let the thread be in the current phase: the one before is over."""
        if self.number[bar] and self.over(bar) not in self.time[thread]:
            self.wait(thread, bar)

    def wait(self, thread: int, bar: str, orders: bool = True) -> None:
        phase = self.over(bar)
        # With its parity alone, a wait could take an earlier phase for this one.
        if phase.number > 0 and Phase(bar, phase.number - 1) not in self.time[thread]:
            self.barrier()
        token = ("wait", len(self.steps))
        self.add(wait_for(thread, phase, orders))
        self.time[thread] |= {token, phase} | self.of_phase[phase]
        self.before_end[bar].add(token)

    def arrive(self, thread: int, bar: str, orders: bool = True, behind_copies: bool = False) -> None:
        self.enter(thread, bar)
        if self.pending[bar] == 1 and not self.before_end[bar] <= self.time[thread]:
            self.barrier()
        phase = Phase(bar, self.number[bar])
        self.add(arrive_behind_copies(thread, phase) if behind_copies else arrive(thread, phase, orders))
        self.of_phase[phase] |= self.time[thread]
        self.before_end[bar] -= self.time[thread]
        self.pending[bar] -= 1
        if not self.pending[bar]:
            self.number[bar] += 1
            self.pending[bar] = COUNTS[bar]
            self.before_end[bar].clear()

    def load(self, thread: int, to: str, since: str, bar: str) -> None:
        self.loads(thread, bar, lambda phase: load(thread, to, since, phase))

    def loads(self, thread: int, bar: str, step: Callable[[Phase], Step]) -> None:
        self.enter(thread, bar)
        token = ("load", len(self.steps))
        self.add(step(Phase(bar, self.number[bar])))
        self.time[thread].add(token)
        self.of_phase[Phase(bar, self.number[bar])] |= self.time[thread]
        self.before_end[bar].add(token)

    def join(self, threads: list[int], wide: bool) -> None:
        """Add a barrier of the warps of these threads, or of the block."""
        warps = sorted({thread // 32 for thread in threads})
        if wide:
            self.barrier()
        elif len(warps) == 1:
            self.add(whole_warp(0, warps[0], self.size))
        else:
            self.add(some_warps(0, warps, (), self.size))
