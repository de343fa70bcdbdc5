"""flash_attention_1 and _2: results for every dtype, bias, mask, length and stride.

The laws judge the same kernels on many more cases. PyTorch operators: test_operators.py. Errors:
test_refused.py.
"""

from itertools import product

import pytest
import torch

from flash_attest.impls.numba.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba import attention
from flash_attest.impls.numba.functions import flash_attention_1, flash_attention_2
from tests.impls.numba.calls import DEVICE, GRADIENTS, gradients, inputs, is_attention
from tests.impls.operator_checks import assert_same_bits
from tests.thorough import covering

FUNCTIONS = {"fa1": flash_attention_1, "fa2": flash_attention_2}
DTYPES = {"float32": torch.float32, "float16": torch.float16}  # the laws judge bfloat16, which takes long to compile
BIASES = {"no_bias": None, "matrix": (1, 4, 20, 37), "vector": (2, 1, 1, 37)}
MASKS = {"full": dict(), "causal": dict(causal=True), "top_left": dict(causal=True, causal_alignment="top_left")}
SCALES = {"default": dict(), "scale_0": dict(softmax_scale=0), "scale_negative": dict(softmax_scale=-0.5)}
each = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def run(function, x, **options):
    """Return {"out", "lse", "dq", ...}."""
    out, lse = function(*x, **options, return_lse=True)
    return dict(zip(GRADIENTS, gradients(out, x), strict=False), out=out, lse=lse)


@pytest.mark.parametrize("function, dtype, bias, mask, scale", covering(1, FUNCTIONS, DTYPES, BIASES, MASKS, SCALES))
def test_out_lse_and_gradients_are_those_of_the_definition(function, dtype, bias, mask, scale):
    x = inputs(dtype=dtype, bias=bias)
    got = run(function, x, **mask, **scale)
    assert (got["out"].dtype, got["lse"].dtype) == (dtype, torch.float32)
    assert [got[name].dtype for name in GRADIENTS if name in got] == [t.dtype for t in x if t is not None]
    is_attention(got, *x, **{name.removeprefix("causal_"): value for name, value in (mask | scale).items()})


@each
@pytest.mark.parametrize("headdim", (1, 3, 64, 65, 130, 256))
def test_head_dims(function, headdim):
    """Lengths are not multiples of a tile, and there are head dims with wide loads and without."""
    x = inputs(seqlen_q=33, seqlen_k=50, headdim=headdim, bias=(2, 1, 33, 50))
    is_attention(run(function, x, causal=True), *x, causal=True)


@each
def test_dbias_of_every_broadcast(function):
    for shape in product((1, 2), (1, 4), (1, 20), (37,)):
        x = inputs(bias=shape)
        got = run(function, x)
        assert got["dbias"].shape == shape
        is_attention(got, *x)


def test_a_bias_of_16_bits_gets_a_gradient_of_16_bits():
    q, k, v, bias = inputs(dtype=torch.float16, bias=(1, 1, 1, 37))
    bias = bias.detach().half().requires_grad_()
    got = run(flash_attention_2, (q, k, v, bias))
    assert got["dbias"].dtype == torch.float16
    is_attention(got, q, k, v, bias)


@each
@pytest.mark.parametrize("wrt", [w for w in product((False, True), repeat=4) if any(w)], ids=lambda w: "".join(
    name for name, is_so in zip(("q", "k", "v", "bias"), w, strict=True) if is_so))  # fmt: skip
def test_a_subset_of_inputs_may_require_grad(function, wrt):
    """The gradients of the subset have the same bits as if all inputs required grad."""
    everything = inputs(5, 9, bias=(2, 1, 5, 9))
    want = [g for g, wanted in zip(gradients(function(*everything), everything), wrt, strict=True) if wanted]
    some = [x.detach().requires_grad_(wanted) for x, wanted in zip(everything, wrt, strict=True)]
    for mine, other in zip(gradients(function(*some), some), want, strict=True):
        assert_same_bits(mine, other)


@each
def test_dbias_is_computed_only_if_it_is_wanted(function, monkeypatch):
    called, compute = [], attention.bias_gradient
    monkeypatch.setattr(attention, "bias_gradient", lambda *given: (called.append(given), compute(*given)))
    *qkv, bias = inputs(5, 9, bias=(1, 1, 1, 9))
    gradients(function(*qkv, bias.detach()), qkv)
    assert not called
    gradients(function(*qkv, bias), [bias])
    assert len(called) == 1


@each
def test_lse_has_no_gradient_but_out_does(function):
    x = inputs(5, 9, bias=None)
    out, lse = function(*x, return_lse=True)
    assert out.requires_grad and not lse.requires_grad
    with torch.no_grad():
        out, lse = function(*x, return_lse=True)
    assert not out.requires_grad and not lse.requires_grad


@each
def test_no_queries_and_no_keys(function):
    x = inputs(seqlen_q=0, bias=None)
    out = function(*x)
    assert out.shape == (2, 0, 4, 16)
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 3
    x = inputs(seqlen_k=0, bias=(1, 1, 1, 0))
    out, lse = function(*x, return_lse=True)
    assert not out.any() and (lse == -torch.inf).all()
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 4


@each
def test_any_strides(function):
    """Strided, transposed and expanded tensors give the same bits as contiguous ones."""
    x = inputs()
    want = function(*x)
    strange = [torch.stack([t, t + 1], -1).flatten(-2)[..., ::2].detach().requires_grad_() for t in x[:2]]
    strange += [x[2].detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()]
    strange += [x[3].detach().permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0).requires_grad_()]
    assert not any(t.is_contiguous() for t in strange)
    got = function(*strange)
    assert_same_bits(got, want)
    dout = torch.arange(16.0, device=DEVICE).expand(got.shape)
    for mine, other in zip(gradients(got, strange, dout), gradients(want, x, dout.contiguous()), strict=True):
        assert_same_bits(mine, other)
