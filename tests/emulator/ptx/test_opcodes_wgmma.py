"""wgmma multiplies matrices that lie in shared memory in the PTX manual's canonical layouts; its
registers belong to it until it has been waited for.
"""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx.module import PtxError, load
from flash_attest.races.tracing import trace
from tests.emulator.ptx import warpgroups
from tests.emulator.ptx.warpgroups import SWIZZLES, TYPES, Operand, Product

K_MAJOR = [Operand(swizzle) for swizzle in SWIZZLES]
MN_MAJOR = [Operand(swizzle, transposed=True) for swizzle in SWIZZLES]
PRODUCTS = [
    *(Product(n=64, a=a, b=b) for a in (*K_MAJOR, *MN_MAJOR) for b in (K_MAJOR[0], MN_MAJOR[1])),
    *(Product(n=64, a=None, b=b) for b in (*K_MAJOR, *MN_MAJOR)),
    *(Product(type, n, a) for type in TYPES for n in (8, 24, 256) for a in (Operand("32B"), None)),
    *(Product(d="f16", n=n, a=a) for n in (8, 64) for a in (Operand("64B"), None)),
    Product(signs=(-1, 1)), Product(signs=(1, -1)), Product(signs=(-1, -1)), Product(adds=False),
    Product("bf16", 16, Operand("64B", transposed=True), Operand("32B", transposed=True)),
]  # fmt: skip


def whole_numbers(product: Product, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Return A, B and C, whose product is exact in every type."""
    made = torch.Generator().manual_seed(seed)
    shapes = (64, product.k), (product.k, product.n), (64, product.n)
    a, b, c = (torch.randint(-3, 4, shape, generator=made) for shape in shapes)
    return a.to(TYPES[product.type]), b.to(TYPES[product.type]), c.float()


def expected(product: Product, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return product.signs[0] * product.signs[1] * (a.double() @ b.double()) + (c.double() if product.adds else 0)


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_products(product):
    a, b, c = whole_numbers(product)
    torch.testing.assert_close(product(a, b, c).double(), expected(product, a, b, c), rtol=0, atol=0)


@pytest.mark.parametrize("type", TYPES)
def test_sums_are_in_float32(type):
    product = Product(type, 64)
    made = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=made).to(TYPES[type]) for shape in ((64, product.k), (product.k, 64)))
    c = torch.randn(64, 64, generator=made)
    # The lowest 13 bits of tf32 do not count.
    exact = [(x.view(torch.int32) & ~0x1FFF).view(torch.float32) if type == "tf32" else x for x in (a, b)]
    assert (product(a, b, c).double() - expected(product, *exact, c)).abs().max() < 4e-6


def test_a_result_that_is_not_a_number_is_the_canonical_one():
    product = Product(n=8)
    a, b, c = whole_numbers(product)
    a[3, 2] = float("nan")
    got = product(a, b, c)
    assert got[3].view(torch.int32).tolist() == [0x7FFFFFFF] * 8
    assert not got[:3].isnan().any()


def prepared(product: Product) -> tuple[torch.Tensor, ...]:
    a, _b, c = whole_numbers(product)
    memory = torch.zeros(warpgroups.MEMORY, dtype=torch.uint8)
    return memory, warpgroups.fragments(a), warpgroups.accumulators(c, product.d)


def findings(product: Product, *edits: tuple[str, str]) -> list:
    """Trace the kernel with lines of its text replaced."""
    text = product.text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    arguments = prepared(product)
    return trace(lambda: warpgroups.run(text, *arguments))


IN_REGISTERS = Product(n=16, a=None)
FENCE, COMMIT, WAIT = (
    "wgmma.fence.sync.aligned;",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.wait_group.sync.aligned 0;",
)
PROXY, ISSUE = "fence.proxy.async.shared::cta;", re.compile(r"wgmma\.mma_async.*;")


@pytest.mark.parametrize("product", [Product(), IN_REGISTERS], ids=str)
def test_a_right_kernel_has_no_finding(product):
    assert findings(product) == []


WRONG = {
    "no wgmma.fence": ([(FENCE, "")], Kind.REGISTER, "no wgmma.fence between"),
    "an accumulator is written after the fence": (
        [(FENCE, FENCE + " add.f32 %sum3, %sum3, %sum3;")], Kind.REGISTER, "no wgmma.fence between",
    ),
    "A is written after the fence": ([(FENCE, FENCE + " add.u32 %a1, %a1, 1;")], Kind.REGISTER, "no wgmma.fence between"),
    "an accumulator is read before the wait": (
        [(WAIT, "mov.b32 %r7, %sum1; " + WAIT)], Kind.REGISTER, "used before the wgmma that owns it has been waited for",
    ),
    "A is overwritten before the wait": ([(COMMIT, COMMIT + " mov.b32 %a2, 0;")], Kind.REGISTER, "used before"),
    "A is read before the wait": ([(COMMIT, COMMIT + " mov.b32 %r7, %a2;")], Kind.REGISTER, "used before"),
    "no wait": ([(WAIT, "")], Kind.REGISTER, "used before"),
    "one group may still be under way": ([(WAIT, WAIT.replace("0", "1"))], Kind.REGISTER, "used before"),
    "no commit": ([(COMMIT, "")], Kind.REGISTER, "used before"),
    "no proxy fence": ([(PROXY, "")], Kind.RACE, "no fence.proxy.async between"),
    "the fence is for global memory": ([(PROXY, "fence.proxy.async.global;")], Kind.RACE, "no fence.proxy.async between"),
    "the fence is no proxy fence": ([(PROXY, "fence.acq_rel.cta;")], Kind.RACE, "no fence.proxy.async between"),
    "no barrier": ([("bar.sync 0;", "")], Kind.RACE, "no barrier between"),
    "overwritten before the wait": ([(WAIT, "st.shared.b32 [tile+16384], %r0; " + WAIT)], Kind.ASYNC, "overwritten before"),
    "overwritten after a barrier without a wait": (
        [(WAIT, "bar.sync 0; st.shared.b32 [tile+16384], %r0; " + WAIT)], Kind.ASYNC, "overwritten before",
    ),
    "another warp overwrites after its own wait": (
        [(WAIT, WAIT + " st.shared.b32 [tile+16384], %r0;")], Kind.RACE, "no barrier between",
    ),
    "three warps of four": (
        [(FENCE, f"setp.ge.u32 %p, %r0, 96; @%p bra end; {FENCE}"), ("ret; }", "end: ret; }")],
        Kind.BARRIER, "do not execute the same wgmmas",
    ),
}  # fmt: skip


@pytest.mark.parametrize("edits, kind, words", WRONG.values(), ids=WRONG)
def test_a_wrong_kernel_is_found(edits, kind, words):
    seen = findings(IN_REGISTERS, *edits)
    assert [f for f in seen if f.kind is kind and words in str(f)], "\n".join(map(str, seen)) or "no finding"


RIGHT = {
    "the fence is behind the barrier": [(f"{PROXY} bar.sync 0;", f"bar.sync 0; {PROXY}")],
    "a fence of all memory": [(PROXY, "fence.proxy.async;")],
    "overwritten after wait and barrier": [
        (WAIT, WAIT + " bar.sync 0; setp.eq.u32 %p, %r0, 7; @%p st.shared.b32 [tile+16384], %r0;"),
    ],
    "read by threads before the wait": [(WAIT, "ld.shared.b32 %r7, [tile+16384]; " + WAIT)],
    "zeros for the accumulators are copied behind the fence": [(FENCE, FENCE + " mov.b32 %r7, 0; mov.b32 %sum3, %r7;")],
    "other registers before the wait": [(WAIT, "mov.b32 %r7, %r0; " + WAIT)],
}


@pytest.mark.parametrize("edits", RIGHT.values(), ids=RIGHT)
def test_a_right_kernel_that_looks_wrong_passes(edits):
    assert findings(IN_REGISTERS, *edits) == []


def two(first: Product, *between: str) -> str:
    """Return a kernel with a second wgmma, of 64 x 8, on the first of the same accumulators."""
    text = first.text()
    more = ", ".join(f"%sum{i}" for i in range(4))
    second = dataclasses.replace(first, n=8)
    wgmma = ISSUE.search(second.text())[0].replace(ISSUE.search(second.text())[0].split("{")[1].split("}")[0], more, 1)
    issued = ISSUE.search(text)[0]
    return text.replace(issued, " ".join([issued, *between, wgmma]))


def test_wgmmas_of_different_shapes_need_a_fence_between():
    arguments = prepared(IN_REGISTERS)
    [seen] = trace(lambda: warpgroups.run(two(IN_REGISTERS), *arguments))
    assert seen.kind is Kind.REGISTER and "different shapes" in seen.detail
    assert trace(lambda: warpgroups.run(two(IN_REGISTERS, FENCE), *arguments)) == []


def test_wgmmas_of_one_shape_need_none():
    text = IN_REGISTERS.text()
    issued = ISSUE.search(text)[0]
    arguments = prepared(IN_REGISTERS)
    assert trace(lambda: warpgroups.run(text.replace(issued, issued + issued), *arguments)) == []


def test_a_wait_that_is_missing_leaves_the_old_accumulators():
    """The product is late: a kernel that does not wait computes something else, also untraced."""
    a, b, c = whole_numbers(IN_REGISTERS)
    memory = torch.zeros(warpgroups.MEMORY, dtype=torch.uint8)
    warpgroups.put(memory[warpgroups.AT_B :], b.T, IN_REGISTERS.b)
    sums = warpgroups.accumulators(c, "f32")
    warpgroups.run(IN_REGISTERS.text().replace(WAIT, ""), memory, warpgroups.fragments(a), sums)
    torch.testing.assert_close(warpgroups.matrix(sums, "f32", 16), c)


@pytest.mark.parametrize("which", ["a_bits", "b_bits"])
def test_a_base_offset_is_refused(which):
    with pytest.raises(PtxError, match="not covered on the CPU: a matrix descriptor with a base offset"):
        warpgroups.run(Product().text(**{which: 1 << 49}), *prepared(Product()))


@pytest.mark.parametrize(
    "old, new, error, words",
    [
        ("{%sum0, ", "{", CompileError, "d takes 8 registers, has 7"),
        ("{%a0, %a1, %a2, %a3}, %right", "{%a0, %a1}, %right", CompileError, "a takes 4 registers, has 2"),
        ("%adds, 1, 1, 0", "%adds, 2, 1, 0", CompileError, "signs should be 1 or -1"),
        ("%adds, 1, 1, 0", "%adds, 1, 1, 7", CompileError, "transpositions 0 or 1"),
        ("%adds, 1, 1, 0", "%adds, 1, 1", CompileError, "takes 7 operands, has 6"),
        ("wait_group.sync.aligned 0", "wait_group.sync.aligned %r0", CompileError, "should be a number"),
        ("m64n16k16.f32.f16.f16", "m64n16k32.f32.e4m3.e4m3", Refused, "opcode wgmma.mma_async"),
        ("m64n16k16.f32.f16.f16", "m64n12k16.f32.f16.f16", Refused, "opcode wgmma.mma_async"),
    ],
)
def test_text_that_is_wrong_or_not_covered(old, new, error, words):
    text = IN_REGISTERS.text()
    assert text.count(old) == 1
    with pytest.raises(error, match=re.escape(words)):
        load(text.replace(old, new), kernels=["test"])
