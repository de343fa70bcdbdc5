"""A producer fills a stage by bulk copies, consumers empty it; two mbarriers say when. Each part of
the protocol is left out or changed.
"""

from __future__ import annotations

import re
import time

import pytest
import torch

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx.module import PtxError, load
from flash_attest.races.tracing import trace

TILES, BYTES = 4, 256
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 from, .param .u64 to)
.reqntid 64
{
.shared .align 128 .b8 stage[256]; .shared .align 8 .b64 full; .shared .align 8 .b64 empty;
.reg .b32 %r<12>; .reg .b64 %w<8>; .reg .pred %p<6>, %done;
ld.param.u64 %w0, [from]; ld.param.u64 %w1, [to]; mov.u32 %r0, %tid.x; mov.u32 %r1, 0;
setp.eq.u32 %p0, %r0, 0; setp.ge.u32 %p1, %r0, 32; mov.u32 %r6, 0;
"""
PIPELINE = f"""{HEAD}
@%p0 mbarrier.init.shared::cta.b64 [full], 1;
@%p0 mbarrier.init.shared::cta.b64 [empty], 32;
fence.mbarrier_init.release.cluster;
bar.sync 0;
@%p1 bra consumer;
@!%p0 bra end;
producer:
and.b32 %r2, %r1, 1; xor.b32 %r2, %r2, 1;
emptied:
mbarrier.try_wait.parity.shared::cta.b64 %done, [empty], %r2;
@!%done bra emptied;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {BYTES};
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [stage], [%w0], {BYTES}, [full];
add.s64 %w0, %w0, {BYTES}; add.s32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, {TILES}; @%p2 bra producer;
bra end;
consumer:
sub.s32 %r3, %r0, 32; mul.wide.u32 %w2, %r3, 8; add.s64 %w1, %w1, %w2; mov.u32 %r4, stage; cvt.u32.u64 %r5, %w2;
add.s32 %r4, %r4, %r5;
next:
and.b32 %r2, %r1, 1;
filled:
mbarrier.try_wait.parity.shared::cta.b64 %done, [full], %r2;
@!%done bra filled;
ld.shared.b64 %w3, [%r4];
fence.proxy.async.shared::cta;
mbarrier.arrive.shared::cta.b64 _, [empty];
st.global.b64 [%w1], %w3;
add.s64 %w1, %w1, {BYTES}; add.s32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, {TILES}; @%p2 bra next;
end:
ret;
}}"""
INIT_FULL, INIT_EMPTY = (
    "@%p0 mbarrier.init.shared::cta.b64 [full], 1;",
    "@%p0 mbarrier.init.shared::cta.b64 [empty], 32;",
)
WAIT_FULL = "mbarrier.try_wait.parity.shared::cta.b64 %done, [full], %r2;\n@!%done bra filled;"
WAIT_EMPTY = "mbarrier.try_wait.parity.shared::cta.b64 %done, [empty], %r2;\n@!%done bra emptied;"
EXPECT = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {BYTES};"
COPY = f"cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [stage], [%w0], {BYTES}, [full];"
READ, FENCE = "ld.shared.b64 %w3, [%r4];", "fence.proxy.async.shared::cta;"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [empty];"
ONE_LANE = "setp.eq.u32 %p3, %r0, 32; @%p3 mbarrier.arrive.shared::cta.b64 _, [empty];"

UNUSED = "@%p0 mbarrier.init.shared::cta.b64 [stage+8], 7;"
AHEAD = [(READ, ""), (WAIT_FULL, f"{READ}\n{WAIT_FULL}")]


def edited(*edits: tuple[str, str]) -> str:
    text = PIPELINE
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def run(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.arange(TILES * BYTES // 8, dtype=torch.int64)
    result = torch.zeros_like(source)
    load(text)["test"].launch(1, 64)(source, result)
    return source, result


def traced(text: str, seed: int = 0) -> tuple[list, bool]:
    """Return the findings, and whether the result is right."""
    right = []

    def call() -> None:
        source, result = run(text)
        right.append(torch.equal(source, result))

    return trace(call, seed=seed, limit=20), right == [True]


RIGHT = {
    "the pipeline": [],
    "one lane arrives behind a barrier of the warp": [
        (INIT_EMPTY, INIT_EMPTY.replace("32", "1")), (ARRIVE, f"bar.warp.sync -1; {ONE_LANE}"),
    ],
    "the fence is the producer's": [(FENCE, ""), (EXPECT, f"{FENCE} {EXPECT}")],
    "a state instead of a parity": [
        (EXPECT, f"mbarrier.arrive.expect_tx.shared::cta.b64 %w5, [full], {BYTES};"),
        (COPY, COPY + "\nmbarrier.try_wait.shared::cta.b64 %done, [full], %w5;"),
    ],
    "bytes are expected apart from the arrival": [
        (EXPECT, f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], {BYTES}; mbarrier.arrive.shared.b64 _, [full];"),
    ],
    "the bytes are expected after the copy has begun": [
        (EXPECT, ""), (COPY, f"{COPY}\n{EXPECT}"),
    ],
    "test_wait asks again and again": [
        (WAIT_FULL, WAIT_FULL.replace("try_wait", "test_wait")), (WAIT_EMPTY, WAIT_EMPTY.replace("try_wait", "test_wait")),
    ],
    "an arrival of 32": [
        (ARRIVE, "bar.warp.sync -1; setp.eq.u32 %p3, %r0, 32; @%p3 mbarrier.arrive.shared::cta.b64 _, [empty], 32;"),
    ],
    "an mbarrier that nobody uses lies where data come, and is invalidated": [
        (INIT_FULL, f"{UNUSED} @%p0 mbarrier.inval.shared::cta.b64 [stage+8]; {INIT_FULL}"),
    ],
    "initialised twice before it is used": [(INIT_FULL, f"{INIT_FULL} {INIT_FULL}")],
    "invalidated at the end": [
        ("@%p2 bra next;", "@%p2 bra next; bar.sync 1, 32; setp.eq.u32 %p3, %r0, 32; @%p3 mbarrier.inval.shared.b64 [full];"),
    ],
}  # fmt: skip
WRONG = {
    "consumers do not wait": ([(WAIT_FULL, "")], Kind.UNINITIALISED, "stage"),
    "consumers read ahead of their wait": (AHEAD, Kind.RACE, "read"),
    "the producer does not wait": ([(WAIT_EMPTY, "")], Kind.BARRIER, "1 more arrivals in phase 0"),
    "the producer copies ahead of its wait": (
        [(f"emptied:\n{WAIT_EMPTY}\n{EXPECT}\n{COPY}", f"{EXPECT}\n{COPY}\nemptied:\n{WAIT_EMPTY}")],
        Kind.BARRIER, "1 more arrivals in phase 0",
    ),
    "no arrival": ([(ARRIVE, "")], Kind.DEADLOCK, r"the mbarrier at \S+ in phase 0 \(32 of 32 arrivals to come\)"),
    "the stage is released before it has been read": (
        [(READ, ""), (FENCE, ""), (ARRIVE, f"{ARRIVE}\n{READ}")], Kind.RACE, "no barrier between",
    ),
    "the parity starts again with each tile": (
        [("add.s32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 4; @%p2 bra producer;",
          "add.s32 %r6, %r6, 1; and.b32 %r1, %r6, 2; shr.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r6, 4; @%p2 bra producer;")],
        Kind.BARRIER, "1 more arrivals in phase 0",
    ),
    "one lane arrives for 32 that have read": (
        [(INIT_EMPTY, INIT_EMPTY.replace("32", "1")), (ARRIVE, ONE_LANE)], Kind.RACE, "no barrier between",
    ),
    "no proxy fence between the reads and the next copy": ([(FENCE, "")], Kind.RACE, "no fence.proxy.async between"),
    "the fence is for global memory": ([(FENCE, "fence.proxy.async.global;")], Kind.RACE, "no fence.proxy.async"),
    "too few bytes are expected": ([(EXPECT, EXPECT.replace("256", "128"))], Kind.DEADLOCK, "128 bytes more than expected"),
    "too many bytes are expected": ([(EXPECT, EXPECT.replace("256", "512"))], Kind.DEADLOCK, "256 bytes to come"),
    "too few arrivals are expected": ([(INIT_EMPTY, INIT_EMPTY.replace("32", "31"))], Kind.RACE, "no barrier between"),
    "too many arrivals are expected": (
        [(INIT_EMPTY, INIT_EMPTY.replace("32", "33"))], Kind.DEADLOCK, "1 of 33 arrivals to come",
    ),
    "the wrong parity of full": (
        [("and.b32 %r2, %r1, 1;\nfilled:", "and.b32 %r2, %r1, 1; xor.b32 %r2, %r2, 1;\nfilled:")],
        Kind.UNINITIALISED, "stage",
    ),
    "the wrong parity of empty": ([("xor.b32 %r2, %r2, 1;", "")], Kind.DEADLOCK, "phase 0"),
    "arrivals that release nothing": (
        [(ARRIVE, ARRIVE.replace("arrive.", "arrive.relaxed.cta."))], Kind.RACE, "no barrier between",
    ),
    "waits that acquire nothing": (
        [(WAIT_EMPTY, WAIT_EMPTY.replace("parity.", "parity.relaxed.cta."))], Kind.RACE, "no barrier between",
    ),
    "no barrier after mbarrier.init": ([("bar.sync 0;", "")], Kind.RACE, "between mbarrier.init and this use"),
    "no mbarrier.init": ([(INIT_FULL, "")], Kind.BARRIER, "used as an mbarrier without mbarrier.init"),
    "no arrivals at all": ([(INIT_FULL, INIT_FULL.replace(", 1;", ", 0;"))], Kind.BARRIER, "mbarrier.init with 0 arrivals"),
    "data are written over an mbarrier": (
        [("bar.sync 0;", "bar.sync 0; @%p0 st.shared.b32 [full+4], %r0;")], Kind.BARRIER, "overwritten since mbarrier.init",
    ),
    "used after mbarrier.inval": (
        [("@%p1 bra consumer;", "@%p0 mbarrier.inval.shared::cta.b64 [full];\n@%p1 bra consumer;")],
        Kind.BARRIER, "used after mbarrier.inval",
    ),
    "an mbarrier that nobody uses lies where data come": (
        [(INIT_FULL, f"{UNUSED} {INIT_FULL}")], Kind.BARRIER, r"(?s)overwritten without mbarrier.inval.*bulk",
    ),
    "data are written over an mbarrier behind its last use": (
        [("end:", "end:\nbar.sync 0; @%p0 st.shared.b32 [empty], %r0;")], Kind.BARRIER, "overwritten without mbarrier.inval",
    ),
    "an mbarrier is made where data lie over another one": (
        [(INIT_FULL, f"{UNUSED} @%p0 st.shared.b32 [stage+8], %r0; {UNUSED} @%p0 mbarrier.inval.shared::cta.b64 [stage+8]; "
          f"{INIT_FULL}")],
        Kind.BARRIER, "overwritten without mbarrier.inval",
    ),
    "mbarrier.init of one in use": ([(COPY, COPY + INIT_FULL[5:])], Kind.BARRIER, "that is in use"),
    "nobody waits for a phase": (
        [(WAIT_FULL, ""), (READ, "mov.b64 %w3, 0;"), (FENCE, "")], Kind.BARRIER, "no thread has waited for phase 2",
    ),
    "the block ends during a copy": (
        [(f"setp.lt.u32 %p2, %r1, {TILES}; @%p2 bra next;", f"setp.lt.u32 %p2, %r1, {TILES - 1}; @%p2 bra next;")],
        Kind.BARRIER, "the block ends while this copy",
    ),
    "a consumer writes to the stage behind its fence": (
        [(FENCE, FENCE + " st.shared.b64 [%r4], %w3;")], Kind.RACE, "no fence.proxy.async",
    ),
}  # fmt: skip


@pytest.mark.parametrize("edits", RIGHT.values(), ids=RIGHT)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_right_pipeline(edits, seed):
    found, right = traced(edited(*edits), seed)
    assert found == [], "\n".join(map(str, found))
    assert right


@pytest.mark.parametrize("edits, kind, words", WRONG.values(), ids=WRONG)
def test_a_wrong_pipeline_is_found(edits, kind, words):
    found, _ = traced(edited(*edits))
    assert [f for f in found if f.kind is kind and re.search(words, str(f))], "\n".join(map(str, found)) or "no finding"


def test_copies_are_late_so_a_kernel_that_does_not_wait_reads_something_else_untraced():
    source, result = run(edited(*AHEAD))
    assert not torch.equal(source, result)


def test_a_deadlock_is_seen_at_once_and_says_who_waits_for_what():
    started = time.monotonic()
    with pytest.raises(PtxError) as error:
        run(edited((ARRIVE, "")))
    assert time.monotonic() - started < 10  # of a limit of 60
    assert re.search(
        r"threads? 0 waits? at the mbarrier at \S+ in phase 0 \(32 of 32 arrivals to come\)", str(error.value)
    )


@pytest.mark.parametrize(
    "old, new, error, words",
    [
        (INIT_FULL, INIT_FULL.replace(", 1", ""), CompileError, "takes 2 operands, has 1"),
        (EXPECT, EXPECT.replace(f", {BYTES}", ""), CompileError, "takes 3 operands, has 2"),
        (COPY, COPY.replace(", [full]", ""), CompileError, "takes 4 operands, has 3"),
        (ARRIVE, ARRIVE.replace("arrive.", "arrive.noComplete.release.cta."), Refused, "opcode mbarrier.arrive.noComplete"),
        (COPY, "setmaxnreg.inc.sync.aligned.u32 100;", CompileError, "24 to 256, a multiple of 8"),
        (COPY, "cp.async.bulk.wait_group %r0;", CompileError, "should be a number"),
    ],
)  # fmt: skip
def test_text_that_is_wrong_or_not_covered(old, new, error, words):
    with pytest.raises(error, match=re.escape(words)):
        load(edited((old, new)), kernels=["test"])
