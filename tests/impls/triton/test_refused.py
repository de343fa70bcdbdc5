"""flash_attn_func and its packed forms refuse invalid arguments before a launch, with the value."""

import math

import pytest
import torch

from flash_attest.impls.triton.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton import problem
from flash_attest.impls.triton.functions import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from flash_attest.impls.triton.tuning import Kernel
from tests.impls.triton.calls import DEVICE, LEFT, on_a_gpu

INF = float("inf")


@pytest.fixture
def no_launch(monkeypatch):
    def launched(self, *args, **arguments):
        raise AssertionError(f"{self.name} was launched before the arguments were checked")

    monkeypatch.setattr(Kernel, "launch", launched)


def zeros(*shape, dtype=torch.float32, device=DEVICE):
    return torch.zeros(*shape, dtype=dtype, device=device)


Q, K = (2, 5, 4, 8), (2, 7, 2, 8)
HALF, DOUBLE = torch.float16, torch.float64
FULL_BIAS = r"should be \(2 or 1, 4 or 1, 5 or 1, 7\)"
# name: (the changed arguments, the words that the message must contain)
REFUSED = {
    "q_of_3_dimensions": (dict(q=zeros(5, 4, 8)), r"q has shape \(5, 4, 8\)"),
    "k_of_3_dimensions": (dict(k=zeros(7, 2, 8)), r"k has shape \(7, 2, 8\)"),
    "v_of_5_dimensions": (dict(v=zeros(1, *K)), r"v has shape \(1, 2, 7, 2, 8\)"),
    "batch_of_k": (dict(k=zeros(1, 7, 2, 8), v=zeros(1, 7, 2, 8)), r"q \(2, 5, 4, 8\), k \(1, 7, 2, 8\)"),
    "seqlen_of_v": (dict(v=zeros(2, 6, 2, 8)), r"k \(2, 7, 2, 8\), v \(2, 6, 2, 8\)"),
    "nheads_of_v": (dict(v=zeros(2, 7, 4, 8)), r"v \(2, 7, 4, 8\)"),
    "headdim_of_v": (dict(v=zeros(2, 7, 2, 257)), "headdim is 257: should be 1 to 256 of v"),
    "headdim_of_q": (dict(q=zeros(2, 5, 4, 16)), r"q \(2, 5, 4, 16\)"),
    "too_long": (
        dict(q=zeros(0, 5, 4, 8), k=zeros(0, 2**30 + 1, 2, 8), v=zeros(0, 2**30 + 1, 2, 8)),
        "seqlen_k is 1073741825: should be at most 1073741824"),
    "headdim_0": (dict(q=zeros(2, 5, 4, 0), k=zeros(2, 7, 2, 0), v=zeros(2, 7, 2, 0)), "headdim is 0: should be 1 to 256"),
    "headdim_257": (
        dict(q=zeros(2, 5, 4, 257), k=zeros(2, 7, 2, 257), v=zeros(2, 7, 2, 257)), "headdim is 257: should be 1 to 256"),
    "nheads_no_multiple": (dict(q=zeros(2, 5, 3, 8)), "nheads is 3: should be a multiple of nheads_k, which is 2"),
    "fewer_heads_than_keys": (dict(q=zeros(2, 5, 1, 8)), "nheads is 1: .* 2"),
    "no_key_heads": (dict(k=zeros(2, 7, 0, 8), v=zeros(2, 7, 0, 8)), "nheads is 4: .* 0"),
    "mixed_dtypes": (dict(k=zeros(*K, dtype=HALF)), r"q is torch.float32, k torch.float16, v torch.float32"),
    "float64": (
        dict(q=zeros(*Q, dtype=DOUBLE), k=zeros(*K, dtype=DOUBLE), v=zeros(*K, dtype=DOUBLE)), "torch.float64: .*float16"),
    "another_device": (dict(k=zeros(*K, device="meta")), f"q is on {DEVICE}.*, k is on meta"),
    "meta": (dict(q=zeros(*Q, device="meta"), k=zeros(*K, device="meta"), v=zeros(*K, device="meta")), "q is on meta"),
    "bias_elsewhere": (dict(bias=zeros(2, 4, 5, 7, device="meta")), "bias is on meta"),
    "bias_of_2_dimensions": (dict(bias=zeros(5, 7)), rf"bias has shape \(5, 7\): {FULL_BIAS}"),
    "bias_of_0_dimensions": (dict(bias=zeros(())), rf"bias has shape \(\): {FULL_BIAS}"),
    "bias_of_other_keys": (dict(bias=zeros(1, 1, 1, 8)), rf"bias has shape \(1, 1, 1, 8\): {FULL_BIAS}"),
    "bias_of_one_key": (dict(bias=zeros(2, 4, 5, 1)), rf"bias has shape \(2, 4, 5, 1\): {FULL_BIAS}"),
    "bias_of_other_queries": (dict(bias=zeros(1, 1, 4, 7)), rf"bias has shape \(1, 1, 4, 7\): {FULL_BIAS}"),
    "bias_of_other_batch": (dict(bias=zeros(3, 4, 5, 7)), rf"bias has shape \(3, 4, 5, 7\): {FULL_BIAS}"),
    "bias_of_key_heads": (dict(bias=zeros(1, 2, 5, 7)), rf"bias has shape \(1, 2, 5, 7\): {FULL_BIAS}"),
    "bias_half_for_float32": (dict(bias=zeros(2, 4, 5, 7, dtype=HALF)), "bias is torch.float16: should be torch.float32$"),
    "bias_of_bool": (dict(bias=zeros(2, 4, 5, 7, dtype=torch.bool)), "bias is torch.bool"),
    "q_no_tensor": (dict(q=[1.0]), "q is a list: should be a tensor"),
    "k_missing": (dict(k=None), "k is a NoneType: should be a tensor"),
    "bias_no_tensor": (dict(bias=0.0), "bias is a float: should be a tensor"),
    "sparse": (dict(q=zeros(*Q).to_sparse()), "q has layout torch.sparse_coo: should be torch.strided"),
    "scale_nan": (dict(softmax_scale=math.nan), "softmax_scale is nan"),
    "scale_infinite": (dict(softmax_scale=-INF), "softmax_scale is -inf"),
    "scale_beyond_float32": (dict(softmax_scale=1e39), r"softmax_scale is 1e\+39"),
    "scale_beyond_float64": (dict(softmax_scale=10**400), "softmax_scale is 1000"),
    "scale_a_word": (dict(softmax_scale="0.5"), "softmax_scale is '0.5': should be a number"),
    "scale_complex": (dict(softmax_scale=1j), "softmax_scale is 1j"),
    "scale_a_list": (dict(softmax_scale=[1]), r"softmax_scale is \[1\]"),
    "scale_a_tensor": (dict(softmax_scale=torch.ones(2)), r"softmax_scale is tensor\(\[1., 1.\]\)"),
    "causal_a_word": (dict(causal="False"), "causal is 'False': should be True or False"),
    "causal_a_number": (dict(causal=0.125), "causal is 0.125: should be True or False"),
    "causal_missing": (dict(causal=None), "causal is None: should be True or False"),
    "alignment": (dict(causal_alignment="top"), "causal_alignment is 'top': should be one of 'bottom_right', 'top_left'"),
    "alignment_missing": (dict(causal_alignment=None), "causal_alignment is None"),
    "window_a_number": (dict(window=3), "window is 3: should be"),
    "window_negative": (dict(window=(-1, 0)), r"window is \(-1, 0\): should be"),
    "softcap_0": (dict(softcap=0.0), "softcap is 0.0: should be"),
    "sinks_of_key_heads": (dict(sinks=zeros(2)), r"sinks is \(2,\) torch.float32 .*: should be \(4,\) torch.float32"),
    "sinks_half": (dict(sinks=zeros(4, dtype=HALF)), r"sinks is \(4,\) torch.float16 .*: should be \(4,\) torch.float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_before_any_launch_and_names_the_value(name, no_launch):
    instead, words = REFUSED[name]
    given = dict(q=zeros(*Q), k=zeros(*K), v=zeros(*K)) | instead
    with pytest.raises(ValueError, match=words):
        flash_attn_func(**given)


def test_forward_mode_is_refused(no_launch):
    """PyTorch would return a tangent of zeros."""
    q, kv = zeros(*Q), zeros(2, 7, 2, 2, 8)
    with pytest.raises(NotImplementedError, match="q has a tangent: should have none"):
        torch.func.jvp(lambda q: flash_attn_kvpacked_func(q, kv), (q,), (q,))
    with pytest.raises(NotImplementedError, match="k has a tangent: should have none"):
        torch.func.jvp(lambda kv: flash_attn_kvpacked_func(q, kv), (kv,), (kv,))


def test_bias_may_have_the_dtype_of_q_but_no_third_one(no_launch):
    q, k, v = (zeros(*shape, dtype=HALF) for shape in (Q, K, K))
    with pytest.raises(ValueError, match=r"bias is torch.bfloat16: should be torch.float32 or torch.float16"):
        flash_attn_func(q, k, v, zeros(2, 4, 5, 7, dtype=torch.bfloat16))


PACKED_SHAPE = r"should be \(batch, seqlen, {}, nheads, headdim\)"
REFUSED_KV = {
    "not_packed": (zeros(*K), r"kv has shape \(2, 7, 2, 8\): " + PACKED_SHAPE.format(2)),
    "three_parts": (zeros(2, 7, 3, 2, 8), r"kv has shape \(2, 7, 3, 2, 8\): " + PACKED_SHAPE.format(2)),
    "no_tensor": (None, "kv is a NoneType: should be a tensor"),
    "headdim": (zeros(2, 7, 2, 2, 4), r"q \(2, 5, 4, 8\), k \(2, 7, 2, 4\)"),
    "dtype": (zeros(2, 7, 2, 2, 8, dtype=HALF), "q is torch.float32, k torch.float16"),
}
REFUSED_QKV = {
    "not_packed": (zeros(*Q), r"qkv has shape \(2, 5, 4, 8\): " + PACKED_SHAPE.format(3)),
    "two_parts": (zeros(2, 5, 2, 4, 8), r"qkv has shape \(2, 5, 2, 4, 8\): " + PACKED_SHAPE.format(3)),
    "parts_first": (zeros(3, 2, 5, 4, 8), r"qkv has shape \(3, 2, 5, 4, 8\): " + PACKED_SHAPE.format(3)),
    "no_tensor": ([1], "qkv is a list: should be a tensor"),
    "headdim": (zeros(2, 5, 3, 4, 257), "headdim is 257"),
}


@pytest.mark.parametrize("name", REFUSED_KV)
def test_refuses_wrong_kv(name, no_launch):
    kv, words = REFUSED_KV[name]
    with pytest.raises(ValueError, match=words):
        flash_attn_kvpacked_func(zeros(*Q), kv)


@pytest.mark.parametrize("name", REFUSED_QKV)
def test_refuses_wrong_qkv(name, no_launch):
    qkv, words = REFUSED_QKV[name]
    with pytest.raises(ValueError, match=words):
        flash_attn_qkvpacked_func(qkv)


@on_a_gpu
def test_cpu_tensors_are_refused_if_there_is_a_gpu(no_launch):
    x = [zeros(*shape, device="cpu") for shape in (Q, K, K)]
    with pytest.raises(ValueError, match=r"q is on cpu: should be on a CUDA device, as there is a GPU"):
        flash_attn_func(*x)


def test_the_unchanged_call_is_accepted():
    """The test shows that the changed argument is the only invalid one."""
    call = problem.problem_of(zeros(*Q), zeros(*K), zeros(*K), zeros(2, 4, 5, 7), True, 0.5, alignment=LEFT)
    assert (call.batch, call.seqlen_q, call.seqlen_k, call.nheads, call.nheads_k, call.headdim) == (2, 5, 7, 4, 2, 8)
    assert (call.scale, call.diagonal, call.causal) == (0.5, 0, True)
