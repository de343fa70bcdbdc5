"""Kernels of a cluster of two blocks: they exchange data through shared memory, share copies, and
push data to each other. Each part of the protocols is left out or changed.
"""

from __future__ import annotations

import re

import pytest
import torch

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx.module import PtxError, load
from flash_attest.races.tracing import trace

TILES, BYTES = 3, 256
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 from, .param .u64 to)
.reqntid 64
.explicitcluster
.reqnctapercluster 2, 1, 1
{
.shared .align 128 .b8 stage[256]; .shared .align 8 .b64 full; .shared .align 8 .b64 empty;
.reg .b32 %r<16>; .reg .b64 %w<8>; .reg .pred %p<6>, %done;
ld.param.u64 %w0, [from]; ld.param.u64 %w1, [to]; mov.u32 %r0, %tid.x; mov.u32 %r1, 0;
mov.u32 %r9, %cluster_ctarank; xor.b32 %r10, %r9, 1; setp.eq.u32 %p0, %r0, 0; setp.ge.u32 %p1, %r0, 32;
mov.u32 %r11, %clusterid.x; mad.lo.u32 %r12, %r11, 2, %r9;
"""
ARRIVE, WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
MEET = f"{ARRIVE}\n{WAIT}"
# Each thread stores an element, and loads the one of its fellow in the other block.
EXCHANGE = f"""{HEAD}
mad.lo.u32 %r2, %r12, 64, %r0; mul.wide.u32 %w2, %r2, 4; add.s64 %w0, %w0, %w2; add.s64 %w1, %w1, %w2;
ld.global.u32 %r3, [%w0]; mov.u32 %r4, stage; mad.lo.u32 %r4, %r0, 4, %r4;
st.shared.u32 [%r4], %r3;
{MEET} // before
mapa.shared::cluster.u32 %r6, %r4, %r10;
ld.shared::cluster.u32 %r7, [%r6];
st.global.u32 [%w1], %r7;
{MEET} // end
ret;
}}"""
# Each block's producer copies its half of a tile to both blocks; a warp of each block reads it.
READY = "fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
EXPECT = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {BYTES};"
COPY = (
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%r4], [%w0], 128, [full], %h0;"
)
WAIT_EMPTY = "mbarrier.try_wait.parity.shared::cta.b64 %done, [empty], %r2;\n@!%done bra emptied;"
READ, FENCE = "ld.shared.b64 %w3, [%r4];", "fence.proxy.async.shared::cta;"
GIVE_BACK = (
    "bar.warp.sync -1;\n@%p3 mbarrier.arrive.shared::cta.b64 _, [empty];\n"
    "@%p3 mbarrier.arrive.shared::cluster.b64 _, [%r6];"
)
MULTICAST = f"""{HEAD}
.reg .b16 %h0; mov.b16 %h0, 3;
@%p0 mbarrier.init.shared::cta.b64 [full], 1;
@%p0 mbarrier.init.shared::cta.b64 [empty], 2;
{READY}
@%p1 bra consumer;
@!%p0 bra end;
mul.wide.u32 %w2, %r9, 128; add.s64 %w0, %w0, %w2; mov.u32 %r4, stage; mad.lo.u32 %r4, %r9, 128, %r4;
producer:
and.b32 %r2, %r1, 1; xor.b32 %r2, %r2, 1;
emptied:
{WAIT_EMPTY}
{EXPECT}
{COPY}
add.s64 %w0, %w0, {BYTES}; add.s32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, {TILES}; @%p2 bra producer;
bra end;
consumer:
sub.s32 %r3, %r0, 32; setp.eq.u32 %p3, %r3, 0; mul.wide.u32 %w2, %r3, 8; add.s64 %w1, %w1, %w2; mov.u32 %r4, stage;
mul.wide.u32 %w4, %r9, {TILES * BYTES}; add.s64 %w1, %w1, %w4; cvt.u32.u64 %r5, %w2; add.s32 %r4, %r4, %r5;
mov.u32 %r7, empty; mapa.shared::cluster.u32 %r6, %r7, %r10;
next:
and.b32 %r2, %r1, 1;
filled:
mbarrier.try_wait.parity.shared::cta.b64 %done, [full], %r2;
@!%done bra filled;
{READ}
{FENCE}
{GIVE_BACK}
st.global.b64 [%w1], %w3;
add.s64 %w1, %w1, {BYTES}; add.s32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, {TILES}; @%p2 bra next;
end:
{MEET} // end
ret;
}}"""
# The first block writes to the second one's shared memory and arrives there.
STORE = "st.shared::cluster.u32 [%r6], %r3;"
TELL = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"
HEAR = "heard: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [full], 0; @!%done bra heard;"
PUSH = f"""{HEAD}
@%p0 mbarrier.init.shared::cta.b64 [full], 64;
{READY}
mul.wide.u32 %w2, %r0, 4; add.s64 %w0, %w0, %w2; add.s64 %w1, %w1, %w2;
mov.u32 %r4, stage; mad.lo.u32 %r4, %r0, 4, %r4; setp.eq.u32 %p4, %r9, 0; @!%p4 bra second;
ld.global.u32 %r3, [%w0]; mapa.shared::cluster.u32 %r6, %r4, 1; mov.u32 %r7, full; mapa.shared::cluster.u32 %r8, %r7, 1;
{STORE}
{TELL}
bra end;
second:
{HEAR}
ld.shared.u32 %r3, [%r4];
st.global.u32 [%w1], %r3;
end:
ret;
}}"""
SEND = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [%r4], 256, [%r8];"
TEXTS = {"exchange": EXCHANGE, "multicast": MULTICAST, "push": PUSH}


def edited(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def run(text: str, blocks: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the source and the result, of which each kernel fills a part."""
    source = torch.arange(64 * blocks + 256, dtype=torch.int32)
    result = torch.full((64 * blocks + 512,), -1, dtype=torch.int32)
    load(text)["test"].launch(blocks, 64)(source, result)
    return source, result


def is_right(kernel: str, source: torch.Tensor, result: torch.Tensor, blocks: int) -> bool:
    if kernel == "exchange":
        return torch.equal(result[: 64 * blocks].view(-1, 2, 64), source[: 64 * blocks].view(-1, 2, 64).flip(1))
    if kernel == "push":
        return torch.equal(result[:64], source[:64])
    size = TILES * BYTES // 4
    return torch.equal(result[: 2 * size].view(2, size), source[:size].expand(2, size))


def traced(kernel: str, text: str, seed: int = 0, blocks: int = 2) -> tuple[list, bool]:
    """Return the findings, and whether the result is right."""
    right = []
    found = trace(lambda: right.append(is_right(kernel, *run(text, blocks), blocks)), seed=seed, limit=20)
    return found, right == [True]


BEFORE, LAST = f"{MEET} // before", f"{MEET} // end"
PUBLISH = "fence.acq_rel.cluster;"
RIGHT = {
    "an exchange": ("exchange", []),
    "a fence and a relaxed arrival": (
        "exchange", [(BEFORE, f"{PUBLISH} {MEET.replace('arrive', 'arrive.relaxed')} // before")],
    ),
    "the same before the end": (
        "exchange", [(LAST, f"{PUBLISH} {MEET.replace('arrive', 'arrive.relaxed')} // end")],
    ),
    "by a generic address": (
        "exchange", [("mapa.shared::cluster.u32 %r6, %r4, %r10;\nld.shared::cluster.u32 %r7, [%r6];",
                      "cvt.u64.u32 %w3, %r4; cvta.shared.u64 %w3, %w3; mapa.u64 %w4, %w3, %r10; ld.u32 %r7, [%w4];")],
    ),
    "work between an arrival and its wait": (
        "exchange", [(BEFORE, f"{ARRIVE}\nst.global.u32 [%w1], %r3;\n{WAIT} // before")],
    ),
    "a multicast": ("multicast", []),
    "the fence is the producer's": (
        "multicast", [(FENCE, ""), (EXPECT, f"{FENCE.replace('::cta', '::cluster')} {EXPECT}")],
    ),
    "bytes are expected by parts": (
        "multicast", [(EXPECT, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], 128; "
                               "mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 128;")],
    ),
    "arrivals at both with .cluster scope": (
        "multicast", [(GIVE_BACK, GIVE_BACK.replace("arrive.shared", "arrive.release.cluster.shared"))],
    ),
    "a push": ("push", []),
    "a push by an asynchronous store": (
        "push", [(STORE, "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r6], %r3, [%r8];"),
                 (TELL, "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r8], 4;"),
                 (HEAR, HEAR.replace(".acquire.cluster", ""))],
    ),
    "a push by a copy of shared memory": (
        "push", [(STORE, "st.shared.u32 [%r4], %r3; fence.proxy.async.shared::cta; bar.sync 0;"),
                 (TELL, "@%p0 mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r8], 256; "
                        f"@%p0 {SEND}"),
                 ("[full], 64;", "[full], 1;"), ("end:\nret;", f"end: {MEET} ret;")],
    ),
}  # fmt: skip
WRONG = {
    "the fence is the producer's, of its own block": (
        "multicast", [(FENCE, ""), (EXPECT, f"{FENCE} {EXPECT}")], Kind.RACE, "no fence.proxy.async between",
    ),
    "no barrier before the first access": ("exchange", [(BEFORE, "")], Kind.RACE, "no barrier between"),
    "only a barrier of the block before it": ("exchange", [(BEFORE, "bar.sync 0;")], Kind.RACE, "no barrier between"),
    "no wait": ("exchange", [(BEFORE, ARRIVE), (LAST, WAIT)], Kind.RACE, "no barrier between"),
    "a relaxed arrival": (
        "exchange", [(BEFORE, MEET.replace("arrive", "arrive.relaxed"))], Kind.RACE, "no barrier between",
    ),
    "the fence is one of the block": (
        "exchange", [(BEFORE, f"fence.acq_rel.cta; {MEET.replace('arrive', 'arrive.relaxed')}")], Kind.RACE,
        "no barrier between",
    ),
    "no barrier before the end": (
        "exchange", [(LAST, "")], Kind.BARRIER,
        r"stage\[\d+\] in shared memory of block \d, used though block \d may have ended",
    ),
    "arrived twice": ("exchange", [(BEFORE, f"{ARRIVE}\n{MEET}")], Kind.BARRIER, "arrives again at barrier.cluster"),
    "waited without an arrival": ("exchange", [(BEFORE, f"{WAIT}\n{MEET}")], Kind.BARRIER, "has not arrived"),
    "a thread does not arrive": (
        "exchange", [(BEFORE, f"setp.eq.u32 %p3, %r12, 1; @!%p3 {ARRIVE} @%p3 bar.sync 1, 96; {WAIT}")], Kind.DEADLOCK,
        r"threads 0-63 of block 0 wait at barrier.cluster.wait, which 64 threads of block 1 have not reached",
    ),
    "a rank that is not there": (
        "exchange", [("xor.b32 %r10, %r9, 1;", "add.u32 %r10, %r9, 1;")], Kind.OUTSIDE, "rank 2, in a cluster of 2",
    ),
    "no barrier after the inits": (
        "multicast", [(READY, "bar.sync 0;")], Kind.RACE, "between mbarrier.init and this use",
    ),
    "no fence after the inits": (
        "multicast", [(READY, READY.replace("fence.mbarrier_init.release.cluster;", ""))], Kind.RACE,
        "between mbarrier.init and this use",
    ),
    "the mask has one block too few": (
        "multicast", [("mov.b16 %h0, 3;", "mov.b16 %h0, 1;")], Kind.DEADLOCK,
        r"the mbarrier at \S+ of block 1 in phase 0 \(0 of 1 arrivals to come, 256 bytes to come\)|bytes more than expected",
    ),
    "the mask has one block too many": (
        "multicast", [("mov.b16 %h0, 3;", "mov.b16 %h0, 7;")], Kind.OUTSIDE, "rank 2, in a cluster of 2",
    ),
    "only the own half is expected": (
        "multicast", [(EXPECT, EXPECT.replace("256", "128"))], Kind.RACE, "write after read, no barrier between",
    ),
    "the count of empty forgets the other block's consumers": (
        "multicast", [("[empty], 2;", "[empty], 1;")], Kind.BARRIER, "1 more arrivals in phase 0",
    ),
    "the other block is not told": (
        "multicast", [("\n@%p3 mbarrier.arrive.shared::cluster.b64 _, [%r6];", ""), ("[empty], 2;", "[empty], 1;")],
        Kind.RACE, "write after read, no barrier between",
    ),
    "the own block is told twice": (
        "multicast", [("mapa.shared::cluster.u32 %r6, %r7, %r10;", "mapa.shared::cluster.u32 %r6, %r7, %r9;")], Kind.RACE,
        "write after read, no barrier between",
    ),
    "arrivals that release nothing": (
        "multicast", [("mbarrier.arrive.shared::cluster.b64", "mbarrier.arrive.relaxed.cluster.shared::cluster.b64")],
        Kind.RACE, "write after read, no barrier between",
    ),
    "no proxy fence": ("multicast", [(FENCE, "")], Kind.RACE, "no fence.proxy.async between"),
    "no barrier at the end of a multicast": ("multicast", [(LAST, "")], Kind.BARRIER, r"may have ended"),
    "an arrival of .cta scope": (
        "push", [(TELL, TELL.replace("release.cluster", "release.cta"))], Kind.RACE, "not both with .cluster scope",
    ),
    "an arrival without a scope": ("push", [(TELL, TELL.replace(".release.cluster", ""))], Kind.RACE, "not both with"),
    "a wait of .cta scope": ("push", [(HEAR, HEAR.replace("acquire.cluster", "acquire.cta"))], Kind.RACE, "not both with"),
    "told before the store": ("push", [(STORE, ""), (TELL, f"{TELL}\n{STORE}")], Kind.RACE, "no barrier between"),
    "a block ends while its memory is copied": (
        "push", [(STORE, "st.shared.u32 [%r4], %r3; fence.proxy.async.shared::cta; bar.sync 0;"),
                 (TELL, "@%p0 mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r8], 256; "
                        f"@%p0 {SEND}"),
                 ("[full], 64;", "[full], 1;")],
        Kind.BARRIER, "used though block 0 may have ended",
    ),
    "a wait on another block's mbarrier": (
        "push", [(TELL, f"{TELL}\nmbarrier.try_wait.parity.shared::cta.b64 %done, [%r8], 0;")],
        Kind.BARRIER, "a thread of another block waits",
    ),
    "the mbarrier is in another block than the data": (
        "push", [(STORE, "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r6], %r3, [full];")],
        Kind.BARRIER, "is in another block than its target",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernel, edits", RIGHT.values(), ids=RIGHT)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_right_kernel(kernel, edits, seed):
    found, right = traced(kernel, edited(TEXTS[kernel], *edits), seed)
    assert found == [], "\n".join(map(str, found))
    assert right


@pytest.mark.parametrize("kernel, edits, kind, words", WRONG.values(), ids=WRONG)
def test_a_wrong_kernel_is_found(kernel, edits, kind, words):
    found, _ = traced(kernel, edited(TEXTS[kernel], *edits))
    assert [f for f in found if f.kind is kind and re.search(words, str(f))], "\n".join(map(str, found)) or "no finding"


def test_clusters_of_a_grid_do_not_meet():
    found, right = traced("exchange", EXCHANGE, seed=3, blocks=6)
    assert found == [] and right


def test_the_wrong_rank_gives_wrong_values():
    source, result = run(edited(EXCHANGE, ("xor.b32 %r10, %r9, 1;", "mov.u32 %r10, %r9;")))
    assert torch.equal(result[:128], source[:128])


def test_without_a_trace_a_block_that_has_ended_is_an_error():
    text = edited(
        EXCHANGE, (LAST, ""), ("mapa", "setp.eq.u32 %p3, %r9, 1; @%p3 bra end;\nmapa"), ("\nret;", "\nend: ret;")
    )
    text = text.replace(
        "st.global.u32 [%w1], %r7;", "st.global.u32 [%w1], %r7;\nbar.sync 0; ld.shared::cluster.u32 %r7, [%r6];"
    )
    with pytest.raises(PtxError, match=r"of block 1, used though block 1 may have ended"):
        run(
            text.replace("ld.shared::cluster.u32 %r7, [%r6];", "nanosleep.u32 9; ld.shared::cluster.u32 %r7, [%r6];", 1)
        )


SPECIALS = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 to)
.reqntid 40
{
.shared .align 8 .b64 here; .reg .b32 %r<30>; .reg .b64 %w<9>; .reg .pred %p<5>;
ld.param.u64 %w0, [to]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %nctaid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mad.lo.u32 %r4, %r3, 48, 0; cvt.u64.u32 %w1, %r4; add.s64 %w0, %w0, %w1;
mov.u32 %r5, %clusterid.x; mov.u32 %r6, %nclusterid.y; mov.u32 %r7, %cluster_ctaid.y; mov.u32 %r8, %cluster_nctaid.x;
mov.u32 %r9, %cluster_ctarank; mov.u32 %r10, %cluster_nctarank; mov.pred %p0, %is_explicit_cluster; selp.b32 %r11, 1, 0, %p0;
mov.u32 %r12, here; mapa.shared::cluster.u32 %r13, %r12, 1; getctarank.shared::cluster.u32 %r14, %r13;
getctarank.shared::cluster.u32 %r15, %r12; mov.u64 %w2, here; cvta.shared.u64 %w3, %w2; mapa.u64 %w4, %w3, 2;
getctarank.u64 %r16, %w4; isspacep.shared::cluster %p1, %w4; isspacep.shared::cta %p2, %w4; isspacep.global %p3, %w0;
selp.b32 %r17, 1, 0, %p1; selp.b32 %r18, 2, 0, %p2; selp.b32 %r19, 4, 0, %p3; or.b32 %r17, %r17, %r18;
or.b32 %r17, %r17, %r19;
st.global.v4.b32 [%w0], {%r5, %r6, %r7, %r8}; st.global.v4.b32 [%w0+16], {%r9, %r10, %r11, %r14};
st.global.v4.b32 [%w0+32], {%r15, %r16, %r17, %r0};
ret;
}"""


def test_where_a_block_is_in_its_cluster():
    out = torch.zeros(4 * 4, 12, dtype=torch.int32)
    load(SPECIALS)["test"].launch((4, 4), 40, cluster=(2, 2))(out)
    for x in range(4):
        for y in range(4):
            rank = x % 2 + 2 * (y % 2)
            shared = 5 + 2 * (rank == 2)  # in the cluster, global; and in the own block
            assert out[4 * y + x].tolist() == [x // 2, 2, y % 2, 2, rank, 4, 1, 1, rank, 2, shared, x]


@pytest.mark.parametrize(
    "directives, grid, cluster, words",
    [
        (".reqnctapercluster 2", 3, None, "a grid of (3, 1, 1) blocks: should be a multiple of the cluster, (2, 1, 1)"),
        (".reqnctapercluster 2", 4, 4, "cluster=(4, 1, 1): the kernel was compiled for (2, 1, 1) (.reqnctapercluster)"),
        (".explicitcluster", 4, None, "the kernel needs clusters (.explicitcluster): give their size"),
        (".maxclusterrank 2", 4, 4, "should be 1 to 2 blocks (.maxclusterrank)"),
        ("", 16, 16, "cluster=(16, 1, 1): 16 blocks, should be at most 8"),
    ],
)
def test_clusters_that_cannot_be_launched(directives, grid, cluster, words):
    text = SPECIALS.replace(".reqntid 40", f".reqntid 40\n{directives}")
    with pytest.raises(PtxError, match=re.escape(words)):
        load(text)["test"].launch(grid, 40, cluster=cluster)(torch.zeros(1))


@pytest.mark.parametrize(
    "old, new, error, words",
    [
        (HEAR, HEAR.replace("shared::cta", "shared::cluster"), Refused, "opcode mbarrier.try_wait.parity"),
        (TELL, TELL.replace("_,", "%w5,"), CompileError, "an arrival in another block gives no state"),
        (STORE, "multimem.ld_reduce.global.add.f32 %r3, [%w0];", Refused, "opcode multimem"),
    ],
)  # fmt: skip
def test_text_that_is_wrong_or_not_covered(old, new, error, words):
    with pytest.raises(error, match=re.escape(words)):
        load(edited(PUSH, (old, new)), kernels=["test"])
