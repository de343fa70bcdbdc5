"""Loops on a few addresses: a loop that does work is no deadlock, and a loop that waits for another
block lets that block begin.
"""

import pytest
import torch

from flash_attest.emulator.ptx import load
from flash_attest.races.tracing import trace

TEXT = """.version 8.0
.target sm_80
.address_size 64
// one lane adds 1 `n` times
.visible .entry count(.param .u64 sum, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [sum];
    ld.param.u32 %r1, [n];
AGAIN:
    red.global.add.u32 [%rd1], 1;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
// block 0 waits until the others have added 1 each, as Triton compiles it: one thread reads, a barrier, all leave or go on
.visible .entry wait(.param .u64 sum, .param .u32 n)
{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<2>;
    .shared .align 4 .b32 seen;
    ld.param.u64 %rd1, [sum];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    setp.eq.u32 %p1, %r2, 0;
    setp.eq.u32 %p2, %r3, 0;
    @%p2 bra AGAIN;
    @%p1 red.global.add.u32 [%rd1], 1;
    ret;
AGAIN:
    bar.sync 0;
    @%p1 atom.global.add.u32 %r4, [%rd1], 0;
    @%p1 st.shared.b32 [seen], %r4;
    bar.sync 0;
    ld.shared.b32 %r5, [seen];
    setp.lt.u32 %p2, %r5, %r1;
    @%p2 bra AGAIN;
    ret;
}
"""
MODULE = load(TEXT, "loops.ptx")


def launch(name: str, grid: int, block: int, n: int) -> torch.Tensor:
    total = torch.zeros(1, dtype=torch.int32)
    MODULE[name].launch(grid, block)(total, n)
    return total


def test_a_loop_that_changes_memory_does_not_wait():
    assert launch("count", 1, 1, 50_000).item() == 50_000
    assert trace(lambda: launch("count", 1, 1, 50_000)) == []


@pytest.mark.parametrize("block", [32, 128])
def test_a_block_waits_for_those_that_begin_later(block):
    assert launch("wait", 3, block, 2).item() == 2
    assert trace(lambda: launch("wait", 3, block, 2)) == []


def test_a_block_that_waits_for_none_is_a_deadlock():
    findings = trace(lambda: launch("wait", 2, 32, 2), limit=30.0)
    assert [(finding.kind.value, "keep reading the same few addresses" in finding.detail) for finding in findings] == [
        ("deadlock", True)
    ]
