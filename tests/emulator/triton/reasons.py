"""Says why the removal of a wait, a fence or a barrier of a kernel for sm_90 may show nothing, by
its PTX.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.emulator.taken import Taken
from tests.emulator.triton import test_barriers
from tests.emulator.triton.test_barriers import is_reached

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


def reason_by_tma(seen: list[Taken], change: str, n: int, shows: Callable[[str], object]) -> str:
    """Return why a change of line n in the kernel with TMA may show nothing, as `reason` does.

    shows: whether a run with another text does.
    """
    lines = [line.split("//")[0] for line in seen[0].lines]
    if change in ("mbarrier wait", "mbarrier arrive"):
        return "" if repeats(lines, n) else RUNS_ONCE
    if change == "named barrier":
        return reason_of_barrier(lines, n) if any(is_reached(taken, n) for taken in seen) else UNREACHED
    return UNUSED if "mbarrier.init" in lines[n] and not shows(seen[0].without(n)) else ""


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
