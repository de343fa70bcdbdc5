"""flash_attest.adapters, and the adapter of docs/use/tracing-triton.md, on a package in the same
style.
"""

from __future__ import annotations

import re
import sys
import types

import pytest
import torch

pytest.importorskip("triton")

from flash_attest import Implementation
from flash_attest.adapters import adapted, imported
from tests.places import ROOT

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU there is nothing to adapt")
PACKAGE = """
import torch

if not torch.cuda.is_available():
    raise RuntimeError("no CUDA device found")


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale):
        assert q.is_cuda and q.device == k.device == v.device
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return attention(q, k, v, scale)

    @staticmethod
    def backward(ctx, dout):
        assert dout.is_cuda and torch.cuda.get_device_capability(dout.device) >= (8, 0)
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            out = attention(*inputs, ctx.scale)
        return *torch.autograd.grad(out, inputs, dout), None


def attention(q, k, v, scale):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(hidden, -float("inf")).softmax(-1), v)


def parallel_attn(q, k, v, scale=None):
    return Attention.apply(q, k, v, scale)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a package fla.ops.attn.parallel."""
    folder = tmp_path / "fla" / "ops" / "attn"
    folder.mkdir(parents=True)
    (folder / "parallel.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "fla.ops.attn.parallel"
    for name in [name for name in sys.modules if name.partition(".")[0] == "fla"]:
        del sys.modules[name]


def inputs():
    return [torch.randn(2, 5, 3, 8, generator=torch.Generator().manual_seed(i)) for i in range(4)]


def wanted(q, k, v, dout, scale):
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True, scale=scale
    ).transpose(1, 2)
    return out.detach(), torch.autograd.grad(out, (q, k, v), dout)


def test_without_it_the_package_cannot_be_imported(package):
    with pytest.raises(RuntimeError, match="no CUDA device found"):
        __import__(package)


def test_the_adapter_of_the_docs_is_right(package):
    text = (ROOT / "docs" / "use" / "tracing-triton.md").read_text()
    (example,) = re.findall(r"^```python\n(# fla_attn\.py\n.*?)^```$", text, flags=re.M | re.S)
    module = types.ModuleType("fla_attn")
    exec(compile(example, "fla_attn.py", "exec"), module.__dict__)
    assert isinstance(module.IMPL, Implementation)
    q, k, v, dout = inputs()
    out, gradients = wanted(q, k, v, dout, 0.3)
    got = module.IMPL.forward(q, k, v, softmax_scale=0.3)
    torch.testing.assert_close(got, out)
    torch.testing.assert_close(module.IMPL.backward(dout, q, k, v, got, None, softmax_scale=0.3), gradients)
    assert not torch.cuda.is_available() and not q.is_cuda


def test_a_gradient_of_the_bias_and_an_lse(package):
    parallel = imported(package)

    def attention(q, k, v, *, bias=None):
        assert torch.cuda.is_available()
        out = parallel.parallel_attn(q, k, v) + (0 if bias is None else bias)
        return out, out.sum(-1)

    forward, backward = adapted(attention, bias_grad=True)
    q, k, v, dout = inputs()
    bias = torch.randn(2, 1, 1, 8)
    assert len(forward(q, k, v, bias=bias)) == 2
    *gradients, dbias = backward(dout, q, k, v, None, None, bias=bias)
    torch.testing.assert_close(tuple(gradients), wanted(q, k, v, dout, None)[1])
    torch.testing.assert_close(dbias, dout.sum((1, 2), keepdim=True))
    assert len(backward(dout, q, k, v, None, None)) == 3
    assert not q.requires_grad and not bias.requires_grad


def test_an_error_of_the_package_ends_the_answers(package):
    def attention(q, k, v):
        raise ZeroDivisionError

    forward, backward = adapted(attention)
    q, k, v, dout = inputs()
    for call in (lambda: forward(q, k, v), lambda: backward(dout, q, k, v, None, None)):
        with pytest.raises(ZeroDivisionError):
            call()
        assert not torch.cuda.is_available()


def with_sinks(q, k, v, *, sinks=None):
    scores = torch.einsum("bihd,bjhd->bhij", q, k)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(len(q), -1, scores.shape[2], 1)], -1)
    p = scores.softmax(-1)[..., : k.shape[1]]
    return torch.einsum("bhij,bjhd->bihd", p, v), scores.logsumexp(-1)


def test_gradients_of_sinks_and_through_lse():
    """Autograd differentiates lse only if dlse is given, and sinks only if there are any."""
    _, backward = adapted(with_sinks, sink_grad=True)
    q, k, v, dout = inputs()
    sinks, dlse = torch.tensor([0.5, -torch.inf, 2.0]), torch.ones(2, 3, 5)
    out, lse = with_sinks(q, k, v, sinks=sinks)
    plain = backward(dout, q, k, v, out, lse, sinks=None)
    of_out = backward(dout, q, k, v, out, lse, sinks=sinks, dlse=None)
    of_both = backward(dout, q, k, v, out, lse, sinks=sinks, dlse=dlse)
    assert [len(gradients) for gradients in (plain, of_out, of_both)] == [3, 4, 4]
    leaf = sinks.clone().requires_grad_()
    (want,) = torch.autograd.grad(with_sinks(q, k, v, sinks=leaf)[1].sum(), leaf)
    torch.testing.assert_close(of_both[3] - of_out[3], want)
