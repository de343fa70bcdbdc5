"""red.async: additions and the like to shared memory, which complete on an mbarrier."""

from __future__ import annotations

from functools import reduce

import pytest
import torch

from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx.module import load
from flash_attest.races.tracing import trace

# The lanes combine their values with one word of shared memory; a thread of another warp reads it.
TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 values, .param .u64 out)
.reqntid 64
{
.shared .align 8 .b64 full; .shared .align 8 .b64 sum;
.reg .b32 %r<4>; .reg .b64 %w<6>; .reg .pred %p, %own, %q, %done;
ld.param.u64 %w0, [values]; ld.param.u64 %w1, [out]; mov.u32 %r0, %tid.x;
setp.eq.u32 %p, %r0, 0; setp.lt.u32 %own, %r0, 32; setp.eq.u32 %q, %r0, 32;
mul.wide.u32 %w2, %r0, 8; add.s64 %w2, %w0, %w2; @%own ld.global.b64 %w3, [%w2]; cvt.u32.u64 %r1, %w3;
@%p mbarrier.init.shared.b64 [full], 1; @%p ld.global.b64 %w4, [%w0+256]; @%p st.shared.b64 [sum], %w4;
@%p mbarrier.arrive.expect_tx.shared.b64 _, [full], {bytes};
fence.proxy.async; bar.sync 0;
@%own red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op} [sum], %{register}, [full];
@!%q bra end;
wait: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %done, [full], 0; @!%done bra wait;
ld.shared.b64 %w5, [sum]; st.global.b64 [%w1], %w5;
end: ret;
}"""
FULL32, FULL64 = 2**32 - 1, 2**64 - 1


def signed(value: int) -> int:
    return value - 2**32 if value >> 31 else value


OPS = {
    "add.u32": lambda a, b: (a + b) & FULL32, "add.s32": lambda a, b: (a + b) & FULL32,
    "add.u64": lambda a, b: (a + b) & FULL64, "min.u32": min, "max.u32": max,
    "min.s32": lambda a, b: min(a, b, key=signed), "max.s32": lambda a, b: max(a, b, key=signed),
    "inc.u32": lambda a, b: 0 if a >= b else a + 1, "dec.u32": lambda a, b: b if a == 0 or a > b else a - 1,
    "and.b32": lambda a, b: a & b, "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b,
}  # fmt: skip


def text(op: str) -> str:
    wide = op.endswith("64")
    code = TEXT.replace("{bytes}", "256" if wide else "128").replace("{op}", op)
    return code.replace("{register}", "w3" if wide else "r1")


def values_for(op: str) -> list[int]:
    """Return the value of each lane, then the first one of the word."""
    if op[:3] in ("inc", "dec"):
        return [20] * 32 + [5]
    top = 2**63 if op.endswith("64") else 2**31
    return [(top + (-1) ** i * (i * 2654435761 % 1000)) for i in range(32)] + [top - 7]


def run(code: str, values: list[int]) -> int:
    given = torch.tensor([value - 2**64 if value >> 63 else value for value in values])
    out = torch.zeros(1, dtype=torch.int64)
    load(code)["test"].launch(1, 64)(given, out)
    return out.item() % 2**64


@pytest.mark.parametrize("op", OPS)
def test_the_word_is_combined_with_all_values(op):
    values = values_for(op)
    assert run(text(op), values) == reduce(OPS[op], values[:32], values[32])
    assert trace(lambda: run(text(op), values)) == []


WRONG = {
    "read without a wait": (
        "wait: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %done, [full], 0; @!%done bra wait;", "",
    ),
    "no proxy fence behind the first store": ("fence.proxy.async; bar.sync 0;", "bar.sync 0;"),
}  # fmt: skip


@pytest.mark.parametrize("old, new", WRONG.values(), ids=WRONG)
def test_a_missing_order_is_found(old, new):
    code = text("add.u32")
    assert code.count(old) == 1
    found = trace(lambda: run(code.replace(old, new), values_for("add.u32")))
    assert {f.kind for f in found} & {Kind.RACE, Kind.ASYNC}, found


def test_bytes_that_do_not_come_are_a_deadlock():
    code = text("add.u32").replace("[full], 128;", "[full], 256;")
    (finding,) = trace(lambda: run(code, values_for("add.u32")), limit=5.0)
    assert finding.kind is Kind.DEADLOCK and "128 bytes to come" in str(finding)
