"""Random small programs, as PTX text and as a launch for the race rule.

A program is one sequence of steps, and each thread executes its part of the sequence, so no program
deadlocks. Each step has separate lines, so a finding identifies the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from flash_attest.races.events import Access, AnyEvent, Arrival, Barrier, Copy, Done, Phase, Thread
from flash_attest.races.launch import Launch

GLOBAL = ("g0", "g1", "g2", "g3")
SHARED = ("s0", "s1", "s2")
DYNAMIC = "dynamic shared memory"  # its name in findings; in PTX it is `more`
MEMORIES = (*GLOBAL, *SHARED, DYNAMIC)
BYTES = 16  # bytes of each
THREADS = 72  # threads of a block: two whole warps, and one of 8 lanes
SHAPES = [(72, 1, 1), (8, 9, 1), (6, 4, 3)]
# The active threads of each warp. The others take part only in barriers of whole warps, so the rule
# sees one of them for each warp.
WARPS = ((0, 1, 2, 31), (32, 33, 63), (64, 65, 71))
IDLE = (3, 34, 66)
SEEN = tuple(sorted((*sum(WARPS, ()), *IDLE)))


@dataclass(frozen=True)
class StepAccess(Access):
    step: int = field(default=-1, compare=False)  # its number in the program


@dataclass(frozen=True)
class Step:
    """One instruction of each of these threads of a block, except the threads that have returned.

    kind: access, copy, commit, wait, lanes (a barrier of lanes), exchange (a warp operation),
    fence, leave, warps (a barrier of whole warps: `threads` wait at it, the threads of the warps in
    `arriving` only arrive). code: PTX, with {id} for the number of a barrier.
    """

    block: int
    threads: tuple[int, ...]
    kind: str
    code: str
    access: Access | None = None  # for a copy: its target
    source: Access | None = None
    warps: tuple[int, ...] = ()
    arriving: tuple[int, ...] = ()
    groups: int = 0  # groups that `wait` leaves pending

    @property
    def accesses(self) -> list[Access]:
        return [access for access in (self.source, self.access) if access]

    def __repr__(self):
        first, last = self.threads[0], self.threads[-1]
        who = f"{first} to {last}" if len(self.threads) > 8 else " ".join(map(str, self.threads))
        return f"block {self.block}, {who}: {self.code}"


def place(memory: str, start: int, generic: bool) -> str:
    """Return an address in a memory, either in its space or generic."""
    if memory in GLOBAL:
        return f"[%{memory}+{start}]"
    name = "more" if memory == DYNAMIC else memory
    return f"[%{name}+{start}]" if generic else f"[{name}+{start}]"


READS = {1: "u8 %w", 2: "b16 %h", 4: "b32 %w", 8: "b64 %d", 16: "v4.b32 {%w, %x, %y, %z}"}
WRITES = {1: "u8 {}, %w", 2: "b16 {}, %h", 4: "b32 {}, %w", 8: "v2.b32 {}, {{%w, %x}}", 16: "v2.b64 {}, {{%d, %e}}"}
ATOMICS = {
    2: ["atom{}.cas.b16 %h, {}, %h, %h", "atom{}.add.noftz.f16 %h, {}, %h"],
    4: ["atom{}.add.u32 %w, {}, 1", "red{}.max.s32 {}, 7"],
    8: ["atom{}.exch.b64 %d, {}, %e", "atom{}.cas.b64 %d, {}, %d, %e"],
}


def touch(block: int, thread: int, kind: tuple[str, int], memory: str, start: int, generic: bool) -> Step:
    what, size = kind
    start = start // size * size
    is_global = memory in GLOBAL
    space, at = "" if generic else ".global" if is_global else ".shared", place(memory, start, generic)
    if what == "atomic":
        code = ATOMICS[size][start // size % 2].format(space, at)
    elif what == "read":
        code = f"ld{space}.{READS[size]}, {at}"
    else:
        code = f"st{space}.{WRITES[size].format(at)}"
    access = StepAccess(what, (memory, None if is_global else block), start, size)
    return Step(block, (thread,), "access", code, access)


def copy(block: int, thread: int, size: int, memories: tuple[str, str], starts: tuple[int, int], form: int) -> Step:
    """Return a cp.async.

    form: 0 copies all bytes. 1 and 2 have the number of bytes to copy. 3 and 4 have the predicate
    to copy none.
    """
    (to, source), (at, since) = memories, (start // size * size for start in starts)
    copied = {0: size, 1: size // 2, 2: 0, 3: size, 4: 0}[form]
    more = {0: "", 1: f", {size // 2}", 2: ", 0", 3: ", !%true", 4: ", %true"}[form]
    how = "cg" if size == 16 and form % 2 else "ca"
    code = f"cp.async.{how}.shared.global {place(to, at, False)}, {place(source, since, False)}, {size}{more}"
    return Step(
        block, (thread,), "copy", code, StepAccess("write", (to, block), at, size),
        StepAccess("read", (source, None), since, copied) if copied else None,
    )  # fmt: skip


def commit(block: int, thread: int) -> Step:
    return Step(block, (thread,), "commit", "cp.async.commit_group")


def wait(block: int, thread: int, groups: int) -> Step:
    """Return a wait. groups: -1 for wait_all."""
    code = "cp.async.wait_all" if groups < 0 else f"cp.async.wait_group {groups}"
    return Step(block, (thread,), "wait", code, groups=groups)


def lanes_barrier(block: int, lanes: Sequence[int]) -> Step:
    return Step(block, tuple(lanes), "lanes", f"bar.warp.sync {bits(lanes)}")


EXCHANGES = [
    "shfl.sync.idx.b32 %w, %w, 0, 31, {}", "vote.sync.ballot.b32 %w, %true, {}", "match.any.sync.b32 %w, %x, {}",
    "redux.sync.add.u32 %w, %x, {}",
]  # fmt: skip


def exchange(block: int, lanes: Sequence[int], form: int = 0) -> Step:
    return Step(block, tuple(lanes), "exchange", EXCHANGES[form].format(bits(lanes)))


def fence(block: int, thread: int) -> Step:
    return Step(block, (thread,), "fence", "membar.gl")


def leave(block: int, thread: int) -> Step:
    return Step(block, (thread,), "leave", "ret" if thread % 2 else "exit")


EVERYBODY = [
    "bar.sync 0", "bar.sync 1", "barrier.sync 0", f"bar.sync 2, {96}", "bar.red.popc.u32 %w, 0, %true",
    "bar.red.and.pred %p, 0, %true",
]  # fmt: skip


def block_barrier(block: int, form: str = EVERYBODY[0], size: int = THREADS) -> Step:
    return Step(block, tuple(range(size)), "warps", form, warps=tuple(range((size + 31) // 32)))


def whole_warp(block: int, warp: int, size: int = THREADS) -> Step:
    return Step(block, threads_of(warp, size), "warps", "bar.warp.sync -1", warps=(warp,))


def some_warps(block: int, waiting: Sequence[int], arriving: Sequence[int] = (), size: int = THREADS) -> Step:
    """Return a named barrier of some warps. PTX counts every warp as 32 threads."""
    threads = sum((threads_of(warp, size) for warp in waiting), ())
    count = 32 * (len(waiting) + len(arriving))
    return Step(block, threads, "warps", f"bar.sync {{id}}, {count}", warps=tuple(waiting), arriving=tuple(arriving))


def threads_of(warp: int, size: int = THREADS) -> tuple[int, ...]:
    return tuple(range(32 * warp, min(32 * warp + 32, size)))


def bits(lanes: Sequence[int]) -> int:
    return sum(1 << lane % 32 for lane in lanes)


class Program:
    """A sequence of steps. None stands for an absent step.

    sections: between barriers of whole warps, each thread has a separate stretch of code, which it
    enters by a branch; otherwise all steps are in one sequence, each under its predicate.
    """

    shared = BYTES  # bytes of dynamic shared memory
    names, sizes = GLOBAL, (BYTES,) * len(GLOBAL)  # of its tensors, and their bytes
    collective = ("warps",)  # kinds of steps that whole warps execute together

    @property
    def header(self) -> str:
        return HEADER

    @property
    def seen(self) -> tuple[int, ...]:
        return SEEN

    def __init__(self, shape: tuple[int, int, int], steps: Sequence[Step | None], sections: bool = False):
        self.shape, self.sections, self.size = shape, sections, prod(shape)
        self.steps = numbered((step for step in steps if step), self.size)
        self.blocks = 1 + max((step.block for step in self.steps), default=0)

    def __repr__(self):
        lines = [f"{self.blocks} x {self.shape} threads{', sections' if self.sections else ''}", *map(str, self.steps)]
        return "\n    ".join(lines)

    # ---- for the rule ----------------------------------------------------------------------------

    def launch(self) -> Launch:
        events = {Thread(b, t): [] for b in range(self.blocks) for t in self.seen}
        under_way: dict[Thread, list[tuple[int, Copy]]] = defaultdict(list)  # with the number of its group
        groups: dict[Thread, int] = defaultdict(int)
        gone = set()

        # The copies in groups before this one are complete.
        def finish(thread: Thread, before: int | float) -> None:
            events[thread] += [Done(copied) for group, copied in under_way[thread] if group < before]
            under_way[thread] = [(group, copied) for group, copied in under_way[thread] if group >= before]

        for n, step in enumerate(self.steps):
            arriving = sum((threads_of(warp, self.size) for warp in step.arriving), ())
            for index in sorted({*step.threads, *arriving} & {*self.seen}):
                thread = Thread(step.block, index)
                if step.kind in ("lanes", "warps"):
                    arrives = thread in gone or index not in step.threads
                    events[thread].append(Arrival(Barrier(n)) if arrives else Barrier(n))
                if thread in gone:
                    continue
                if step.kind == "access":
                    events[thread].append(replace(step.access, step=n))
                if step.kind == "copy":
                    source = step.source and replace(step.source, step=n)
                    copied = Copy(n, source, replace(step.access, step=n), self.completes(n))
                    events[thread].append(copied)
                    under_way[thread].append((groups[thread], copied))
                if step.kind == "commit":
                    groups[thread] += 1
                if step.kind == "wait":
                    finish(thread, float("inf") if step.groups < 0 else groups[thread] - step.groups)
                if step.kind == "leave":
                    finish(thread, float("inf"))
                    gone.add(thread)
                events[thread] += self.events_of(n, thread)
        # When a thread ends, it waits for its copies.
        for thread in events:
            if thread not in gone:
                finish(thread, float("inf"))
        return Launch(events)

    def completes(self, n: int) -> Phase | None:
        """Return the phase of an arrival that waits for the copy of step n."""
        return None

    def events_of(self, n: int, thread: Thread) -> list[AnyEvent]:
        """Return what a step of another kind than those of this module is for a thread."""
        return []

    # ---- for the machine -------------------------------------------------------------------------

    def text(self) -> tuple[str, dict[int, int]]:
        """Return the PTX, and the number of the step for each of its lines (from 1)."""
        lines, steps = self.header.splitlines(), {}

        def add(code: str, n: int | None = None) -> None:
            lines.append(code)
            if n is not None:
                steps[len(lines)] = n

        n = 0
        while n < len(self.steps):
            if self.sections and self.steps[n].kind not in self.collective:
                behind = (m for m in range(n, len(self.steps)) if self.steps[m].kind in self.collective)
                end = next(behind, len(self.steps))
                self._add_sections(add, n, end)
                n = end
            else:
                self._add_guarded(add, n)
                n += 1
        return "\n".join([*lines, "    ret;", "}"]) + "\n", steps

    def _add_guarded(self, add, n: int) -> None:
        """Guard a step by a predicate, or by a branch around it."""
        step = self.steps[n]
        if step.kind == "warps":
            for warps, code in ((step.warps, step.code), (step.arriving, step.code.replace(".sync", ".arrive", 1))):
                if not warps:
                    continue
                add(f"    bfe.u32 %t, {sum(1 << warp for warp in warps)}, %warp, 1;")
                add(f"    setp.eq.u32 %p, %t, 1; setp.eq.and.u32 %p, %block, {step.block}, %p;")
                add(f"    @!%p bra after{n}_{warps[0]};")
                add(f"    {code};", n)
                add(f"after{n}_{warps[0]}:")
            return
        add(f"    shr.u32 %t, {bits(step.threads)}, %lane; and.b32 %t, %t, 1;")
        add(f"    setp.eq.u32 %p, %t, 1; setp.eq.and.u32 %p, %warp, {step.threads[0] // 32}, %p;")
        add(f"    setp.eq.and.u32 %p, %block, {step.block}, %p;")
        if n % 2:
            return add(f"    @%p {step.code};", n)
        add(f"    @!%p bra after{n};")
        add(f"    {step.code};", n)
        add(f"after{n}:")

    def _add_sections(self, add, n: int, end: int) -> None:
        own = defaultdict(list)
        for m in range(n, end):
            for index in self.steps[m].threads:
                own[self.steps[m].block, index].append(m)
        for block, index in own:
            add(f"    setp.eq.u32 %p, %me, {block * self.size + index};")
            add(f"    @%p bra own{n}_{block}_{index};")
        add(f"    bra join{n};")
        for (block, index), mine in sorted(own.items(), key=lambda item: (item[0][1] % 5, item[0])):
            add(f"own{n}_{block}_{index}:")
            for m in mine:
                add(f"    {self.steps[m].code};", m)
            if self.steps[mine[-1]].kind != "leave":
                add(f"    bra join{n};")
        add(f"join{n}:")


def numbered(steps: Iterable[Step], size: int) -> list[Step]:
    """Return the steps, with a barrier number, 3 to 15, for barriers of some warps.

    Barriers of the same warps that all wait share a number. Each of the others has its own number,
    because a warp may arrive at the next one before this one is complete. A barrier is left out if
    no number is left, or if one of its warps has returned.
    """
    numbers: dict[tuple, int] = {}
    gone: dict[int, set[int]] = defaultdict(set)
    result = []
    for step in steps:
        if step.kind == "leave":
            gone[step.block].update(step.threads)
        if step.kind == "warps" and "bar.warp" not in step.code:
            ended = any({*threads_of(warp, size)} <= gone[step.block] for warp in (*step.warps, *step.arriving))
            if ended and ", " in step.code:
                continue
        if "{id}" in step.code:
            key = (step.block, len(result)) if step.arriving else (step.block, step.warps)
            used = {number for (block, _), number in numbers.items() if block == step.block}
            free = next((number for number in range(3, 16) if number not in used), None)
            if key not in numbers and free is None:
                continue
            step = replace(step, code=step.code.format(id=numbers.setdefault(key, free)))
        result.append(step)
    return result


HEADER = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 more[];
.visible .entry program(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)
{
    .reg .pred %p, %true;
    .reg .b16 %h;
    .reg .b32 %w, %x, %y, %z, %t, %me, %lane, %warp, %block;
    .reg .b64 %d, %e, %g0, %g1, %g2, %g3, %s0, %s1, %s2, %more;
    .shared .align 16 .b8 s0[16];
    .shared .align 16 .b8 s1[16];
    .shared .align 16 .b8 s2[16];
    ld.param.u64 %g0, [p0]; ld.param.u64 %g1, [p1]; ld.param.u64 %g2, [p2]; ld.param.u64 %g3, [p3];
    mov.u64 %d, s0; cvta.shared.u64 %s0, %d; mov.u64 %d, s1; cvta.shared.u64 %s1, %d;
    mov.u64 %d, s2; cvta.shared.u64 %s2, %d; mov.u64 %d, more; cvta.shared.u64 %more, %d;
    mov.u32 %w, %tid.z; mov.u32 %x, %ntid.y; mov.u32 %y, %tid.y; mad.lo.u32 %w, %w, %x, %y;
    mov.u32 %x, %ntid.x; mov.u32 %y, %tid.x; mad.lo.u32 %t, %w, %x, %y;
    and.b32 %lane, %t, 31; shr.u32 %warp, %t, 5; mov.u32 %block, %ctaid.x;
    mad.lo.u32 %me, %block, 72, %t;
    setp.eq.u32 %true, %t, %t;
    mov.u32 %x, 1; mov.u32 %y, 2; mov.u32 %z, 3; mov.u32 %w, %t; mov.b16 %h, 5; mov.u64 %d, 6; mov.u64 %e, 7;"""
