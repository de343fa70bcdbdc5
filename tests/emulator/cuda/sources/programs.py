"""Random small programs for programs.cu, as instructions for its kernel and as a launch for the
race rule.

A program is one sequence of steps. Each thread's instructions are its part of the sequence, so no
program deadlocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from hypothesis import strategies as st

from flash_attest.races.events import Access, Arrival, Barrier, Thread
from flash_attest.races.launch import Event, Launch
from flash_attest.races.rule import conflict

# Sizes, numbers and orders are those of programs.cu; memories have the names that findings give
# them.
MEMORIES = ["g0", "g1", "g2", "g3", "s0", "s1", "s2", "dynamic shared memory"]
GLOBAL = frozenset(MEMORIES[:4])  # the others are shared memory
BYTES = 16  # bytes of each
READ, WRITE, ATOMIC, BLOCK_BARRIER, WARP_BARRIER, WARP_OPERATION, FENCE, RETURN = range(1, 9)
OPS = {  # with the macros of programs.cu, two lines for each memory
    "read": (READ, ["READ_FROM({}, +=)", "READ_FROM({}, -=)"]),
    "write": (WRITE, ["WRITE_TO({}, 0)", "WRITE_TO({}, 1)"]),
    "atomic": (ATOMIC, ["ADD_TO({})", "SWAP_IN({})"]),
}
BLOCK_BARRIERS = ["__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count"]
WARP_OPERATIONS = ["__shfl_sync", "__ballot_sync", "__all_sync", "__match_any_sync"]

THREADS = 40  # threads of a block: a whole warp, and one of 8 lanes
SHAPES = [(40, 1, 1), (8, 5, 1), (5, 4, 2)]  # shapes of a block
# The active threads of each warp. The other threads take part only in barriers of the block and of
# their whole warp.
WARPS = [(0, 1, 2, 31), (32, 33, 39)]


# ---- steps and programs --------------------------------------------------------------------------


@dataclass(frozen=True)
class LineAccess(Access):
    line: str  # line in programs.cu


@dataclass(frozen=True)
class Step:
    """One instruction of each of these threads of a block, except the threads that have
    returned.
    """

    block: int
    threads: tuple[int, ...]
    words: str
    code: tuple[int, ...]  # in the form that programs.cu reads
    access: Access | None = None
    is_barrier: bool = False

    @property
    def who(self) -> list[Thread]:
        return [Thread(self.block, index) for index in self.threads]

    def __repr__(self):
        who = "" if len(self.threads) == THREADS else f", {' '.join(str(t) for t in self.threads)}"
        return f"block {self.block}{who}: {self.words}"


def touch(block: int, thread: int, kind: tuple[str, int], memory: str, place: int, line: int) -> Step:
    what, size = kind
    start = place // size * size  # aligned
    op, macros = OPS[what]
    number = MEMORIES.index(memory)
    macro = macros[line].format("dynamic" if memory == MEMORIES[-1] else memory)
    own = None if memory in GLOBAL else block
    access = LineAccess(what, (memory, own), start, size, f"case {2 * number + line}: {macro} break;")
    words = f"{macro}, bytes {start}:{start + size}"
    return Step(block, (thread,), words, (op, number, start, size, line), access)


def block_barrier(block: int, form: str) -> Step:
    return Step(block, tuple(range(THREADS)), f"{form}()", (BLOCK_BARRIER, BLOCK_BARRIERS.index(form)), is_barrier=True)


def warp_barrier(block: int, lanes: Sequence[int]) -> Step:
    mask = bits(lanes)
    return Step(block, tuple(lanes), f"__syncwarp({mask:#x})", (WARP_BARRIER, signed(mask)), is_barrier=True)


def whole_warp_barrier(block: int, warp: int) -> Step:
    """Return a barrier with the mask of 32 lanes. The warp that has only 8 lanes uses this mask
    too.
    """
    lanes = tuple(range(32)) if warp == 0 else tuple(range(32, THREADS))
    return Step(block, lanes, "__syncwarp()", (WARP_BARRIER, signed(0xFFFFFFFF)), is_barrier=True)


def warp_operation(block: int, lanes: Sequence[int], form: str) -> Step:
    mask = bits(lanes)
    return Step(block, tuple(lanes), f"{form}({mask:#x})", (WARP_OPERATION, WARP_OPERATIONS.index(form), signed(mask)))


def fence(block: int, thread: int) -> Step:
    return Step(block, (thread,), "__threadfence()", (FENCE,))


def leave(block: int, thread: int) -> Step:
    return Step(block, (thread,), "return", (RETURN,))


def bits(lanes: Sequence[int]) -> int:
    return sum(1 << lane % 32 for lane in lanes)


def signed(mask: int) -> int:
    return mask - (mask >> 31 << 32)


class Program:
    """A sequence of steps. None stands for an absent step."""

    def __init__(self, shape: tuple[int, int, int], steps: list[Step | None]):
        self.shape = shape
        self.steps = [step for step in steps if step]
        self.blocks = 1 + max((step.block for step in self.steps), default=0)

    def __repr__(self):
        lines = [f"{self.blocks} x {self.shape} threads", *(str(step) for step in self.steps)]
        return "\n    ".join(lines)

    def by_thread(self) -> dict[Thread, list[tuple[int, Step]]]:
        """Return, for each thread, its steps up to and including `return`, with their numbers in
        the sequence.
        """
        mine = {Thread(*it): [] for it in product(range(self.blocks), range(THREADS))}
        gone = set()
        for n, step in enumerate(self.steps):
            for thread in step.who:
                if thread not in gone:
                    mine[thread].append((n, step))
                if step.code[0] == RETURN:
                    gone.add(thread)
        return mine

    def instructions(self) -> torch.Tensor:
        """Return (blocks, threads, length, 5), int32; ends with zeros."""
        mine = self.by_thread()
        length = 1 + max(len(steps) for steps in mine.values())
        rows = [[step.code + (0,) * (5 - len(step.code)) for _, step in steps] for steps in mine.values()]
        padded = [row + [(0,) * 5] * (length - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.int32).view(self.blocks, THREADS, length, 5)

    def launch(self) -> Launch:
        return Launch({
            thread: [step.access or Barrier(n) for n, step in steps if step.access or step.is_barrier]
            + [Arrival(Barrier(n)) for n in self.barriers_after_leaving(thread, steps)]
            for thread, steps in self.by_thread().items()
        })  # fmt: skip

    def barriers_after_leaving(self, thread: Thread, steps: list[tuple[int, Step]]) -> list[int]:
        """Return the numbers of the barriers that name a thread that has already returned."""
        if not steps or steps[-1][1].code[0] != RETURN:
            return []
        left_at = steps[-1][0]
        return [n for n, step in enumerate(self.steps) if n > left_at and step.is_barrier and thread in step.who]


# ---- drawn programs ------------------------------------------------------------------------------
# Random steps nearly always race. So most programs get barriers that prevent the races, in several
# ways. Then one race is often allowed, or one step is removed.

SLOTS = 20  # for steps
NO_ATOMICS = [("atomic", 1), ("atomic", 16)]
KINDS = [  # a mixture; few writers and many readers; few writers and many atomics
    [(what, n) for what in ("read", "write", "atomic") for n in (4, 1, 2, 8, 16) if (what, n) not in NO_ATOMICS],
    [("read", 4), ("read", 8), ("read", 16), ("read", 1), ("write", 8), ("atomic", 8)],
    [("atomic", 4), ("atomic", 8), ("atomic", 2), ("write", 8), ("read", 16)],
]
MEMORY_SETS = [("s0",), ("g0",), ("s1", "g1"), ("dynamic shared memory", "s2"), ("g3", "g2", "s0"), tuple(MEMORIES)]
CURES = ["direct", "passed on", "whole warp", "block"]
WHICH_CURES = [[None], CURES, CURES, CURES, [None, *CURES]]


def prevent(steps: list[Step | None], cures: list[str | None], let_through: tuple[int, int]) -> list[Step]:
    """Insert barriers before accesses that would race with an earlier one. `cures` says in which
    way for each step.

    let_through (n, which): the nth time that an access would race with several others, one of them
    gets a warp operation instead. If no barrier can help, because the other access is in another
    block, the access is left out.
    """
    result: list[Step] = []
    known: dict[Thread, set[int]] = defaultdict(set)  # for each thread, the steps in `result` that happen before
    gone = set()

    def add(step: Step) -> None:
        if step.access or step.is_barrier:
            met = set().union({len(result)}, *(known[thread] for thread in step.who))
            known.update((thread, met) for thread in step.who if thread not in gone)
        if step.code[0] == RETURN:
            gone.update(step.who)
        result.append(step)

    several = 0
    for step, cure in zip(steps, cures, strict=True):
        if not step or (step.access and step.who[0] in gone):
            continue
        if step.access and cure:
            new = Event(step.who[0], len(result), step.access)
            earlier = [Event(other.who[0], at, other.access) for at, other in enumerate(result) if other.access]
            rivals = [other for other in earlier if conflict(other, new) and other.step not in known[new.thread]]
            # Nothing orders two blocks, so the step is left out.
            if any(other.thread.block != step.block for other in rivals):
                continue
            # At the nth access with several rivals, one of them gets an operation that orders
            # nothing.
            several += len(rivals) > 1
            spared = rivals[let_through[1] % len(rivals)] if len(rivals) > 1 and several == let_through[0] else None
            for other in rivals:
                if other.step not in known[new.thread]:
                    way = cure if other != spared else "nothing"
                    for barrier in path(step.block, other.thread.index, new.thread.index, way):
                        add(barrier)
        add(step)
    return result


def path(block: int, one: int, other: int, cure: str) -> list[Step]:
    """Return barriers after which thread `one`'s actions happen before thread `other`'s next
    action, or no barriers.
    """
    warp = next(lanes for lanes in WARPS if one in lanes)
    if cure == "nothing":
        return [warp_operation(block, sorted([one, other]), "__shfl_sync")] if other in warp else []
    if other not in warp or cure == "block":
        return [block_barrier(block, "__syncthreads")]
    if cure == "whole warp":
        return [whole_warp_barrier(block, WARPS.index(warp))]
    if cure == "passed on":
        third = next(lane for lane in warp if lane not in (one, other))
        return [warp_barrier(block, sorted([one, third])), warp_barrier(block, sorted([third, other]))]
    return [warp_barrier(block, sorted([one, other]))]


@st.composite
def programs(draw) -> Program:
    blocks, memories = draw(st.sampled_from([1, 1, 1, 2, 3])), draw(st.sampled_from(MEMORY_SETS))
    steps = draw(step_lists(blocks, memories, draw(st.integers(0, len(KINDS) - 1))))
    cures = draw(st.lists(st.sampled_from(draw(st.sampled_from(WHICH_CURES))), min_size=SLOTS, max_size=SLOTS))
    steps = prevent(steps, cures, draw(st.tuples(st.integers(0, 3), st.integers(0, 3))))
    missing = draw(st.none() | st.integers(0, 40))
    if missing is not None and missing < len(steps):
        del steps[missing]
    return Program(draw(st.sampled_from(SHAPES)), steps)


@st.composite
def access_sets(draw) -> Program:
    """Draw a program in which several threads read, or update, the same bytes. Then one thread
    writes them, ordered after all of the accesses or all but one.
    """
    memory, kind = draw(st.sampled_from(MEMORIES)), draw(st.sampled_from([("read", 4), ("atomic", 4)]))
    index = st.sampled_from(WARPS[0] * 2 + WARPS[1])
    # This is the writer's block. Some or all of the other threads are in the same block.
    block = 1 if draw(st.booleans()) else 0
    who = draw(st.lists(st.tuples(st.sampled_from([block, block, block, 0]), index), min_size=1, max_size=5))
    writer = draw(index)
    steps = []
    for other_block, other in who:
        steps.append(touch(other_block, other, kind, memory, 0, draw(st.integers(0, 1))))
        if draw(st.booleans()):
            steps.append(warp_barrier(block, sorted(draw(st.sets(st.sampled_from(WARPS[0]), min_size=2)))))
    spared = draw(st.none() | st.sampled_from(who))
    for other_block, other in draw(st.permutations(who)):
        if other != writer and other_block == block:
            way = "nothing" if (other_block, other) == spared else draw(st.sampled_from(CURES))
            steps += path(block, other, writer, way)
    return Program(SHAPES[0], [*steps, touch(block, writer, ("write", 4), memory, 0, 0)])


@cache
def step_lists(blocks: int, memories: tuple[str, ...], mix: int) -> st.SearchStrategy:
    """Draw slots, each with a step or None, so that shrinking empties slots."""
    block = st.integers(0, blocks - 1)
    index = st.sampled_from(WARPS[0] + WARPS[1])
    lanes = st.sampled_from([WARPS[0], WARPS[0], WARPS[1]]).flatmap(
        lambda warp: st.sets(st.sampled_from(warp), min_size=2).map(sorted)
    )
    place, line = st.integers(0, BYTES - 1), st.integers(0, 1)
    touches = st.builds(touch, block, index, st.sampled_from(KINDS[mix]), st.sampled_from(memories), place, line)
    warp_barriers = st.builds(warp_barrier, block, lanes)
    others = [
        st.builds(block_barrier, block, st.sampled_from(BLOCK_BARRIERS)),
        st.builds(whole_warp_barrier, block, st.integers(0, 1)),
        st.builds(warp_operation, block, lanes, st.sampled_from(WARP_OPERATIONS)),
        st.builds(fence, block, index),
        st.builds(leave, block, index),
    ]
    # With one_of, Hypothesis would draw each kind only once.
    kinds = [st.none(), *[touches] * 18, *[warp_barriers] * 3, *others]
    return st.lists(st.sampled_from(kinds).flatmap(lambda kind: kind), min_size=SLOTS, max_size=SLOTS)
