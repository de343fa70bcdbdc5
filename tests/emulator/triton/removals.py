"""Removes or changes instructions of kernels for sm_90 one at a time, and prints how that shows.

    python -m tests.emulator.triton.removals '["float16", 64]' wgmma.fence bar.sync
    python -m tests.emulator.triton.removals '"tma"' 'mbarrier wait'

It is a program, because a process emulates one GPU, and tests emulate the default one.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch

from flash_attest.emulator import devices
from flash_attest.emulator.ptx.tensor_map import TensorMap

if __name__ == "__main__":
    devices.choose(90)

from tests.emulator.taken import Taken, taking
from tests.emulator.triton.reasons import ELSEWHERE, reason, reason_by_tma
from tests.emulator.triton.test_barriers import is_reached

OPCODES = ("wgmma.wait_group", "wgmma.fence", "fence.proxy.async", "cp.async.wait_group", "bar.sync")
# For TMA: what is changed, the lines in which it is, and the text that replaces a part of it.
CHANGES = {
    "mbarrier wait": (r"mbarrier\.try_wait\.\S+\s+(\w+), [^;]*;", r"setp.eq.u32 \1, 0, 0;"),
    "mbarrier parity": (
        r"(mbarrier\.try_wait\.\S+\s+\w+, \[%r\d+\], )(%r\d+);",
        r"{ .reg .b32 other; xor.b32 other, \2, 1; \1other; }",
    ),
    "mbarrier arrive": (r".*mbarrier\.arrive\.shared.*", ""),
    "mbarrier bytes": (r"(expect_tx\.\S+\s+_, \[%r\d+\], )8192;", r"\g<1>4096;"),
    "mbarrier count of one": (r"(mbarrier\.init\.\S+ \[%r\d+\], )1;", r"\g<1>2;"),
    "mbarrier count of many": (r"(mbarrier\.init\.\S+ \[%r\d+\], )128;", r"\g<1>64;"),
    "bulk wait": (r".*cp\.async\.bulk\.wait_group.*", ""),
    "named barrier": (r".*\bbar(rier)?\.sync\b.*", ""),
    **{opcode: (rf".*\b{re.escape(opcode)}\b.*", "") for opcode in OPCODES[:3]},
}
VALUES = "values"
# (causal, seqlen_q, seqlen_k): loops without a mask of none, two, three and four rounds, and loops
# with one behind them. The stages of a pipeline change after an odd number of rounds.
SIZES = ((True, 160, 160), (True, 20, 20), (False, 110, 110), (False, 70, 110))


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


def launches(
    dtype: str, headdim: int, atomic: bool = False, tf32: bool = False, only: str | None = None, bias: bool = False
) -> list[Taken]:
    """Return launches of forwards and backwards, with two query heads for one key head.

    only: the kernel whose launches are returned; by default all. bias: one for each query, then one
    for all queries.
    """
    from flash_attest.impls.triton.attention import FlashAttention2  # loads Triton

    way = FlashAttention2(atomic=atomic, tf32=tf32)
    generator = torch.Generator().manual_seed(0)
    with taking() as seen:
        for n, (causal, seqlen_q, seqlen_k) in enumerate(SIZES * (1 + bias)):
            q, k, v = (
                torch.randn(1, length, heads, headdim, generator=generator).to(getattr(torch, dtype))
                for length, heads in ((seqlen_q, 2), (seqlen_k, 1), (seqlen_k, 1))
            )
            rows = seqlen_q if n < len(SIZES) else 1
            of = torch.randn(1, 1, rows, seqlen_k, generator=generator).to(q.dtype) if bias else None
            out, lse = way.forward(q, k, v, causal=causal, bias=of)
            way.backward(out, q, k, v, out, lse, causal=causal, bias=of)
    return [taken for taken in seen if only in (None, taken.name)]


def launches_by_tma() -> list[Taken]:
    """Return launches of the forward by TMA, divided among warps: several rounds of its stages, one
    round, a mask.
    """
    from flash_attest.impls.triton.tma import ByTma

    generator = torch.Generator().manual_seed(0)
    with taking() as seen:
        for causal, seqlen_q, seqlen_k in ((False, 128, 300), (False, 64, 40), (True, 100, 130)):
            q, k, v = (torch.randn(1, n, 1, 64, generator=generator).half() for n in (seqlen_q, seqlen_k, seqlen_k))
            ByTma(specialized=True).forward(q, k, v, causal=causal)
    return seen


def changes(seen: list[Taken], wanted: list[str]) -> list[Removal]:
    """Make each of these CHANGES in the kernel of these launches."""
    assert not any(but_known(taken.run()[0]) for taken in seen)
    found = []
    for n, line in enumerate(seen[0].lines):
        for change in wanted:
            pattern, text = CHANGES[change]
            if not re.search(pattern, line):
                continue
            lines = seen[0].lines
            lines[n] = re.sub(pattern, text, line, count=1)
            shown = sorted(set().union(*(shown_by(taken, "\n".join(lines)) for taken in seen)))
            place = f"{seen[0].python_line(n)} {line.strip()}, PTX line {n + 1}"
            shows = partial(shown_by, seen[0])
            why = "" if shown else reason_by_tma(seen, change, n, shows)
            found.append(Removal(seen[0].name, change, place, shown, why))
    return found


def but_known(findings: list) -> list:
    """Return the findings but those of the mbarriers that Triton 3.7.1 leaves where data come."""
    return [finding for finding in findings if "overwritten without mbarrier.inval" not in str(finding)]


def shown_by(taken: Taken, text: str) -> set[str]:
    """Return the kinds of findings of a launch with this PTX, and VALUES for other results."""
    (_, right), (findings, arguments) = taken.run(), taken.run(text)
    values = {VALUES} if any(map(differ, right, arguments)) else set()
    return {finding.kind.value for finding in but_known(findings)} | values


def removals(seen: list[Taken], opcodes: list[str]) -> list[Removal]:
    """Remove each of these instructions. A launch without removals must have no finding.

    The compilations of a kernel have the same instructions, so one may show what another does not.
    """
    of_text = defaultdict(list)
    for taken in seen:
        of_text[taken.name, taken.kernel.module.text].append(taken)
    found: dict[tuple, list[Removal]] = defaultdict(list)  # by kernel, and which of its instructions it is
    for (name, _), same in of_text.items():
        met: Counter[str] = Counter()
        if not any("wgmma" in line for line in same[0].lines):
            continue
        right = [taken.run() for taken in same]
        assert not any(findings for findings, _ in right), right[0][0]
        for n, line in enumerate(same[0].lines):
            opcode = next((opcode for opcode in opcodes if re.search(rf"\b{re.escape(opcode)}\b", line)), None)
            if opcode is None:
                continue
            met[opcode] += 1
            shown: set[str] = set()
            for taken, (_, arguments) in zip(same, right, strict=True):
                findings, changed = taken.run(same[0].without(n))
                shown |= {finding.kind.value for finding in findings}
                shown |= {VALUES} if any(map(differ, arguments, changed)) else set()
            place = f"{same[0].python_line(n)} {same[0].python_text(n)}, PTX line {n + 1}"
            reached = shown or any(is_reached(taken, n) for taken in same)
            found[name, opcode, met[opcode]].append(
                Removal(name, opcode, place, sorted(shown), reason(same[0], opcode, n) if reached and not shown else "")
            )
    return [
        replace(each, reason=ELSEWHERE) if not each.shown and not each.reason and any(one.shown for one in same) else each
        for same in found.values() for each in same
    ]  # fmt: skip


def differ(one: object, other: object) -> bool:
    """Return whether two arguments are tensors, or maps of tensors, whose bits differ."""
    if isinstance(one, TensorMap):
        one, other = one.tensor, other.tensor
    if not isinstance(one, torch.Tensor) or not one.numel():
        return False
    return bool((one.reshape(-1).view(torch.uint8) != other.reshape(-1).view(torch.uint8)).any())


if __name__ == "__main__":
    torch.set_num_threads(1)
    way, *wanted = json.loads(sys.argv[1]), *sys.argv[2:]
    if way == "tma":
        result = changes(launches_by_tma(), wanted or list(CHANGES))
    else:
        result = removals(launches(*way), wanted or list(OPCODES))
    os.write(1, json.dumps([asdict(removal) for removal in result]).encode())
