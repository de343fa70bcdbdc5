"""impls/cuda with tensors that 32-bit offsets cannot address: the last part comes out as it does alone. On a GPU only."""

import pytest
import torch

from impls.cuda.algorithm import Algorithm
from impls.cuda.extension import nvcc

if not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < 70 * 2**30 or not nvcc():
    pytest.skip("needs a GPU with 70 GiB of memory, and nvcc", allow_module_level=True)

BEYOND = 2**31
NAMES = ("out", "lse", "dq", "dk", "dv")
each = pytest.mark.parametrize("algorithm", [Algorithm("fa1"), Algorithm("fa2")], ids=["fa1", "fa2"])


def both_ways(algorithm, q, k, v, dout):
    """-> out, lse, dq, dk, dv."""
    out, lse = algorithm.forward(q, k, v, causal=True)
    return out, lse, *algorithm.backward(dout, q, k, v, out, lse, causal=True)


@pytest.fixture(autouse=True)
def give_memory_back():
    yield
    torch.cuda.empty_cache()


@each
def test_more_than_2_31_elements(algorithm):
    """4200 batches of 64 x 64 x 128, which is 2.2e9 elements: the last batch equals itself alone."""
    q = torch.empty(4200, 64, 64, 128, dtype=torch.float16, device="cuda").normal_()
    assert q.numel() > BEYOND
    k, v, dout = q.roll(1, dims=3), q.roll(2, dims=3), q.roll(3, dims=3)
    whole = both_ways(algorithm, q, k, v, dout)
    alone = both_ways(algorithm, *(x[-1:].clone() for x in (q, k, v, dout)))
    for name, many, one in zip(NAMES, whole, alone, strict=True):
        assert torch.equal(many[-1:], one), name  # 64 keys are one tile: dq has one sum in either


@each
def test_a_row_stride_beyond_2_31(algorithm):
    """k in rows 2^29 elements apart, so that the fifth is at 2^31: the same as with its rows next to each other."""
    q, k, v, dout = torch.randn(4, 1, 6, 2, 64, dtype=torch.float16, device="cuda")
    storage = torch.empty(5 * 2**29 + 128, dtype=torch.float16, device="cuda")
    far = storage.as_strided((1, 6, 2, 64), (0, 2**29, 64, 1))
    far.copy_(k)
    apart, together = both_ways(algorithm, q, far, v, dout), both_ways(algorithm, q, k, v, dout)
    for name, got, want in zip(NAMES, apart, together, strict=True):
        assert torch.equal(got, want), name
