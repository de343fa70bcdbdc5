"""Random small programs that make tensor maps, in memory, for their bulk copies.

Two maps lie in global memory: m0 describes g0, and m1 g1. Every program begins with both made and
acquired by all threads. A change of a map leaves it as it was, so the values stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flash_attest.races.events import (
    Access,
    Agent,
    AnyEvent,
    Barrier,
    Expect,
    Issue,
    MapAcquire,
    MapRelease,
    Phase,
    Thread,
)
from tests.emulator.ptx.bulk_programs import SIZE, Asynchronous, Builder, BulkProgram
from tests.emulator.ptx.programs import Step, StepAccess, place, threads_of

MAPS = {"m0": "g0", "m1": "g1"}  # with the memory that each describes
BYTES = 128
FREE = (96, 128)  # bytes of a map that may have any value
DRAFTS = " ".join(f"    .shared .align 128 .b8 draft_{map}[{BYTES}];" for map in MAPS)
WHOLE = {name: Access("write", (name, None), 0, BYTES) for name in MAPS}


@dataclass(frozen=True, repr=False)
class Mapped(Asynchronous):
    """A step with a tensor map."""

    map: str = ""

    def agent(self, n: int) -> Agent:
        agent = super().agent(n)
        return replace(agent, maps=(StepAccess("read", (self.map, None), 0, BYTES, n),)) if self.source else agent


def touch_map(thread: int, what: str, map: str, start: int) -> Mapped:
    at = f"[%{map}+{start}]"
    code = {"read": f"ld.global.b32 %w, {at}", "write": f"st.global.b32 {at}, %w"}[what]
    return Mapped(0, (thread,), "access", code, StepAccess(what, (map, None), start, 4), map=map)


def change(thread: int, map: str) -> Mapped:
    code = f"tensormap.replace.tile.global_dim.global.b1024.b32 [%{map}], 0, {SIZE}"
    return Mapped(0, (thread,), "change", code, WHOLE[map], map=map)


def copy_map(warp: int, map: str, size: int) -> Mapped:
    code = (
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        f"[%{map}], [draft_{map}], {BYTES}"
    )
    return Mapped(0, threads_of(warp, size), "copy map", code, WHOLE[map], map=map)


def release(thread: int) -> Mapped:
    return Mapped(0, (thread,), "release", "fence.proxy.tensormap::generic.release.gpu")


def acquire(thread: int, map: str) -> Mapped:
    code = f"fence.proxy.tensormap::generic.acquire.gpu [%{map}], {BYTES}"
    return Mapped(0, (thread,), "acquire", code, map=map)


def load_by(thread: int, to: str, map: str, phase: Phase) -> Mapped:
    bar = phase.mbarrier
    code = (
        f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{bar}], {SIZE}; cp.async.bulk.tensor.1d.shared::cta.global"
        f".tile.mbarrier::complete_tx::bytes {place(to, 0, False)}, [%{map}, {{0}}], [{bar}]"
    )
    accesses = Access("write", (to, 0), 0, SIZE), Access("read", (MAPS[map], None), 0, SIZE)
    return Mapped(0, (thread,), "bulk load", code, *accesses, phase=phase, map=map)


def store_by(thread: int, since: str, map: str) -> Mapped:
    code = f"cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%{map}, {{0}}], {place(since, 0, False)}"
    accesses = Access("write", (MAPS[map], None), 0, SIZE), Access("read", (since, 0), 0, SIZE)
    return Mapped(0, (thread,), "bulk store", code, *accesses, map=map)


FIELDS = (
    ("global_address", "b64", "%{of}"), ("rank", "b32", "0"), ("box_dim", "b32", "0, 16"), ("global_dim", "b32", "0, 16"),
    ("element_stride", "b32", "0, 1"), ("elemtype", "b32", "0"), ("swizzle_mode", "b32", "0"),
)  # fmt: skip
ZEROS = " ".join(
    f"@%p st.shared.v4.b32 [draft_{map}+{at}], {{0, 0, 0, 0}};" for map in MAPS for at in range(0, BYTES, 16)
)


def made(map: str, of: str) -> str:
    """Return PTX by which thread 0 and its warp make a map."""
    fields = " ".join(
        f"@%p tensormap.replace.tile.{name}.shared::cta.b1024.{type} [draft_{map}], {value.format(of=of)};"
        for name, type, value in FIELDS
    )
    copied = copy_map(0, map, 0).code
    return f"{fields} @%own {copied}; @%p {acquire(0, map).code};"


class MapProgram(BulkProgram):
    collective = ("warps", "copy map")
    names = (*BulkProgram.names, *MAPS)
    sizes = (*BulkProgram.sizes, *[BYTES] * len(MAPS))

    @property
    def header(self) -> str:
        text = (
            super().header.replace(".param .u64 p3", ".param .u64 p3, .param .u64 p4, .param .u64 p5")
            .replace("%g3, %s0", "%g3, %m0, %m1, %s0").replace(".align 16 .b8 s", ".align 128 .b8 s")
            .replace("    .shared", f"{DRAFTS}\n    .shared", 1)
            .replace("%true, %done", "%true, %own, %done")
        )  # fmt: skip
        makes = " ".join(made(map, of) for map, of in MAPS.items())
        start = "ld.param.u64 %m0, [p4]; ld.param.u64 %m1, [p5]; setp.lt.u32 %own, %t, 32;"
        return f"{text}\n    {start} {ZEROS}\n    {makes}\n    bar.sync 0;"

    def events_of(self, n: int, thread: Thread) -> list[AnyEvent]:
        step = self.steps[n]
        if step.kind == "change":
            return [StepAccess(what, (step.map, None), 0, BYTES, n) for what in ("read", "write")]
        if step.kind == "copy map":
            copies = thread.index == step.threads[0]
            copied = [StepAccess("write", (step.map, None), 0, BYTES, n)] if copies else []
            return [Barrier((n, "before")), *copied, Barrier((n, "behind")), MapRelease()]
        if step.kind == "release":
            return [MapRelease()]
        if step.kind == "acquire":
            return [MapAcquire(step.map and (step.map, None), 0, BYTES)]
        if step.kind == "bulk load":
            return [Expect(step.phase, SIZE), Issue(step.agent(n))]
        return super().events_of(n, thread)


class MapBuilder(Builder):
    def add(self, step: Step) -> None:
        super().add(step)
        if step.kind == "copy map":  # its lanes meet
            met = [thread for thread in step.threads if thread in self.time]
            joined = set().union(*(self.time[thread] for thread in met))
            for thread in met:
                self.time[thread] |= joined

    def load_by(self, thread: int, to: str, map: str, bar: str) -> None:
        self.loads(thread, bar, lambda phase: load_by(thread, to, map, phase))
