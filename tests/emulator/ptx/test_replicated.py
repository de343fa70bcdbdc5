"""Kernels whose threads hold copies of a value, as in Triton's layouts, and the same stores without
copies.
"""

import pytest
import torch

from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx import load
from flash_attest.races.tracing import trace

KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry stores(.param .u64 out)
{
    .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, MASK;
    add.u32 %r2, %r2, 0x3F800000;  // 1 as a float32, and up to 31 units in the last place more
    setp.ge.u32 %p1, %r1, 16;
    STORE
    ret;
}
"""
TOGETHER = "st.global.u32 [%rd1], %r2;"
APART_BY_FAR = "shl.b32 %r2, %r2, 20;\n    st.global.u32 [%rd1], %r2;"
APART = "@%p1 st.global.u32 [%rd1], %r2;\n    @!%p1 st.global.u32 [%rd1], %r2;"


def findings(store: str, mask: int, threads: int, replicated: bool, seed: int) -> list:
    text = KERNEL.replace("STORE", store).replace("MASK", str(mask))
    kernel = load(text, replicated=replicated)["stores"]
    out = torch.zeros(1, dtype=torch.int32)
    return trace(lambda: kernel.launch(1, threads)(out), seed=seed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "store, mask, threads, right",
    [
        pytest.param(TOGETHER, 0, 32, True, id="one value, one store, one warp"),
        pytest.param(TOGETHER, 0, 64, True, id="one value, one store, two warps"),
        pytest.param(TOGETHER, 1, 32, True, id="sums that differ in the last bit, one store, one warp"),
        pytest.param(APART_BY_FAR, 31, 32, False, id="values, one store, one warp"),
        pytest.param(TOGETHER, 32, 64, False, id="each warp its value"),
        pytest.param(APART, 31, 32, False, id="two values, two stores"),
    ],
)
def test_copies_of_a_value(store, mask, threads, right, seed):
    """There is no finding if copies are declared, provided that `right` is true.

    With a seed, lanes that execute one store together may be emulated separately.
    """
    result = findings(store, mask, threads, replicated=True, seed=seed)
    assert (result == []) == right, result
    assert all(finding.kind is Kind.RACE for finding in result)
    assert findings(store, mask, threads, replicated=False, seed=seed), "without copies every one of them is a race"
