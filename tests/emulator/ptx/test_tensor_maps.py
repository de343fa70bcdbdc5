"""Tensor maps that a kernel makes: what a copy by them does, the fences that they need, and fields
that are refused.
"""

from __future__ import annotations

import re

import pytest
import torch

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx.module import PtxError, load
from flash_attest.emulator.ptx.tensor_map import TensorMap
from flash_attest.races.tracing import trace
from tests.emulator.ptx.test_bulk import F16, boxed, values

# Warp 0 makes a map of `from` in `maps`; thread 64 loads a box by it, and the block stores that to
# `out`.
TEXT = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry test(.param .u64 from, .param .u64 out, .param .u64 maps, .param .align 16 .b8 corner[32])
.reqntid 128
{
.shared .align 8 .b64 full; .shared .align 128 .b8 draft[128];
.reg .b32 %r<8>, %c<5>, %x<4>; .reg .b64 %w<6>; .reg .pred %p, %own, %q, %done;
ld.param.u64 %w0, [from]; ld.param.u64 %w1, [out]; ld.param.u64 %w2, [maps];
ld.param.u32 %c0, [corner]; ld.param.u32 %c1, [corner+4];
mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; setp.lt.u32 %own, %r0, 32; setp.eq.u32 %q, %r0, 64;
shl.b32 %r1, %r0, 2; mov.u32 %r2, draft; add.s32 %r2, %r2, %r1; @%own st.shared.b32 [%r2], 0;
bar.warp.sync -1;
@%p tensormap.replace.tile.global_address.shared::cta.b1024.b64 [draft], %w0;
@%p tensormap.replace.tile.rank.shared::cta.b1024.b32 [draft], 1;
@%p tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [draft], 0, 16;
@%p tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [draft], 1, 8;
@%p tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [draft], 0, 40;
@%p tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [draft], 1, 20;
@%p tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [draft], 0, 96;
@%p tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [draft], 0, 1;
@%p tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [draft], 1, 1;
@%p tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [draft], 6;
@%p tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [draft], 0;
@%p tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [draft], 0;
@%p tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [draft], 0;
@%own tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%w2], [draft], 128;
@%own fence.proxy.tensormap::generic.acquire.gpu [%w2], 128;
@%q mbarrier.init.shared.b64 [full], 1;
bar.sync 0;
@%q mbarrier.arrive.expect_tx.shared.b64 _, [full], 256;
@%q cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [tile], [%w2, {%c0, %c1}], [full];
wait: mbarrier.try_wait.parity.shared.b64 %done, [full], 0; @!%done bra wait;
shl.b32 %r1, %r0, 1; mov.u32 %r2, tile; add.s32 %r2, %r2, %r1; cvt.u64.u32 %w3, %r1; add.s64 %w3, %w1, %w3;
.reg .b16 %h; ld.shared.b16 %h, [%r2]; st.global.b16 [%w3], %h;
ret;
}"""
COPY = (
    "@%own tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%w2], [draft], 128;"
)
ACQUIRE = "@%own fence.proxy.tensormap::generic.acquire.gpu [%w2], 128;"
USE = "@%q cp.async.bulk.tensor.2d"
ADDRESS = "@%p tensormap.replace.tile.global_address.shared::cta.b1024.b64 [draft], %w0;"
IN_GLOBAL = ADDRESS.replace("shared::cta", "global").replace("draft", "%w2")
# What cp_fenceproxy does, without its fence.
BY_HAND = "@%own ld.shared.b32 %r3, [%r2]; cvt.u64.u32 %w4, %r1; add.s64 %w4, %w4, %w2; @%own st.global.b32 [%w4], %r3;"
RELEASE = "@%own fence.proxy.tensormap::generic.release.gpu;"


def edited(*edits: tuple[str, str]) -> str:
    text = TEXT
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def launch(
    text: str, corner: tuple[int, int] = (0, 0), maps: torch.Tensor | None = None, blocks: int = 1
) -> torch.Tensor:
    """Run a kernel and return the box that it has loaded. corner: outermost first."""
    out, maps = torch.zeros(8, 16, dtype=torch.float16), torch.zeros(256, dtype=torch.uint8) if maps is None else maps
    place = torch.tensor([corner[1], corner[0], *[0] * 6], dtype=torch.int32).numpy().tobytes()
    load(text)["test"].launch(blocks, 128, 4096)(values((20, 48), F16), out, maps, place)
    return out


RIGHT = {
    "as it is": (),
    "the user acquires": ((ACQUIRE, ""), (USE, f"{ACQUIRE.replace('own', 'q')} {USE}")),
    "copied by hand and released by each thread": (
        (COPY, f"bar.warp.sync -1; {BY_HAND} {RELEASE} bar.warp.sync -1;"),
    ),
    "copied by hand and released by the user": (
        (COPY, f"bar.warp.sync -1; {BY_HAND}"), (ACQUIRE, ""),
        (USE, f"{RELEASE.replace('own', 'q')} {ACQUIRE.replace('own', 'q')} {USE}"),
    ),
    "changed in global memory": (
        (ADDRESS, ""),
        (ACQUIRE, f"{IN_GLOBAL} {RELEASE} bar.warp.sync -1; {ACQUIRE}"),
    ),
    "made again when its copy is done": (
        ("shl.b32 %r1, %r0, 1;", f"bar.sync 0; {COPY} {ACQUIRE} shl.b32 %r1, %r0, 1;"),
    ),
    "the fences have the scope of the block": (
        (COPY, COPY.replace("gpu", "cta")), (ACQUIRE, ACQUIRE.replace("gpu", "cta")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("edits", RIGHT.values(), ids=RIGHT)
def test_a_map_that_the_kernel_has_made_is_used(edits):
    text = edited(*edits)
    assert torch.equal(launch(text, (14, 30)), boxed(values((20, 48), F16)[:, :40], (14, 30), (8, 16)))
    for seed in range(4):
        assert trace(lambda: launch(text), seed=seed, switch=0.5 * (seed > 0)) == []


RELEASED, ACQUIRED = (
    "generic.release (or tensormap.cp_fenceproxy) between",
    "generic.acquire of this tensor map between",
)
WRONG = {
    "nothing acquires": (((ACQUIRE, ""),), Kind.RACE, ACQUIRED),
    "another map is acquired": (((ACQUIRE, ACQUIRE.replace("%w2", "%w2+128")),), Kind.RACE, ACQUIRED),
    "acquired before it is made": (((COPY, f"{ACQUIRE} {COPY}"), (f"128;\n{ACQUIRE}", "128;")), Kind.RACE, ACQUIRED),
    "another thread acquires, after the barrier": (
        ((ACQUIRE, ""), (USE, f"{ACQUIRE.replace('own', 'p')} {USE}")), Kind.RACE, ACQUIRED,
    ),
    "nothing releases": (((COPY, f"bar.warp.sync -1; {BY_HAND} bar.warp.sync -1;"),), Kind.RACE, RELEASED),
    "a fence of the other proxy instead": (
        ((COPY, f"bar.warp.sync -1; {BY_HAND} fence.proxy.async; bar.warp.sync -1;"),), Kind.RACE, RELEASED,
    ),
    "released before it is written": (
        ((COPY, f"bar.warp.sync -1; {RELEASE} {BY_HAND} bar.warp.sync -1;"),), Kind.RACE, RELEASED,
    ),
    "changed behind the release": (
        ((ACQUIRE, f"{IN_GLOBAL} {ACQUIRE}"),), Kind.RACE, RELEASED,
    ),
    "made again during its copy": (
        ((USE, f"bar.sync 0; {USE}"), ("wait: ", f"bar.sync 0; {COPY} wait: ")), Kind.ASYNC, "overwritten before",
    ),
    "two lanes change it": (((ADDRESS, ADDRESS.replace("%p", "%own")),), Kind.RACE, "no barrier between"),
    "nothing has been there": (((" @%own st.shared.b32 [%r2], 0;", ""),), Kind.UNINITIALISED, "draft"),
}  # fmt: skip


@pytest.mark.parametrize("edits, kind, words", WRONG.values(), ids=WRONG)
def test_a_mistake_with_a_map_is_found(edits, kind, words):
    found = trace(lambda: launch(edited(*edits)))
    assert [f for f in found if f.kind is kind and words in str(f)], "\n".join(map(str, found)) or "no finding"
    assert {f.kind for f in found} - {Kind.TRAP} == {kind}


def test_a_map_made_again_during_its_copy_gives_other_values():
    """The copy reads its map as late as it may."""
    edits = (
        ("wait: ", f"bar.sync 0; {ADDRESS.replace('%w0', '%w4')} {COPY} wait: "),
        ("ld.param.u32 %c0", "add.s64 %w4, %w0, 96; ld.param.u32 %c0"),
    )
    assert torch.equal(launch(edited(*edits)), values((20, 48), F16)[1:9, :16])


# Warp 0 of block 0 makes the map, and thread 64 of block 1 uses it, by two paths: first one of
# .cluster scope, then one of .cta scope.
PATHS = """@%q mbarrier.init.shared.b64 [full], 1;
@%q mbarrier.init.shared.b64 [wide], 1;
@%q mbarrier.init.shared.b64 [narrow], 1;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;
{made}
mapa.shared::cluster.u32 %r4, wide, 1; mapa.shared::cluster.u32 %r5, narrow, 1;
@%p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
{between}
@%p mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r5];
@%first bra end;
@!%q bra wait;
hear: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %done, [wide], 0; @!%done bra hear;
listen: mbarrier.try_wait.parity.acquire.cta.shared.b64 %done, [narrow], 0; @!%done bra listen;
{behind}
"""
OF_TWO = (
    (".reqntid 128", ".reqntid 128\n.reqnctapercluster 2"), ("full;", "full, wide, narrow;"), ("%done;", "%done, %first;"),
    ("setp.eq.u32 %p, %r0, 0; setp.lt.u32 %own, %r0, 32; setp.eq.u32 %q, %r0, 64;",
     "mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %first, %r4, 0; setp.eq.and.u32 %p, %r0, 0, %first; "
     "setp.lt.and.u32 %own, %r0, 32, %first; setp.eq.and.u32 %q, %r0, 64, !%first;"),
    (COPY, ""), (ACQUIRE, ""), ("bar.sync 0;", ""), ("ret;", "end: ret;"),
)  # fmt: skip
BY_LANES = f"bar.warp.sync -1; {BY_HAND} bar.warp.sync -1;"
TWO_PATHS = {
    "all before both": (f"{COPY} {ACQUIRE}", "", "", ""),
    "all behind both": (BY_LANES, "", f"{RELEASE} {ACQUIRE}".replace("own", "q"), ""),
    "the release before, the acquire behind": (COPY, "", ACQUIRE.replace("own", "q"), ""),
    "the release on the narrow path": (BY_LANES, RELEASE, ACQUIRE.replace("own", "q"), RELEASED),
    "the acquire on the narrow path": (COPY, ACQUIRE, "", ACQUIRED),
    "both on the narrow path": (BY_LANES, f"{RELEASE} {ACQUIRE}", "", RELEASED),
}  # fmt: skip


@pytest.mark.parametrize("made, between, behind, words", TWO_PATHS.values(), ids=TWO_PATHS)
def test_a_map_of_another_block_needs_its_fences_on_a_wide_path(made, between, behind, words):
    paths = PATHS.format(made=made, between=between, behind=behind)
    text = edited(*OF_TWO, ("@%q mbarrier.init.shared.b64 [full], 1;\n", paths))
    if not words:
        assert torch.equal(launch(text, blocks=2), boxed(values((20, 48), F16)[:, :40], (0, 0), (8, 16)))
    found = trace(lambda: launch(text, blocks=2))
    assert {(f.kind, words in f.detail) for f in found} == ({(Kind.RACE, True)} if words else set())


FIELDS = {
    "global_address": ("[draft], %w0;", "[draft], 8;", "the address 8: should be a multiple of 16"),
    "rank": ("[draft], 1;", "[draft], 5;", "the rank, less 1, of 5: should be 0 to 4"),
    "box_dim": ("[draft], 1, 8;", "[draft], 1, 257;", "the box size 257: should be 1 to 256"),
    "global_dim": ("[draft], 1, 20;", "[draft], 1, 0;", "the size 0: should be at least 1"),
    "global_stride": ("[draft], 0, 96;", "[draft], 0, 90;", "the stride 90: should be a multiple of 16 bytes, below 2**36"),
    "element_stride": ("[draft], 1, 1;", "[draft], 1, 2;", "the element stride 2: should be 1"),
    "elemtype": ("[draft], 6;", "[draft], 13;", "the element type 13: should be 0 to 12"),
    "interleave_layout": ("[draft], 0;", "[draft], 1;", "the interleave layout 1: should be 0"),
    "swizzle_mode": ("[draft], 0;", "[draft], 4;", "the swizzle mode 4: should be 0 to 3"),
    "fill_mode": ("[draft], 0;", "[draft], 1;", "the fill mode 1: should be 0"),
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_a_bad_field_is_refused(field):
    old, new, words = FIELDS[field]
    (line,) = (line for line in TEXT.splitlines() if f".{field}." in line and line.endswith(old))
    with pytest.raises(PtxError, match=re.escape(f"tensormap.replace gives a tensor map {words}")):
        launch(edited((line, line.replace(old, new))))


USED = {
    "a rank that is not the instruction's": (
        ("rank.shared::cta.b1024.b32 [draft], 1", "rank.shared::cta.b1024.b32 [draft], 2"), "of another rank",
    ),
    "a line that is too short": (("[draft], 0, 16;", "[draft], 0, 4;"), "not a multiple of 16"),
    "an address beside the tensor": ((ADDRESS, ADDRESS.replace("%w0", "4096")), "whose address is in no tensor"),
    "not aligned": (
        ("[tile], [%w2,", "[tile], [%w2+32,"), "the address of a tensor map must be a multiple of 64; it is 32 more",
    ),
    "lanes that copy to different places": ((COPY, f"@%p add.s64 %w2, %w2, 128; {COPY}"), "a warp copies one tensor map"),
}  # fmt: skip


@pytest.mark.parametrize("edit, words", USED.values(), ids=USED)
def test_a_map_that_cannot_be_used_is_refused(edit, words):
    with pytest.raises(PtxError, match=re.escape(words)):
        launch(edited(edit))


def test_a_map_in_shared_memory_and_one_with_long_lines_are_refused():
    there = edited((USE, f"mov.u64 %w4, draft; cvta.shared.u64 %w4, %w4; {USE}"), ("[tile], [%w2,", "[tile], [%w4,"))
    with pytest.raises(PtxError, match="a tensor map outside of global and constant memory"):
        launch(there)
    swizzle = "swizzle_mode.shared::cta.b1024.b32 [draft], "
    with pytest.raises(PtxError, match="longer lines than its swizzle"):
        launch(edited((f"{swizzle}0", f"{swizzle}1"), ("[draft], 0, 16;", "[draft], 0, 32;")))


def test_a_map_that_the_host_wrote_to_memory_is_refused():
    """It has the address of the caller's tensor, and the kernel gets a copy."""
    tensor, maps = values((20, 48), F16), torch.zeros(256, dtype=torch.uint8)
    encoded = TensorMap(tensor, F16, (40, 20), (96,), (16, 8)).encoded(tensor.data_ptr())
    maps[:128] = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
    with pytest.raises(PtxError, match="whose address is in no tensor of the launch"):
        launch(edited((COPY, ""), (ACQUIRE, "")), maps=maps)


ENCODED = [
    ("[draft], 0, 96;", "[draft], 4, 96;", "the dimension should be a number from 0 to 3"),
    ("global_stride.shared::cta.b1024.b64", "global_stride.shared::cta.b1024.b32", "global_stride has the type .b64"),
    ("[%w2], [draft], 128;", "[%w2], [draft], 64;", "the size should be 128"),
]


@pytest.mark.parametrize("old, new, words", ENCODED)
def test_what_is_not_ptx(old, new, words):
    with pytest.raises(CompileError, match=re.escape(words)):
        launch(edited((old, new)))


def test_strides_of_old_ptx_are_refused():
    with pytest.raises(Refused, match=r"global_stride.* in PTX 8.5, whose unit differs: from 8.6 on it is a byte"):
        launch(edited((".version 8.6", ".version 8.5")))
