"""The oracle agrees with autograd of the plain formula under every feature, and refuses what cannot
be.
"""

import importlib
import itertools
import math
import random
from types import SimpleNamespace

import pytest
import torch

from flash_attest.oracle import ALIGNMENTS, Mask, Variant, row_maximum
from tests.oracle.attentions import Precision
from tests.oracle.calls import attention, budget, variant

attention_module = importlib.import_module("flash_attest.oracle.attention")
INF = math.inf
WINDOWS = (None, (0, 0), (2, None), (None, 1), (1, 2), (20, 20), (None, None))


def sees(i, j, seqlen_q, seqlen_k, causal, alignment, window):
    """Return whether query i sees key j, by the words of the definition."""
    at = i + seqlen_k - seqlen_q if alignment == "bottom_right" else i
    left, right = window or (None, None)
    return not ((causal and j > at) or (left is not None and j < at - left) or (right is not None and j > at + right))


def by_autograd(q, k, v, dout, dlse, *, causal, alignment, window, bias, softmax_scale, softcap, sinks):
    """Compute the formula in one piece, and its gradients by autograd, in float64."""
    leaves = {"q": q, "k": k, "v": v, "bias": bias, "sink": sinks}
    leaves = {name: x.clone().requires_grad_() for name, x in leaves.items() if x is not None}
    group = q.shape[2] // k.shape[2]
    all_k, all_v = (leaves[name].repeat_interleave(group, 2) for name in ("k", "v"))
    s = torch.einsum("bihd,bjhd->bhij", leaves["q"], all_k) * (softmax_scale or q.shape[3] ** -0.5)
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None:
        s = s + leaves["bias"]
    mask = causal, alignment, window
    rows = [[sees(i, j, q.shape[1], k.shape[1], *mask) for j in range(k.shape[1])] for i in range(q.shape[1])]
    e = torch.exp(s) * torch.tensor(rows)
    l = e.sum(-1)
    if sinks is not None:
        l = l + torch.exp(leaves["sink"])[:, None]
    dead = l == 0
    l = torch.where(dead, 1.0, l)
    out = torch.einsum("bhij,bjhd->bihd", e / l[..., None], all_v)
    lse = torch.where(dead, 0.0, torch.log(l))
    loss = (out * dout).sum() + (0.0 if dlse is None else (lse * dlse).sum())
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    found = {f"d{name}": x for name, x in zip(leaves, gradients, strict=True)}
    return SimpleNamespace(out=out, lse=lse.masked_fill(dead, -INF), **found)


def draw(seed):
    """Draw a problem with some features: tensors, and keywords of `variant`."""
    drawn, generator = random.Random(seed), torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    batch, nheads_k, group = drawn.choice([1, 2]), drawn.choice([1, 2]), drawn.choice([1, 2])
    seqlen_q, seqlen_k = drawn.choice([1, 4, 7]), drawn.choice([1, 5, 9])
    nheads, headdim, headdim_v = nheads_k * group, drawn.choice([1, 4]), drawn.choice([1, 3, 6])
    sinks = randn(nheads)
    options = {
        "causal": drawn.random() < 0.5,
        "alignment": drawn.choice(ALIGNMENTS),
        "window": drawn.choice(WINDOWS),
        "bias": drawn.choice([None, randn(1, nheads, 1, seqlen_k), randn(batch, 1, seqlen_q, seqlen_k)]),
        "softmax_scale": drawn.choice([None, 0.7]),
        "softcap": drawn.choice([None, 2.0, 5.0, 1e4]),
        "sinks": drawn.choice([None, sinks, sinks + 20, sinks.masked_fill(torch.arange(nheads) % 2 == 0, -INF)]),
    }
    q, k = 3 * randn(batch, seqlen_q, nheads, headdim), 3 * randn(batch, seqlen_k, nheads_k, headdim)
    v, dout = randn(batch, seqlen_k, nheads_k, headdim_v), randn(batch, seqlen_q, nheads, headdim_v)
    return (q, k, v, dout, drawn.choice([None, randn(batch, nheads, seqlen_q)])), options


@pytest.mark.parametrize("number", (200, pytest.param(5000, marks=pytest.mark.thorough)))
def test_every_feature_agrees_with_autograd(number):
    for seed in range(number):
        (q, k, v, dout, dlse), options = draw(seed)
        want = by_autograd(q, k, v, dout, dlse, **options)
        got = attention(q, k, v, dout=dout, dlse=dlse, **options)
        for name, x in vars(want).items():
            torch.testing.assert_close(getattr(got, name), x, rtol=1e-9, atol=1e-11, msg=f"seed={seed} {name}")


def test_chunks_of_queries_change_neither_a_feature_nor_its_budget(monkeypatch):
    for seed in range(30):
        (q, k, v, dout, dlse), options = draw(seed)
        calls = {"dout": dout, "dlse": dlse, **options}
        results = []
        for scores in (2**24, 20):
            monkeypatch.setattr(attention_module, "SCORES_PER_CHUNK", scores)
            want = attention(q, k, v, **calls)
            results.append((want, budget(q, k, v, want, precision=Precision(), **calls)))
        for whole, chunked in zip(*results, strict=True):
            for name in ("out", "lse", "dq", "dk", "dv", "dbias", "dsink"):
                if getattr(whole, name) is not None:
                    torch.testing.assert_close(getattr(chunked, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def test_without_dout_the_gradients_are_those_of_lse_alone():
    (q, k, v, dout, _), options = draw(3)
    dlse = torch.randn(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float64)
    alone, zero = attention(q, k, v, dlse=dlse, **options), attention(q, k, v, dlse=dlse, dout=0 * dout, **options)
    assert alone.dq.any() and not alone.dv.any()
    torch.testing.assert_close(vars(alone), vars(zero), rtol=0, atol=0)


def test_a_row_without_keys_has_its_sink_as_lse_and_gives_it_all_of_dlse():
    q, k, v = torch.ones(1, 3, 2, 1), torch.ones(1, 2, 2, 1), torch.ones(1, 2, 2, 1)
    dlse, sinks = torch.ones(1, 2, 3), torch.tensor([2.0, -INF])
    got = attention(q, k, v, sinks=sinks, dlse=dlse, causal=True)  # query 0 sees no key
    assert got.lse[0, :, 0].tolist() == [2.0, -INF] and not got.out[0, 0].any() and not got.dq[0, 0].any()
    others = torch.exp(2.0 - got.lse[0, 0, 1:]).sum()
    assert got.dsink[0] == pytest.approx(1.0 + others.item()) and got.dsink[1] == 0.0
    assert row_maximum(q, k, variant(sinks=sinks, causal=True))[0, :, 0].tolist() == [2.0, 0.0]


def test_neutral_values_change_nothing():
    (q, k, v, dout, _), _ = draw(5)
    plain = attention(q, k, v, dout=dout)
    off = torch.full((q.shape[2],), -INF)
    same = attention(q, k, v, dout=dout, window=(99, 99), sinks=off, dlse=torch.zeros_like(plain.lse))
    for name in ("out", "lse", "dq", "dk", "dv"):
        torch.testing.assert_close(getattr(same, name), getattr(plain, name), rtol=0, atol=0)
    assert not same.dsink.any()


def test_windows_show_the_keys_of_their_definition():
    for seqlen_q, seqlen_k, causal, alignment, window in itertools.product(
        (1, 3, 6), (1, 4, 6), (False, True), ALIGNMENTS, WINDOWS
    ):
        mask = Mask(causal, alignment, window)
        pairs = itertools.product(range(seqlen_q), range(seqlen_k))
        want = [sees(i, j, seqlen_q, seqlen_k, causal, alignment, window) for i, j in pairs]
        want = torch.tensor(want).view(seqlen_q, seqlen_k)
        assert torch.equal(mask.visible(seqlen_q, seqlen_k), want), (mask, seqlen_q, seqlen_k)
        assert mask.has_empty_rows(seqlen_q, seqlen_k) == bool((~want).all(1).any()), mask
        first, last = mask.bounds(torch.arange(seqlen_q), seqlen_q, seqlen_k)
        assert (first >= 0).all() and (last < seqlen_k).all()
        assert torch.equal((last - first + 1).clamp(min=0), want.sum(1)), mask
    assert Mask(window=(None, None)).sees_all and not Mask(window=(99, None)).sees_all


@pytest.mark.parametrize("window", [(-1, 0), (1.0, 2), (True, 0), (1, 2, 3), 5, [1, 2]], ids=str)
def test_impossible_windows_are_refused(window):
    with pytest.raises(ValueError, match=r"window=.*: should be None or \(left, right\), each an int >= 0 or None"):
        Mask(window=window)


@pytest.mark.parametrize("softcap", [0, 0.0, -30.0, INF, math.nan, True, "30"], ids=str)
def test_impossible_softcaps_are_refused(softcap):
    with pytest.raises(ValueError, match=f"softcap={softcap!r}: should be None, or a finite number above 0"):
        Variant(softcap=softcap)


def test_impossible_sinks_are_refused():
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"sinks\[1\]=nan: should be a number, or -inf"):
        Variant(sinks=torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match=r"sinks\[0\]=inf: should be a number, or -inf"):
        Variant(sinks=torch.tensor([INF]))
    with pytest.raises(ValueError, match=r"sinks has shape \(1, 2\) and dtype float32: should be \(nheads\)"):
        Variant(sinks=torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"sinks has shape \(2,\) and dtype int64"):
        Variant(sinks=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"sinks has shape \(2,\), should be \(nheads\) = \(3,\)"):
        attention(q, q, q, sinks=torch.zeros(2))


def test_hidden_keys_are_a_bias_of_minus_infinity():
    """They give the same outputs and gradients, also in rows without a key."""
    generator = torch.Generator().manual_seed(0)
    q, dout = (torch.randn(2, 5, 4, 3, generator=generator) for _ in range(2))
    k, v = (torch.randn(2, 6, 2, 3, generator=generator) for _ in range(2))
    hidden = torch.rand(2, 4, 5, 6, generator=generator) < 0.4
    hidden[0, 1, 2] = True
    bias = torch.zeros(hidden.shape).masked_fill(hidden, -INF)
    mask = Mask(causal=True)
    one, other = Variant(mask, hidden=hidden), Variant(mask, bias=bias)
    got, want = (attention_module.attention(q, k, v, each, dout=dout) for each in (one, other))
    for name in ("out", "lse", "dq", "dk", "dv"):
        assert torch.equal(getattr(got, name), getattr(want, name)), name
    assert bool((got.lse[0, 1, 2] == -INF).all()) and torch.equal(row_maximum(q, k, one), row_maximum(q, k, other))


@pytest.mark.parametrize("hidden", [torch.zeros(1, 1, 2, 3), torch.zeros(2, 3, dtype=torch.bool)])
def test_impossible_hidden_keys_are_refused(hidden):
    with pytest.raises(ValueError, match=r"should be \(batch \| 1, nheads \| 1, seqlen_q, seqlen_k\) of dtype bool"):
        Variant(hidden=hidden)
