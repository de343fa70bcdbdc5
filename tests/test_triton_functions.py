"""What a model calls, flash_attn_func and its packed forms: gradients, torch.compile, CUDA graphs, and what is refused.

On a GPU the kernels are compiled; elsewhere Triton's interpreter runs them on the CPU.
"""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

import impls.triton as triton_fa2
from impls import torch_math
from impls.triton.interpreter import installed

if not installed():
    pytest.skip("Triton is not installed", allow_module_level=True)

from impls.triton import functions, problem
from impls.triton.functions import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from impls.triton.interpreter import INTERPRETED
from impls.triton.tuning import Kernel
from properties.judge import judge
from properties.law import all_laws
from properties.plan import Plan
from properties.verdict import PASS

DEVICE = "cpu" if INTERPRETED else "cuda"
INF = float("inf")
LEFT, RIGHT = "top_left", "bottom_right"
on_a_gpu = pytest.mark.skipif(INTERPRETED, reason="compiled kernels need a GPU")


pytestmark = pytest.mark.usefixtures("one_thread")


def randn(*shape, dtype=torch.float32, seed=0):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 1000 * sum(shape)))
    return drawn.to(DEVICE, dtype)


def inputs(seqlen_q=20, seqlen_k=37, nheads=4, nheads_k=2, headdim=16, dtype=torch.float32, bias=True, device=DEVICE):
    """q, k, v and a bias of one batch for two (or None); leaves."""
    shapes = [(2, seqlen_q, nheads, headdim), (2, seqlen_k, nheads_k, headdim), (2, seqlen_k, nheads_k, headdim)]
    tensors = [randn(*shape, dtype=dtype, seed=n) for n, shape in enumerate(shapes)]
    tensors.append(randn(1, nheads, seqlen_q, seqlen_k, seed=3) if bias else None)
    return [x if x is None else x.to(device).requires_grad_() for x in tensors]


def gradients(out, tensors, dout=None):
    """d(out * dout) of those tensors that require it, with dout drawn from out's shape."""
    wanted = [x for x in tensors if x is not None and x.requires_grad]
    dout = randn(*out.shape, dtype=out.dtype, seed=9).to(out.device) if dout is None else dout
    return torch.autograd.grad(out, wanted, dout)


def manual(q, k, v, bias=None, causal=False, softmax_scale=None, alignment=RIGHT):
    """out, lse of torch_math in float32; its mask is bottom-right, so the other one goes in as a bias."""
    q, k, v = (x.float() for x in (q, k, v))
    if causal and alignment == LEFT:
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
        bias = (0 if bias is None else bias) + torch.zeros_like(hidden, dtype=torch.float32).masked_fill(hidden, -INF)
        bias, causal = bias.expand(1, 1, *hidden.shape) if bias.dim() == 2 else bias, False
    return torch_math.forward(q, k, v, bias=bias, causal=causal, softmax_scale=softmax_scale)


def assert_near(got, want, dtype=torch.float32):
    """Within a few roundings of the largest value: whether it is near enough is the laws' question, not this one."""
    size = max(1.0, want[want.isfinite()].abs().max().item()) if want.numel() else 1.0
    allowed = size * (2.0**-18 if dtype == torch.float32 else 2.0**-8)
    torch.testing.assert_close(got.float(), want.float(), rtol=0.0, atol=allowed)


def assert_same_bits(got, want):
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.0)


# --- values -------------------------------------------------------------------------------------------------------------

WAYS = {
    "plain": dict(),
    "causal": dict(causal=True),
    "causal_top_left": dict(causal=True, causal_alignment=LEFT),
    "scale": dict(softmax_scale=0.1),
    "scale_0": dict(softmax_scale=0),
    "scale_negative": dict(softmax_scale=-0.5, causal=True),
}


def wanted_by(way):
    """Keywords of flash_attn_func -> those of manual()."""
    return {name.removeprefix("causal_"): value for name, value in way.items()}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16), ids=("float32", "float16"))
@pytest.mark.parametrize("bias", (False, True), ids=("", "bias"))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_out_lse_and_gradients_are_those_of_the_definition(way, bias, dtype):
    x = inputs(dtype=dtype, bias=bias)
    want, want_lse = manual(*x, **wanted_by(way))

    out, lse = flash_attn_func(*x, **way, return_lse=True)

    assert out.dtype == dtype and lse.dtype == torch.float32
    assert_near(out, want, dtype)
    assert_near(lse, want_lse, dtype)
    for name, got, grad in zip(("dq", "dk", "dv", "dbias"), gradients(out, x), gradients(want, x), strict=False):
        assert got.dtype == grad.dtype and got.shape == grad.shape, name
        assert_near(got, grad, dtype)


@pytest.mark.parametrize("seqlen_q, seqlen_k", ((40, 20), (20, 40)))
def test_alignments_differ_where_lengths_do(seqlen_q, seqlen_k):
    x = inputs(seqlen_q, seqlen_k, bias=False)
    left = flash_attn_func(*x, causal=True, causal_alignment=LEFT)
    right = flash_attn_func(*x, causal=True, causal_alignment=RIGHT)
    assert_near(left, manual(*x, causal=True, alignment=LEFT)[0])
    assert_near(right, manual(*x, causal=True, alignment=RIGHT)[0])
    assert not torch.equal(left, right)


def test_default_scale_is_that_of_headdim_and_0_is_not_taken_for_it():
    x = inputs(bias=False)
    assert_same_bits(flash_attn_func(*x), flash_attn_func(*x, softmax_scale=0.25))
    assert not torch.equal(flash_attn_func(*x), flash_attn_func(*x, softmax_scale=0.0))


@pytest.mark.parametrize(
    "shape", ((1, 1, 1, 37), (2, 1, 1, 37), (1, 4, 1, 37), (1, 1, 20, 37), (2, 4, 20, 37)), ids=str
)
def test_dbias_has_the_shape_of_the_bias(shape):
    q, k, v, _ = inputs(bias=False)
    bias = randn(*shape).requires_grad_()
    want = gradients(manual(q, k, v, bias)[0], [bias])[0]

    got = gradients(flash_attn_func(q, k, v, bias), [bias])[0]

    assert_near(got, want)


@pytest.mark.parametrize("wrt", [w for w in product((False, True), repeat=4) if any(w)], ids=lambda w: "".join(
    name for name, is_so in zip(("q", "k", "v", "bias"), w, strict=True) if is_so))  # fmt: skip
def test_a_subset_of_inputs_may_require_grad(wrt):
    """What it gets is what it would get among all, bit for bit."""
    everything = inputs(5, 9)
    all_gradients = gradients(flash_attn_func(*everything), everything)
    some = [x.detach().requires_grad_(wanted) for x, wanted in zip(everything, wrt, strict=True)]

    got = gradients(flash_attn_func(*some), some)

    want = [grad for grad, wanted in zip(all_gradients, wrt, strict=True) if wanted]
    for mine, other in zip(got, want, strict=True):
        assert_same_bits(mine, other)


def test_nothing_requires_grad():
    out, lse = flash_attn_func(*(x.detach() for x in inputs(5, 9)), return_lse=True)
    assert not out.requires_grad and not lse.requires_grad


def test_lse_has_no_gradient_and_out_keeps_its_own():
    x = inputs(5, 9)
    out, lse = flash_attn_func(*x, return_lse=True)
    assert out.requires_grad and not lse.requires_grad
    assert_same_bits(out, flash_attn_func(*x))


def test_no_queries_and_no_keys():
    x = inputs(seqlen_q=0, bias=False)
    out = flash_attn_func(*x)
    assert out.shape == (2, 0, 4, 16)
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 3
    x = inputs(seqlen_k=0, bias=False)
    out, lse = flash_attn_func(*x, return_lse=True)
    assert not out.any() and (lse == -INF).all()
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 3


# --- packed -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch):
    """{kernel: its arguments} of what is launched."""
    made, launch = {}, Kernel.launch

    def recording(self, *args, **arguments):
        made[self.name] = arguments
        return launch(self, *args, **arguments)

    monkeypatch.setattr(Kernel, "launch", recording)
    return made


def memory(x):
    """Where the storage of a tensor begins."""
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16), ids=("float32", "float16"))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_kvpacked_equals_unpacked(way, dtype):
    """The same kernels on the same values: not a bit differs."""
    q, k, v, bias = inputs(dtype=dtype)
    kv = torch.stack([k, v], 2).detach().requires_grad_()
    want, want_lse = flash_attn_func(q, k, v, bias, **way, return_lse=True)
    dq, dk, dv, dbias = gradients(want, [q, k, v, bias])

    got, lse = flash_attn_kvpacked_func(q, kv, bias, **way, return_lse=True)
    grads = gradients(got, [q, kv, bias])

    pairs = [(got, want), (lse, want_lse)]
    for mine, other in pairs + list(zip(grads, (dq, torch.stack([dk, dv], 2), dbias), strict=True)):
        assert_same_bits(mine, other)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16), ids=("float32", "float16"))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_qkvpacked_equals_unpacked(way, dtype):
    q, k, v, bias = inputs(20, 20, nheads_k=4, dtype=dtype)
    qkv = torch.stack([q, k, v], 2).detach().requires_grad_()
    want, want_lse = flash_attn_func(q, k, v, bias, **way, return_lse=True)
    *separate, dbias = gradients(want, [q, k, v, bias])

    got, lse = flash_attn_qkvpacked_func(qkv, bias, **way, return_lse=True)
    grads = gradients(got, [qkv, bias])

    pairs = [(got, want), (lse, want_lse)]
    for mine, other in pairs + list(zip(grads, (torch.stack(separate, 2), dbias), strict=True)):
        assert_same_bits(mine, other)


def test_packed_tensors_are_read_and_written_in_place(launches):
    """Every kernel is given views of the packed input, and of the packed gradient that comes out."""
    qkv = randn(2, 20, 3, 4, 16).requires_grad_()
    (dqkv,) = gradients(flash_attn_qkvpacked_func(qkv), [qkv])
    assert dqkv.shape == qkv.shape and dqkv.is_contiguous()
    read = [launches[kernel][x] for kernel in ("forward", "dq", "dk_dv") for x in ("q_ptr", "k_ptr", "v_ptr")]
    written = [launches["dq"]["dq_ptr"], launches["dk_dv"]["dk_ptr"], launches["dk_dv"]["dv_ptr"]]
    assert {memory(x) for x in read} == {memory(qkv)}
    assert {memory(x) for x in written} == {memory(dqkv)}
    assert [x.data_ptr() - memory(x) for x in written] == [0, 4 * 16 * 4, 2 * 4 * 16 * 4]  # bytes: heads, headdim, 4

    q, kv = randn(2, 20, 4, 16).requires_grad_(), randn(2, 20, 2, 2, 16).requires_grad_()
    dq, dkv = gradients(flash_attn_kvpacked_func(q, kv), [q, kv])
    assert dkv.shape == kv.shape and memory(launches["dq"]["dq_ptr"]) == memory(dq)
    assert {memory(launches["dk_dv"][x]) for x in ("dk_ptr", "dv_ptr")} == {memory(dkv)}
    assert {memory(launches["forward"][x]) for x in ("k_ptr", "v_ptr")} == {memory(kv)}


def test_packed_input_of_any_strides():
    """Sliced along seqlen, heads last: (batch, 3, nheads, seqlen, headdim) in memory."""
    qkv = randn(2, 3, 4, 40, 16)[:, :, :, ::2].permute(0, 3, 1, 2, 4).requires_grad_()
    copy = qkv.detach().contiguous().requires_grad_()
    got, want = flash_attn_qkvpacked_func(qkv, causal=True), flash_attn_qkvpacked_func(copy, causal=True)
    assert_same_bits(got, want)
    assert_same_bits(gradients(got, [qkv])[0], gradients(want, [copy])[0])


# --- laws ---------------------------------------------------------------------------------------------------------------


def through_func(q, k, v, *, causal, bias, softmax_scale):
    return flash_attn_func(q, k, v, bias, causal, softmax_scale, return_lse=True)


def through_kvpacked(q, k, v, *, causal, bias, softmax_scale):
    return flash_attn_kvpacked_func(q, torch.stack([k, v], 2), bias, causal, softmax_scale, return_lse=True)


def through_qkvpacked(q, k, v, *, causal, bias, softmax_scale):
    return flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), bias, causal, softmax_scale, return_lse=True)


def as_implementation(function):
    """One of the functions as what the suite judges; the packed ones take less. A small share means small tensors."""
    declared = triton_fa2.IMPLS[0]
    packed = function is through_qkvpacked
    supports = replace(declared.supports, cross=not packed, gqa=not packed)
    name = function.__name__
    return replace(declared, name=name, forward=function, backward="autograd", supports=supports, share=0.05)


LAWS = {
    "test_out_matches_the_definition": (through_func, through_kvpacked, through_qkvpacked),
    "test_gradients_match_the_definition": (through_func, through_kvpacked, through_qkvpacked),
    "test_query_sees_exactly_its_prefix": (through_func, through_kvpacked, through_qkvpacked),
    "test_any_subset_of_inputs_may_require_grad": (through_func,),
    "test_biased_attention_matches_the_definition": (through_func,),
    "test_infinite_bias_hides_exactly_its_keys": (through_func,),
}


@pytest.mark.parametrize("law, function", [(law, f) for law, functions in LAWS.items() for f in functions],
                         ids=lambda x: x if isinstance(x, str) else x.__name__)  # fmt: skip
def test_laws_hold(law, function):
    wanted = next(known for known in all_laws() if known.name == law)
    result = judge(wanted, as_implementation(function), Plan(device=DEVICE, examples=60))
    assert result.verdict == PASS and result.cases >= 2, result.message or result.reason


# --- PyTorch's machinery ------------------------------------------------------------------------------------------------

PACKED = {"func": 3, "kvpacked": 2, "qkvpacked": 1}


def packed_as(form, bias=True, dtype=torch.float32, seed=0):
    """The arguments of one of the functions, and the function."""
    q, kv, qkv = (randn(*s, dtype=dtype, seed=seed) for s in ((1, 20, 2, 16), (1, 20, 2, 2, 16), (1, 20, 3, 2, 16)))
    function, given = {
        "func": (flash_attn_func, [q, *kv.clone().unbind(2)]),
        "kvpacked": (flash_attn_kvpacked_func, [q, kv]),
        "qkvpacked": (flash_attn_qkvpacked_func, [qkv]),
    }[form]
    given += [randn(1, 2, 20, 20, seed=seed)] if bias else []
    return function, [x.detach().clone().requires_grad_() for x in given]


@pytest.mark.parametrize("bias", (False, True), ids=("", "bias"))
@pytest.mark.parametrize("form", PACKED)
def test_operators_are_what_they_say_to_pytorch(form, bias):
    """Schema, fake tensors, autograd registration, and tracing with dynamic shapes: torch.library's own check."""
    _, x = packed_as(form, bias)
    packed, bias = x[: PACKED[form]], x[-1] if bias else None
    torch.library.opcheck(functions.attention_forward, (packed, bias, True, None, RIGHT))

    packed, bias = [p.detach() for p in packed], bias if bias is None else bias.detach()
    out, lse = functions.attention_forward(packed, bias, True, 0.5, RIGHT)
    torch.library.opcheck(
        functions.attention_backward, (out + 1, packed, bias, out, lse, True, 0.5, RIGHT, bias is not None)
    )


@pytest.mark.parametrize(
    "options", (dict(), dict(causal=True, softmax_scale=0.3, causal_alignment=LEFT)), ids=("", "all")
)
@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("dynamic", (False, True), ids=("static", "dynamic"))
@pytest.mark.parametrize("backend", ("aot_eager", pytest.param("inductor", marks=on_a_gpu)))
def test_compiled_equals_eager(form, options, dynamic, backend):
    """As one graph, without a break; forward and backward, bit for bit."""
    function, x = packed_as(form)

    def step(*tensors):
        out, lse = function(*(2.0 * t for t in tensors), **options, return_lse=True)
        return out + 1, lse

    want, want_lse = step(*x)
    torch._dynamo.reset()
    got, lse = torch.compile(step, backend=backend, fullgraph=True, dynamic=dynamic)(*x)

    assert_same_bits(got, want)
    assert_same_bits(lse, want_lse)
    for mine, other in zip(gradients(got, x), gradients(want, x), strict=True):
        assert_same_bits(mine, other)


@on_a_gpu
@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("form", PACKED)
def test_graph_replayed_on_other_inputs_equals_eager(form, dtype):
    function, x = packed_as(form, dtype=dtype)
    dout = randn(1, 20, 2, 16, dtype=dtype, seed=5)

    def step():
        out = function(*x, causal=True)
        return out, *torch.autograd.grad(out, x, dout)

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        step()  # compiles, which is not allowed while capturing
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()

    for seed in (1, 2):
        _, others = packed_as(form, dtype=dtype, seed=seed)
        with torch.no_grad():
            for mine, other in zip(x, others, strict=True):
                mine.copy_(other)
            dout.copy_(randn(1, 20, 2, 16, dtype=dtype, seed=6 + seed))
        graph.replay()
        got = [t.clone() for t in captured]
        for mine, other in zip(got, step(), strict=True):
            assert_same_bits(mine, other)


@on_a_gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_tensors_on_a_second_device():
    """While the first is the current one."""
    here, there = inputs(device="cuda:0"), inputs(device="cuda:1")
    want, got = flash_attn_func(*here, causal=True), flash_attn_func(*there, causal=True)
    assert torch.cuda.current_device() == 0 and got.device == torch.device("cuda:1")
    assert_same_bits(got.cpu(), want.cpu())
    for mine, other in zip(gradients(got, there), gradients(want, here), strict=True):
        assert_same_bits(mine.cpu(), other.cpu())


# --- refusals -----------------------------------------------------------------------------------------------------------


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
# name: (what is given instead, what the message must name)
REFUSED = {
    "q_of_3_dimensions": (dict(q=zeros(5, 4, 8)), r"q has shape \(5, 4, 8\)"),
    "k_of_3_dimensions": (dict(k=zeros(7, 2, 8)), r"k has shape \(7, 2, 8\)"),
    "v_of_5_dimensions": (dict(v=zeros(1, *K)), r"v has shape \(1, 2, 7, 2, 8\)"),
    "batch_of_k": (dict(k=zeros(1, 7, 2, 8), v=zeros(1, 7, 2, 8)), r"q \(2, 5, 4, 8\), k \(1, 7, 2, 8\)"),
    "seqlen_of_v": (dict(v=zeros(2, 6, 2, 8)), r"k \(2, 7, 2, 8\), v \(2, 6, 2, 8\)"),
    "nheads_of_v": (dict(v=zeros(2, 7, 4, 8)), r"v \(2, 7, 4, 8\)"),
    "headdim_of_v": (dict(v=zeros(2, 7, 2, 16)), r"v \(2, 7, 2, 16\)"),
    "headdim_of_q": (dict(q=zeros(2, 5, 4, 16)), r"q \(2, 5, 4, 16\)"),
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
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_before_any_launch_and_names_the_value(name, no_launch):
    instead, words = REFUSED[name]
    given = dict(q=zeros(*Q), k=zeros(*K), v=zeros(*K)) | instead
    with pytest.raises(ValueError, match=words):
        flash_attn_func(**given)


def test_forward_mode_is_refused(no_launch):
    """PyTorch would give a tangent of zeros."""
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


@pytest.mark.skipif(not INTERPRETED, reason="a GPU computes bfloat16 rightly")
def test_bfloat16_is_refused_in_the_interpreter(no_launch):
    x = [zeros(*shape, dtype=torch.bfloat16) for shape in (Q, K, K)]
    with pytest.raises(ValueError, match=r"q is torch\.bfloat16: Triton's interpreter computes bfloat16 wrongly"):
        flash_attn_func(*x)


@on_a_gpu
def test_cpu_tensors_are_refused_where_kernels_are_compiled(no_launch):
    x = [zeros(*shape, device="cpu") for shape in (Q, K, K)]
    with pytest.raises(ValueError, match=r"q is on cpu: should be on a CUDA device, or .* TRITON_INTERPRET=1"):
        flash_attn_func(*x)


def test_refusals_are_checked_against_a_call_that_is_taken():
    """What they change is the only thing that is wrong."""
    taken = problem.problem_of(zeros(*Q), zeros(*K), zeros(*K), zeros(2, 4, 5, 7), True, 0.5, LEFT)
    assert (taken.batch, taken.seqlen_q, taken.seqlen_k, taken.nheads, taken.nheads_k, taken.headdim) == (
        2,
        5,
        7,
        4,
        2,
        8,
    )
    assert (taken.scale, taken.diagonal, taken.causal) == (0.5, 0, True)
