"""Registers share slots only if that is safe, and the table names the machine's handlers."""

import random
import re

import pytest
import torch

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.ptx.allocate import Flow, allocate
from flash_attest.emulator.ptx.encode import encode
from flash_attest.emulator.ptx.handlers import BRANCH, ENDS
from flash_attest.emulator.ptx.instructions import TABLE, handlers_of, plan
from flash_attest.emulator.ptx.machine import handlers
from flash_attest.emulator.ptx.module import load
from flash_attest.emulator.ptx.parse import parse
from tests.emulator.ptx.texts import NVCC, TRITON, kernel

ROWS = [row for rows in TABLE.values() for row in rows]
# Other spellings in the table, which PTX does not have.
ALIASES = (
    r"nop|mov\.[bsu]8|shl\.[su]\d+|slct(\.ftz)?\.f16\.\w+|.*\.ftz\..*bf16|ex2\.approx\.bf16(x2)?|tanh\.approx\.ftz\.\w+"
)


def test_every_handler_of_the_table_exists():
    missing = {row.spelling: sorted(handlers_of(row) - set(handlers())) for row in ROWS}
    assert {spelling: names for spelling, names in missing.items() if names} == {}
    assert [name for name in (BRANCH, *ENDS) if name not in handlers()] == []


def test_every_handler_can_be_asked_for():
    wanted = set().union(*(handlers_of(row) for row in ROWS))
    assert [name for name in handlers() if name not in wanted and not re.fullmatch(ALIASES, name)] == []


def test_every_row_says_how_its_operands_are_read():
    assert [row.spelling for row in ROWS if row.by and not callable(row.by)] == []
    assert [row.spelling for row in ROWS if row.by and row.operands] == []


@pytest.mark.parametrize(
    "opcode, handler",
    [
        ("add.s32", "add.s32"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "mma.m16n8k16.f32.bf16.bf16.f32"),
        ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "ldmatrix.x4.trans"),
        ("ld.global.nc.L1::no_allocate.L2::128B.v4.f32", "ld"),
        ("ld.volatile.shared.u32", "ld"),
        ("ld.acquire.gpu.global.b32", "ld"),
        ("ld.global.acquire.gpu.b32", "ld"),
        ("st.global.gpu.release.b32", "st"),
        ("atom.acq_rel.gpu.global.add.f32", "atom.add.f32"),
        ("atom.global.gpu.acq_rel.add.f32", "atom.add.f32"),  # tl.atomic_add
        ("atom.global.acq_rel.gpu.cas.b32", "atom.cas.b32"),  # tl.atomic_cas
        ("atom.global.cta.add.f32", "atom.add.f32"),
        ("red.global.add.s32", "atom.add.u32"),
        ("barrier.cta.sync.aligned", "bar.sync"),
        ("setp.lt.and.ftz.f32", "setp.lt.ftz.f32"),
        ("cvta.to.global.u64", "mov.b64"),
        ("cvta.shared.u64", "cvta.shared"),
        ("fma.rn.ftz.sat.f32", "fma.rn.ftz.sat.f32"),
        ("add.s8", None),
        ("add.rn.s32", None),
        ("fma.rn.f32.f32", None),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "wgmma.f32.f16"),
        ("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3", None),
        ("fence.proxy.async.shared::cta", "fence.proxy.async.shared"),
        ("shfl.sync.up.b64", None),
        ("setp.lo.s32", None),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16", None),
    ],
)
def test_what_the_table_says_of_an_opcode(opcode, handler):
    entry = plan(opcode)
    assert (entry and entry.handler) == handler


def encoded(text: str, name: str = "k"):
    read = parse(text)
    return encode(read.functions[name], read)


@pytest.mark.parametrize(
    "statement, message",
    [
        ("add.s32 %r1, %r2;", "add.s32: takes 3 operands, has 2"),
        ("add.s32 %r1, %rd1, %r2;", r"%rd1 is declared \.b64, the operand should be \.s32"),
        ("add.s32 %r1, %r2, %r99;", "'%r99' is not declared"),
        ("add.s32 %r1, [%r2], 3;", r"\[%r2\+0\] cannot be a source of type \.s32"),
        ("add.s32 %r1, %r2, 1.5;", "1.5 is not an integer"),
        ("add.s32 5, %r2, %r3;", "5 cannot be a destination"),
        ("st.global.u32 [sym], %r1;", "'sym' is not declared"),
        ("ld.shared.u32 %r1, [a];", r"a is in \.param, not in \.shared"),
        ("ld.global.v2.u32 {%r1}, [%rd1];", "takes 2 registers, has 1"),
        ("ld.global.u64 %r1, [%rd1];", "registers of"),
        ("ld.global.u32 %r1, [%rs1];", "%rs1 is too narrow for an address"),
        ("cvt.u64.u32 %r1, %r2;", "too narrow"),
        ("mov.b64 %rd1, {%r1, %r2, %r3};", "3 parts of 8 bytes"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "the size should be 4, 8 or 16 bytes"),
    ],
)
def test_operands_that_do_not_fit(statement, message):
    with pytest.raises(CompileError, match=f"^<ptx>:7: .*{message}"):
        encoded(kernel(statement))


@pytest.mark.parametrize(
    "statement, reason",
    [
        ("tcgen05.fence::before_thread_sync;", "opcode tcgen05.fence::before_thread_sync"),
        ("mov.u32 %r1, %envreg3;", "register %envreg3"),
        ("brx.idx %r1, targets;", "opcode brx.idx"),
        ("lop3.or.b32 %p1|%r1, %r2, %r3, %r4, 1, %p2;", "opcode lop3.or.b32"),
        ("st.param.b32 [a], %r1;", r"a store to \.param"),
    ],
)
def test_what_is_refused(statement, reason):
    with pytest.raises(Refused, match=f"^<ptx>:7: not covered on the CPU: {reason}"):
        encoded(kernel(statement))


# ---- slots ---------------------------------------------------------------------------------------


def flow_of(*steps: tuple) -> Flow:
    """Return the flow of instructions, each (reads, writes, target or None, falls, guarded)."""
    flow = Flow()
    for reads, writes, target, falls, guarded in steps:
        flow.reads.append(list(reads))
        flow.writes.append(list(writes))
        flow.target.append(-1 if target is None else target)
        flow.falls.append(falls)
        flow.partial.append(guarded)
    return flow


def step(reads=(), writes=(), target=None, falls=True, guarded=False) -> tuple:
    return reads, writes, target, falls, guarded


def test_registers_that_follow_each_other_share_a_slot():
    offsets, size = allocate(flow_of(step((), [0]), step([0]), step((), [1]), step([1])), [4, 4], 128)
    assert offsets == [128, 128]
    assert size == 256


def test_a_destination_never_lies_where_a_source_lies():
    offsets, _ = allocate(flow_of(step((), [0]), step([0], [1]), step([1])), [4, 4], 0)
    assert offsets[0] != offsets[1]


def test_widths_never_share():
    """Lanes at different instructions would overwrite each other's columns."""
    offsets, _ = allocate(flow_of(step((), [0]), step([0]), step((), [1]), step([1])), [8, 4], 0)
    assert offsets == [0, 256]


def test_a_value_that_a_loop_carries_keeps_its_slot():
    # Register 0 is written before the loop and read in it; register 1 is written after that read.
    flow = flow_of(step((), [0]), step([0]), step((), [1]), step([1], (), 1, True, True), step())
    offsets, _ = allocate(flow, [4, 4], 0)
    assert offsets[0] != offsets[1]


def test_a_guarded_write_leaves_the_old_value():
    # In a loop, register 0 is written for some lanes and read; other lanes read the value of an
    # earlier iteration. Register 1 is needed only after that.
    loop = (step((), [1]), step([1]), step([2], (), 0, True, True), step())
    guarded = flow_of(step((), [0], None, True, True), step([0]), *loop)
    offsets, _ = allocate(guarded, [4, 4, 0], 0)
    assert offsets[0] != offsets[1]
    whole = flow_of(step((), [0]), step([0]), *loop)
    offsets, _ = allocate(whole, [4, 4, 0], 0)
    assert offsets[0] == offsets[1]


def test_without_sharing_each_register_has_a_slot():
    flow = flow_of(step((), [0]), step([0]), step((), [1]), step([1]))
    assert allocate(flow, [4, 4], 0, share=False)[0] == [0, 128]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_have_the_same_results_with_and_without_sharing(seed):
    text = random_program(random.Random(seed))
    results = []
    for share in (True, False):
        module = load(text)
        read = parse(text)
        code = encode(read.functions["k"], read, share)
        module.decoded.code = lambda name, code=code: (code, [])
        out = torch.zeros(64, dtype=torch.int32)
        module["k"].launch(1, 64)(out)
        results.append(out)
    assert torch.equal(*results)
    assert results[0].unique().numel() > 1


def random_program(draw: random.Random) -> str:
    """Draw a program: registers are written before they are read on every path; branches differ by
    lane; loops end.
    """
    products = [f"mad.lo.s32 %r{n}, %r1, {draw.randrange(1, 99)}, {draw.randrange(99)};" for n in range(2, 12)]
    labels = iter(range(1000))

    def some(depth: int) -> list[str]:
        lines = []
        for _ in range(draw.randrange(2, 7)):
            d, a, b = (draw.randrange(2, 12) for _ in range(3))
            kind = draw.random()
            if kind < 0.5 or not depth:
                op = draw.choice(["add.s32", "xor.b32", "sub.s32", "mul.lo.s32"])
                guard = draw.choice(["", "", "@%p1 ", "@!%p2 "])
                lines.append(f"{guard}{op} %r{d}, %r{a}, %r{b};")
            elif kind < 0.6:
                lines.append(f"setp.lt.and.s32 %p1|%p2, %r{a}, %r{b}, !%p1;")
            elif kind < 0.8:
                label = f"L{next(labels)}"
                lines += [f"and.b32 %r13, %r{a}, {1 << draw.randrange(4)}; setp.ne.s32 %p3, %r13, 0; @%p3 bra {label};"]
                lines += [*some(depth - 1), f"{label}:"]
            else:
                label, counter = f"L{next(labels)}", 14 + depth
                lines += [f"and.b32 %r{counter}, %r{a}, 3;", f"{label}:", *some(depth - 1)]
                lines += [f"sub.s32 %r{counter}, %r{counter}, 1; setp.ge.s32 %p4, %r{counter}, 0; @%p4 bra {label};"]
        return lines

    body = ["setp.eq.s32 %p1, %r1, 3; setp.gt.s32 %p2, %r1, 9;", *products, *some(2)]
    body += [
        "mov.u32 %r13, 0;",
        *(f"xor.b32 %r13, %r13, %r{n}; mad.lo.s32 %r13, %r13, 31, %r{n};" for n in range(2, 12)),
    ]
    return kernel("\n".join([*body, "st.global.u32 [%rd3], %r13; ret;"]))


def test_variables_lie_apart_and_aligned():
    code = encoded(
        kernel(
            "mov.u32 %r1, a_tile; mov.u32 %r2, b_tile; mov.u32 %r3, dynamic; mov.u64 %rd1, own;",
            ".shared .b8 unused[64];\n.shared .align 4 .b8 a_tile[100];\n.shared .align 128 .b8 b_tile[8];\n"
            ".extern .shared .align 16 .b8 dynamic[];\n.local .align 8 .b8 own[24];\n",
        )
    )
    assert [(v.name, v.start, v.end) for v in code.layout.shared] == [("a_tile", 0, 100), ("b_tile", 384, 392)]
    assert code.layout.offsets["dynamic"] == code.layout.shared_bytes == 768
    assert code.layout.local_bytes == 24


@pytest.mark.parametrize("text, name", [(TRITON, "copy"), (NVCC, "_Z4gemm7ProblemPf")])
def test_texts_of_compilers_are_encoded(text, name):
    code = encoded(text, name)
    assert len(code.lines) == len(parse(text).functions[name].instructions)
