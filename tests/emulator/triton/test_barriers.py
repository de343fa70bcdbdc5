"""Removes every bar.sync that Triton compiled into our kernels, one at a time. Either the tracer
finds the removal, or the barrier is not needed.

`reason` says why a barrier is not needed, judging by the PTX before it or by its Python line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile

import pytest
import torch

from flash_attest.emulator.observation import Kind
from tests.emulator.taken import Taken, taking

pytest.importorskip("triton")

END_OF_LOOP = """after a pipelined loop, behind its wait for all copies: the reads of the last round lie before the barrier of
that round, and each thread copies to the places to which it copied before; the output lies where no copy went"""
FURTHER_SLOT = "before the first copies into a further slot of a pipeline, which nobody has accessed yet"
BACK_AGAIN = "a layout is converted back through the same places: each thread stores where it alone has just loaded"
OTHER_PLACES = """what is stored next lies over places that were last accessed before an earlier barrier, or over none: Triton
puts a barrier wherever two of its buffers overlap, and does not see which parts of them"""
STORE, LOAD = (
    "tl.store(ptr + offsets, tile.to(ptr.dtype.element_ty), mask=mask)",
    "return tl.load(ptr + offsets, mask=mask, other=0.0)",
)
IN_OTHER_PLACES = {  # by kernel and Python line, if tiles are not copied ahead
    ("forward_kernel", STORE), ("dq_kernel", STORE), ("dk_dv_kernel", STORE), ("dk_dv_kernel", LOAD),
    ("forward_kernel", "out = acc / tl.where(dead, 1.0, l)[:, None]"),
    ("dbias_kernel", LOAD), ("dbias_kernel", "qk = product(q, tl.trans(k), PRECISION)"),
}  # fmt: skip

AGAIN = "right after another barrier: no shared memory is accessed in between"

MEMORY = re.compile(r"\b(ldmatrix|cp\.async|(ld|st)\.shared|bar\.sync|atom|red)\b[^;]*")


def reason(taken: Taken, n: int) -> str:
    """Return why the barrier at line n of the PTX may be unneeded; "" if there is no reason."""
    before = [match[0] for line in reversed(taken.lines[:n]) if (match := MEMORY.search(line))]
    after = [match[0] for line in taken.lines[n + 1 :] if (match := MEMORY.search(line))]
    if before[:1] and before[0].split() == ["cp.async.wait_group", "0"]:
        return END_OF_LOOP
    if before[:1] and before[0].startswith("bar.sync") and not joins(taken.lines[:n]):
        return AGAIN
    if before[:1] == ["cp.async.commit_group"] and after[0].startswith("cp.async"):
        return FURTHER_SLOT
    loaded, stored = places("ld.shared", before), places("st.shared", after)
    if stored and stored <= loaded:
        return BACK_AGAIN
    return OTHER_PLACES if (taken.name, taken.python_text(n)) in IN_OTHER_PLACES else ""


def joins(lines: list[str]) -> bool:
    """Return whether another path through the kernel leads to a position after the last barrier of
    these lines.
    """
    after = takewhile(lambda line: not re.search(r"\bbar\.sync\b", line), reversed(lines))
    return any(line.startswith("$L__BB") for line in after)


def places(opcode: str, instructions: list[str]) -> set[str]:
    """Return the registers with the addresses of these instructions, up to the next barrier."""
    here = takewhile(lambda text: not text.startswith("bar."), instructions)
    return {re.search(r"\[\s*(%r\d+)", text)[1] for text in here if text.startswith(opcode)}


@dataclass(frozen=True)
class Way:
    dtype: str
    headdim: int
    atomic: bool = False
    tf32: bool = False
    bias: bool = False
    tile: tuple[int, int, int, int] | None = None  # BLOCK_M, BLOCK_N, warps, stages of all kernels
    only: str = ""  # the kernel whose barriers are removed; "" for all

    def launches(self) -> list[Taken]:
        """Return launches of forwards and backwards: loops of one round and of several, two query
        heads for one key head.

        The addresses in shared memory do not depend on sizes in these kernels, so only the number
        of rounds of each loop matters.
        """
        # This is imported here because it loads Triton.
        from flash_attest.impls.triton.attention import FlashAttention2
        from flash_attest.impls.triton.tuning import CANDIDATES, Tile

        tiles = {name: Tile(*self.tile) for name in CANDIDATES} if self.tile else {}
        way = FlashAttention2(atomic=self.atomic, tf32=self.tf32, tiles=tiles)
        generator = torch.Generator().manual_seed(0)
        with taking() as seen:
            for n, rows in [(160, 160), (160, 1), (20, 20)] if self.bias else [(160, 0), (20, 0)]:
                q, k, v = (
                    torch.randn(1, n, heads, self.headdim, generator=generator).to(getattr(torch, self.dtype))
                    for heads in (2, 1, 1)
                )
                bias = torch.randn(1, 1, rows, n, generator=generator).to(q.dtype) if rows else None
                out, lse = way.forward(q, k, v, causal=True, bias=bias)
                way.backward(out, q, k, v, out, lse, causal=True, bias=bias)
        return [taken for taken in seen if self.only in ("", taken.name)]


QUICK = [Way("float16", 32, only="dk_dv_kernel")]
THOROUGH = [
    Way(dtype, headdim, atomic, tf32, bias, tile)
    for dtype in ("float16", "bfloat16", "float32")
    for headdim in (32, 64, 128)
    for atomic, tf32, bias in [(False, False, False), (True, False, False), (False, False, True), (True, True, True)]
    for tile in [None, (32, 32, 4, 1), (64, 32, 4, 3), (32, 64, 8, 2)]
    if not (tf32 and dtype != "float32") and not (tile and (headdim == 128 or dtype == "bfloat16"))
]


def unneeded(way: Way) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many barriers there are, and the ones whose removal no launch shows: (kernel,
    Python line and text, reason).
    """
    launches = defaultdict(list)
    for taken in way.launches():
        launches[taken.name, taken.kernel.module.text].append(taken)
    count, entries, reached, unreached = 0, [], set(), set()
    for same in launches.values():
        known = [keys(taken.run()[0]) for taken in same]
        for n in same[0].barriers:
            count += 1
            edited, place = same[0].without(n), (same[0].name, same[0].python_line(n))
            if not any(is_reached(taken, n) for taken in same):
                unreached.add(place)
                continue
            reached.add(place)
            if not any(keys(taken.run(edited)[0]) - before for taken, before in zip(same, known, strict=True)):
                where = f"{same[0].python_line(n)} {same[0].python_text(n)}, PTX line {n + 1}"
                entries.append((same[0].name, where, reason(same[0], n)))
    # The same barrier is reached in another compilation.
    assert unreached <= reached, unreached - reached
    return count, entries


def is_reached(taken: Taken, n: int) -> bool:
    lines = taken.lines
    lines[n] = "trap;"
    return any(finding.kind is Kind.TRAP for finding in taken.run("\n".join(lines))[0])


def keys(findings: list) -> set:
    return {(f.kind, f.tensor, f.sites, tuple(side.what for side in f.sides), f.count) for f in findings}


@pytest.mark.parametrize("way", [*QUICK, *(pytest.param(w, marks=pytest.mark.thorough) for w in THOROUGH)], ids=str)
def test_every_barrier_is_found_or_unneeded(way: Way):
    count, entries = unneeded(way)
    assert count > 10
    assert not [entry for entry in entries if not entry[-1]]


@pytest.mark.thorough
def test_the_reasons_occur():
    """Each reason applies to some unneeded barrier, so no reason is superfluous. None applies to a
    barrier whose removal is found.
    """
    ways = [
        Way("float16", 128, bias=True),
        *(Way("float16", 32, tile=tile) for tile in [(64, 32, 4, 3), (32, 32, 4, 1)]),
        Way("float32", 32, atomic=True, tf32=True, bias=True),
    ]
    seen = {entry[-1] for way in ways for entry in unneeded(way)[1]}
    assert seen == {END_OF_LOOP, FURTHER_SLOT, BACK_AGAIN, OTHER_PLACES, AGAIN}
