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
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch

from flash_attest.emulator import devices
from flash_attest.emulator.ptx.tensor_map import TensorMap

if __name__ == "__main__":
    devices.choose(90)

from tests.emulator.taken import Taken, taking
from tests.emulator.triton import test_barriers
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

FENCED_REGISTERS = """no instruction has touched a register of these wgmmas since the wgmma.fence before"""
FENCED_MEMORY = """nothing was written to shared memory since the fence.proxy.async before"""
FENCED_LATER = """another fence.proxy.async lies between this one and every wgmma"""
WAITED_LATER = """the next wait covers the same wgmmas, and until then nothing uses their registers or writes to shared
memory"""
READ_EARLIER = """a barrier before it lies behind the wait for the wgmmas of the round before, which read the stage that is
filled next"""
ELSEWHERE = """another compilation of the kernel shows it: the launches of this one take another branch, or go once through
a loop"""
LAST_COPIES = """behind the last loop: its last copies lie beyond the last tile, nobody reads them, and the output is stored
where no copy went"""
RUNS_ONCE = (
    """it runs once in a launch: the buffer of Q is filled once and emptied once, and nobody waits for it again"""
)
UNUSED = """nobody arrives at this mbarrier or waits for it: without its initialisation nothing shows either"""
INITS = """before it a lane has initialised mbarriers, and a barrier of all warps follows before one is used"""
MBARRIERS = """since the barriers before it its warps accessed nothing but mbarriers, for which each thread waits itself,
and started copies, which a barrier does not order"""
ENDS = """its warps only end behind it, and a barrier counts warps that have ended"""
UNREACHED = """no launch reaches it"""
REASONS = (
    FENCED_REGISTERS, FENCED_MEMORY, FENCED_LATER, WAITED_LATER, READ_EARLIER, ELSEWHERE, LAST_COPIES, INITS, MBARRIERS,
    ENDS, UNREACHED,
)  # fmt: skip

BARRIER = re.compile(r"\bbar(rier)?\.sync\b")
BRANCH = re.compile(r"(@\S+\s+)?\bbra(?:\.uni)?\s+(\$L__BB\w+)")
COPY = "cp.async.bulk.tensor.3d.shared"
SHARED = re.compile(rf"\b(ld\.shared|st\.shared|stmatrix|ldmatrix|{COPY}|cp\.async|wgmma\.mma_async|mbarrier\.\w+)\b")
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
        return test_barriers.reason(taken, n) or (READ_EARLIER if waited_earlier(before, after) else "")
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


def waited_earlier(before: list[str], after: list[str]) -> bool:
    """Return whether copies into a stage follow, and between the two barriers before these all
    wgmmas were waited for.
    """
    since = until("bar.sync", reversed(before))
    earlier = until("bar.sync", reversed(before[: len(before) - len(since) - 1]))
    following = next((line for line in after if SHARED.search(line)), "")
    waits = any(re.search(r"wgmma\.wait_group\S* 0;", line) for line in earlier)
    return "cp.async" in following and waits and not has_label([*since, *earlier])


def reason_by_tma(seen: list[Taken], change: str, n: int) -> str:
    """Return why a change of line n in the kernel with TMA may show nothing, as `reason` does."""
    lines = [line.split("//")[0] for line in seen[0].lines]
    if change in ("mbarrier wait", "mbarrier arrive"):
        return "" if repeats(lines, n) else RUNS_ONCE
    if change == "named barrier":
        return reason_of_barrier(lines, n) if any(is_reached(taken, n) for taken in seen) else UNREACHED
    return UNUSED if "mbarrier.init" in lines[n] and not shown_by(seen[0], seen[0].without(n)) else ""


def reason_of_barrier(lines: list[str], n: int) -> str:
    """Return why the barrier at line n is not needed, by the accesses on paths to it and from it.

    Returns "" if there is no reason.
    """
    following = steps(lines)
    preceding: list[list[int]] = [[] for _ in lines]
    for at, to in enumerate(following):
        for each in to:
            preceding[each].append(at)
    before = accesses(lines, walk(preceding, n, lambda at: BARRIER.search(lines[at])))
    up_to_all = accesses(lines, walk(following, n, lambda at: "barrier.sync" in lines[at]))
    of_all = "barrier.sync" in lines[n]
    if not of_all and before == {"mbarrier.init"} and up_to_all <= {"mbarrier.init", "st.shared"}:
        return INITS
    if not of_all and before <= {"mbarrier.arrive", "mbarrier.try_wait", COPY}:
        return MBARRIERS
    return ENDS if accesses(lines, walk(following, n, lambda _: False)) <= {"st.shared"} else ""


def accesses(lines: list[str], among: set[int]) -> set[str]:
    """Return what these lines do to shared memory."""
    return {found[1] for at in among if (found := SHARED.search(lines[at]))}


def repeats(lines: list[str], n: int) -> bool:
    """Return whether a path leads from line n back to it, within the part of the kernel that its
    warps run: a barrier.sync separates two parts.
    """
    return n in walk(steps(lines), n, lambda at: "barrier.sync" in lines[at])


def steps(lines: list[str]) -> list[list[int]]:
    """Return, for each line, those that may be executed next."""
    labels = {line.split(":")[0]: at for at, line in enumerate(lines) if line.startswith("$L__BB")}
    result = []
    for at, line in enumerate(lines):
        branch = BRANCH.search(line)
        ends = re.search(r"\bret;", line) or (branch and not branch[1])
        result.append([*([labels[branch[2]]] if branch else []), *([] if ends or at + 1 == len(lines) else [at + 1])])
    return result


def walk(steps: list[list[int]], start: int, stops: Callable[[int], object]) -> set[int]:
    """Return the lines on paths from a line, up to those that stop them."""
    seen: set[int] = set()
    left = [*steps[start]]
    while left:
        at = left.pop()
        if at not in seen and not stops(at):
            seen.add(at)
            left += steps[at]
    return seen


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
            found.append(Removal(seen[0].name, change, place, shown, "" if shown else reason_by_tma(seen, change, n)))
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
