"""Random small programs of a cluster of two blocks, as programs.py has them for blocks alone.

Each arrival and each copy has an mbarrier of its own, of one phase, so that the phase in which an
operation falls does not depend on the order of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from flash_attest.races.events import (
    Access,
    Agent,
    AnyEvent,
    Arrive,
    Cluster,
    Expect,
    Fence,
    Issue,
    Phase,
    Publish,
    Return,
    Thread,
    Wait,
)
from flash_attest.races.launch import Launch
from tests.emulator.ptx.programs import GLOBAL, HEADER, READS, WRITES, Program, Step, StepAccess, place

SIZE, BLOCKS, BARS = 16, 2, 14  # bytes of a copy; of the cluster; mbarriers of each block
MEMORIES = ("s0", "s1")


@dataclass(frozen=True, repr=False)
class Clustered(Step):
    """A step of a cluster: its access may be to the shared memory of either block."""

    bar: int = 0  # the number of its mbarrier
    to: tuple[int, ...] = ()  # blocks of its mbarriers
    orders: bool = True  # not .relaxed
    wide: bool = True  # .cluster scope
    number: int = 0  # the phase of barrier.cluster

    def agents(self, n: int) -> list[Agent]:
        """Return the copies, one for each block."""
        reads = (StepAccess("read", self.source.memory, 0, SIZE, n),) if self.source else ()
        size = self.access.size
        return [
            Agent(
                (self.block, self.threads[0], n, to),
                reads,
                (StepAccess(self.access.what, (self.access.memory[0], to), self.access.start, size, n),),
                Phase((self.bar, to)),
                size,
            )
            for to in self.to
        ]


def touch(block: int, thread: int, kind: tuple[str, int], memory: str, of: int, start: int, form: int) -> Clustered:
    """Return an access to a memory of block `of`: by a mapped, a generic or (of its own) a plain
    address. start: in bytes.
    """
    what, size = kind
    start = start // size * size
    if memory in GLOBAL:
        space, at = ".global", place(memory, start, False)
    elif form == 0 and of == block:
        space, at = ".shared", place(memory, start, False)
    else:
        space, at = (".shared::cluster", f"[%m{memory}{of}+{start}]") if form % 2 else ("", f"[%g{memory}{of}+{start}]")
    if what == "atomic":
        code = f"atom{space}.add.u32 %w, {at}, 1"
    else:
        code = f"ld{space}.{READS[size]}, {at}" if what == "read" else f"st{space}.{WRITES[size].format(at)}"
    access = StepAccess(what, (memory, None if memory in GLOBAL else of), start, size)
    return Clustered(block, (thread,), "access", code, access)


def scope(orders: bool, wide: bool, way: str) -> str:
    """Return .sem and .scope; without them it is the block's scope."""
    if orders and not wide:
        return ""
    return f".{way if orders else 'relaxed'}.{'cluster' if wide else 'cta'}"


def arrive(block: int, thread: int, bar: int, to: int, orders: bool = True, wide: bool = True) -> Clustered:
    code = f"mbarrier.arrive{scope(orders, wide, 'release')}.shared::cluster.b64 _, [%b{to}+{8 * bar}]"
    return Clustered(block, (thread,), "arrive", code, bar=bar, to=(to,), orders=orders, wide=wide)


def wait_for(block: int, thread: int, bar: int, orders: bool = True, wide: bool = True) -> Clustered:
    how = scope(orders, wide, "acquire")
    code = f"again<n>: mbarrier.try_wait.parity{how}.shared::cta.b64 %done, [bars+{8 * bar}], 0; @!%done bra again<n>"
    return Clustered(block, (thread,), "wait for", code, bar=bar, to=(block,), orders=orders, wide=wide)


def copies(block: int, thread: int, memory: str, source: str, bar: int, to: tuple[int, ...]) -> Clustered:
    """Return a copy to one block or to both, from global memory, or from the thread's block if
    source is a shared memory.
    """
    expect = " ".join(
        f"mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%b{one}+{8 * bar}], {SIZE};" for one in to
    )
    many = ".multicast::cluster" if len(to) > 1 else ""
    target, mask = to[0], f", {sum(1 << one for one in to)}" if many else ""
    since = "global" if source in GLOBAL else "shared::cta"
    code = (
        f"{expect} cp.async.bulk.shared::cluster.{since}.mbarrier::complete_tx::bytes{many} [%m{memory}{target}], "
        f"{place(source, 0, False)}, {SIZE}, [%b{target}+{8 * bar}]{mask}"
    )
    read = Access("read", (source, None if source in GLOBAL else block), 0, SIZE)
    return Clustered(block, (thread,), "copies", code, Access("write", (memory, to[0]), 0, SIZE), read, bar=bar, to=to)


def sends(block: int, thread: int, memory: str, start: int, bar: int, to: int, adds: bool) -> Clustered:
    """Return a store of a register to a block's shared memory, or an addition to it, that completes
    on an mbarrier of the block (st.async, red.async).
    """
    expect = f"mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%b{to}+{8 * bar}], 4;"
    opcode = "red.async.relaxed.cluster" if adds else "st.async"
    code = (
        f"{expect} {opcode}.shared::cluster.mbarrier::complete_tx::bytes{'.add' if adds else ''}.{'u' if adds else 'b'}32 "
        f"[%m{memory}{to}+{start}], %w, [%b{to}+{8 * bar}]"
    )
    access = Access("atomic" if adds else "write", (memory, to), start, 4)
    return Clustered(block, (thread,), "copies", code, access, bar=bar, to=(to,))


def fence(block: int, thread: int, of_proxies: bool, of: str = "") -> Clustered:
    """of: the memory that a fence of proxies covers, e.g. ".shared::cta"."""
    code = f"fence.proxy.async{of}" if of_proxies else "fence.acq_rel.cluster"
    return Clustered(block, (thread,), "proxy fence" if of_proxies else "publish", code)


def whole_block(block: int, size: int, warps: int) -> Step:
    return Step(block, tuple(range(size)), "warps", "bar.sync 0", warps=tuple(range(warps)))


def meet(block: int, size: int, number: int, waits: bool, orders: bool = True) -> Clustered:
    """Return one block's part of an arrival or a wait at barrier.cluster."""
    how = "wait" if waits else "arrive" if orders else "arrive.relaxed"
    return Clustered(
        block, tuple(range(size)), "cluster", f"barrier.cluster.{how}", to=(int(waits),), orders=orders, number=number
    )


class ClusterProgram(Program):
    @property
    def header(self) -> str:
        names = [f"{kind}{memory}{block}" for kind in "mg" for memory in MEMORIES for block in range(BLOCKS)]
        short = ", ".join(f"%{name}" for name in names if name[0] == "m")
        long = ", ".join(f"%{name}" for name in names if name[0] == "g")
        maps = " ".join(
            f"mov.u32 %t, {memory}; mapa.shared::cluster.u32 %m{memory}{block}, %t, {block}; "
            f"mapa.u64 %g{memory}{block}, %{memory}, {block};"
            for memory in MEMORIES for block in range(BLOCKS)
        )  # fmt: skip
        bars = " ".join(
            f"mov.u32 %t, bars; mapa.shared::cluster.u32 %b{block}, %t, {block};" for block in range(BLOCKS)
        )
        inits = " ".join(f"@%p mbarrier.init.shared::cta.b64 [bars+{8 * bar}], 1;" for bar in range(BARS))
        text = (
            HEADER.replace("sm_80", "sm_90a").replace(".version 8.0", ".version 8.6").replace("%p, %true", "%p, %true, %done")
            .replace("    .shared", f"    .shared .align 8 .b8 bars[{8 * BARS}];\n    .shared", 1)
            .replace("p3)\n{", f"p3)\n.reqnctapercluster {BLOCKS}\n{{\n    .reg .b32 {short}, %b0, %b1; .reg .b64 {long};")
        )  # fmt: skip
        start = f"setp.eq.u32 %p, %t, 0; {inits} fence.mbarrier_init.release.cluster;"
        return f"{text}\n    {start} {maps} {bars}\n    barrier.cluster.arrive.relaxed; barrier.cluster.wait;"

    def launch(self) -> Launch:
        base = super().launch()
        threads = {Thread(block, index): [] for block in range(BLOCKS) for index in self.seen}
        return type(base)({**threads, **{thread: [*events, Return()] for thread, events in base.threads.items()}})

    def __init__(self, shape, steps):
        super().__init__(shape, steps)
        self.blocks = BLOCKS

    def events_of(self, n: int, thread: Thread) -> list[AnyEvent]:
        step = self.steps[n]
        phases = [Phase((step.bar, to)) for to in step.to] if isinstance(step, Clustered) else []
        if step.kind == "arrive":
            return [Arrive(phases[0], releases=step.orders, wide=step.wide)]
        if step.kind == "wait for":
            return [Wait(phases[0], step.orders, step.wide)]
        if step.kind == "copies":
            size = step.access.size
            expected = [each for to in phases for each in (Arrive(to, releases=False), Expect(to, size))]
            return [*expected, *(Issue(agent) for agent in step.agents(n))]
        if step.kind == "proxy fence":
            return [Fence(covered(step.code.removeprefix("fence.proxy.async"), step.block))]
        if step.kind == "publish":
            return [Publish()]
        if step.kind == "cluster":
            phase = Phase(Cluster(), step.number)
            return [Wait(phase, wide=True)] if step.to[0] else [Arrive(phase, releases=step.orders, wide=True)]
        return []

    def _add_guarded(self, add, n: int) -> None:
        step = self.steps[n]
        if step.kind == "cluster":
            add(f"    setp.eq.u32 %p, %block, {step.block};")
        elif step.kind in ("wait for", "copies"):
            add(f"    setp.eq.u32 %p, %me, {step.block * 72 + step.threads[0]};")
        else:
            return super()._add_guarded(add, n)
        add(f"    @!%p bra after{n};")
        add(f"    {step.code.replace('<n>', str(n))};", n)
        add(f"after{n}:")


def covered(of: str, block: int) -> frozenset | None:
    """Return the memories that a fence of a thread of a block covers; None if all."""
    blocks = {".shared::cta": {block}, ".shared": {block}, ".shared::cluster": range(BLOCKS)}
    every = {
        **{name: frozenset((memory, one) for memory in MEMORIES for one in ones) for name, ones in blocks.items()},
        ".global": frozenset((memory, None) for memory in GLOBAL),
    }
    return every.get(of)


def owner(name) -> int | None:
    """Return the block of a memory or an mbarrier of these programs."""
    return None if isinstance(name, Cluster) else name[1]
