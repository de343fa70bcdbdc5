"""Our implementations against float64, quickly. The laws in properties/ judge them thoroughly."""

import importlib
import math
from types import SimpleNamespace

import pytest
import torch

from flash_attest.impls import Absent
from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.tensors import Inputs, to_layout

MODULES = ("python_tiled", "python_topk", "torch_math", "torch_sdpa", "torch_flex", "triton", "cuda", "numba")
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
VARIANTS = ("_top_left", "_atomic", "_tf32", "_wide")
SLOW = ("triton_", "numba_")
INF = float("inf")
NAME = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
ULP = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
TINY = {torch.float32: 2.0**-22, torch.float16: 2.0**-18, torch.bfloat16: 2.0**-22}  # float16: P may be subnormal
TF32 = 2.0**-10  # the unit in the last place of tf32


def ulp(impl, dtype):
    """Return the unit in the last place of the numbers that the implementation multiplies."""
    return TF32 if impl.precision.multiply == "tf32" else ULP[dtype]


def every_implementation():
    """Yield (implementation, device) for all of the dense form that run here."""
    for module in map(importlib.import_module, (f"flash_attest.impls.{name}" for name in MODULES)):
        for impl in getattr(module, "IMPLS", None) or [module.IMPL]:
            for device in DEVICES:
                if not isinstance(impl, Absent) and device in impl.devices and impl.supports.form == "dense":
                    yield pytest.param((impl, device), id=f"{impl.name}-{device}")


@pytest.fixture(params=every_implementation())
def tested(request):
    return request.param


def case(**changed):
    """Return a case; the defaults are small and simple."""
    sizes = {"batch": 2, "seqlen_q": 17, "seqlen_k": 17, "nheads": 3, "nheads_k": 3, "headdim": 64, "dtype": None}
    rest = {"causal": False, "bias": None, "softmax_scale": None, "regime": "spread", "shift": 0.0, "size": 1.0}
    return SimpleNamespace(**{**sizes, **rest, "bias_shape": None, **changed})


CASES = {
    "plain": case(),
    "one": case(seqlen_q=1, seqlen_k=1),
    "one_query": case(seqlen_q=1, seqlen_k=33),
    "one_key": case(seqlen_q=33, seqlen_k=1),
    "partial_tiles": case(seqlen_q=65, seqlen_k=31),
    "one_short_of_a_tile": case(seqlen_q=15, seqlen_k=16),
    "causal": case(seqlen_q=65, seqlen_k=65, causal=True),
    "causal_more_keys": case(seqlen_q=17, seqlen_k=65, causal=True),
    "causal_more_queries": case(seqlen_q=65, seqlen_k=31, causal=True),
    "gqa": case(nheads=6, nheads_k=2, seqlen_k=33),
    "gqa_causal": case(nheads=4, nheads_k=1, seqlen_k=33, causal=True),
    "headdim_1": case(headdim=1),
    "headdim_3": case(headdim=3, seqlen_k=33),
    "headdim_72": case(headdim=72, seqlen_k=33),
    "headdim_256": case(headdim=256, seqlen_k=33),
    "scale_zero": case(softmax_scale=0.0, seqlen_k=33),
    "scale_zero_causal": case(softmax_scale=0.0, causal=True),
    "scale_negative": case(softmax_scale=-0.3, seqlen_k=33),
    "scale_negative_causal": case(softmax_scale=-0.3, seqlen_q=33, seqlen_k=33, causal=True),
    "large": case(size=10.0, seqlen_k=33, headdim=8),
    "scores_near_-160": case(shift=-160.0, seqlen_k=33),
    "scores_near_160": case(shift=160.0, seqlen_k=33),
    "vector": case(bias="vector", bias_shape=(2, 1, 1, 33), seqlen_k=33),
    "vector_of_all": case(bias="vector", bias_shape=(1, 1, 1, 33), seqlen_q=33, seqlen_k=33),
    "matrix": case(bias="matrix", bias_shape=(2, 3, 17, 33), seqlen_k=33),
    "matrix_of_heads": case(bias="matrix", bias_shape=(1, 3, 17, 33), seqlen_k=33),
    "matrix_causal": case(bias="matrix", bias_shape=(2, 1, 33, 17), seqlen_q=33, causal=True),
    "bias_gqa": case(bias="matrix", bias_shape=(1, 6, 17, 33), seqlen_k=33, nheads=6, nheads_k=2),
    "left_padding": case(bias="vector", bias_shape=(2, 1, 1, 65), seqlen_k=65, regime="left_padding"),
    "dead_row": case(bias="matrix", bias_shape=(2, 3, 17, 33), seqlen_k=33, regime="dead_row"),
    "window": case(bias="matrix", bias_shape=(1, 1, 65, 65), seqlen_q=65, seqlen_k=65, regime="window"),
    "no_queries": case(seqlen_q=0),
    "no_keys": case(seqlen_k=0),
}


def refused(impl, wanted):
    """Return why impl does not support this case, or None if it does."""
    s = impl.supports
    outside = {
        "dtype": wanted.dtype not in s.dtypes,
        "headdim": wanted.headdim not in s.headdims,
        "causal": wanted.causal and s.causal == "never",
        "bias": wanted.bias is not None and wanted.bias not in s.bias_kinds,
        "cross": wanted.seqlen_q != wanted.seqlen_k and not s.cross,
        "gqa": wanted.nheads != wanted.nheads_k and not s.gqa,
        "scale": wanted.softmax_scale is not None and not s.softmax_scale,
    }
    return next((name for name, is_so in outside.items() if is_so), None) or (s.accepts and s.accepts(wanted))


def inputs(wanted, device):
    """Return the tensors of the case, the same on every device."""
    generator = torch.Generator().manual_seed(5)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    c = wanted
    q = randn(c.batch, c.seqlen_q, c.nheads, c.headdim)
    k = randn(c.batch, c.seqlen_k, c.nheads_k, c.headdim)
    if c.size > 1:
        q, k = (c.size * (2 * torch.sigmoid(x) - 1) for x in (q, k))
    if c.shift:  # q . k / sqrt(d) = shift + noise
        q[..., 0], k[..., 0] = c.shift * c.headdim**0.5 / 16, 16
    v, dout = 1 + randn(*k.shape), 1 + randn(*q.shape)
    bias = None
    if c.bias:
        bias = randn(*c.bias_shape)
        if c.regime == "left_padding":  # hides all of the first two tiles of 16 keys
            bias[1, :, :, :40] = -INF
        elif c.regime == "dead_row":
            bias[:, 1, 5] = -INF
        elif c.regime == "window":
            i, j = torch.arange(c.seqlen_q).unsqueeze(1), torch.arange(c.seqlen_k)
            bias = bias.masked_fill((i - j).abs() > 3, -INF)
        bias = bias.to(device)
    return Inputs(*(x.to(device, c.dtype) for x in (q, k, v, dout)), bias)


def public_run(impl, x, **kw):
    """Call run() on inputs in the public layout."""
    in_layout = {name: t if name == "bias" else to_layout(impl, t) for name, t in x.items()}
    return run(impl, Inputs(**in_layout), **kw)


def reference(impl, x, wanted):
    """Compute attention in float64, and its gradients by autograd.

    Returns {output: (value, the sum of the magnitudes of its terms)}, and the rows that see no key.
    """
    leaves = {name: t.double().requires_grad_() for name, t in x.items() if name != "dout"}
    group = wanted.nheads // wanted.nheads_k
    q, k, v = leaves["q"], *(leaves[name].repeat_interleave(group, 2) for name in "kv")
    scale = wanted.headdim**-0.5 if wanted.softmax_scale is None else wanted.softmax_scale
    s = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    s = s + leaves["bias"] if "bias" in leaves else s
    if wanted.causal:
        offset = 0 if impl.causal_alignment == "top_left" else wanted.seqlen_k - wanted.seqlen_q
        s = s.masked_fill(s.new_ones(s.shape[2:]).tril(offset) == 0, -INF)
    dead = (s == -INF).all(-1, keepdim=True)
    p = s.masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
    out = torch.einsum("bhij,bjhd->bihd", p, v)
    dout = x.dout.double()
    grads = torch.autograd.grad(out, list(leaves.values()), dout)
    value = {"out": out, "lse": s.logsumexp(-1), **{"d" + n: grad for n, grad in zip(leaves, grads, strict=True)}}

    with torch.no_grad():
        q, k, v, dout = q.abs(), k.abs(), v.abs(), dout.abs()
        terms = torch.einsum("bihd,bjhd->bhij", q, k).amax(-1) if wanted.seqlen_k else torch.zeros_like(value["lse"])
        ds = p * torch.einsum("bihd,bjhd->bhij", dout, v)
        ds = ds + p * ds.sum(-1, keepdim=True)
        dk, dv = torch.einsum("bhij,bihd->bjhd", ds, q), torch.einsum("bhij,bihd->bjhd", p, dout)
        size = {"out": torch.einsum("bhij,bjhd->bihd", p, v), "lse": 4 + abs(scale) * terms.abs()}
        size["dq"] = abs(scale) * torch.einsum("bhij,bjhd->bihd", ds, k)
        size["dk"], size["dv"] = (t.unflatten(2, (-1, group)).sum(3) for t in (abs(scale) * dk, dv))
        size["dbias"] = None if x.bias is None else ds.sum_to_size(x.bias.shape)
    return {name: (t.detach(), size[name]) for name, t in value.items()}, dead.squeeze(-1)


def compared():
    """Yield (implementation, device), case: each case in one dtype, which varies between cases.

    The other dtypes of a case are thorough. So are all but two cases of variants, which run another
    implementation's kernels, and all of kernels that compile for seconds: in tox every law judges
    them.
    """
    for tested in every_implementation():
        (impl, _), turn = tested.values[0], 0
        for name, wanted in CASES.items():
            cases = [SimpleNamespace(**{**vars(wanted), "dtype": dtype}) for dtype in NAME]
            supported = [c for c in cases if not refused(impl, c)]
            turn += bool(supported)
            for n, c in enumerate(supported):
                chosen = n == turn % len(supported) and (turn <= 2 or not impl.name.endswith(VARIANTS))
                chosen &= not impl.name.startswith(SLOW)
                marks = () if chosen else pytest.mark.thorough
                yield pytest.param(*tested.values, c, marks=marks, id=f"{tested.id}-{name}-{NAME[c.dtype]}")


@pytest.mark.parametrize(("tested", "wanted"), list(compared()))
def test_agrees_with_float64(tested, wanted):
    (impl, device), dtype = tested, wanted.dtype
    x = inputs(wanted, device)
    got = public_run(impl, x, causal=wanted.causal, softmax_scale=wanted.softmax_scale, backward=True)
    want, dead = reference(impl, x, wanted)

    # These bounds are only an order of magnitude; the oracle has the real budget. The output and P
    # or dS are rounded once each. The error of a score (in float32 or tf32, in proportion to its
    # terms) propagates to all results.
    of_scores = TF32 if impl.precision.multiply == "tf32" else 2.0**-23
    scores = want["lse"][1].max().item() if want["lse"][1].numel() else 1.0
    for output, judged in got.items():
        (expected, size), judged = want[output], judged.double()
        if output == "lse":
            if impl.empty_rows == "undefined":
                expected, judged = (t.masked_fill(dead, 0.0) for t in (expected, judged))
            assert torch.equal(judged == -INF, expected == -INF), "lse: the rows with -inf differ from float64's"
            expected, judged = (t.masked_fill(t == -INF, 0.0) for t in (expected, judged))
            allowed = size * (4 + wanted.headdim**0.5) * of_scores
        else:
            allowed = size * (2 * ulp(impl, dtype) + scores * 8 * of_scores) + TINY[dtype]
        excess = (judged - expected).abs() - allowed
        worst = excess.max().item() if excess.numel() else -INF
        assert worst <= 0, f"{impl.name} {output}: off by {worst:.3g} more than the rounding of {NAME[dtype]} allows"


def length_taken(impl):
    """Return 33, which no tile size divides, or else 128, which is the first other length that the
    contract accepts.
    """
    return next(
        n for n in (33, 128) if impl.supports.accepts is None or not impl.supports.accepts(case(seqlen_q=n, seqlen_k=n))
    )


def test_equal_scores_give_the_mean_and_count_the_keys(tested):
    impl, device = tested
    dtype = sorted(impl.supports.dtypes, key=str)[-1]
    n = length_taken(impl)
    x = inputs(case(seqlen_q=n, seqlen_k=n, dtype=dtype), device)
    x = x.with_(q=torch.zeros_like(x.q))

    got = public_run(impl, x)

    mean = x.v.double().mean(1, keepdim=True).expand(-1, n, -1, -1)
    torch.testing.assert_close(got.out.double(), mean, rtol=0.0, atol=8 * ulp(impl, dtype))
    if got.lse is not None:
        torch.testing.assert_close(got.lse, torch.full_like(got.lse, math.log(n)))


def test_a_row_of_the_least_numbers_gives_the_mean(tested):
    """A mask of finfo.min may cover a whole row, whose result is then a mean.

    In base 2 such a mask becomes -inf, and then NaN.
    """
    impl, device = tested
    if impl.name.startswith("torch_sdpa_efficient") or impl.name == "torch_flex":
        pytest.skip("PyTorch's own kernels for GPUs do not support this")
    dtype = sorted(impl.supports.dtypes, key=str)[-1]
    wanted = case(seqlen_k=33, bias="vector", bias_shape=(2, 1, 1, 33), dtype=dtype)
    if reason := refused(impl, wanted):
        pytest.skip(str(reason))
    x = inputs(wanted, device)
    x = x.with_(q=torch.zeros_like(x.q), bias=torch.full_like(x.bias, torch.finfo(torch.float32).min))

    got = public_run(impl, x)

    mean = x.v.double().mean(1, keepdim=True).expand_as(x.q)
    torch.testing.assert_close(got.out.double(), mean, rtol=0.0, atol=8 * ulp(impl, dtype))
    assert got.lse is None or (got.lse.isfinite().all() and (got.lse < -1e38).all())


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("float64", {"dtype": torch.float64}),
        ("headdim", {"headdim": 1025}),
        ("bias", {"bias": "matrix", "bias_shape": (2, 3, 16, 33), "seqlen_k": 33}),
        ("heads", {"nheads": 3, "nheads_k": 2}),
    ],
)
def test_refusals_name_the_argument(tested, what, changed):
    impl, device = tested
    dtype = sorted(impl.supports.dtypes, key=str)[-1]
    x = inputs(case(**{"dtype": dtype, **changed}), device)
    given = {} if x.bias is None else {"bias": x.bias}
    if given and not impl.supports.bias_kinds:  # it has no such keyword
        with pytest.raises(TypeError, match="'bias'"):
            impl.forward(*(to_layout(impl, t) for t in (x.q, x.k, x.v)), **given)
        return

    # Implementations in one package share their checks, so a message begins with the argument.
    several = impl.name.startswith(("triton_", "cuda_", "numba_"))
    begins = r"(q|k|v|bias|headdim|nheads)\b" if several else f"{impl.name}: "
    with pytest.raises(ValueError, match=f"^{begins}") as refusal:
        impl.forward(*(to_layout(impl, t) for t in (x.q, x.k, x.v)), **given)
    assert len(str(refusal.value)) > 30


def test_forward_refuses_what_accepts_refuses(tested):
    impl, device = tested
    refusals = {}
    for name, wanted in CASES.items():
        for dtype in impl.supports.dtypes:
            c = SimpleNamespace(**{**vars(wanted), "dtype": dtype})
            if impl.supports.accepts and (reason := impl.supports.accepts(c)):
                x = inputs(c, device)
                with pytest.raises(ValueError, match=impl.name):
                    public_run(impl, x, causal=c.causal, softmax_scale=c.softmax_scale)
                refusals[name] = reason
    assert all(isinstance(reason, str) for reason in refusals.values())
