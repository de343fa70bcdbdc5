"""assert_attention_close passes right results for any inputs, and names the wrong ones."""

import numpy as np
import pytest
import torch

from flash_attest import Precision, assert_attention_close
from flash_attest.impls import python_tiled
from flash_attest.impls.contract.call import run as call
from flash_attest.impls.contract.tensors import Inputs
from tests.thorough import covering

TILED = python_tiled.IMPL


def inputs(dtype=torch.float16, b=2, sq=33, sk=70, h=4, hk=2, d=16, seed=0):
    random = torch.Generator().manual_seed(seed)
    q, dout = (torch.randn(b, sq, h, d, generator=random).to(dtype) for _ in range(2))
    k, v = (torch.randn(b, sk, hk, d, generator=random).to(dtype) for _ in range(2))
    return Inputs(q, k, v, dout)


def results(x: Inputs, **options):
    """Return the results of our tiled FlashAttention-2, as keywords of assert_attention_close."""
    got = call(TILED, x, backward=True, **options)
    return dict(lse=got.lse, dout=x.dout, dq=got.dq, dk=got.dk, dv=got.dv), got.out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_right_results_pass_and_the_worst_z_of_each_comes_back(dtype, causal):
    x = inputs(dtype)
    given, out = results(x, causal=causal)
    worst = assert_attention_close(out, x.q, x.k, x.v, causal=causal, precision=TILED.precision, **given)
    assert set(worst) == {"out", "lse", "dq", "dk", "dv"} and all(0 <= z <= 8 for z in worst.values())


STRUCTURED = {
    "all ones": lambda x: Inputs(*(torch.ones_like(t) for t in (x.q, x.k, x.v, x.dout))),
    "a loss that sums": lambda x: x.with_(dout=torch.ones_like(x.dout)),
    "q all alike": lambda x: x.with_(q=x.q[:, :1].expand_as(x.q).contiguous()),
    "k all alike": lambda x: x.with_(k=x.k[:, :1].expand_as(x.k).contiguous()),
    "v all alike": lambda x: x.with_(v=x.v[:, :1].expand_as(x.v).contiguous()),
    "small scores": lambda x: x.with_(q=x.q / 100),
    "no scores": lambda x: x.with_(q=torch.zeros_like(x.q)),
    "integers": lambda x: Inputs(*(t.mul(2).round().clamp(-2, 2) for t in (x.q, x.k, x.v, x.dout))),
    "counted": lambda x: Inputs(*((torch.arange(t.numel()) % 7 / 7).reshape(t.shape).to(t.dtype) for _, t in x.items())),
    "half of the keys padded": lambda x: x.with_(k=x.k.index_fill(1, torch.arange(35, 70), 0.0)),
}  # fmt: skip


@pytest.mark.parametrize(
    "structure, dtype, seqlen",
    covering(
        1,
        {name: name for name in STRUCTURED},
        {"half": torch.float16, "bfloat16": torch.bfloat16},
        {"70": 70, "300": 300},
    ),
)
def test_right_results_pass_where_roundings_repeat(structure, dtype, seqlen):
    x = STRUCTURED[structure](inputs(dtype, b=1, sq=seqlen, sk=seqlen))
    given, out = results(x)
    assert_attention_close(out, x.q, x.k, x.v, precision=TILED.precision, **given)


def without_the_last_key(x: Inputs) -> torch.Tensor:
    return call(TILED, x.with_(k=x.k[:, :-1], v=x.v[:, :-1])).out


def test_a_missing_key_fails_with_the_element_its_value_and_where():
    x = inputs()
    out = call(TILED, x).out
    out[:, 32:] = without_the_last_key(x)[:, 32:]  # in the last tile of queries
    with pytest.raises(AssertionError) as failed:
        assert_attention_close(out, x.q, x.k, x.v, precision=TILED.precision, tile=(16, 16))
    first, *lines = str(failed.value).splitlines()
    assert first.startswith("out[b=") and "times what rounding explains, 8 allowed" in first
    assert lines[0].startswith("  batch=2 nheads=4 nheads_k=2") or "seqlen_q=33 seqlen_k=70" in lines[0]
    assert any("query tile" in line for line in lines)


@pytest.mark.parametrize(
    ("given", "asked", "words"),
    [
        ({"causal": True}, {}, "out is the one of causal=True"),
        ({}, {"causal": True}, "out is the one of causal=False"),
        ({"softmax_scale": 1.0}, {}, "out is the one of softmax_scale = 1"),
        ({}, {"softmax_scale": 0.5}, "out is the one of the default softmax_scale"),
    ],
)
def test_the_message_says_what_the_result_is_right_for(given, asked, words):
    x = inputs()
    out = call(TILED, x, **given).out
    with pytest.raises(AssertionError, match=words):
        assert_attention_close(out, x.q, x.k, x.v, precision=TILED.precision, **asked)


def test_the_other_alignment_is_named():
    x = inputs()
    out = call(TILED, x, causal=True).out
    with pytest.raises(AssertionError, match="out is the one of causal_alignment='bottom_right'"):
        assert_attention_close(out, x.q, x.k, x.v, causal=True, causal_alignment="top_left", precision=TILED.precision)


def test_of_large_tensors_one_head_is_enough():
    """With three batches and four heads, the scores are too many for the whole table."""
    x = inputs(b=3, sq=130, sk=170, h=4, hk=2)
    out = call(TILED, x, causal=True).out
    with pytest.raises(AssertionError, match="out is the one of causal=True"):
        assert_attention_close(out, x.q, x.k, x.v, precision=TILED.precision)


def test_a_mistake_in_the_gradients_is_named():
    x = inputs(torch.float32)
    got = call(TILED, x, backward=True)
    given = {n: t for n, t in got.items() if n != "out"} | {"dout": x.dout}
    given["dk"] = given["dk"] * x.q.shape[-1] ** 0.5
    with pytest.raises(AssertionError, match="dk is the one without the factor softmax_scale"):
        assert_attention_close(got.out, x.q, x.k, x.v, precision=TILED.precision, **given)


def test_layout_bhsd_and_arrays_of_numpy():
    x = inputs(torch.float32)
    out = call(TILED, x).out
    turned = [t.transpose(1, 2).contiguous().numpy() for t in (out, x.q, x.k, x.v)]
    assert assert_attention_close(*turned, layout="bhsd", precision=TILED.precision)["out"] < 8
    with pytest.raises(AssertionError):
        assert_attention_close(turned[0] + np.float32(1e-3), *turned[1:], layout="bhsd", precision=TILED.precision)


@pytest.mark.parametrize("name", ["out", "lse", "dq", "dk", "dv", "dbias"])
def test_each_wrong_result_fails_as_itself(name):
    x = inputs(torch.float32, b=1, sq=9, sk=9, h=2, hk=2)
    x = x.with_(bias=torch.randn(1, 2, 9, 9, generator=torch.Generator().manual_seed(1)))
    got = call(TILED, x, backward=True)
    given = {n: t for n, t in got.items() if n != "out"} | {"dout": x.dout, "bias": x.bias, "out": got.out}
    assert assert_attention_close(q=x.q, k=x.k, v=x.v, precision=TILED.precision, **given)
    given[name] = given[name] + 0.01
    with pytest.raises(AssertionError, match=rf"^{name}\["):
        assert_attention_close(q=x.q, k=x.k, v=x.v, precision=TILED.precision, **given)


FEATURES = {
    "window": {"window": (20, 3)},
    "causal window": {"causal": True, "window": (9, None)},
    "softcap": {"softcap": 5.0},
    "sinks": {"sinks": torch.tensor([0.0, 1.0, -torch.inf, 2.0])},
    "dlse": {"dlse": torch.randn(2, 4, 33, generator=torch.Generator().manual_seed(2))},
    "headdim_v": {"headdim_v": 24},
}
FEATURES["all"] = {name: value for options in FEATURES.values() for name, value in options.items()}


def with_features(headdim_v=16, sinks=None, dlse=None, **options):
    """Return the keywords of a right call of assert_attention_close with these features."""
    x, random = inputs(torch.float32), torch.Generator().manual_seed(3)
    v, dout = torch.randn(2, 70, 2, headdim_v, generator=random), torch.randn(2, 33, 4, headdim_v, generator=random)
    x = x.with_(v=v, dout=dout, sinks=sinks, dlse=dlse)
    got = call(TILED, x, backward=True, **options)
    return {**options, **dict(x.items()), **dict(got.items()), "precision": TILED.precision}


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_is_judged_and_its_absence_shows(feature):
    given = with_features(**FEATURES[feature])
    worst = assert_attention_close(**given)
    assert ("dsink" in worst) == (given.get("sinks") is not None) and max(worst.values()) <= 8
    for name in FEATURES[feature] if feature != "all" else ():
        if name != "headdim_v":
            without = {key: value for key, value in given.items() if key not in (name, "dsink")}
            with pytest.raises(AssertionError):
                assert_attention_close(**without)


def test_gradients_of_lse_alone_need_no_dout():
    x = inputs(torch.float32, b=1, h=2).with_(dlse=torch.ones(1, 2, 33))
    got = call(TILED, x.with_(dout=torch.zeros_like(x.dout)), backward=True)
    given = dict(q=x.q, k=x.k, v=x.v, dlse=x.dlse, dq=got.dq, dk=got.dk, dv=got.dv)
    assert set(assert_attention_close(got.out, precision=TILED.precision, **given)) == {"out", "dq", "dk", "dv"}


def test_lse_in_base_2_is_named():
    x = inputs()
    got = call(TILED, x)
    with pytest.raises(AssertionError, match=r"lse is the one in base 2: multiply it by ln 2"):
        assert_attention_close(got.out, x.q, x.k, x.v, lse=got.lse * 1.442695, precision=TILED.precision)


X = inputs()
OUT = call(TILED, X).out


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"layout": "sbhd"}, "layout='sbhd': should be one of 'bshd', 'bhsd'"),
        ({"layout": "bhsd"}, "k has 70 heads, which does not divide the 33 of q"),
        ({"causal_alignment": "left"}, "causal_alignment='left'"),
        ({"dq": X.q}, "dq given without dout"),
        ({"dbias": OUT, "dout": OUT}, "dbias given without bias"),
        (
            {"lse": torch.zeros(2, 33, 4)},
            r"lse has shape \(2, 33, 4\), should be \(batch, nheads, seqlen_q\) = \(2, 4, 33\)",
        ),
        ({"lse": torch.zeros(2, 4, 33).half()}, "lse has dtype float16, should have float32"),
        (
            {"bias": torch.ones(1, 1, 33, 70, dtype=torch.bool), "dbias": torch.ones(1, 1, 33, 70), "dout": OUT},
            "dbias given for a boolean mask, which has none",
        ),
        (
            {"bias": torch.ones(1, 1, 33, 70, dtype=torch.int64)},
            "bias has dtype int64: should be a floating point dtype, or bool for a mask",
        ),
        ({"out": None}, "out is None: pass what attention returned"),
        ({"out": (OUT, OUT)}, "out is a tuple: pass its tensors separately"),
        ({"softmax_scale": "x"}, "softmax_scale='x': should be a number"),
        ({"causal": "yes"}, "causal='yes': should be one of False, True"),
        (
            {"v": X.v.transpose(1, 2)},
            r"v has shape \(2, 2, 70, 16\), should be \(2, 70, 2, 16\): is layout='bshd' right",
        ),
        ({"bias": torch.zeros(33, 70)}, r"bias has shape \(33, 70\), should be \(2 or 1, 4 or 1, 33 or 1, 70\)"),
        ({"out": OUT.float()}, "out has dtype float32, should have float16"),
        ({"out": "text"}, "out is a str: pass a torch.Tensor"),
        ({"q": X.q.double()}, "q has dtype float64: should be one of float32, float16, bfloat16"),
        ({"inputs": "any"}, "inputs='any': should be one of"),
        ({"window": (-1, 0)}, r"window=\(-1, 0\): should be None or \(left, right\), each an int >= 0 or None"),
        ({"softcap": 0.0}, "softcap=0.0: should be None, or a finite number above 0"),
        ({"sinks": torch.zeros(2)}, r"sinks has shape \(2,\), should be \(nheads\) = \(4,\)"),
        ({"sinks": torch.full((4,), torch.nan)}, r"sinks\[0\]=nan: should be a number, or -inf"),
        ({"dsink": torch.zeros(4), "dout": OUT}, "dsink given without sinks"),
        ({"dlse": torch.zeros(2, 33, 4)}, r"dlse has shape \(2, 33, 4\), should be \(batch, nheads, seqlen_q\)"),
        ({"dlse": torch.zeros(2, 4, 33).half()}, "dlse has dtype float16, should have float32: convert it"),
        ({"dout": torch.zeros(2, 33, 4, 8).half()}, r"dout has shape \(2, 33, 4, 8\), should be \(2, 33, 4, 16\)"),
        ({"precision": Precision(), "tile": (16,)}, r"tile=\(16,\): should be \(BLOCK_M, BLOCK_N\)"),
    ],
)
def test_arguments_that_do_not_fit_are_named(changed, words):
    given = dict(out=OUT, q=X.q, k=X.k, v=X.v) | changed
    with pytest.raises(ValueError, match=words):
        assert_attention_close(**given)
