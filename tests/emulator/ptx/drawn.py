"""Draws random small programs (programs.py).

Random steps nearly always race. So most programs get barriers and waits that prevent the mistakes,
in several ways. Then one mistake is often allowed, or one step is removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st

from flash_attest.races.events import Access, Thread
from flash_attest.races.rule import common_bytes
from tests.emulator.ptx.programs import (
    BYTES,
    DYNAMIC,
    EVERYBODY,
    GLOBAL,
    MEMORIES,
    SEEN,
    SHAPES,
    WARPS,
    Program,
    Step,
    block_barrier,
    commit,
    copy,
    exchange,
    fence,
    lanes_barrier,
    leave,
    some_warps,
    threads_of,
    touch,
    wait,
    whole_warp,
)

SLOTS = 18
CURES = ["lanes", "passed on", "whole warp", "warps", "arrive", "through a warp", "block"]
WHICH_CURES = [[None], CURES, CURES, CURES, CURES, [None, *CURES]]


def prevent(steps: Sequence[Step | None], cures: Sequence[str | None], spared: int) -> list[Step]:
    """Insert waits and barriers before accesses that would be a mistake. The mistake with the
    number `spared` is not cured.
    """
    result: list[Step] = []
    known: dict[Thread, set[int]] = defaultdict(set)  # for each thread, the steps in `result` that happen before
    gone: set[Thread] = set()
    ends: dict[int, int] = {}  # for a copy: the step that waits for it
    mistakes = 0

    def add(step: Step) -> None:
        n = len(result)
        who = [Thread(step.block, t) for t in sorted({*step.threads} & {*SEEN})]
        arriving = [Thread(step.block, t) for w in step.arriving for t in threads_of(w) if t in SEEN]
        if step.kind in ("lanes", "warps"):
            met = set().union({n}, *(known[thread] for thread in (*who, *arriving)))
            known.update((thread, set(met)) for thread in who if thread not in gone)
        else:
            for thread in who:
                known[thread] |= {n}
        if step.kind == "leave":
            ends.update((c, n) for c in under_way(who[0]))
            gone.update(who)
        if step.kind == "wait" and step.groups <= 0:
            committed = max((m for m in range(n) if result[m].kind == "commit" and result[m].threads == step.threads
                             and result[m].block == step.block), default=-1)  # fmt: skip
            ends.update((c, n) for c in under_way(who[0]) if step.groups < 0 or c < committed)
        result.append(step)

    def under_way(thread: Thread) -> list[int]:
        return [n for n, s in enumerate(result) if s.kind == "copy" and n not in ends
                and Thread(s.block, s.threads[0]) == thread]  # fmt: skip

    def rivals_of(step: Step) -> list[int]:
        me = Thread(step.block, step.threads[0])
        rivals = []
        for n, other in enumerate(result):
            if not any(clash(a, b) for a in step.accesses for b in other.accesses):
                continue
            him = Thread(other.block, other.threads[0])
            under_way_or_unknown = other.kind == "copy" and (n not in ends or ends[n] not in known[me])
            if under_way_or_unknown or (him != me and n not in known[me]):
                rivals.append(n)
        return rivals

    for step, cure in zip(steps, cures, strict=True):
        if not step or (step.kind in ("access", "copy", "leave") and Thread(step.block, step.threads[0]) in gone):
            continue
        if step.accesses and cure:
            rivals = rivals_of(step)
            # Nothing orders two blocks, so the step is left out.
            if any(result[n].block != step.block for n in rivals):
                continue
            # Cure each mistake but one: wait for a copy, and put barriers between the threads.
            for n in rivals:
                mistakes += 1
                other, me = result[n], Thread(step.block, step.threads[0])
                if mistakes == spared or n not in rivals_of(step):
                    continue
                if other.kind == "copy" and n not in ends:
                    add(wait(step.block, other.threads[0], -1))
                if other.threads != step.threads and n in rivals_of(step):
                    for barrier in path(step.block, other.threads[0], me.index, cure, gone):
                        add(barrier)
        add(step)
    return result


def clash(a: Access, b: Access) -> bool:
    whats = {a.what, b.what}
    return whats not in ({"read"}, {"atomic"}) and len(common_bytes(a, b)) > 0


def path(block: int, one: int, other: int, cure: str, gone: set[Thread]) -> list[Step]:
    """Return barriers after which thread `one`'s actions happen before thread `other`'s next
    action.
    """
    first, second = one // 32, other // 32
    third = next(warp for warp in (2, 1, 0) if warp not in (first, second))
    some_left = all(any(Thread(block, t) not in gone for t in SEEN if t // 32 == warp) for warp in range(3))
    if first == second:
        if cure == "lanes":
            return [lanes_barrier(block, sorted([one, other]))]
        if cure == "passed on":
            between = next(lane for lane in WARPS[first] if lane not in (one, other))
            return [lanes_barrier(block, sorted([one, between])), lanes_barrier(block, sorted([between, other]))]
        if cure == "whole warp":
            return [whole_warp(block, first)]
        if cure == "warps":
            return [some_warps(block, (first,))] if one % 2 else [some_warps(block, sorted((first, third)))]
    elif some_left:
        if cure in ("warps", "lanes", "whole warp"):
            return [some_warps(block, sorted((first, second)))]
        if cure == "arrive":
            return [some_warps(block, (second,), (first,))]
        if cure in ("through a warp", "passed on"):
            return [some_warps(block, (third,), (first,)), some_warps(block, sorted((third, second)))]
    return [block_barrier(block)]


NO = [("atomic", 1), ("atomic", 16)]
KINDS = [
    [(what, n) for what in ("read", "write", "atomic") for n in (4, 1, 2, 8, 16) if (what, n) not in NO],
    [("read", 4), ("read", 8), ("read", 16), ("read", 1), ("write", 8), ("atomic", 8)],
    [("atomic", 4), ("atomic", 8), ("atomic", 2), ("write", 8), ("read", 16)],
]
MEMORY_SETS = [("s0",), ("g0",), ("s1", "g1"), (DYNAMIC, "s2"), ("g3", "g2", "s0"), MEMORIES]


@st.composite
def programs(draw) -> Program:
    blocks, memories = draw(st.sampled_from([1, 1, 1, 2, 3])), draw(st.sampled_from(MEMORY_SETS))
    steps = draw(step_lists(blocks, memories, draw(st.integers(0, 2)), draw(st.booleans())))
    cures = draw(st.lists(st.sampled_from(draw(st.sampled_from(WHICH_CURES))), min_size=SLOTS, max_size=SLOTS))
    steps = prevent(steps, cures, draw(st.integers(0, 4)))
    missing = draw(st.none() | st.integers(0, 40))
    if missing is not None and missing < len(steps):
        del steps[missing]
    return Program(draw(st.sampled_from(SHAPES)), steps, draw(st.booleans()))


@cache
def step_lists(blocks: int, memories: tuple[str, ...], mix: int, copies: bool) -> st.SearchStrategy:
    """Draw slots, each with a step or None, so that shrinking empties slots."""
    block = st.integers(0, blocks - 1)
    index = st.sampled_from(sum(WARPS, ()))
    lanes = st.sampled_from(WARPS).flatmap(lambda warp: st.sets(st.sampled_from(warp), min_size=2).map(sorted))
    start = st.integers(0, BYTES - 1)
    touches = st.builds(
        touch, block, index, st.sampled_from(KINDS[mix]), st.sampled_from(memories), start, st.booleans()
    )
    pairs = st.permutations([0, 1, 2]).map(lambda order: (sorted(order[:2]), order[2]))
    others = [
        st.builds(lanes_barrier, block, lanes), st.builds(lanes_barrier, block, lanes),
        st.builds(block_barrier, block, st.sampled_from(EVERYBODY)),
        st.builds(whole_warp, block, st.integers(0, 2)),
        st.builds(lambda b, p: some_warps(b, p[0]), block, pairs),
        st.builds(lambda b, p, all: some_warps(b, p[0][:1], p[0][1:] + [p[1]] * all), block, pairs, st.booleans()),
        st.builds(exchange, block, lanes, st.integers(0, 3)),
        st.builds(fence, block, index), st.builds(leave, block, index),
    ]  # fmt: skip
    to = [memory for memory in memories if memory not in GLOBAL] or ["s0"]
    since = [memory for memory in memories if memory in GLOBAL] or ["g0"]
    targets = st.tuples(st.sampled_from(to), st.sampled_from(since))
    thread = st.sampled_from((0, 1, 33)) if copies else index
    one_copy = st.builds(
        copy, block, thread, st.sampled_from([4, 8, 16]), targets, st.tuples(start, start), st.integers(0, 4)
    )
    of_copies = [
        one_copy,
        one_copy,
        one_copy,
        st.builds(commit, block, thread),
        st.builds(wait, block, thread, st.integers(-1, 2)),
    ]
    # With one_of, Hypothesis would draw each kind only once.
    kinds = [st.none(), *[touches] * 16, *others, *(of_copies * 3 if copies else ())]
    return st.lists(st.sampled_from(kinds).flatmap(lambda kind: kind), min_size=SLOTS, max_size=SLOTS)
