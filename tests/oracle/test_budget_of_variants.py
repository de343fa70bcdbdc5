"""A right kernel with any feature is within the budget in every regime; wrong ones are far out."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from flash_attest import oracle
from flash_attest.oracle import FORM_OF_REGIME, LINEAR, Z_LIMIT, Z_WORST, Mask, Variant, form_of, row_maximum, score
from flash_attest.oracle.structure import roundings_repeat
from tests.oracle.attentions import DTYPES, Precision, draw
from tests.oracle.kernel import kernel, tanh_approx, tanh_of_exp
from tests.thorough import covering

SIZE = (1, 40, 70, 4)  # batch, seqlen_q, seqlen_k, nheads; two query heads share a key head
SINKS = ("count", "some_off", "above", "high")
# More than a right kernel reached in 10,000 cases of all regimes and features, in the independent
# form. The linear form allows for the worst case.
TYPICAL = 4.5


def problem(regime, dtype, seed=0, headdim=16, headdim_v=16, bias=False, sinks=None, dlse=False, **options):
    """Draw a call: q, k, v, the variant, dout and dlse."""
    q, k, *_ = draw(regime, (*SIZE, headdim), dtype, seed)
    *_, v, dout = draw(regime, (*SIZE, headdim_v), dtype, seed + 1)
    k, v = k[:, :, :2], v[:, :, :2]
    generator = torch.Generator().manual_seed(seed)
    mask = Mask(options.pop("causal", False), window=options.pop("window", None))
    if bias:
        options["bias"] = torch.randn(1, 4, SIZE[1], SIZE[2], generator=generator).to(dtype)
    if sinks:
        options["sinks"] = draw_sinks(sinks, q, k, Variant(mask, **options), generator)
    dlse = torch.randn(SIZE[0], SIZE[3], SIZE[1], generator=generator) if dlse else None
    return q, k, v, Variant(mask, **options), dout, dlse


def draw_sinks(kind, q, k, variant, generator):
    """Draw sinks: exp(sink) = 1, 2, ..., every second one off, at the row maxima, or far above."""
    if kind == "count":
        return torch.arange(1.0, 5.0).log()
    if kind == "some_off":
        return torch.randn(4, generator=generator).masked_fill(torch.arange(4) % 2 == 0, -torch.inf)
    highest = row_maximum(q, k, variant).amax((0, 2)).float()
    return highest + (100 if kind == "high" else torch.arange(4) * 5.0)


def judge(call, got, form, precision=None):
    """Return {name: Score} of a kernel's results."""
    q, k, v, variant, dout, dlse = call
    want = oracle.attention(q, k, v, variant, dout=dout, dlse=dlse)
    precision = precision or Precision()
    sigma = oracle.budget(q, k, v, variant, want, dout=dout, dlse=dlse, precision=precision, form=form)
    scores = {}
    for name, x in vars(got).items():
        dtype = torch.float32 if name in ("lse", "dsink") else q.dtype
        scores[name] = score(x, getattr(want, name), getattr(sigma, name), dtype, form)
    return scores


FEATURES = {
    "window": {"window": (9, 3)},
    "softcap 5": {"softcap": 5.0},
    "softcap 30": {"softcap": 30.0},
    "softcap 10000": {"softcap": 1e4},
    **{f"sinks {kind}": {"sinks": kind} for kind in SINKS},
    "headdim_v": {"headdim_v": 40},
    "dlse": {"dlse": True},
    "all": {"window": (20, 0), "softcap": 5.0, "sinks": "count", "headdim_v": 5, "dlse": True, "bias": True},
}


@pytest.mark.parametrize("seeds", (range(1), pytest.param(range(1, 20), marks=pytest.mark.thorough)), ids=str)
@pytest.mark.parametrize(
    "feature, dtype", covering(1, {feature: feature for feature in FEATURES}, {str(dtype): dtype for dtype in DTYPES})
)
def test_a_right_kernel_is_within_the_budget_of_every_feature(feature, dtype, seeds):
    kernels = itertools.cycle(itertools.product((torch.tanh, tanh_of_exp), ("first", "last")))
    for seed, regime in itertools.product(seeds, FORM_OF_REGIME):
        call = problem(regime, dtype, seed, causal=seed % 2 == 1, **FEATURES[feature])
        form = form_of(regime, dtype, Precision(), call[3].softcap)
        tanh, sink = next(kernels)
        got = kernel(*call, tanh=tanh, sink=sink)
        for name, s in judge(call, got, form).items():
            most = 1.01 * Z_WORST if form == LINEAR else TYPICAL
            assert s.worst_z <= most and s.within, f"{regime} {name}: z {s.worst_z:.1f}, rms {s.rms_ratio:.2f}"


def test_an_error_of_tanh_must_be_declared():
    for dtype, regime in itertools.product(DTYPES, ("spread", "peaked", "large")):
        call = problem(regime, dtype, softcap=30.0)
        got = kernel(*call, tanh=tanh_approx)
        declared = Precision(tanh=2.0**-11)
        assert form_of(regime, dtype, declared, 30.0) == LINEAR
        assert max(s.worst_z for s in judge(call, got, LINEAR, declared).values()) <= 1.01 * Z_WORST
        form = form_of(regime, dtype, Precision(), 30.0)
        assert judge(call, got, form)["lse"].worst_z > 5 * Z_LIMIT
    assert form_of("spread", torch.float16, declared) != LINEAR  # without a softcap it changes nothing


def test_a_softcap_below_the_scores_takes_the_linear_form():
    """With v = 1, the equal roundings of equal weights show in out."""
    assert form_of("large", torch.bfloat16, Precision(), 2.0) == LINEAR
    assert (
        form_of("one_sign", torch.bfloat16, Precision(), 2.0) == LINEAR
    )  # of an H200's dsink, z was 14.7 in the other
    q, k, v, variant, _, _ = problem("shifted_up", torch.float16, softcap=30.0)
    call = q, k, torch.ones_like(v), variant, None, None
    assert roundings_repeat(q, k, variant, q.dtype, Precision())
    got = SimpleNamespace(out=oracle.attention(*call[:4]).out * (1 + 2.0**-11) ** 2)  # P and out, each rounded up
    for form, holds in (("independent", False), ("linear", True)):
        assert judge(call, got, form)["out"].within == holds, form


@pytest.mark.parametrize("regime", ("spread", "uneven", "rising", "shifted_up"))
def test_a_softcap_far_above_the_scores_takes_the_linear_form(regime):
    """A tanh that is computed from exponentials next to 1 has one small error for all scores. Those
    of `uneven` are 160 in some rows and small in others.
    """
    call = problem(regime, torch.float32, softcap=1e4)
    got = kernel(*call, tanh=lambda x: torch.tanh(x) + 2.0**-25)
    assert form_of(regime, torch.float32, Precision(), 1e4) == LINEAR
    for form, holds in (("independent", False), ("linear", True)):
        assert judge(call, got, form)["lse"].within == holds, form


def test_the_gradient_through_lse_may_have_a_p_of_its_own():
    """Autograd of a softmax and a logsumexp rounds P twice, and their sum may nearly cancel."""
    call = q, k, v, variant, dout, dlse = problem("uneven", torch.float32, seed=7, bias=True, dlse=True)
    bias = variant.bias.clone().requires_grad_()
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5 + bias
    out = torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v)
    (dbias,) = torch.autograd.grad((out, s.logsumexp(-1)), bias, (dout, dlse))
    assert judge(call, SimpleNamespace(dbias=dbias), "independent")["dbias"].worst_z < 3  # 4.2 with one P


# A bug, the options of the call, and a kernel with the bug.
WRONG = {
    "window one key longer on the left": (
        {"window": (9, 3)},
        lambda q, k, v, variant, *rest: kernel(q, k, v, Variant(Mask(window=(10, 3))), *rest),
    ),
    "window one key shorter on the right": (
        {"window": (9, 3)},
        lambda q, k, v, variant, *rest: kernel(q, k, v, Variant(Mask(window=(9, 2))), *rest),
    ),
    "backward without the window": (
        {"window": (20, 20)},
        lambda q, k, v, variant, *rest: backward_of(Variant(), q, k, v, variant, *rest),
    ),
    "no softcap": ({"softcap": 5.0}, lambda *call: kernel(*call, bug="no softcap")),
    "gradients without the slope of the softcap": ({"softcap": 5.0}, lambda *call: kernel(*call, bug="no slope")),
    "no sink": ({"sinks": "count"}, lambda *call: kernel(*call, bug="no sink")),
    "sink counted twice": ({"sinks": "count"}, lambda *call: kernel(*call, bug="sink twice")),
    "dsink without delta": ({"sinks": "count"}, lambda *call: kernel(*call, bug="dsink without delta")),
    "no dlse": ({"dlse": True}, lambda *call: kernel(*call, bug="no dlse")),
}


def backward_of(other, q, k, v, variant, dout, dlse):
    """Return the results of a forward of `variant` with a backward of another variant."""
    return SimpleNamespace(**vars(kernel(q, k, v, other, dout, dlse)) | vars(kernel(q, k, v, variant)))


@pytest.mark.parametrize("bug", WRONG)
def test_a_wrong_kernel_stands_far_out(bug):
    options, wrong = WRONG[bug]
    for dtype, regime in itertools.product(DTYPES, ("spread", "peaked", "mean")):
        call = problem(regime, dtype, **options)
        scores = judge(call, wrong(*call), form_of(regime, dtype, Precision(), call[3].softcap))
        assert max(s.worst_z for s in scores.values()) > 5 * Z_LIMIT, (dtype, regime)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_conserve_what_a_feature_leaves(dtype):
    laws = {
        "window": {"sum_dk", "q_dq", "v_dv"},
        "softcap 5": {"q_dq", "v_dv"},
        "sinks count": {"q_dq", "v_dv"},
        "headdim_v": {"sum_dk", "q_dq", "v_dv"},
        "dlse": {"sum_dk", "q_dq", "v_dv"},
        "all": {"sum_dbias_dsink", "q_dq", "v_dv"},
    }
    for feature, regime in itertools.product(laws, FORM_OF_REGIME):
        call = problem(regime, dtype, **FEATURES[feature])
        sums = conserved(call, kernel(*call), regime)
        assert set(sums) == laws[feature], feature
        assert max(sums.values()) <= Z_LIMIT, f"{feature} {regime}: {sums}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dbias_and_dsink_sum_to_dlse(dtype):
    for sinks in (None, "count", "some_off"):
        call = problem("mean", dtype, bias=True, sinks=sinks, dlse=True, window=(3, None), causal=True)
        name = "sum_dbias" if sinks is None else "sum_dbias_dsink"
        assert conserved(call, kernel(*call), "mean")[name] <= Z_LIMIT
        assert conserved(call, kernel(*call, bug="no dlse"), "mean")[name] > Z_LIMIT
        if sinks is not None:
            assert conserved(call, kernel(*call, bug="dsink without delta"), "mean")[name] > Z_LIMIT


def conserved(call, got, regime):
    """Return {law: the worst z of its residual}."""
    q, k, v, variant, dout, dlse = call
    form = form_of(regime, q.dtype, Precision(), variant.softcap)
    sums = oracle.conservation(q, k, v, variant, dout, got, dlse=dlse, precision=Precision(), form=form)
    zero = torch.zeros_like
    return {name: score(x, zero(x), sigma, torch.float64, form).worst_z for name, (x, sigma) in sums.items()}
