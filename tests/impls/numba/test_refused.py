"""flash_attention_1 and _2 refuse invalid arguments before any launch, with the value."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from flash_attest.impls.numba.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba import backward, bias_gradient, fa1, fa2, problem
from flash_attest.impls.numba.functions import flash_attention_1, flash_attention_2
from tests.impls.numba.calls import DEVICE, inputs, on_a_gpu
from tests.impls.operator_checks import assert_same_bits

each = pytest.mark.parametrize("function", (flash_attention_1, flash_attention_2), ids=("fa1", "fa2"))


@pytest.fixture
def no_launch(monkeypatch):
    def launched(kernel, *arguments):
        raise AssertionError(f"{kernel} was launched before the arguments were checked")

    for module in (fa1, fa2, backward, bias_gradient):
        monkeypatch.setattr(module, "launch", launched)


def zeros(*shape, dtype=torch.float32, device=DEVICE):
    return torch.zeros(*shape, dtype=dtype, device=device)


def of_headdim(headdim, **how):
    return dict(q=zeros(1, 2, 1, headdim, **how), k=zeros(1, 3, 1, headdim, **how), v=zeros(1, 3, 1, headdim, **how))


HALF = torch.float16
Q, K = (2, 5, 4, 8), (2, 7, 2, 8)
FULL_BIAS = r"should be \(2 or 1, 4 or 1, 5 or 1, 7\)"
ELSEWHERE = rf"q is on meta: should be on a {DEVICE.upper()} device"
LONG = {"q": zeros(0, 5, 4, 8), "k": zeros(0, 2**30 + 1, 2, 8), "v": zeros(0, 2**30 + 1, 2, 8)}
# name: (the changed arguments, the words that the message must contain)
REFUSED = {
    "q_a_number": (dict(q=1.0), "q is a float: should be a tensor"),
    "v_sparse": (dict(v=zeros(*K).to_sparse()), "v has layout torch.sparse_coo: should be torch.strided"),
    "q_of_3_dimensions": (dict(q=zeros(5, 4, 8)), r"q has shape \(5, 4, 8\): should be \(batch, seqlen, nheads, headdim\)"),
    "batch_of_k": (dict(k=zeros(1, 7, 2, 8)), r"k \(1, 7, 2, 8\), v \(2, 7, 2, 8\): k and v should have one shape"),
    "headdim_of_q": (dict(q=zeros(2, 5, 4, 16)), r"q \(2, 5, 4, 16\), k \(2, 7, 2, 8\)"),
    "nheads_no_multiple": (dict(q=zeros(2, 5, 3, 8)), "nheads is 3: should be a multiple of nheads_k, which is 2"),
    "nheads_k_0": (dict(k=zeros(2, 7, 0, 8), v=zeros(2, 7, 0, 8)), "nheads is 4: .*nheads_k, which is 0"),
    "headdim_0": (of_headdim(0), "headdim is 0: should be 1 to 256$"),
    "headdim_257": (of_headdim(257), "headdim is 257: should be 1 to 256$"),
    "too_long": (LONG, "seqlen_k is 1073741825: should be at most 1073741824"),
    "mixed_dtypes": (dict(v=zeros(*K, dtype=HALF)), "q is torch.float32, k torch.float32, v torch.float16"),
    "float64": (of_headdim(8, dtype=torch.float64), "q is torch.float64: should be one of torch.float32, torch.float16"),
    "another_device": (dict(k=zeros(*K, device="meta")), r"q is on \w+(:0)?, k is on meta, .*: should be one device"),
    "meta": (of_headdim(8, device="meta"), ELSEWHERE),
    "bias_elsewhere": (dict(bias=zeros(2, 4, 5, 7, device="meta")), "bias is on meta"),
    "bias_of_2_dimensions": (dict(bias=zeros(5, 7)), rf"bias has shape \(5, 7\): {FULL_BIAS}"),
    "bias_of_one_key": (dict(bias=zeros(2, 4, 5, 1)), rf"bias has shape \(2, 4, 5, 1\): {FULL_BIAS}"),
    "bias_of_key_heads": (dict(bias=zeros(1, 2, 5, 7)), rf"bias has shape \(1, 2, 5, 7\): {FULL_BIAS}"),
    "bias_half_for_float32": (dict(bias=zeros(2, 4, 5, 7, dtype=HALF)), "bias is torch.float16: should be torch.float32$"),
    "scale_nan": (dict(softmax_scale=math.nan), "softmax_scale is nan: should be a number"),
    "scale_infinite": (dict(softmax_scale=math.inf), "softmax_scale is inf"),
    "scale_beyond_float32": (dict(softmax_scale=-1e39), r"softmax_scale is -1e\+39"),
    "scale_a_word": (dict(softmax_scale="0.5"), "softmax_scale is '0.5': should be a number"),
    "scale_true": (dict(softmax_scale=True), "softmax_scale is True: should be a number"),
    "causal_a_number": (dict(causal=1), "causal is 1: should be True or False"),
    "window_of_one_number": (dict(window=3), r"window is 3: should be \(left, right\), each None or an int of at least 0"),
    "window_of_minus_one": (dict(window=(None, -1)), r"window is \(None, -1\): should be"),
    "softcap_zero": (dict(softcap=0), r"softcap is 0: should be a number from 2\^-126 to 2\^127, or None for no cap"),
    "softcap_true": (dict(softcap=True), "softcap is True: should be a number"),
    "alignment": (dict(causal_alignment="right"), "causal_alignment is 'right': should be one of 'bottom_right', 'top_left'"),
}  # fmt: skip


@each
@pytest.mark.parametrize("name", REFUSED)
def test_refuses_before_any_launch_and_names_the_value(function, name, no_launch):
    changed, words = REFUSED[name]
    given = dict(q=zeros(*Q), k=zeros(*K), v=zeros(*K)) | changed
    with pytest.raises(ValueError, match=words):
        function(**given)


def test_the_unchanged_call_is_accepted():
    """The test shows that the changed argument is the only invalid one."""
    problem.check(zeros(*Q), zeros(*K), zeros(*K), zeros(2, 4, 5, 7), True, 0.5, "top_left")


@each
@pytest.mark.parametrize("name", ("q", "k", "v", "bias"))
def test_forward_mode_is_refused(function, name, no_launch):
    """PyTorch would return a tangent of zeros (torch.func), or none."""
    given = dict(q=zeros(*Q), k=zeros(*K), v=zeros(*K), bias=zeros(2, 4, 5, 7))
    x = given.pop(name)
    with pytest.raises(NotImplementedError, match=f"^{name} has a tangent: should have none"):
        torch.func.jvp(lambda x: function(**given, **{name: x}), (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=f"^{name} has a tangent: should have none"):
        function(**given, **{name: forward_ad.make_dual(x, x)})


@each
def test_other_functions_may_use_forward_mode_around_a_call(function):
    x = inputs(5, 9, bias=None)
    with forward_ad.dual_level():
        assert_same_bits(function(*x), function(*x))


@each
@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64, np.int64))
def test_scale_may_be_a_number_of_numpy(function, dtype):
    x = inputs(5, 9, bias=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(function(*x, softmax_scale=dtype(2)), function(*x, softmax_scale=2))


@on_a_gpu
@each
def test_cpu_tensors_are_refused_if_there_is_a_gpu(function, no_launch):
    q, k, v = (zeros(*shape, device="cpu") for shape in (Q, K, K))
    with pytest.raises(ValueError, match="q is on cpu: should be on a CUDA device, as there is a GPU"):
        function(q, k, v)
