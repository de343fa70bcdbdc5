"""Draws random small programs with wgmma (wgmma_programs.py).

Random steps nearly always race. So before a step that would be a mistake, most programs get waits,
barriers and proxy fences that prevent it, in several ways (wgmma_order.py). Some mistakes are
spared, and often one step is removed.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from tests.emulator.ptx.programs import (
    DYNAMIC,
    block_barrier,
    commit,
    copy,
    lanes_barrier,
    some_warps,
    threads_of,
    touch,
    wait,
    whole_warp,
)
from tests.emulator.ptx.wgmma_order import BARRIERS, DECOYS, FENCES, Cure, prevent
from tests.emulator.ptx.wgmma_programs import (
    LANES,
    SHAPES,
    Matrix,
    WarpgroupProgram,
    commit_products,
    multiply,
    proxy_fence,
    wait_products,
)

SLOTS = 14
NONE_SPARED = -1
CURES = st.builds(
    Cure,
    st.sampled_from(FENCES),
    st.sampled_from(BARRIERS),
    st.sampled_from(DECOYS),
    st.integers(0, 3).map(lambda n: n == 3),
)


@st.composite
def programs(draw) -> WarpgroupProgram:
    shape, blocks = draw(st.sampled_from(SHAPES)), draw(st.sampled_from([1, 1, 1, 2]))
    size = shape[0] * shape[1] * shape[2]
    steps = draw(step_lists(size, blocks, draw(st.booleans())))
    one = draw(CURES | st.none())
    cures = draw(st.lists(CURES if draw(st.booleans()) else st.just(one), min_size=SLOTS, max_size=SLOTS))
    steps = prevent(steps, cures, draw(st.sampled_from([1, 2, 3, 0, 0, NONE_SPARED])), size)
    missing = draw(st.none() | st.integers(0, 40))
    if missing is not None and missing < len(steps):
        del steps[missing]
    return WarpgroupProgram(shape, steps, draw(st.booleans()))


KINDS = [
    ("write", 4),
    ("write", 16),
    ("read", 4),
    ("write", 8),
    ("write", 1),
    ("atomic", 4),
    ("read", 16),
    ("write", 2),
]
# The first bytes of a few groups of 8 rows, and the last row of the first group.
PLACES = [0, 0, 128, 128, 256, 112, 384, 1024]


@cache
def step_lists(size: int, blocks: int, copies: bool) -> st.SearchStrategy:
    """Draw slots, each with a step or None, so that shrinking empties slots."""
    block, group = st.integers(0, blocks - 1), st.integers(0, size // 128 - 1)
    warp = st.integers(0, size // 32 - 1)
    # Few threads, so that they meet.
    thread = st.sampled_from([32 * warp + lane for warp in (0, 0, 0, 1, 3, 4) for lane in LANES if 32 * warp < size])
    place = st.builds(lambda place, at: place + at, st.sampled_from(PLACES), st.integers(0, 15))
    touches = st.builds(
        lambda block, thread, kind, place, generic: touch(block, thread, kind, DYNAMIC, place, generic),
        block, thread, st.sampled_from(KINDS), place, st.booleans(),
    )  # fmt: skip
    start = st.sampled_from([0, 0, 128, 256, 512])
    matrices = st.builds(Matrix, start, st.sampled_from([128, 256, 128, 1024]), st.sampled_from([256, 128, 0])) | (
        st.builds(lambda start: Matrix(start // 256 * 256, 128, 256, swizzled=True), start)
    )
    products = st.builds(multiply, block, group, st.none() | matrices, matrices)
    waits = st.builds(wait_products, block, group, st.sampled_from([0, 1, 1, 2]))
    fences = [
        st.builds(lambda b, t, form: proxy_fence(b, [t], form), block, thread, st.sampled_from([0, 1, 2])),
        st.builds(lambda b, w: proxy_fence(b, threads_of(w, size)), block, warp),
        st.builds(lambda b: proxy_fence(b, range(size), 1), block),
    ]
    barriers = [
        st.builds(
            lambda b, form: block_barrier(b, form, size), block, st.sampled_from(["bar.sync 0", f"bar.sync 1, {size}"])
        ),
        st.builds(lambda b, w: whole_warp(b, w, size), block, warp),
        st.builds(lambda b, w: lanes_barrier(b, [32 * w + lane for lane in LANES]), block, warp),
        st.builds(lambda b, w: some_warps(b, sorted(w), (), size), block, st.sets(warp, min_size=2, max_size=4)),
        st.builds(
            lambda b, w: some_warps(b, w[:1], w[1:], size),
            block,
            st.permutations(range(size // 32)).map(lambda w: w[:2]),
        ),
    ]
    one_copy = st.builds(
        lambda b, t, size, place, since: copy(b, t, size, (DYNAMIC, "g0"), (place, since), 0),
        block, thread, st.sampled_from([4, 8, 16]), place, st.integers(0, 15),
    )  # fmt: skip
    of_copies = [
        one_copy,
        one_copy,
        st.builds(commit, block, thread),
        st.builds(wait, block, thread, st.integers(-1, 1)),
    ]
    kinds = [
        st.none(), *[touches] * 14, *[products] * 8, *[st.builds(commit_products, block, group)] * 2, *[waits] * 2,
        *fences, *barriers, *(of_copies * copies),
    ]  # fmt: skip
    return st.lists(st.sampled_from(kinds).flatmap(lambda kind: kind), min_size=SLOTS, max_size=SLOTS)
