"""The oracle agrees with loops in 40 digits, with a softmax over tiles, and with finite
differences.
"""

import importlib
import itertools
import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flash_attest.oracle import Mask
from flash_attest.oracle.attention import operands
from tests.oracle.attentions import Precision
from tests.oracle.calls import attention, budget, variant
from tests.oracle.tiled import tiled_attention

# The module is imported here, because `flash_attest.oracle.attention` is the function.
attention_module = importlib.import_module("flash_attest.oracle.attention")

NAMES = ("out", "lse", "dq", "dk", "dv", "dbias")
# Whether a bias has its full size, or size 1, in batch, nheads and seqlen_q.
BIASES = {"vector": (0, 0, 0), "matrix": (1, 1, 1), "per head": (0, 1, 1), "per batch": (1, 0, 0)}


def draw(batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim, bias=None, dead=(), seed=0, dtype=torch.float64):
    """Draw q, k, v, dout, bias. dead: the (i, j) pairs that a -inf in bias hides."""
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    q, dout = randn(batch, seqlen_q, nheads, headdim), randn(batch, seqlen_q, nheads, headdim)
    k, v = randn(batch, seqlen_k, nheads_k, headdim), randn(batch, seqlen_k, nheads_k, headdim)
    if bias is None:
        return q, k, v, dout, None
    sizes = zip((batch, nheads, seqlen_q), BIASES[bias], strict=True)
    bias = randn(*(size if full_size else 1 for size, full_size in sizes), seqlen_k)
    for i, j in dead:
        bias[:, :, i, j] = -math.inf
    return q, k, v, dout, bias


def by_loops(q, k, v, dout, *, causal, alignment, bias, softmax_scale):
    """Compute the definition in scalar loops. The caller sets 40 digits."""
    (batch, seqlen_q, nheads, headdim), (seqlen_k, nheads_k) = q.shape, k.shape[1:3]
    scale = 1 / mpmath.sqrt(headdim) if softmax_scale is None else mpmath.mpf(softmax_scale)
    got = {name: torch.zeros_like(x) for name, x in zip(("out", "dq", "dk", "dv"), (q, q, k, v), strict=True)}
    got["lse"] = torch.zeros(batch, nheads, seqlen_q, dtype=torch.float64)
    got["dbias"] = None if bias is None else torch.zeros_like(bias)
    shift = seqlen_k - seqlen_q if alignment == "bottom_right" else 0

    def dot(x, y):
        return mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(b) for a, b in zip(x, y, strict=True))

    for b in range(batch):
        for h in range(nheads):
            hk = h // (nheads // nheads_k)
            for i in range(seqlen_q):
                at = None if bias is None else (b % bias.shape[0], h % bias.shape[1], i % bias.shape[2])
                weight = {}
                for j in range(seqlen_k):
                    added = 0.0 if bias is None else bias[at][j].item()
                    if (not causal or j <= i + shift) and added != -math.inf:
                        weight[j] = mpmath.exp(scale * dot(q[b, i, h].tolist(), k[b, j, hk].tolist()) + added)
                l = mpmath.fsum(weight.values())
                got["lse"][b, h, i] = float(mpmath.log(l)) if weight else -math.inf
                probs = {j: w / l for j, w in weight.items()}
                vs, do = {j: v[b, j, hk].tolist() for j in weight}, dout[b, i, h].tolist()
                out = [mpmath.fsum(p * vs[j][d] for j, p in probs.items()) for d in range(headdim)]
                got["out"][b, i, h] = torch.tensor([float(x) for x in out], dtype=torch.float64)
                delta = mpmath.fsum(a * b for a, b in zip(do, out, strict=True))
                for j, p in probs.items():
                    t = p * (dot(do, vs[j]) - delta)
                    got["dv"][b, j, hk] += float(p) * dout[b, i, h]
                    got["dq"][b, i, h] += float(scale * t) * k[b, j, hk]
                    got["dk"][b, j, hk] += float(scale * t) * q[b, i, h]
                    if bias is not None:
                        got["dbias"][at][j] += float(t)
    return got


def assert_same(got, want, rtol=1e-11, atol=1e-12):
    for name in NAMES:
        g, w = getattr(got, name), want[name] if isinstance(want, dict) else getattr(want, name)
        if w is None:
            assert g is None, name
        else:
            torch.testing.assert_close(g, w, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


HAND_PICKED = {
    "plain": ((1, 3, 4, 1, 1, 3), {}, {}),
    "causal bottom right, more keys": ((1, 3, 5, 1, 1, 2), {}, {"causal": True}),
    "causal bottom right, more queries": ((1, 5, 3, 1, 1, 2), {}, {"causal": True}),
    "causal top left, more keys": ((1, 3, 5, 1, 1, 2), {}, {"causal": True, "alignment": "top_left"}),
    "causal top left, more queries": ((1, 5, 3, 1, 1, 2), {}, {"causal": True, "alignment": "top_left"}),
    "bias vector": ((2, 3, 4, 2, 2, 2), {"bias": "vector"}, {}),
    "bias matrix": ((2, 3, 4, 2, 2, 2), {"bias": "matrix"}, {}),
    "bias over the batch": ((2, 3, 4, 2, 2, 2), {"bias": "per head"}, {"causal": True}),
    "bias over the heads": ((2, 3, 4, 2, 2, 2), {"bias": "per batch"}, {}),
    "heads share keys": ((2, 3, 4, 4, 2, 2), {}, {"causal": True}),
    "heads share one key head": ((1, 3, 4, 3, 1, 2), {"bias": "vector"}, {}),
    "scale 0": ((1, 3, 4, 1, 1, 2), {}, {"softmax_scale": 0.0}),
    "scale negative": ((1, 3, 4, 1, 1, 2), {}, {"softmax_scale": -1.5}),
    "hidden keys": ((1, 3, 4, 2, 1, 2), {"bias": "matrix", "dead": [(0, 0), (1, 2), (2, 3)]}, {}),
    "dead row": ((2, 3, 2, 2, 1, 2), {"bias": "matrix", "dead": [(1, 0), (1, 1)]}, {}),
    "dead rows by bias and by causal mask": (
        (1, 4, 2, 1, 1, 2),
        {"bias": "matrix", "dead": [(3, 0), (3, 1)]},
        {"causal": True},
    ),
}


@pytest.mark.parametrize("name", HAND_PICKED)
def test_attention_matches_the_definition_with_40_digits(name):
    sizes, extra, options = HAND_PICKED[name]
    q, k, v, dout, bias = draw(*sizes, **extra)
    options = {"causal": False, "alignment": "bottom_right", "softmax_scale": None} | options
    with mpmath.workdps(40):
        want = by_loops(q, k, v, dout, bias=bias, **options)
    for form in (attention, tiled_attention):
        assert_same(form(q, k, v, bias=bias, dout=dout, **options), want)


@st.composite
def problems(draw_from):
    size = st.integers(1, 24)
    batch, seqlen_q, seqlen_k = draw_from(st.integers(1, 2)), draw_from(size), draw_from(size)
    nheads_k, group, headdim = draw_from(st.integers(1, 2)), draw_from(st.integers(1, 3)), draw_from(st.integers(1, 9))
    dead = draw_from(st.lists(st.tuples(st.integers(0, seqlen_q - 1), st.integers(0, seqlen_k - 1)), max_size=8))
    kind = draw_from(st.sampled_from([None, *BIASES]))
    if kind in ("vector", "per batch"):
        dead = [(0, j) for _, j in dead]
    sizes = (batch, seqlen_q, seqlen_k, nheads_k * group, nheads_k, headdim)
    tensors = draw(*sizes, bias=kind, dead=dead, seed=draw_from(st.integers(0, 99)))
    options = {
        "causal": draw_from(st.booleans()),
        "alignment": draw_from(st.sampled_from(["bottom_right", "top_left"])),
        "softmax_scale": draw_from(st.sampled_from([None, 1.0, 0.0, -0.7, 20.0])),
    }
    return tensors, options


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from([3, 7, 16]))
def test_attention_matches_tiled_attention(problem, block):
    (q, k, v, dout, bias), options = problem
    want = attention(q, k, v, dout=dout, bias=bias, **options)
    # At scale 20 scores reach 500, and exp turns their absolute rounding error into a relative one.
    assert_same(tiled_attention(q, k, v, dout=dout, bias=bias, block=block, **options), want, rtol=1e-9, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(30, 3000))
def test_chunks_of_queries_do_not_change_the_result(problem, scores):
    (q, k, v, dout, bias), options = problem
    keywords = dict(options, bias=bias, dout=dout)
    whole = attention(q, k, v, **keywords)
    sigma = budget_of(q, k, v, whole, **keywords)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "SCORES_PER_CHUNK", scores)
        assert_same(attention(q, k, v, **keywords), whole)
        chunked = budget_of(q, k, v, whole, **keywords)
    assert_same(chunked, sigma, rtol=1e-9, atol=0)


def budget_of(*args, **keywords):
    return budget(*args, precision=Precision(), **keywords)


def test_gradients_match_finite_differences():
    q, k, v, dout, bias = draw(1, 4, 5, 2, 1, 3, bias="per head", dead=[(1, 0), (2, 3)])
    options = {"causal": True, "softmax_scale": 0.9}
    want = attention(q, k, v, bias=bias, dout=dout, **options)

    def loss(**changed):
        x = {"q": q, "k": k, "v": v, "bias": bias} | changed
        return (attention(x["q"], x["k"], x["v"], bias=x["bias"], **options).out * dout).sum().item()

    step = 1e-5
    for name, x in (("q", q), ("k", k), ("v", v), ("bias", bias)):
        gradient = getattr(want, f"d{name}")
        for at in range(x.numel()):
            up, down = x.clone(), x.clone()
            up.view(-1)[at] += step
            down.view(-1)[at] -= step
            slope = (loss(**{name: up}) - loss(**{name: down})) / (2 * step)
            assert slope == pytest.approx(gradient.reshape(-1)[at].item(), abs=1e-8), f"d{name}[{at}]"


@pytest.mark.parametrize("seqlen_q, seqlen_k", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("kind", [None, "vector", "matrix"])
@pytest.mark.parametrize("causal", [False, True])
def test_cases_without_queries_or_keys_give_zeros(seqlen_q, seqlen_k, kind, causal):
    q, k, v, dout, bias = draw(2, seqlen_q, seqlen_k, 2, 1, 4, bias=kind)
    want = attention(q, k, v, causal=causal, bias=bias, dout=dout)
    assert want.out.shape == q.shape and not want.out.any() and not want.dq.any()
    assert (want.lse == -math.inf).all() and not want.dk.any() and not want.dv.any()
    sigma = budget_of(q, k, v, want, causal=causal, bias=bias, dout=dout)
    for name in NAMES[: 6 if bias is not None else 5]:
        assert getattr(sigma, name).isfinite().all(), name
        assert sigma.score(name, getattr(want, name), getattr(want, name)).within, name


def test_a_dead_row_gives_zeros_and_does_not_change_the_others():
    q, k, v, dout, bias = draw(1, 3, 4, 1, 1, 5, bias="matrix", dead=[(1, j) for j in range(4)])
    want = attention(q, k, v, bias=bias, dout=dout)
    alone = attention(q[:, ::2], k, v, bias=bias[:, :, ::2], dout=dout[:, ::2])
    assert not want.out[:, 1].any() and want.lse[0, 0, 1] == -math.inf and not want.dq[:, 1].any()
    for name in ("dk", "dv"):
        torch.testing.assert_close(getattr(want, name), getattr(alone, name))
    sigma = budget_of(q, k, v, want, bias=bias, dout=dout)
    assert sigma.lse[0, 0, 1] == 0
    assert all(getattr(sigma, name).isfinite().all() for name in NAMES)


def test_huge_scores_give_finite_results():
    q, k, v, dout, _ = draw(1, 4, 6, 1, 1, 8)
    k[:, 1] = k[:, 0]
    want = attention(q, k, v, softmax_scale=1e30, dout=dout)
    tied = attention(q, k, v, softmax_scale=0.0).out  # all six keys have equal scores
    assert want.out.isfinite().all() and want.dq.isfinite().all() and tied.isfinite().all()


@pytest.mark.parametrize(
    "seqlen_q, seqlen_k, alignment, counts",
    [
        (3, 3, "bottom_right", [1, 2, 3]),
        (2, 4, "bottom_right", [3, 4]),
        (4, 2, "bottom_right", [0, 0, 1, 2]),
        (2, 4, "top_left", [1, 2]),
        (4, 2, "top_left", [1, 2, 2, 2]),
    ],
)
def test_causal_masks_have_the_expected_visible_keys(seqlen_q, seqlen_k, alignment, counts):
    mask = Mask(causal=True, alignment=alignment)
    seen = mask.visible(seqlen_q, seqlen_k)
    assert seen.dtype == torch.bool and seen.sum(1).tolist() == counts
    assert (seen.int().diff(dim=1) <= 0).all()  # a prefix
    assert mask.has_empty_rows(seqlen_q, seqlen_k) == (0 in counts)
    assert torch.equal(mask.visible(seqlen_q, seqlen_k, slice(1, 3)), seen[1:3])
    assert Mask().visible(seqlen_q, seqlen_k).all() and not Mask().has_empty_rows(seqlen_q, seqlen_k)
    assert Mask().has_empty_rows(2, 0) and not Mask().has_empty_rows(0, 0)


def test_a_mask_sees_all_keys_only_if_nothing_but_its_alignment_is_set():
    assert Mask().sees_all and Mask(alignment="top_left").sees_all and not Mask(causal=True).sees_all


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_operands_of_any_dtype_are_used_exactly(dtype):
    q, k, v, dout, bias = draw(1, 5, 6, 2, 1, 4, bias="vector", dtype=dtype)
    want = attention(*(x.double() for x in (q, k, v)), bias=bias.double(), dout=dout.double())
    assert_same(attention(q, k, v, bias=bias, dout=dout), want, rtol=0, atol=0)


def test_invalid_arguments_are_refused():
    q, k, v, _, _ = draw(1, 2, 2, 3, 3, 2)
    with pytest.raises(ValueError, match="nheads_k=2 should divide nheads=3"):
        attention(q, k[:, :, :2], v[:, :, :2])
    with pytest.raises(ValueError, match="alignment='middle'"):
        attention(q, k, v, causal=True, alignment="middle")


def test_chunks_stay_within_their_limit():
    q = torch.zeros(1, 8192, 16, 1)
    chunks = list(operands(q, q, q, variant(causal=True, alignment="top_left")).chunks())
    assert chunks[0].start == 0 and chunks[-1].stop >= 8192
    assert all(a.stop == b.start for a, b in itertools.pairwise(chunks))
    assert max(c.stop - c.start for c in chunks) * 16 * 8192 <= attention_module.SCORES_PER_CHUNK


@pytest.mark.skipif(not torch.cuda.is_available(), reason="measures GPU memory: no CUDA device here")
def test_16_heads_of_8192_by_8192_fit_in_8_gib():
    q, k, v, dout = (torch.randn(1, 8192, 16, 128, device="cuda", dtype=torch.float16) for _ in range(4))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    want = attention(q, k, v, causal=True, dout=dout)
    budget_of(q, k, v, want, causal=True, dout=dout)
    assert torch.cuda.max_memory_allocated() - before <= 8 * 2**30
