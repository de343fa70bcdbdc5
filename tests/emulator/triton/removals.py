"""Removes instructions of our kernels for sm_90 one at a time, and prints how each removal shows.

    python -m tests.emulator.triton.removals '["float16", 64]' wgmma.fence bar.sync

It is a program, because a process emulates one GPU, and tests emulate the default one.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass

import torch

from flash_attest.emulator import devices

if __name__ == "__main__":
    devices.choose(90)

from tests.emulator.taken import Taken, taking
from tests.emulator.triton import test_barriers
from tests.emulator.triton.test_barriers import is_reached

OPCODES = ("wgmma.wait_group", "wgmma.fence", "fence.proxy.async", "cp.async.wait_group", "bar.sync")
VALUES = "values"
# (causal, seqlen_q, seqlen_k): loops without a mask of none, two, three and four rounds, and loops
# with one behind them. The stages of a pipeline change after an odd number of rounds.
SIZES = ((True, 160, 160), (True, 20, 20), (False, 110, 110), (False, 70, 110))

FENCED_REGISTERS = """no instruction has touched a register of these wgmmas since the wgmma.fence before"""
FENCED_MEMORY = """nothing was written to shared memory since the fence.proxy.async before"""
FENCED_LATER = """another fence.proxy.async lies between this one and every wgmma"""
WAITED_LATER = """the next wait covers the same wgmmas, and until then nothing uses their registers or writes to shared
memory"""
LAST_COPIES = """behind the last loop: its last copies lie beyond the last tile, nobody reads them, and the output is stored
where no copy went"""
REASONS = (FENCED_REGISTERS, FENCED_MEMORY, FENCED_LATER, WAITED_LATER, LAST_COPIES)

WRITES = re.compile(r"\b(st\.shared|stmatrix|cp\.async\.c[ag])\b")
REGISTER = re.compile(r"%(?:r|f|rd|rs)\d+\b")


@dataclass(frozen=True)
class Removal:
    """An instruction that was removed. shown: the kinds of findings, and VALUES for other results.

    reason: why it is not needed, if nothing shows; "" if there is no reason.
    """

    kernel: str
    opcode: str
    place: str
    shown: list[str]
    reason: str = ""


def reason(taken: Taken, opcode: str, n: int) -> str:
    """Return why the instruction at line n of the PTX may be unneeded; "" if there is no reason."""
    lines = [line.split("//")[0] for line in taken.lines]
    before, after = lines[:n], lines[n + 1 :]
    if opcode == "bar.sync":
        return test_barriers.reason(taken, n)
    if opcode == "cp.async.wait_group":
        return "" if any(re.search(r"\bcp\.async\.c|\bwgmma\.mma_async", line) for line in after) else LAST_COPIES
    if opcode == "wgmma.fence":
        of_wgmmas = registers(until("wgmma.fence", after), r"wgmma\.mma_async")
        between = until("wgmma.fence", reversed(before))
        touched = registers(between, r"(?!.*wgmma\.mma_async)")
        return "" if has_label(between) or of_wgmmas & touched else FENCED_REGISTERS
    if opcode == "wgmma.wait_group":
        between = until("wgmma.wait_group", after)
        waited = registers(until(r"wgmma\.wait_group", reversed(before)), r"wgmma\.mma_async")
        used = registers(between, "")
        return "" if has_label(between) or waited & used or any(map(WRITES.search, between)) else WAITED_LATER
    between = until("fence.proxy.async", reversed(before))
    if len(between) < len(before) and not has_label(between) and not any(map(WRITES.search, between)):
        return FENCED_MEMORY
    following = next((line for line in after if re.search(r"fence\.proxy\.async|wgmma\.mma_async", line)), "")
    return FENCED_LATER if "fence.proxy.async" in following else ""


def until(opcode: str, lines) -> list[str]:
    """Return the lines up to the first with this opcode."""
    found = []
    for line in lines:
        if opcode.replace("\\", "") in line:
            break
        found.append(line)
    return found


def has_label(lines: list[str]) -> bool:
    return any(line.startswith("$L__BB") for line in lines)


def registers(lines: list[str], opcode: str) -> set[str]:
    """Return the registers in the lines with an opcode."""
    return {register for line in lines if re.match(rf"\s*.*?{opcode}", line) for register in REGISTER.findall(line)}


def launches(dtype: str, headdim: int, atomic: bool = False, tf32: bool = False, bias: bool = False) -> list[Taken]:
    """Return launches of forwards and backwards, with two query heads for one key head."""
    from flash_attest.impls.triton.attention import FlashAttention2  # loads Triton

    way = FlashAttention2(atomic=atomic, tf32=tf32)
    generator = torch.Generator().manual_seed(0)
    with taking() as seen:
        for causal, seqlen_q, seqlen_k in SIZES:
            q, k, v = (
                torch.randn(1, n, heads, headdim, generator=generator).to(getattr(torch, dtype))
                for n, heads in ((seqlen_q, 2), (seqlen_k, 1), (seqlen_k, 1))
            )
            added = torch.randn(1, 1, seqlen_q, seqlen_k, generator=generator).to(q.dtype) if bias else None
            out, lse = way.forward(q, k, v, causal=causal, bias=added)
            way.backward(out, q, k, v, out, lse, causal=causal, bias=added)
    return seen


def removals(seen: list[Taken], opcodes: list[str]) -> list[Removal]:
    """Remove each of these instructions. A launch without removals must have no finding."""
    of_text = defaultdict(list)
    for taken in seen:
        of_text[taken.name, taken.kernel.module.text].append(taken)
    found = []
    for (name, _), same in of_text.items():
        if not any("wgmma" in line for line in same[0].lines):
            continue
        right = [taken.run() for taken in same]
        assert not any(findings for findings, _ in right), right[0][0]
        for n, line in enumerate(same[0].lines):
            opcode = next((opcode for opcode in opcodes if re.search(rf"\b{re.escape(opcode)}\b", line)), None)
            if opcode is None:
                continue
            shown: set[str] = set()
            for taken, (_, arguments) in zip(same, right, strict=True):
                findings, changed = taken.run(same[0].without(n))
                shown |= {finding.kind.value for finding in findings}
                shown |= {VALUES} if any(map(differ, arguments, changed)) else set()
            place = f"{same[0].python_line(n)} {same[0].python_text(n)}, PTX line {n + 1}"
            reached = shown or any(is_reached(taken, n) for taken in same)
            found.append(
                Removal(name, opcode, place, sorted(shown), reason(same[0], opcode, n) if reached and not shown else "")
            )
    return found


def differ(one: object, other: object) -> bool:
    """Return whether two arguments are tensors whose bits differ."""
    if not isinstance(one, torch.Tensor) or not one.numel():
        return False
    return bool((one.reshape(-1).view(torch.uint8) != other.reshape(-1).view(torch.uint8)).any())


if __name__ == "__main__":
    torch.set_num_threads(1)
    way, *wanted = sys.argv[1:]
    result = removals(launches(*json.loads(way)), wanted or list(OPCODES))
    os.write(1, json.dumps([asdict(removal) for removal in result]).encode())
