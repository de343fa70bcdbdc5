"""Prevents mistakes in random programs with wgmma, or only seems to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.emulator.ptx.drawn import clash
from tests.emulator.ptx.programs import Step, block_barrier, some_warps, threads_of, wait, whole_warp
from tests.emulator.ptx.wgmma_programs import (
    LANES,
    Matrix,
    commit_products,
    multiply,
    proxy_fence,
    threads_of_group,
    wait_products,
)

# Where the fence stands on the path from an access to a wgmma: in the accessing thread, in all
# threads ahead of the barrier, in the threads that issue the wgmma, in one of these.
FENCES = ["writer", "everybody", "group", "one"]
BARRIERS = ["block", "warps", "arrive", "through a warp"]
# What may stand in the place of a fence or a wait.
DECOYS = ["a fence of global memory", "a fence of one thread", "another product", "another issue", "nothing"]
ELSEWHERE = 2048  # nothing else is here


class Cure(NamedTuple):
    """The way in which a mistake is prevented, or is not."""

    fence: str
    barrier: str
    decoy: str
    fenced_before: bool  # the thread executes a fence before its access, where it has no use


class Order:
    """The steps of a program so far, and those of them that come before each thread's next step.

    A token stands for an access (its step) or for a warp's part of a wgmma (its step and the warp).
    """

    def __init__(self, size: int):
        self.size, self.steps = size, []
        everybody = [(block, thread) for block in range(2) for thread in range(size) if thread % 32 in LANES]
        self.known = {thread: set() for thread in everybody}
        self.fenced = {thread: set() for thread in everybody}
        self.groups: dict[tuple[int, int], list[list[int]]] = {}  # of a block's warpgroup: groups of wgmmas under way
        self.copies: dict[tuple[int, int], list[int]] = {}  # of a thread: cp.async under way

    def add(self, step: Step) -> None:
        n = len(self.steps)
        self.steps.append(step)
        who = [(step.block, thread) for thread in step.threads if thread % 32 in LANES]
        groups = self.groups.setdefault((step.block, step.threads[0] // 128), [[]])
        if step.kind in ("lanes", "warps"):
            arriving = sum((threads_of(warp, self.size) for warp in step.arriving), ())
            met = who + [(step.block, thread) for thread in arriving if thread % 32 in LANES]
            known, fenced = (set().union(*(of[thread] for thread in met)) for of in (self.known, self.fenced))
            for thread in who:
                self.known[thread], self.fenced[thread] = set(known), set(fenced)
        elif step.kind == "access":
            self.known[who[0]].add(n)
        elif step.kind == "copy":
            self.copies.setdefault(who[0], []).append(n)
        elif step.kind == "wait":
            self.known[who[0]].update(self.copies.pop(who[0], []))
        elif step.kind.startswith("proxy") and not step.code.endswith("global"):
            for thread in who:
                self.fenced[thread] |= self.known[thread]
        elif step.kind == "wgmma":
            groups[-1].append(n)
        elif step.kind == "commit products":
            groups.append([])
        elif step.kind == "wait products":
            done = groups[: max(len(groups) - 1 - step.groups, 0)]
            del groups[: len(done)]
            for thread in who:
                self.known[thread].update((m, thread[1] // 32) for each in done for m in each)

    def mistakes(self, step: Step) -> list[int]:
        """Return the earlier steps that would be in conflict with this one, and are not ordered."""
        return [n for n, earlier in enumerate(self.steps) if self.clash(n, earlier, step)]

    def clash(self, n: int, earlier: Step, step: Step) -> bool:
        if earlier.block != step.block or earlier.kind == step.kind == "wgmma":
            return False
        me, warps = (step.block, step.threads[0]), sorted({thread // 32 for thread in step.threads})
        if earlier.kind == "wgmma":
            parts = [(earlier.agent(n, warp).reads, (n, warp)) for warp in range(self.size // 32)
                     if 32 * warp in earlier.threads]  # fmt: skip
            return any(
                token not in self.known[me] and any(clash(a, b) for a in reads for b in step.accesses)
                for reads, token in parts
            )
        if step.kind == "wgmma":
            return any(
                not any(n in self.fenced[step.block, 32 * warp + lane] for lane in LANES)
                and any(clash(a, b) for a in step.agent(n, warp).reads for b in earlier.accesses)
                for warp in warps
            )
        return (earlier.threads != step.threads or earlier.kind == "copy") and n not in self.known[me] and any(
            clash(a, b) for a in step.accesses for b in earlier.accesses
        )  # fmt: skip

    def cure(self, n: int, step: Step, fence: str, barrier: str) -> None:
        """Add what orders step n and this one."""
        earlier, block = self.steps[n], step.block
        who, mine = earlier.threads[0], step.threads[0]
        if earlier.kind == "wgmma":
            group = who // 128
            if any(n in pending for pending in self.groups[block, group]):
                if n in self.groups[block, group][-1]:
                    self.add(commit_products(block, group))
                self.add(wait_products(block, group, 0))
            if n not in (token[0] for token in self.known[block, mine] if isinstance(token, tuple)) or (
                n in self.mistakes(step)
            ):
                self.barrier(block, range(4 * group, 4 * group + 4), [mine // 32], barrier)
            return
        if n in self.copies.get((block, who), ()):
            self.add(wait(block, who, -1))
        to = sorted({thread // 32 for thread in step.threads})
        if step.kind == "wgmma" and fence in ("writer", "everybody"):
            self.add(proxy_fence(block, [who] if fence == "writer" else range(self.size)))
        if n in self.mistakes(step) and (step.kind == "wgmma" or who != mine):
            self.barrier(block, [who // 32], to, barrier)
        if n in self.mistakes(step) and step.kind == "wgmma":
            if fence == "one":
                self.add(proxy_fence(block, [mine]))
                self.barrier(block, to[:1], to, "warps")
            else:
                self.add(proxy_fence(block, threads_of_group(mine // 128)))

    def decoy(self, n: int, step: Step, which: str, barrier: str) -> None:
        """Add what seems to order step n and this one, and does not."""
        earlier, block = self.steps[n], step.block
        who, mine = earlier.threads[0], step.threads[0]
        group = who // 128
        if earlier.kind == "wgmma":
            groups = self.groups[block, group]
            behind = [m for m, each in enumerate(groups[::-1]) if n in each]  # a wait that leaves its group under way
            if which != "nothing" and behind:
                self.add(wait_products(block, group, max(behind[0], 1)))
            return self.barrier(block, range(4 * group, 4 * group + 4), [mine // 32], barrier)
        if step.kind != "wgmma":
            return self.other_product(block, group, waits=True)
        if n in self.copies.get((block, who), ()):
            self.add(wait(block, who, -1))
        self.barrier(block, [who // 32], sorted({thread // 32 for thread in step.threads}), barrier)
        if which == "a fence of global memory":
            self.add(proxy_fence(block, range(self.size), 2))
        elif which == "a fence of one thread":
            self.add(proxy_fence(block, [who]))
        elif which != "nothing":
            self.other_product(block, mine // 128, which == "another product")

    def other_product(self, block: int, group: int, waits: bool) -> None:
        self.add(multiply(block, group, None, Matrix(ELSEWHERE)))
        if waits:
            self.add(commit_products(block, group))
            self.add(wait_products(block, group, 0))

    def barrier(self, block: int, since: Sequence[int], to: Sequence[int], which: str) -> None:
        """Add barriers that order some warps with others."""
        both, others = sorted({*since, *to}), sorted({*range(self.size // 32)} - {*since, *to})
        if which == "block" or len(both) == self.size // 32:
            return self.add(block_barrier(block, "bar.sync 0", self.size))
        if len(both) == 1:
            return self.add(whole_warp(block, both[0], self.size))
        arriving = [warp for warp in since if warp not in to]
        if which == "arrive" and arriving:
            return self.add(some_warps(block, sorted(to), arriving, self.size))
        if which == "through a warp" and others and arriving:
            self.add(some_warps(block, others[:1], arriving, self.size))
            return self.add(some_warps(block, sorted({others[0], *to}), (), self.size))
        return self.add(some_warps(block, both, (), self.size))


def prevent(steps: Sequence[Step | None], cures: Sequence[Cure | None], spared: int, size: int) -> list[Step]:
    """Insert what prevents mistakes, and what does not for the mistake with the number `spared`, or
    for every third if that is 0.
    """
    order, mistakes = Order(size), 0
    for step, cure in zip(steps, cures, strict=True):
        if not step:
            continue
        if cure and cure.fenced_before and step.kind == "access":
            order.add(proxy_fence(step.block, step.threads))
        for n in order.mistakes(step) if cure else ():
            mistakes += 1
            if mistakes == spared or (not spared and mistakes % 3 == 1):
                order.decoy(n, step, cure.decoy, cure.barrier)
            elif n in order.mistakes(step):
                order.cure(n, step, cure.fence, cure.barrier)
        order.add(step)
    return order.steps
