"""Correct kernels stay within the limits of the budget, and subtly wrong ones exceed them."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend

from flash_attest import oracle
from flash_attest.oracle import FORM_OF_REGIME, Z_LIMIT
from tests.oracle.attentions import BIAS_SHAPES, DTYPES, Precision, dense, double, draw, draw_biased, sdpa, stored
from tests.oracle.calls import NAMES, attention, budget, text
from tests.thorough import covering

USUAL = Precision()
MIDDLE = (1, 129, 257, 2, 64)  # batch, seqlen_q, seqlen_k, nheads, headdim
SIZES = (MIDDLE, (1, 128, 128, 2, 128), (3, 7, 5, 1, 16), (1, 300, 40, 2, 80), (2, 65, 1, 2, 8), (1, 1, 65, 3, 32))


def judge(regime, size, dtype, run, precision=USUAL, causal=False, device="cpu", seed=0, names=NAMES):
    """Return {name: Score} of run(q, k, v, dout), which returns a record with `names`."""
    q, k, v, dout = draw(regime, size, dtype, seed, device)
    options = {"causal": causal, "alignment": "top_left", "dout": dout}
    want = attention(q, k, v, **options)
    sigma = budget(q, k, v, want, precision=precision, form=FORM_OF_REGIME[regime], **options)
    got = run(q, k, v, dout)
    return {name: sigma.score(name, getattr(got, name), getattr(want, name)) for name in names}


# PyTorch's CPU flash kernel adds blocks of queries to dk and dv in the operands' dtype.
KERNELS = {
    "cpu math": ("cpu", SDPBackend.MATH, Precision()),
    "cpu flash": ("cpu", SDPBackend.FLASH_ATTENTION, Precision(accumulate="operand")),
    "cuda math": ("cuda", SDPBackend.MATH, Precision()),
    "cuda flash": ("cuda", SDPBackend.FLASH_ATTENTION, Precision()),
    "cuda efficient": ("cuda", SDPBackend.EFFICIENT_ATTENTION, Precision()),
    "cuda cudnn": ("cuda", SDPBackend.CUDNN_ATTENTION, Precision()),
}


def refuses(error):
    """Return whether PyTorch's kernel does not support the case, as opposed to failing on it."""
    return "No available kernel" in str(error) or "cudnn" in str(error).lower()


@pytest.mark.parametrize(
    "kernel, dtype, regime",
    covering(
        2,
        {kernel: kernel for kernel in KERNELS},
        {str(dtype): dtype for dtype in DTYPES},
        {regime: regime for regime in FORM_OF_REGIME},
    ),
)
def test_correct_kernels_are_within_the_budget(kernel, dtype, regime):
    device, backend, precision = KERNELS[kernel]
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    judged = 0
    for size, causal in itertools.product(SIZES, (False, True)):

        def run(*x, causal=causal):
            return sdpa(backend, *x, causal)

        try:
            scores = judge(regime, size, dtype, run, precision, causal, device)
        except RuntimeError as error:
            if device == "cpu" or not refuses(error):
                raise
            continue
        assert all(s.within for s in scores.values()), f"{size} causal={causal}: {text(scores)}"
        judged += 1
    if not judged:
        pytest.skip(f"{kernel} takes no {dtype}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", BIAS_SHAPES, ids=str)
def test_bias_and_shared_heads_are_within_the_budget(shape, dtype):
    q, k, v, dout, bias = draw_biased(shape, dtype)
    want = attention(q, k, v, bias=bias, dout=dout)
    sigma = budget(q, k, v, want, bias=bias, dout=dout, precision=Precision())
    got = sdpa(SDPBackend.MATH, q, k, v, dout, False, bias)
    scores = {name: sigma.score(name, getattr(got, name), getattr(want, name)) for name in (*NAMES, "dbias")}
    assert all(s.within for s in scores.values()), text(scores)


@pytest.mark.parametrize("number", (40, pytest.param(1000, marks=pytest.mark.thorough)))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tiny_cases_are_within_the_budget(dtype, number):
    """An rms over one or two elements varies like single errors, so its limit depends on n."""
    generator = torch.Generator().manual_seed(3)
    for seed in range(number):
        regime = list(FORM_OF_REGIME)[seed % 9]
        size = tuple(torch.randint(1, high, (1,), generator=generator).item() for high in (3, 9, 9, 3, 17))
        scores = judge(regime, size, dtype, lambda *x: sdpa(SDPBackend.MATH, *x, False), seed=seed)
        assert all(s.within for s in scores.values()), f"{regime} {size} seed={seed}: {text(scores)}"


def to_tf32(x):
    """Return x rounded to nearest with 10 explicit bits of mantissa."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def test_the_dense_model_without_a_bug_is_within_the_budget():
    for dtype in DTYPES:
        scores = judge("spread", MIDDLE, dtype, lambda *x, dtype=dtype: stored(dense(*double(x)), dtype))
        assert all(s.within for s in scores.values()), text(scores)
    scores = judge("spread", MIDDLE, torch.float32, lambda *x: dense(*x))
    assert all(s.within for s in scores.values()), text(scores)


@pytest.mark.parametrize("regime", ["spread", "peaked", "mean"])
def test_one_percent_of_out_shows_in_float16(regime):
    def run(*x):
        return SimpleNamespace(out=(1.01 * dense(*double(x)).out).half())

    scores = judge(regime, MIDDLE, torch.float16, run, names=("out",))
    assert scores["out"].worst_z > Z_LIMIT, text(scores)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tenth_of_delta_shows_in_dq(dtype):
    def run(*x):
        return stored(dense(*double(x), delta_factor=0.9), dtype)

    scores = judge("spread", MIDDLE, dtype, run, names=("dq", "dk"))
    assert all(not s.within for s in scores.values()), text(scores)
    assert scores["dq"].worst_z > Z_LIMIT, text(scores)


@pytest.mark.parametrize("regime", ["spread", "peaked", "shifted_down", "mean"])
def test_undeclared_tf32_shows_in_float32(regime):
    scores = judge(regime, MIDDLE, torch.float32, lambda *x: dense(*x, multiply=to_tf32))
    assert min(s.worst_z for s in scores.values()) > 4 * Z_LIMIT, text(scores)
    declared = judge(regime, MIDDLE, torch.float32, lambda *x: dense(*x, multiply=to_tf32), Precision(multiply="tf32"))
    assert all(s.within for s in declared.values()), text(declared)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_undeclared_accumulation_in_half_shows(dtype):
    def run(q, k, v, dout):
        q, k, v = (x.transpose(1, 2).double() for x in (q, k, v))
        probs = torch.softmax(q @ k.mT / 8, -1)
        out = torch.zeros_like(q).to(dtype)
        for keys in torch.arange(1024).chunk(16):
            out = (out.double() + probs[..., keys] @ v[:, :, keys]).to(dtype)
        return SimpleNamespace(out=out.transpose(1, 2))

    size = (1, 128, 1024, 2, 64)
    scores = judge("spread", size, dtype, run, names=("out",))
    assert scores["out"].worst_z > Z_LIMIT and not scores["out"].within, text(scores)
    declared = judge("spread", size, dtype, run, Precision(accumulate="operand"), names=("out",))
    assert declared["out"].within, text(declared)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_padding_key_among_1025_shows(dtype):
    """A padding column of the last tile is not masked.

    Its score and its v are 0, so out shrinks by l / (l + exp(-m)) and lse grows.
    """

    def run(*x):
        clean = dense(*double(x))
        return stored(dense(*double(x), key_weight=1 + torch.exp(-clean.lse).unsqueeze(-1)), dtype)

    scores = judge("spread", (1, 64, 1025, 2, 64), dtype, run, names=("out", "lse"))
    assert scores["lse"].worst_z > 100, text(scores)
    if dtype == torch.float32:
        assert scores["out"].worst_z > 100, text(scores)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_linear_form_detects_one_extra_key_among_100(dtype):
    def run(*x):
        return stored(dense(*double(x), key_weight=1 + 1 / 100), dtype)

    scores = judge("flat", (1, 100, 100, 2, 64), dtype, run, names=("out", "lse"))
    assert scores["lse"].worst_z > 1000, text(scores)
    # With a constant v, an extra key makes every output 0.99 of its value.
    q, k, v, dout = draw("flat", (1, 100, 100, 2, 64), dtype)
    ones = torch.ones_like(v)
    want = attention(q, k, ones, dout=dout)
    sigma = budget(q, k, ones, want, dout=dout, precision=Precision(), form="linear")
    score = sigma.score("out", (want.out * 100 / 101).to(dtype), want.out)
    assert score.worst_z > 8 if dtype != torch.bfloat16 else score.worst_z > 4, score.worst_z


def test_flushed_probabilities_add_up():
    """A GPU flushes P below 2^-126 to 0 in every row, so the errors of n rows add up to n times one
    error.
    """
    q, k, v, dout = draw("mean", (1, 400, 2, 1, 1), torch.float32)
    k, v = torch.tensor([-1.0, 1.0]).view(1, 2, 1, 1), torch.tensor([2.0, 1.0]).view(1, 2, 1, 1)
    q, dout = torch.full_like(q, 87.6 / 2), torch.ones_like(dout)  # P_0 = exp(-87.6), just below 2^-126
    want = attention(q, k, v, dout=dout)
    sigma = budget(q, k, v, want, dout=dout, precision=Precision())
    assert 0 < want.dv[0, 0, 0, 0] < 400 * 2.0**-126
    assert sigma.score("dv", torch.where(want.dv < 1, 0.0, want.dv), want.dv).within


def test_a_cast_that_flushes_a_key_in_every_row_is_in_the_budget():
    """One key is 14 below the others of 1000 rows, so a cast to float16 makes all its P 0."""
    q, k, v, dout = draw("mean", (1, 1000, 40, 1, 8), torch.float16)
    bias = torch.zeros(1, 1, 1, 40)
    bias[..., 7] = -14.0
    want = attention(q / 8, k, v, bias=bias, dout=dout)
    sigma = budget(q / 8, k, v, want, bias=bias, dout=dout, precision=Precision())
    flushed = want.dv.half()
    flushed[:, 7] = 0
    assert want.dv[:, 7].min() > 2.0**-24  # the sum itself is large enough to be stored
    assert sigma.score("dv", flushed, want.dv).within


@pytest.mark.parametrize("headdim", [1, 16])
def test_terms_below_half_an_ulp_of_their_sum_are_in_the_budget(headdim):
    """With ALiBi, P decays smoothly, and terms below half an ulp of the sum have no effect.

    The errors have the same sign in all rows and columns. The kernel adds one key after another in
    float32 and is exact otherwise. Without this term of the budget, dk is 17 sigma off.
    """
    n, slope = 1026, 2.0**-5.33
    q, k, v, dout = draw("mean", (1, n, n, 1, headdim), torch.float32)
    v, dout = (v + 1) / 2, (dout + 1) / 2
    i = torch.arange(n, dtype=torch.float32)
    bias = (-slope * (i[:, None] - i).abs()).view(1, 1, n, n)
    want = attention(q, k, v, bias=bias, dout=dout)
    sigma = budget(q, k, v, want, bias=bias, dout=dout, precision=Precision())

    q, k, v, dout = (x[0, :, 0].double() for x in (q, k, v, dout))
    p = (q @ k.T * headdim**-0.5 + bias[0, 0].double()).softmax(-1)
    out = torch.zeros(n, headdim)
    for j in range(n):
        out = (out.double() + p[:, j : j + 1] * v[j]).float()  # what an FMA does
    of_out = ((out - want.out[0, :, 0]) / want.out[0, :, 0])[:128].mean()
    assert of_out < -10 * 2.0**-24  # terms are lost, not only rounded
    t = p * (dout @ v.T - (dout * out).sum(-1, keepdim=True))
    got = dict(out=out, dq=headdim**-0.5 * t @ k, dk=headdim**-0.5 * t.T @ q)
    for name, x in got.items():
        assert sigma.score(name, x.view(1, n, 1, headdim), getattr(want, name)).within, name
    assert sigma.score("dbias", t.view(1, 1, n, n), want.dbias).within


def test_roundoff_and_smallest_subnormal_of_each_dtype():
    assert [oracle.roundoff(d) for d in DTYPES] == [2**-24, 2**-11, 2**-8]
    assert [oracle.smallest_subnormal(d) for d in DTYPES] == [2**-149, 2**-24, 2**-133]
