"""The Triton kernels at the limits of float32, and the checks of backward's arguments."""

import pytest
import torch

from flash_attest.impls.triton.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton.attention import FlashAttention2
from flash_attest.impls.triton.device import EMULATED
from flash_attest.impls.triton.functions import flash_attn_func

DEVICE = "cpu" if EMULATED else "cuda"
INF = float("inf")


@pytest.fixture(autouse=True)
def the_same_numbers():
    torch.manual_seed(0)


# --- limits of float32 ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1e4, -1e9, torch.finfo(torch.bfloat16).min, torch.finfo(torch.float32).min])
def test_a_finite_mask_is_not_an_infinite_one(value):
    """A row with this finite bias at every key is nearly a mean of v.

    No result is NaN, and no row counts as dead.
    """
    q, k, v = (torch.randn(1, n, 1, 16, device=DEVICE, requires_grad=True) for n in (3, 70, 70))
    bias = torch.zeros(1, 1, 3, 70, device=DEVICE)
    bias[:, :, 1] = value  # all of query 1's keys
    bias[:, :, 2, 35:] = value  # half of query 2's keys, which have no weight
    out, lse = flash_attn_func(torch.zeros_like(q), k, v, bias, return_lse=True)
    assert torch.isfinite(lse).all()
    torch.testing.assert_close(out[0, 1, 0], v[0, :, 0].mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[0, 2, 0], v[0, :35, 0].mean(0), rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(flash_attn_func(q, k, v, bias), (q, k, v), torch.ones_like(out))
    assert all(torch.isfinite(g).all() for g in gradients)


def test_a_tile_of_infinite_scores_does_not_spoil_the_next():
    """Keys whose product with q overflows to -inf have no weight, even if they fill the first
    tile.
    """
    q, v = torch.ones(1, 4, 1, 16, device=DEVICE), torch.randn(1, 64, 1, 16, device=DEVICE)
    k = torch.ones_like(v)
    k[:, :32] = -INF
    out, lse = flash_attn_func(q, k, v, return_lse=True)
    assert torch.isfinite(lse).all()
    torch.testing.assert_close(out[0, 0, 0], v[0, 32:, 0].mean(0))


# --- arguments of backward ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lse", lambda x: x.half()),
        ("lse", lambda x: x.transpose(1, 2)),
        ("out", lambda x: x[:, :1]),
        ("out", lambda x: x.double()),
        ("dout", lambda x: x[..., :8]),
    ],
)
def test_backward_refuses_what_forward_did_not_give(name, wrong):
    way = FlashAttention2()
    q = torch.randn(1, 5, 2, 16, device=DEVICE)
    out, lse = way.forward(q, q, q)
    given = {"dout": out, "out": out, "lse": lse}
    given[name] = wrong(given[name])
    with pytest.raises(ValueError, match=rf"^{name} is .*should be"):
        way.backward(given["dout"], q, q, q, given["out"], given["lse"])


def test_backward_refuses_gradients_that_it_cannot_write_to():
    way = FlashAttention2()
    q = torch.randn(1, 5, 2, 16, device=DEVICE)
    out, lse = way.forward(q, q, q)
    strided = torch.empty(1, 5, 2, 32, device=DEVICE)[..., ::2]
    with pytest.raises(ValueError, match=r"dk has strides .*last stride of 1"):
        way.backward(out, q, q, q, out, lse, into=(torch.empty_like(q), strided, torch.empty_like(q)))


def test_lse_of_any_strides_gives_the_same_gradients():
    way = FlashAttention2()
    q, dout = torch.randn(2, 2, 5, 3, 16, device=DEVICE)
    out, lse = way.forward(q, q, q)
    strided = lse.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    for a, b in zip(way.backward(dout, q, q, q, out, lse), way.backward(dout, q, q, q, out, strided), strict=True):
        assert torch.equal(a, b)
