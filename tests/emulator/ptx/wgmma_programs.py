"""Random small programs with wgmma, as programs.py has them without: one or two warpgroups that
multiply matrices in shared memory, and threads that load, store, copy and fence beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from flash_attest.races.events import Agent, AnyEvent, End, Fence, Issue, Thread
from tests.emulator.ptx.programs import DYNAMIC, HEADER, Program, Step, StepAccess

BYTES = 4096  # bytes of dynamic shared memory
SHAPES = [(128, 1, 1), (256, 1, 1), (32, 2, 4)]
LANES = (0, 17)  # the active lanes of each warp; the others take part in steps of whole warps only
GROUP = 128  # threads of a warpgroup
COLUMNS = 8  # of the second matrix; the first has 64 rows, and both have a depth of 16


@dataclass(frozen=True)
class Matrix:
    """A matrix of 16-bit elements in shared memory, 16 deep, as a descriptor says.

    Without a swizzle, 8 rows by 8 elements are 128 adjacent bytes; leading is the distance of the
    two halves of the depth, stride the distance of two groups of 8 rows. With the swizzle of 32
    bytes, a row is 32 adjacent bytes, and leading is not used (PTX ISA, shared memory matrix
    layout).
    """

    start: int
    leading: int = 128
    stride: int = 256
    swizzled: bool = False

    @property
    def descriptor(self) -> int:
        """Return the descriptor, to which the address of the memory is to be added."""
        fields = self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32
        return fields | (3 << 62 if self.swizzled else 0)

    def bytes_of(self, rows: Sequence[int]) -> set[int]:
        """Return where these rows lie."""
        result = set()
        for row in rows:
            for half in (0, 1):
                at = self.start + row // 8 * self.stride
                at += row % 8 * 32 + half * 16 if self.swizzled else row % 8 * 16 + half * self.leading
                at ^= (at >> 7 & 1) << 4 if self.swizzled else 0
                result |= {*range(at, at + 16)}
        return result


@dataclass(frozen=True, repr=False)
class Multiply(Step):
    """A wgmma of one warpgroup."""

    left: Matrix | None = None  # None: in registers
    right: Matrix = Matrix(0)

    def __repr__(self):
        return f"{super().__repr__().split('.sync')[0]} {self.left or 'registers'} x {self.right}"

    def agent(self, n: int, warp: int) -> Agent:
        """Return one warp's part: it reads 16 rows of the first matrix and the whole second one."""
        memory = (DYNAMIC, self.block)
        reads = (StepAccess("read", memory, *each, n) for each in ranges(self.left, self.right, warp % 4))
        return Agent((self.block, 32 * warp, n), reads=tuple(reads))


@cache
def ranges(left: Matrix | None, right: Matrix, warp: int) -> list[tuple[int, int]]:
    """Return the bytes that a warp of a warpgroup reads, as starts and sizes."""
    read = right.bytes_of(range(COLUMNS)) | (left.bytes_of(range(16 * warp, 16 * warp + 16)) if left else set())
    starts = sorted(byte for byte in read if byte - 1 not in read)
    ends = sorted(byte + 1 for byte in read if byte + 1 not in read)
    return [(start, end - start) for start, end in zip(starts, ends, strict=True)]


def threads_of_group(group: int) -> tuple[int, ...]:
    return tuple(range(GROUP * group, GROUP * group + GROUP))


def multiply(block: int, group: int, left: Matrix | None, right: Matrix) -> Multiply:
    flags = "1, 1, 0, 0" if left else "1, 1, 0"
    first = "%left" if left else "{%a0, %a1, %a2, %a3}"
    code = (
        f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k16.f32.f16.f16 {{%sum<n>_0, %sum<n>_1, %sum<n>_2, %sum<n>_3}}, "
        f"{first}, %right, %true, {flags}"
    )
    return Multiply(block, threads_of_group(group), "wgmma", code, left=left, right=right)


def commit_products(block: int, group: int) -> Step:
    return Step(block, threads_of_group(group), "commit products", "wgmma.commit_group.sync.aligned")


def wait_products(block: int, group: int, groups: int) -> Step:
    code = f"wgmma.wait_group.sync.aligned {groups}"
    return Step(block, threads_of_group(group), "wait products", code, groups=groups)


PROXY_FENCES = ["fence.proxy.async.shared::cta", "fence.proxy.async", "fence.proxy.async.global"]


def proxy_fence(block: int, threads: Sequence[int], form: int = 0) -> Step:
    """Return a fence of one thread, or of all threads of some warps."""
    kind = "proxy fence" if len(threads) == 1 else "proxy fences"
    warps = tuple(sorted({thread // 32 for thread in threads}))
    return Step(block, tuple(threads), kind, PROXY_FENCES[form], warps=warps)


class WarpgroupProgram(Program):
    shared = BYTES
    collective = ("warps", "wgmma", "commit products", "wait products", "proxy fences")

    @property
    def header(self) -> str:
        sums = [f"%sum{n}_{m}" for n, step in enumerate(self.steps) if step.kind == "wgmma" for m in range(4)]
        registers = "".join(f"    .reg .f32 {name};\n" for name in sums)
        zeros = "".join(f"\n    mov.f32 {name}, 0f00000000;" for name in sums)
        return (
            HEADER.replace("sm_80", "sm_90a").replace(".align 16 .b8 more[]", ".align 1024 .b8 more[]")
            .replace("%block, 72, %t", f"%block, {self.size}, %t")
            .replace("    .shared", registers + MORE_REGISTERS + "    .shared", 1)
        ) + MORE + zeros  # fmt: skip

    @property
    def seen(self) -> tuple[int, ...]:
        return tuple(32 * warp + lane for warp in range(self.size // 32) for lane in LANES)

    def events_of(self, n: int, thread: Thread) -> list[AnyEvent]:
        step, warp = self.steps[n], thread.index // 32
        if step.kind == "wgmma":
            return [Issue(step.agent(n, warp))]
        if step.kind == "wait products":
            return [End(self.steps[m].agent(m, warp)) for m in self.products_done(n)]
        if step.kind.startswith("proxy"):
            of_global = step.code.endswith("global")
            return [Fence(frozenset(("g0", "g1", "g2", "g3")) if of_global else None)]
        return []

    def products_done(self, n: int) -> list[int]:
        """Return the products that end at this wait, and at none before."""
        groups, done = [[]], 0
        for m, step in enumerate(self.steps[: n + 1]):
            if (step.block, step.threads) != (self.steps[n].block, self.steps[n].threads):
                continue
            if step.kind == "wgmma":
                groups[-1].append(m)
            if step.kind == "commit products":
                groups.append([])
            if step.kind == "wait products":
                before, done = done, max(done, len(groups) - 1 - step.groups)
        return [m for group in groups[before:done] for m in group]

    def _add_guarded(self, add, n: int) -> None:
        step = self.steps[n]
        if step.kind not in self.collective or step.kind == "warps":
            return super()._add_guarded(add, n)
        # A branch that all threads of a warp take together.
        warps = step.warps or tuple(sorted({thread // 32 for thread in step.threads}))
        add(f"    bfe.u32 %t, {sum(1 << warp for warp in warps)}, %warp, 1;")
        add(f"    setp.eq.u32 %p, %t, 1; setp.eq.and.u32 %p, %block, {step.block}, %p;")
        add(f"    @!%p bra after{n};")
        if step.kind == "wgmma":
            if step.left:
                add(f"    add.u64 %left, %more_field, {step.left.descriptor};")
            add(f"    add.u64 %right, %more_field, {step.right.descriptor};")
            add("    wgmma.fence.sync.aligned;")
        add(f"    {step.code.replace('<n>', str(n))};", n)
        add(f"after{n}:")


MORE_REGISTERS = """    .reg .b32 %a0, %a1, %a2, %a3;
    .reg .b64 %left, %right, %more_field;
"""
# The address of dynamic shared memory, as a descriptor has it.
MORE = """
    mov.u32 %a0, more; shr.u32 %a0, %a0, 4; and.b32 %a0, %a0, 16383; cvt.u64.u32 %more_field, %a0;
    mov.u32 %a0, 0; mov.u32 %a1, 0; mov.u32 %a2, 0; mov.u32 %a3, 0;"""
