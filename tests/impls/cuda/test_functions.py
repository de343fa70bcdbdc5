"""flash_attention_1 and _2: out, lse and gradients, for any strides, lengths and head dims.

The tests run on CPU tensors, and on CUDA tensors if there is a GPU. The laws judge the same
functions on many more cases.
"""

from itertools import product

import pytest
import torch

from flash_attest.impls.cuda import algorithm, flash_attention_2, host
from tests.impls.cuda import values
from tests.impls.cuda.calls import BF16, F16, F32, LEFT, dout_of, each, everywhere, gradients, inputs
from tests.impls.cuda.values import randn
from tests.impls.operator_checks import assert_same_bits

INF = float("inf")


def is_attention(got, q, k, v, bias=None, **options):
    """Assert that every output in `got` is within the budget, with the dout of `gradients`."""
    values.is_attention(got, q, k, v, bias, dout_of(q), **options)


WAYS = {
    "plain": dict(),
    "causal": dict(causal=True),
    "top_left": dict(causal=True, causal_alignment=LEFT),
    "scale_0": dict(softmax_scale=0),
    "scale_negative": dict(softmax_scale=-0.5, causal=True),
}


@each
@everywhere
@pytest.mark.parametrize("dtype", (F32, F16, BF16), ids=str)
@pytest.mark.parametrize("bias", (None, (1, 4, 20, 37), (2, 1, 1, 37)), ids=("", "matrix", "vector"))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_out_lse_and_gradients_are_those_of_the_definition(function, device, dtype, bias, way):
    x = inputs(device, dtype=dtype, bias=bias)
    out, lse = function(*x, **way, return_lse=True)
    assert (out.dtype, lse.dtype, out.device.type) == (dtype, F32, device)
    got = dict(zip(("dq", "dk", "dv", "dbias"), gradients(out, x), strict=False), out=out, lse=lse)
    is_attention(got, *x, **{name.removeprefix("causal_"): value for name, value in way.items()})


@each
@everywhere
@pytest.mark.parametrize("wrt", [w for w in product((False, True), repeat=4) if any(w)], ids=lambda w: "".join(
    name for name, is_so in zip(("q", "k", "v", "bias"), w, strict=True) if is_so))  # fmt: skip
def test_a_subset_of_inputs_may_require_grad(function, device, wrt):
    """The gradients of the subset have the same bits as if all inputs required grad."""
    everything = inputs(device, 5, 9, bias=(2, 1, 5, 9))
    whole = gradients(function(*everything), everything)
    some = [x.detach().requires_grad_(wanted) for x, wanted in zip(everything, wrt, strict=True)]
    want = [grad for grad, wanted in zip(whole, wrt, strict=True) if wanted]
    for mine, other in zip(gradients(function(*some), some), want, strict=True):
        assert_same_bits(mine, other)


@each
def test_dbias_is_computed_only_if_it_is_wanted(function, monkeypatch):
    called = []
    call = host.call
    monkeypatch.setattr(host, "call", lambda name, what, *x: (called.append(what), call(name, what, *x)))
    *qkv, bias = inputs("cpu", 5, 9, bias=(1, 1, 1, 9))
    gradients(function(*qkv, bias.detach()), qkv)
    assert called == ["forward", "backward"]
    gradients(function(*qkv, bias), [bias])
    assert called[2:] == ["forward", "backward", "bias_gradient"]


@everywhere
def test_keys_shared_by_several_blocks(device):
    """The shape of k decides how many blocks share a head's keys. Results are right with 3
    blocks.
    """
    lengths = {(1, 130, 1): 3, (1, 64, 1): 1, (1, 5000, 1): 8, (200, 5000, 1): 4, (100, 5000, 8): 1, (0, 0, 0): 1}
    assert {shape: algorithm.splits_of(torch.zeros(*shape, 8)) for shape in lengths} == lengths
    x = inputs(device, 20, 130, bias=None)
    is_attention(dict(zip(("dq", "dk", "dv"), gradients(flash_attention_2(*x), x), strict=True)), *x)


@each
def test_lse_has_no_gradient_but_out_does(function):
    x = inputs("cpu", 5, 9, bias=None)
    out, lse = function(*x, return_lse=True)
    assert out.requires_grad and not lse.requires_grad
    with torch.no_grad():
        out, lse = function(*x, return_lse=True)
    assert not out.requires_grad and not lse.requires_grad


@each
@everywhere
def test_no_queries_and_no_keys(function, device):
    x = inputs(device, seqlen_q=0, bias=None)
    out = function(*x)
    assert out.shape == (2, 0, 4, 16)
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 3
    x = inputs(device, seqlen_k=0, bias=(1, 1, 1, 0))
    out, lse = function(*x, return_lse=True)
    assert not out.any() and (lse == -INF).all()
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 4


@each
@everywhere
def test_any_strides(function, device):
    """The inputs are every other column, heads before rows, or transposed (the bias), and dout is
    expanded.
    """
    x = inputs(device)
    want = function(*x)
    dout = randn(1, 1, 1, 16, device=device)
    strange = [torch.stack([t, t + 1], -1).flatten(-2)[..., ::2].detach().requires_grad_() for t in x[:2]]
    strange += [x[2].detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()]
    strange += [x[3].detach().permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0).requires_grad_()]
    assert not any(t.is_contiguous() for t in strange)
    got = function(*strange)
    assert_same_bits(got, want)
    expanded, copied = dout.expand(got.shape), dout.expand(got.shape).contiguous()
    for mine, other in zip(gradients(got, strange, expanded), gradients(want, x, copied), strict=True):
        assert_same_bits(mine, other)


@each
@everywhere
@pytest.mark.parametrize("headdim", (257, 1024))
def test_wide_heads(function, device, headdim):
    x = [t if t is None else t.detach() for t in inputs(device, 5, 9, headdim, bias=None)]
    out, lse = function(*x, causal=True, return_lse=True)
    is_attention(dict(out=out, lse=lse), *x, causal=True)
