"""Every bar.sync that Triton compiled into our kernels, removed one at a time: the tracer finds it, or it is not needed.

A barrier that is not needed is in UNNEEDED, by the Python line that it comes from, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
import torch

from tests.emulator.triton.taken import Taken, taking

pytest.importorskip("triton")

# The pipeliner ends each loop whose tiles are copied ahead with wait_group 0 and a barrier. What comes next (the copies of the
# following loop, or the output, which is put where q lay) overlaps no tile that another thread copies or still reads: the reads
# of the last round lie before the barrier of that round, and each thread copies to the places to which it copied before.
END_OF_LOOP = (
    "after the last round of a pipelined loop: its reads lie before that round's barrier, copies keep their threads"
)
# The scores go from the layout of products to that of the bias and back, through the same places: each thread stores where it
# alone has just loaded.
BACK_AGAIN = "a layout is converted back: each thread stores where it alone has loaded"
UNNEEDED = {
    ("forward_kernel", "for j0 in tl.range(first, last, BLOCK_N):"): END_OF_LOOP,
    ("dq_kernel", "for j0 in tl.range(first, last, BLOCK_N):"): END_OF_LOOP,
    ("dk_dv_kernel", "for i0 in tl.range(first, last, BLOCK_M):"): END_OF_LOOP,
    ("dbias_kernel", "return tl.exp2(x)"): BACK_AGAIN,
}


@dataclass(frozen=True)
class Way:
    dtype: str
    headdim: int
    atomic: bool = False
    tf32: bool = False
    bias: bool = False
    tile: tuple[int, int, int, int] | None = None  # BLOCK_M, BLOCK_N, warps, stages of all kernels

    def launches(self) -> list[Taken]:
        """Those of a forward and a backward, in which every loop has several rounds and the last tiles are not whole."""
        from impls.triton.attention import FlashAttention2  # loads Triton
        from impls.triton.tuning import CANDIDATES, Tile

        tiles = {name: Tile(*self.tile) for name in CANDIDATES} if self.tile else {}
        way = FlashAttention2(atomic=self.atomic, tf32=self.tf32, tiles=tiles)
        generator, n = torch.Generator().manual_seed(0), 160
        q, k, v = (
            torch.randn(1, n, 1, self.headdim, generator=generator).to(getattr(torch, self.dtype)) for _ in "qkv"
        )
        biases = (
            [torch.randn(1, 1, rows, n, generator=generator).to(q.dtype) for rows in (n, 1)] if self.bias else [None]
        )
        with taking() as seen:
            for bias in biases:
                out, lse = way.forward(q, k, v, causal=True, bias=bias)
                way.backward(out, q, k, v, out, lse, causal=True, bias=bias)
        return seen


QUICK = [Way("float16", 32), Way("float32", 32, bias=True)]
THOROUGH = [
    Way(dtype, headdim, atomic, tf32, bias, tile)
    for dtype in ("float16", "bfloat16", "float32")
    for headdim in (32, 64, 128)
    for atomic, tf32, bias in [(False, False, False), (True, False, False), (False, False, True), (True, True, True)]
    for tile in [None, (32, 32, 4, 1), (64, 32, 4, 3), (32, 64, 8, 2)]
    if not (tf32 and dtype != "float32") and not (tile and (headdim == 128 or dtype == "bfloat16"))
]


def unneeded(way: Way) -> tuple[int, dict[tuple[str, str], list[int]]]:
    """How many barriers there are; and those whose removal no launch shows: {(kernel, Python line): lines of the PTX}."""
    launches = defaultdict(list)
    for taken in way.launches():
        launches[taken.name, taken.kernel.module.text].append(taken)
    count, found = 0, defaultdict(list)
    for (name, _), same in launches.items():
        known = [keys(taken.run()[0]) for taken in same]
        for n in same[0].barriers:
            count += 1
            edited = same[0].without(n)
            if not any(keys(taken.run(edited)[0]) - before for taken, before in zip(same, known, strict=True)):
                entry = name, same[0].python_text(n)
                at_end = UNNEEDED.get(entry) != END_OF_LOOP or follows_a_wait(same[0].lines, n)
                found[entry if at_end else (*entry, "not at the end of a loop")].append(n + 1)
    return count, found


def keys(findings: list) -> set:
    return {(f.kind, f.tensor, f.sites, tuple(side.what for side in f.sides), f.count) for f in findings}


@pytest.mark.parametrize("way", [*QUICK, *(pytest.param(w, marks=pytest.mark.thorough) for w in THOROUGH)], ids=str)
def test_every_barrier_is_found_or_unneeded(way: Way):
    count, found = unneeded(way)
    assert count > 10
    assert found.keys() <= UNNEEDED.keys(), found


def test_the_ends_of_loops_in_the_table_wait_for_their_copies_first():
    """Each occurs, and is what its reason says: behind the wait for all copies of the loop."""
    seen = set()
    for taken in Way("float16", 32).launches():
        entries = {n: (taken.name, taken.python_text(n)) for n in taken.barriers}
        seen |= {e for n, e in entries.items() if UNNEEDED.get(e) == END_OF_LOOP and follows_a_wait(taken.lines, n)}
    assert seen == {entry for entry, reason in UNNEEDED.items() if reason == END_OF_LOOP}


def follows_a_wait(lines: list[str], n: int) -> bool:
    return lines[n - 1].split() == ["cp.async.wait_group", "0;"]
