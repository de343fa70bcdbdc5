"""Tensors that 32-bit offsets cannot address: the last part comes out as it does alone, bit for bit. On a GPU only."""

import pytest
import torch

pytest.importorskip("triton")
if not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < 60 * 2**30:
    pytest.skip("needs a GPU with 60 GiB of memory", allow_module_level=True)

from impls.triton.attention import FlashAttention2

BEYOND = 2**31


def both_ways(way, q, k, v, dout, bias=None):
    """-> out, lse and the gradients."""
    out, lse = way.forward(q, k, v, causal=True, bias=bias)
    return out, lse, *way.backward(dout, q, k, v, out, lse, causal=True, bias=bias)


@pytest.fixture(autouse=True)
def give_memory_back():
    yield
    torch.cuda.empty_cache()


@pytest.mark.parametrize("atomic", [False, True], ids=["dq alone", "atomic"])
def test_more_than_2_31_elements(atomic):
    """4200 batches of 64 x 64 x 128, which is 2.2e9 elements: the last batch equals itself alone."""
    way = FlashAttention2(atomic=atomic)
    shape = (4200, 64, 64, 128)
    q = torch.empty(shape, dtype=torch.float16, device="cuda").normal_()
    assert q.numel() > BEYOND
    k, v, dout = q.roll(1, dims=3), q.roll(2, dims=3), q.roll(3, dims=3)
    whole = both_ways(way, q, k, v, dout)
    alone = both_ways(way, *(x[-1:].clone() for x in (q, k, v, dout)))
    for name, many, one in zip(("out", "lse", "dq", "dk", "dv"), whole, alone, strict=True):
        if atomic and name == "dq":
            torch.testing.assert_close(many[-1:], one)
        else:
            assert torch.equal(many[-1:], one), name


def test_a_row_stride_beyond_2_31():
    """k in rows 2^29 elements apart, so that the fifth is at 2^31: the same as with its rows next to each other."""
    way = FlashAttention2()
    q, k, v, dout = torch.randn(4, 1, 6, 2, 64, dtype=torch.float16, device="cuda")
    storage = torch.empty(5 * 2**29 + 128, dtype=torch.float16, device="cuda")
    far = storage.as_strided((1, 6, 2, 64), (0, 2**29, 64, 1))
    far.copy_(k)
    for name, got, want in zip(
        ("out", "lse", "dq", "dk", "dv"), both_ways(way, q, far, v, dout), both_ways(way, q, k, v, dout), strict=True
    ):
        assert torch.equal(got, want), name


def test_a_bias_beyond_2_31():
    """A matrix bias of 2 heads x 33000 x 33000: the last queries of the last head equal a call with these alone."""
    way, n, last = FlashAttention2(), 33_000, 64
    q, k, v, dout = torch.randn(4, 1, n, 2, 32, dtype=torch.float16, device="cuda")
    bias = torch.empty(1, 2, n, n, dtype=torch.float16, device="cuda").normal_()
    assert bias.numel() > BEYOND
    whole = both_ways(way, q, k, v, dout, bias)
    alone = both_ways(way, q[:, -last:], k, v, dout[:, -last:], bias[:, :, -last:].contiguous())
    for name, many, one in (
        ("out", whole[0][:, -last:], alone[0]),
        ("dq", whole[2][:, -last:], alone[2]),
        ("dbias", whole[5][:, :, -last:], alone[5]),
    ):
        torch.testing.assert_close(many, one, msg=lambda text, name=name: f"{name}: {text}")
