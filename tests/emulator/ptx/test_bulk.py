"""Bulk copies: a box of a tensor by its map, with what lies outside as zeros, and plain bytes."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx.module import PtxError, load
from flash_attest.emulator.ptx.tensor_map import BYTES, ELEMENTS, SWIZZLES, TensorMap
from flash_attest.races.tracing import trace

SHARED = 32 * 1024
F16, F32, U8, F64, BF16 = 6, 7, 0, 8, 9
DTYPES = {F16: torch.float16, F32: torch.float32, U8: torch.uint8, F64: torch.float64, BF16: torch.bfloat16}
# A thread copies a box to shared memory and the block copies that to `out`; or the other way.
TEXT = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry test(.param .align 64 .b8 map[128], .param .u64 out, .param .align 16 .b8 corner[32], .param .u32 bytes)
.reqntid 128
{{
.shared .align 8 .b64 full;
.reg .b32 %r<8>, %c<5>, %x<4>; .reg .b64 %w<6>; .reg .pred %p, %done, %more;
mov.b64 %w0, map; cvta.param.u64 %w1, %w0; ld.param.u64 %w2, [out]; ld.param.u32 %r1, [bytes];
{corner}
mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; mov.u32 %r2, tile; shl.b32 %r3, %r0, 4;
@%p mbarrier.init.shared.b64 [full], 1;
bar.sync 0;
{body}
ret;
}}"""
LOAD = """@%p mbarrier.arrive.expect_tx.shared.b64 _, [full], %r1;
@%p cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%w1, {{{names}}}], [full];
wait: mbarrier.try_wait.parity.shared.b64 %done, [full], 0; @!%done bra wait;
next: setp.lt.u32 %more, %r3, %r1; @!%more bra end;
add.s32 %r4, %r2, %r3; cvt.u64.u32 %w3, %r3; add.s64 %w3, %w2, %w3;
ld.shared.v4.b32 {{%x0, %x1, %x2, %x3}}, [%r4]; st.global.v4.b32 [%w3], {{%x0, %x1, %x2, %x3}};
add.s32 %r3, %r3, 2048; bra next;
end:"""
STORE = """next: setp.lt.u32 %more, %r3, %r1; @!%more bra end;
add.s32 %r4, %r2, %r3; cvt.u64.u32 %w3, %r3; add.s64 %w3, %w2, %w3;
ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%w3]; st.shared.v4.b32 [%r4], {{%x0, %x1, %x2, %x3}};
add.s32 %r3, %r3, 2048; bra next;
end: fence.proxy.async.shared::cta; bar.sync 0;
@%p {opcode} [%w1, {{{names}}}], [tile];
@%p cp.async.bulk.commit_group;
@%p cp.async.bulk.wait_group 0;"""
STORES = {
    "store": "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group",
    "add": "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.tile.bulk_group",
}


def text(body: str, rank: int, way: str = "store") -> str:
    names = ", ".join(f"%c{i}" for i in range(rank))
    corner = " ".join(f"ld.param.u32 %c{i}, [corner+{4 * i}];" for i in range(rank))
    opcode = STORES[way].format(rank=rank)
    return TEXT.format(corner=corner, body=body.format(rank=rank, names=names, opcode=opcode))


def run(code: str, map: TensorMap, out: torch.Tensor, corner: tuple[int, ...]) -> None:
    """Run a kernel. corner: innermost first, as a GPU has it."""
    numbers = torch.tensor([*corner, *[0] * (8 - len(corner))], dtype=torch.int32)
    load(code)["test"].launch(1, 128, SHARED)(map, out, numbers.numpy().tobytes(), out.numel() * out.element_size())


def map_of(tensor: torch.Tensor, box: tuple[int, ...], type: int = F16, swizzle: int = 0) -> TensorMap:
    """Return the map of a tensor, whose dimensions are outermost first, as the box's."""
    strides = [stride * tensor.element_size() for stride in tensor.stride()[-2::-1]]
    return TensorMap(tensor, type, tensor.shape[::-1], strides, box[::-1], swizzle)


def swizzled(box: torch.Tensor, swizzle: int) -> torch.Tensor:
    """Return the bytes of a box in shared memory: 16-byte pieces of groups of 128-byte lines change
    places with each other.
    """
    data = box.contiguous().view(torch.uint8).flatten()
    if not swizzle:
        return data
    pieces = data.view(-1, 8, 16)  # lines of 128 bytes
    result = torch.empty_like(pieces)
    for line, piece in itertools.product(range(len(pieces)), range(8)):
        result[line, piece ^ (line % 8 if swizzle == 3 else line % 4 if swizzle == 2 else line % 2)] = pieces[
            line, piece
        ]
    return result.flatten()


def values(shape: tuple[int, ...], type: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 199 + 1).view(shape).to(DTYPES[type])


def boxed(tensor: torch.Tensor, corner: tuple[int, ...], box: tuple[int, ...]) -> torch.Tensor:
    """Return the box at a corner, zeros where there is no tensor. All are outermost first."""
    result = torch.zeros(box, dtype=tensor.dtype)
    for place in itertools.product(*map(range, box)):
        at = tuple(c + p for c, p in zip(corner, place, strict=True))
        if all(0 <= a < size for a, size in zip(at, tensor.shape, strict=True)):
            result[place] = tensor[at]
    return result


LOADS = [  # shape, box, corner, type: outermost first
    ((64,), (32,), (16,), F16), ((64,), (32,), (-8,), F16), ((64,), (32,), (48,), F16),
    ((16, 64), (8, 32), (4, 16), F16), ((16, 64), (8, 32), (-3, 40), F16), ((16, 64), (8, 32), (12, -5), F16),
    ((16, 64), (8, 32), (40, 0), F16), ((10, 48), (16, 64), (0, 0), F16), ((10, 20), (8, 4), (5, 18), F32),
    ((5, 6, 16), (2, 4, 16), (4, 3, 8), F32), ((3, 4, 5, 32), (2, 2, 3, 16), (2, 1, 3, 0), U8),
    ((2, 3, 4, 3, 8), (1, 2, 3, 2, 4), (1, 2, 2, 2, 5), F64), ((16, 64), (8, 32), (12, -5), BF16),
]  # fmt: skip


@pytest.mark.parametrize("shape, box, corner, type", LOADS, ids=str)
def test_a_box_is_loaded_and_what_is_outside_is_zero(shape, box, corner, type):
    source = values(shape, type)
    out = torch.full(box, 77, dtype=DTYPES[type])
    run(text(LOAD, len(shape)), map_of(source, box, type), out, corner[::-1])
    assert torch.equal(out, boxed(source, corner, box))


@pytest.mark.parametrize("swizzle, width", [(1, 16), (2, 32), (3, 64)])
def test_a_swizzle_permutes_pieces_of_16_bytes(swizzle, width):
    source = values((40, 128), F16)
    out = torch.zeros(32, width, dtype=torch.float16)
    run(text(LOAD, 2), map_of(source, (32, width), F16, swizzle), out, (64, 3))
    assert torch.equal(out.view(torch.uint8).flatten(), swizzled(source[3:35, 64 : 64 + width], swizzle))


@pytest.mark.parametrize("shape, box, corner, type", LOADS, ids=str)
def test_a_box_is_stored_and_what_is_outside_stays(shape, box, corner, type):
    to, box_values = torch.zeros(shape, dtype=DTYPES[type]), values(box, type)
    run(text(STORE, len(shape)), map_of(to, box, type), box_values.clone(), corner[::-1])
    wanted = torch.zeros_like(to)
    for place in itertools.product(*map(range, box)):
        at = tuple(c + p for c, p in zip(corner, place, strict=True))
        if all(0 <= a < size for a, size in zip(at, shape, strict=True)):
            wanted[at] = box_values[place]
    assert torch.equal(to, wanted)


def test_a_box_is_added():
    to, more = values((16, 32), F32), values((8, 16), F32)
    before = to.clone()
    run(text(STORE, 2, "add"), map_of(to, (8, 16), F32), more, (16, 4))
    before[4:12, 16:] += more
    assert torch.equal(to, before)


def test_right_copies_have_no_finding():
    source, out = values((16, 64), F16), torch.zeros(8, 32, dtype=torch.float16)
    assert trace(lambda: run(text(LOAD, 2), map_of(source, (8, 32)), out, (16, 4))) == []
    assert trace(lambda: run(text(STORE, 2), map_of(source, (8, 32)), out, (16, 4))) == []


@pytest.mark.parametrize("threads, races", [(32, 0), (64, 1)])
def test_the_lanes_of_a_warp_may_store_the_same_bytes_and_two_warps_may_not(threads, races):
    """CuTe DSL's warps elect no lane for a store, which is one instruction in machine code."""
    code = text(STORE, 2).replace("end: ", f"end: setp.lt.u32 %more, %r0, {threads}; ").replace("@%p cp.", "@%more cp.")
    to, box = torch.zeros(16, 64, dtype=torch.float16), values((8, 32), F16)
    found = trace(lambda: run(code, map_of(to, (8, 32)), box, (16, 4)))
    assert [finding.kind for finding in found] == [Kind.RACE] * races
    assert torch.equal(to[4:12, 16:48], box)


WRONG = {
    "no proxy fence before the store": ("fence.proxy.async.shared::cta;", "", Kind.RACE, "no fence.proxy.async between"),
    "no barrier before the store": ("bar.sync 0;\n@%p cp", "\n@%p cp", Kind.RACE, "no barrier between"),
    "overwritten before the store has read it": (
        "@%p cp.async.bulk.wait_group 0;", "bar.sync 0; st.shared.b32 [%r2], %r0;", Kind.ASYNC, "cp.async.bulk.wait_group",
    ),
    "one group may still be under way": (
        "@%p cp.async.bulk.wait_group 0;", "@%p cp.async.bulk.wait_group 1; bar.sync 0; st.shared.b32 [%r2], %r0;",
        Kind.ASYNC, "overwritten before the bulk copy",
    ),
    "read back when only the reads have been waited for": (
        "@%p cp.async.bulk.wait_group 0;", "@%p cp.async.bulk.wait_group.read 0; @%p ld.global.b32 %r5, [%w4];",
        Kind.RACE, "read after write",
    ),
}  # fmt: skip


@pytest.mark.parametrize("old, new, kind, words", WRONG.values(), ids=WRONG)
def test_a_wrong_store_is_found(old, new, kind, words):
    code = text(STORE, 2)
    assert code.count(old) == 1
    to, out = torch.zeros(8, 32, dtype=torch.float16), values((8, 32), F16)
    # The tensor's own address, for the kernel that reads it back.
    code = code.replace(old, new).replace(".param .u32 bytes)", ".param .u32 bytes, .param .u64 tensor)")
    code = code.replace("ld.param.u32 %r1, [bytes];", "ld.param.u32 %r1, [bytes]; ld.param.u64 %w4, [tensor];")
    arguments = map_of(to, (8, 32)), out, bytes(32), out.numel() * 2, to
    found = trace(lambda: load(code)["test"].launch(1, 128, SHARED)(*arguments))
    assert [f for f in found if f.kind is kind and words in str(f)], "\n".join(map(str, found)) or "no finding"


PLAIN = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 tile[];
.visible .entry test(.param .u64 from, .param .u64 to)
.reqntid 32
{{
.shared .align 8 .b64 full; .reg .b64 %w<4>; .reg .pred %p, %done; .reg .b32 %r<2>;
ld.param.u64 %w0, [from]; ld.param.u64 %w1, [to]; mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; @!%p bra end;
mbarrier.init.shared.b64 [full], 1; mbarrier.arrive.expect_tx.shared.b64 _, [full], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [tile], [%w0], 512, [full], 0;
wait: mbarrier.try_wait.parity.shared.b64 %done, [full], 0; @!%done bra wait;
{opcode} [%w1], [tile], {bytes};
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
end: ret;
}}"""


BACK = ("cp.async.bulk.global.shared::cta.bulk_group", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32")


@pytest.mark.parametrize("opcode", BACK)
def test_bytes_there_and_back(opcode):
    source, to = torch.arange(128.0), torch.ones(128)
    code = PLAIN.format(opcode=opcode, bytes=512)
    run_it = lambda: load(code)["test"].launch(1, 32, 1024)(source, to)  # noqa: E731
    assert trace(run_it) == []
    assert torch.equal(to, source + ("add" in opcode))


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("[tile], [%w0], 512", "[tile+8], [%w0], 512", "a bulk copy's address must be a multiple of 16; it is 8 more"),
        ("[tile], [%w0], 512", "[tile], [%w0+4], 512", "must be a multiple of 16; it is 4 more"),
        ("[tile], [%w0], 512", "[tile], [%w0], 520", "must be a multiple of 16; it is 8 more"),
        ("[tile], [%w0], 512", "[tile], [%w0+16384], 512", "outside"),
        ("[tile], [%w0], 512", "[tile+1024], [%w0], 512", "outside"),
    ],
)
def test_addresses_that_a_gpu_would_not_take(old, new, words):
    code = PLAIN.format(opcode="cp.async.bulk.global.shared::cta.bulk_group", bytes=512)
    assert code.count(old) == 1
    with pytest.raises(PtxError, match=re.escape(words)):
        load(code.replace(old, new))["test"].launch(1, 32, 1024)(torch.arange(128.0), torch.ones(128))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"type": 13}, "type=13: should be a CUtensorMapDataType"),
        ({"extents": (64,)}, "should be 1 to 5 dimensions"),
        ({"box": (32, 257)}, "each size should be 1 to 256"),
        ({"box": (33, 8)}, "should be a multiple of 16"),
        ({"extents": (0, 16)}, "each should be 1 to 2**32"),
        ({"strides": (100,)}, "each should be a multiple of 16 bytes"),
        ({"swizzle": 1}, "64 bytes in a line, swizzle 32B has 32"),
    ],
)
def test_maps_that_a_gpu_would_not_take(change, words):
    fields = {"tensor": values((16, 64), F16), "type": F16, "extents": (64, 16), "strides": (128,), "box": (32, 8)}
    with pytest.raises(ValueError, match=re.escape(words)):
        TensorMap(**(fields | change))


def test_what_is_not_a_map_of_tiles_is_refused():
    out = torch.zeros(8, 32, dtype=torch.float16)
    kernel = load(text(LOAD, 2))["test"].launch(1, 128, SHARED)
    with pytest.raises(PtxError, match="not covered on the CPU: a tensor map that is not one of tiles"):
        kernel(bytes(BYTES), out, bytes(32), 512)
    three = map_of(values((2, 16, 64), F16), (1, 8, 32))
    with pytest.raises(PtxError, match="a tensor map of another rank than the instruction's"):
        kernel(three, out, bytes(32), 512)
    with pytest.raises(ValueError, match="multiple of 16, is 2 more"):
        kernel(map_of(torch.zeros(1025, dtype=torch.float16)[1:].view(16, 64), (8, 32)), out, bytes(32), 512)


def test_sizes_of_elements_and_names_of_swizzles():
    assert len(ELEMENTS) == 13 and [DTYPES[t].itemsize for t in DTYPES] == [ELEMENTS[t] for t in DTYPES]
    assert SWIZZLES[3] == "128B"
