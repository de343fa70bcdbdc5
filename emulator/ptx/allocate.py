"""Allocates registers in a warp's register file: two that are never needed at the same time share
a slot.

Each lane has its own column of a slot and follows its own path, so a slot is occupied if the value
is needed on any path of control flow. Only registers of one width share a slot: otherwise, lanes at
different instructions would overwrite each other's columns. A destination never lies where a source
of the same instruction lies, because handlers may write the first before they read the second.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

LANES = 32
ALIGNMENT = 64


def slot_bytes(width: int) -> int:
    """Return the bytes of a slot for a register of `width` bytes for each lane.

    Width 0 is a predicate, which has one bit for each lane.
    """
    return LANES * width if width else LANES // 8


@dataclass
class Flow:
    """The registers that each instruction of a program reads and writes, by number, and the
    instructions that may follow it.
    """

    reads: list[Sequence[int]] = field(default_factory=list)
    writes: list[Sequence[int]] = field(default_factory=list)
    partial: list[bool] = field(default_factory=list)  # whether it is guarded, so that a write may leave the old value
    target: list[int] = field(default_factory=list)  # for a branch; -1 for others
    falls: list[bool] = field(default_factory=list)  # whether the next instruction may follow


def allocate(flow: Flow, widths: Sequence[int], start: int, share: bool = True) -> tuple[list[int], int]:
    """Return (the offset of each register, the bytes of the register file).

    start: offset of the first slot. share: if False, each register has its own slot.
    """
    first, last = _lifetimes(flow, len(widths))
    if not share:
        last = [len(flow.reads)] * len(widths)
        first = [0] * len(widths)
    offsets = [0] * len(widths)
    end = start
    for width in (8, 4, 2, 0):
        members = sorted((n for n, w in enumerate(widths) if w == width and last[n] >= 0), key=first.__getitem__)
        step = slot_bytes(width)
        free: list[int] = []
        taken: list[tuple[int, int]] = []  # (last instruction, slot)
        for number in members:
            while taken and taken[0][0] < first[number]:
                heapq.heappush(free, heapq.heappop(taken)[1])
            if free:
                offset = heapq.heappop(free)
            else:
                offset, end = end, end + step
            offsets[number] = offset
            heapq.heappush(taken, (last[number], offset))
    return offsets, -(-end // ALIGNMENT) * ALIGNMENT


def _lifetimes(flow: Flow, count: int) -> tuple[list[int], list[int]]:
    """Return (first, last): the instructions, in the order of the text, between which each register
    is needed. last is -1 if the register is never needed.
    """
    first, last = [len(flow.reads)] * count, [-1] * count
    for i in range(len(flow.reads) - 1, -1, -1):
        for number in flow.reads[i]:
            first[number] = i
        for number in flow.writes[i]:
            first[number] = i
    for i, (reads, writes) in enumerate(zip(flow.reads, flow.writes, strict=True)):
        for number in reads:
            last[number] = i
        for number in writes:
            last[number] = i
    blocks = _blocks(flow)
    before, after = _live(flow, blocks)
    seen = 0
    for (start, _), live in zip(blocks, before, strict=True):
        for number in _bits(live & ~seen):
            first[number] = min(first[number], start)
        seen |= live
    seen = 0
    for (_, end), live in zip(reversed(blocks), reversed(after), strict=True):
        for number in _bits(live & ~seen):
            last[number] = max(last[number], end - 1)
        seen |= live
    return first, last


def _blocks(flow: Flow) -> list[tuple[int, int]]:
    """Return the stretches (start, end) that no branch enters or leaves in between."""
    n = len(flow.reads)
    starts = {0, n} | {t for t in flow.target if t >= 0}
    starts |= {i + 1 for i in range(n) if flow.target[i] >= 0 or not flow.falls[i]}
    ordered = sorted(starts)
    return list(pairwise(ordered))


def _live(flow: Flow, blocks: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the registers whose values are needed later, as sets of bits: before and after each
    block.
    """
    number_of = {start: number for number, (start, _) in enumerate(blocks)}
    needed, replaced, following = [], [], []
    # Within each block: the registers that it reads first, those that it writes, and its
    # successors.
    for start, end in blocks:
        need = kill = 0
        for i in range(end - 1, start - 1, -1):
            if not flow.partial[i]:
                for number in flow.writes[i]:
                    bit = 1 << number
                    kill |= bit
                    need &= ~bit
            for number in flow.reads[i]:
                need |= 1 << number
        needed.append(need)
        replaced.append(kill)
        leads = [number_of[flow.target[end - 1]]] if flow.target[end - 1] >= 0 else []
        if flow.falls[end - 1] and end in number_of:
            leads.append(number_of[end])
        following.append(leads)
    # Between blocks: pass the needed registers backwards until nothing changes.
    before, after = list(needed), [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for number in range(len(blocks) - 1, -1, -1):
            out = 0
            for leads in following[number]:
                out |= before[leads]
            into = needed[number] | (out & ~replaced[number])
            if out != after[number] or into != before[number]:
                after[number], before[number], changed = out, into, True
    return before, after


def _bits(of: int) -> list[int]:
    numbers = []
    while of:
        low = of & -of
        numbers.append(low.bit_length() - 1)
        of ^= low
    return numbers
