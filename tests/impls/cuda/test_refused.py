"""flash_attention_1 and _2 refuse invalid arguments before any launch.

The contracts of impls/cuda are tested too.
"""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import zeros
from torch.autograd import forward_ad

from flash_attest.impls import Absent
from flash_attest.impls.contract.supports import LARGEST_HEADDIM
from flash_attest.impls.cuda import algorithm, declared, flash_attention_1, host
from flash_attest.impls.cuda.problem import integers
from tests.impls.cuda.calls import F16, F32, LEFT, each, inputs, on_a_gpu
from tests.impls.cuda.hosts import mask_of
from tests.impls.operator_checks import assert_same_bits


@pytest.fixture
def no_launch(monkeypatch):
    def launched(name, what, *arguments):
        raise AssertionError(f"{name}_{what} was called before the arguments were checked")

    monkeypatch.setattr(host, "call", launched)


def of_headdim(headdim, dtype=F32, **how):
    shapes = dict(q=(1, 2, 1, headdim), k=(1, 3, 1, headdim), v=(1, 3, 1, headdim))
    return {name: zeros(*shape, dtype=dtype, **how) for name, shape in shapes.items()}


Q, K = (2, 5, 4, 8), (2, 7, 2, 8)
FULL_BIAS = r"should be \(2 or 1, 4 or 1, 5 or 1, 7\)"
LONG = dict(q=zeros(0, 5, 4, 8), k=zeros(0, 2**30 + 1, 2, 8), v=zeros(0, 2**30 + 1, 2, 8))
# name: (the changed arguments, the words that the message must contain)
REFUSED = {
    "q_no_tensor": (dict(q=[1.0]), "q is a list: should be a tensor"),
    "sparse": (dict(q=zeros(*Q).to_sparse()), "q has layout torch.sparse_coo: should be torch.strided"),
    "k_of_3_dimensions": (dict(k=zeros(7, 2, 8)), r"k has shape \(7, 2, 8\): should be \(batch, seqlen, nheads, headdim\)"),
    "seqlen_of_v": (dict(v=zeros(2, 6, 2, 8)), r"k \(2, 7, 2, 8\), v \(2, 6, 2, 8\): k and v should have one shape"),
    "headdim_of_q": (dict(q=zeros(2, 5, 4, 16)), r"q \(2, 5, 4, 16\), k \(2, 7, 2, 8\)"),
    "nheads_no_multiple": (dict(q=zeros(2, 5, 3, 8)), "nheads is 3: should be a multiple of nheads_k, which is 2"),
    "headdim_0": (of_headdim(0), "headdim is 0: should be 1 to 1024$"),
    "headdim_1025": (of_headdim(1025), "headdim is 1025: should be 1 to 1024$"),
    "headdim_257_half": (of_headdim(257, F16), "headdim is 257: should be 1 to 256 in torch.float16$"),
    "headdim_257_grad": (of_headdim(257, requires_grad=True), "headdim is 257: should be 1 to 256 where a gradient is"),
    "too_long": (LONG, "seqlen_k is 1073741825: should be at most 1073741824"),
    "mixed_dtypes": (dict(k=zeros(*K, dtype=F16)), r"q is torch.float32, k torch.float16, v torch.float32"),
    "float64": (of_headdim(8, torch.float64), "q is torch.float64: should be one of torch.float32, torch.float16, torch.bf"),
    "another_device": (dict(k=zeros(*K, device="meta")), "q is on cpu, k is on meta, v is on cpu: should be one device"),
    "meta": (of_headdim(8, device="meta"), "q is on meta: should be on a CPU or CUDA device"),
    "bias_elsewhere": (dict(bias=zeros(2, 4, 5, 7, device="meta")), "bias is on meta"),
    "bias_of_2_dimensions": (dict(bias=zeros(5, 7)), rf"bias has shape \(5, 7\): {FULL_BIAS}"),
    "bias_of_one_key": (dict(bias=zeros(2, 4, 5, 1)), rf"bias has shape \(2, 4, 5, 1\): {FULL_BIAS}"),
    "bias_of_key_heads": (dict(bias=zeros(1, 2, 5, 7)), rf"bias has shape \(1, 2, 5, 7\): {FULL_BIAS}"),
    "bias_of_three_batches": (dict(q=zeros(1, 5, 1, 8), k=zeros(1, 7, 1, 8), v=zeros(1, 7, 1, 8), bias=zeros(3, 1, 5, 7)),
                              r"should be \(1, 1, 5 or 1, 7\), that is"),
    "scale_true": (dict(softmax_scale=np.True_), "softmax_scale is .*True.*: should be a number"),
    "bias_half_for_float32": (dict(bias=zeros(2, 4, 5, 7, dtype=F16)), "bias is torch.float16: should be torch.float32$"),
    "scale_nan": (dict(softmax_scale=math.nan), "softmax_scale is nan"),
    "scale_beyond_float32": (dict(softmax_scale=1e39), r"softmax_scale is 1e\+39"),
    "scale_a_word": (dict(softmax_scale="0.5"), "softmax_scale is '0.5': should be a number"),
    "causal_a_number": (dict(causal=0.125), "causal is 0.125: should be True or False"),
    "window_of_one_number": (dict(window=3), r"window is 3: should be \(left, right\), each None or an int of at least 0"),
    "window_of_minus_one": (dict(window=(-1, 0)), r"window is \(-1, 0\): should be"),
    "window_of_a_bool": (dict(window=(True, None)), r"window is \(True, None\): should be"),
    "softcap_zero": (dict(softcap=0.0), r"softcap is 0.0: should be a number from 2\^-126 to 2\^127, or None for no cap"),
    "softcap_nan": (dict(softcap=math.nan), "softcap is nan: should be a number"),
    "softcap_negative": (dict(softcap=-5), "softcap is -5: should be a number"),
    "softcap_a_word": (dict(softcap="30"), "softcap is '30': should be a number"),
    "alignment": (dict(causal_alignment="top"), "causal_alignment is 'top': should be one of 'bottom_right', 'top_left'"),
}  # fmt: skip


@each
@pytest.mark.parametrize("name", REFUSED)
def test_refuses_before_any_launch_and_names_the_value(function, name, no_launch):
    instead, words = REFUSED[name]
    given = dict(q=zeros(*Q), k=zeros(*K), v=zeros(*K)) | instead
    with pytest.raises(ValueError, match=words):
        function(**given)


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
    x = inputs("cpu", 5, 9, bias=None)
    with forward_ad.dual_level():
        assert_same_bits(function(*x), function(*x))


@each
@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64, np.int64))
def test_scale_may_be_a_number_of_numpy(function, dtype):
    x = inputs("cpu", 5, 9, bias=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(function(*x, softmax_scale=dtype(2)), function(*x, softmax_scale=2))


def test_the_unchanged_call_is_accepted():
    """The test shows that the changed argument is the only invalid one."""
    sizes = algorithm.check(zeros(*Q), zeros(*K), zeros(*K), zeros(2, 4, 5, 7), True, 0.5, LEFT)
    assert sizes == (2, 5, 7, 4, 2, 8) and sizes.scores == (2, 4, 5, 7)


@each
@pytest.mark.parametrize(
    ("name", "wrong"),
    [("lse", lambda x: x.half()), ("out", lambda x: x[:, :1]), ("dout", lambda x: x[..., :8]), ("lse", lambda x: None)],
    ids=("lse_half", "out_of_one_row", "dout_of_half_the_columns", "lse_missing"),
)
def test_backward_refuses_what_forward_did_not_give(function, name, wrong, no_launch):
    q, lse = zeros(1, 5, 2, 16), zeros(1, 2, 5)
    given = {"dout": q, "out": q, "lse": lse}
    given[name] = wrong(given[name])
    way = algorithm.Algorithm("fa1" if function is flash_attention_1 else "fa2")
    with pytest.raises(ValueError, match=rf"^{name} is .*should be"):
        way.backward(given["dout"], q, q, q, given["out"], given["lse"])


def beyond(name, device):
    """Return q, lse, a problem with head dim 2000, and the other arguments of fa1."""
    x, s = zeros(1, 4, 2, 8, device=device), zeros(1, 2, 4, device=device)
    numbers = integers(x, x, x, None, mask_of(x, x))
    numbers[5] = 2000
    return x, s, numbers, (None, s, s) if name == "fa1" else ()


@pytest.mark.parametrize("name", ("fa1", "fa2"))
def test_refusals_of_the_host_function_are_raised_with_its_text(name):
    """The Python checks cannot foresee some refusals, such as too little shared memory.

    The head dim in this test passes these checks.
    """
    x, s, numbers, scratch = beyond(name, "cpu")
    with pytest.raises(RuntimeError, match=r"headdim=2000: should be 1 to 1024"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s, numbers, 1.0, 0.0)


@on_a_gpu
@pytest.mark.parametrize("name", ("fa1", "fa2"))
def test_refusals_of_the_host_function_on_a_gpu_are_raised_with_its_text(name):
    x, s, numbers, scratch = beyond(name, "cuda")
    with pytest.raises(RuntimeError, match=r"headdim=2000: should be 1 to 1024"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s, numbers, 1.0, 0.0)
    with pytest.raises(RuntimeError, match="numbers should be on the CPU"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s, numbers.cuda(), 1.0, 0.0)
    with pytest.raises(RuntimeError, match="statistics and sums should be float32"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s.half(), numbers, 1.0, 0.0)


# --- declared -------------------------------------------------------------------------------------


def test_devices_are_those_with_a_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(declared, "nvcc", lambda: None)
    no_nvcc = {"cuda": "no nvcc found, which compiles the kernels for CUDA tensors"}
    impls = declared.implementations()
    assert all((impl.devices, impl.unavailable) == ({"cpu"}, no_nvcc) and impl.traced for impl in impls)
    monkeypatch.setattr(declared, "nvcc", lambda: "/somewhere/nvcc")
    monkeypatch.setattr(declared.shutil, "which", lambda name: None)
    impls = declared.implementations()
    no_gxx = {"cpu": "no g++ found, which compiles the kernels for CPU tensors"}
    assert all((impl.devices, impl.unavailable) == ({"cuda"}, no_gxx) and not impl.traced for impl in impls)
    monkeypatch.setattr(declared, "nvcc", lambda: None)
    absent = declared.implementations()
    assert [entry.name for entry in absent] == [impl.name for impl in impls] == list(declared.NAMES)
    assert all(entry == Absent(entry.name, f"{no_gxx['cpu']}; {no_nvcc['cuda']}") for entry in absent)
    monkeypatch.setenv("CXX", "nosuch")
    assert declared.implementations()[0].reason.startswith("no g++ found (CXX='nosuch'), which compiles")


def test_with_both_compilers_no_device_is_unavailable(monkeypatch):
    monkeypatch.setattr(declared, "nvcc", lambda: "/somewhere/nvcc")
    monkeypatch.setattr(declared.shutil, "which", lambda name: "/somewhere/g++")
    assert all((impl.devices, impl.unavailable) == ({"cpu", "cuda"}, {}) for impl in declared.implementations())


def test_wide_implementations_support_the_other_head_dims():
    supported = {impl.name: impl.supports.headdim_list for impl in declared.implementations()}
    whole = list(range(1, LARGEST_HEADDIM + 1))
    assert supported["cuda_fa1"] + supported["cuda_fa1_wide"] == whole
    assert supported["cuda_fa2"] + supported["cuda_fa2_wide"] == whole
