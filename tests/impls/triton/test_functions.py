"""flash_attn_func and its packed forms: out, lse and gradients, and the laws for them.

Without a GPU the kernels run in the emulator. PyTorch operators: test_operators.py. Refusals:
test_refused.py.
"""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls import triton as triton_fa2
from flash_attest.impls.triton.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton.attention import FlashAttention2
from flash_attest.impls.triton.functions import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from flash_attest.impls.triton.tuning import Kernel
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws
from tests.impls.operator_checks import assert_same_bits
from tests.impls.triton.calls import DEVICE, LEFT, RIGHT, gradients, inputs, randn
from tests.thorough import covering

INF = float("inf")


def manual(q, k, v, bias=None, causal=False, softmax_scale=None, alignment=RIGHT):
    """Return out, lse of torch_math in float32.

    Its mask is bottom-right; a top-left mask is passed as a bias.
    """
    q, k, v = (x.float() for x in (q, k, v))
    if causal and alignment == LEFT:
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
        bias = (0 if bias is None else bias) + torch.zeros_like(hidden, dtype=torch.float32).masked_fill(hidden, -INF)
        bias, causal = bias.expand(1, 1, *hidden.shape) if bias.dim() == 2 else bias, False
    return torch_math.forward(q, k, v, bias=bias, causal=causal, softmax_scale=softmax_scale)


def assert_near(got, want, dtype=torch.float32):
    """Assert equality up to a few roundings of the largest value; the laws judge accuracy."""
    size = max(1.0, want[want.isfinite()].abs().max().item()) if want.numel() else 1.0
    allowed = size * (2.0**-18 if dtype == torch.float32 else 2.0**-8)
    torch.testing.assert_close(got.float(), want.float(), rtol=0.0, atol=allowed)


# --- values ---------------------------------------------------------------------------------------

WAYS = {
    "plain": dict(),
    "causal": dict(causal=True),
    "causal_top_left": dict(causal=True, causal_alignment=LEFT),
    "scale": dict(softmax_scale=0.1),
    "scale_0": dict(softmax_scale=0),
    "scale_negative": dict(softmax_scale=-0.5, causal=True),
}


DTYPES = {"float32": torch.float32, "float16": torch.float16}


def wanted_by(way):
    """Turn keywords of flash_attn_func into keywords of manual()."""
    return {name.removeprefix("causal_"): value for name, value in way.items()}


@pytest.mark.parametrize("way, bias, dtype", covering(1, WAYS, {"no_bias": False, "bias": True}, DTYPES))
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


def test_default_scale_depends_on_headdim_and_0_is_not_the_default():
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


@pytest.fixture(scope="module")
def all_gradients():
    everything = inputs(5, 9)
    return gradients(flash_attn_func(*everything), everything)


@pytest.mark.parametrize("wrt", [w for w in product((False, True), repeat=4) if any(w)], ids=lambda w: "".join(
    name for name, is_so in zip(("q", "k", "v", "bias"), w, strict=True) if is_so))  # fmt: skip
def test_a_subset_of_inputs_may_require_grad(wrt, all_gradients):
    """The gradients of the subset have the same bits as if all inputs required grad."""
    everything = inputs(5, 9)
    some = [x.detach().requires_grad_(wanted) for x, wanted in zip(everything, wrt, strict=True)]

    got = gradients(flash_attn_func(*some), some)

    want = [grad for grad, wanted in zip(all_gradients, wrt, strict=True) if wanted]
    for mine, other in zip(got, want, strict=True):
        assert_same_bits(mine, other)


def test_nothing_requires_grad():
    out, lse = flash_attn_func(*(x.detach() for x in inputs(5, 9)), return_lse=True)
    assert not out.requires_grad and not lse.requires_grad


def test_lse_has_a_gradient():
    """The sum of a row of dbias is the gradient with respect to its lse, and the sinks have the
    rest.
    """
    q, k, v, bias = inputs(5, 9)
    sinks = randn(4, seed=4).requires_grad_()
    lse = flash_attn_func(q, k, v, bias, sinks=sinks, return_lse=True)[1]
    dlse = randn(*lse.shape, seed=5)
    dbias, dsink = gradients(lse, [bias, sinks], dlse)
    assert_near(dbias.sum((0, 2, 3)) + dsink, dlse.sum((0, 2)))


@pytest.mark.parametrize("lse_counts", (True, False), ids=("out_and_lse", "out"))
def test_every_keyword_reaches_both_kernels(lse_counts):
    """The results have the same bits as those of FlashAttention2, which the laws judge."""
    q, k, _, bias = inputs()
    v, sinks = randn(2, 37, 2, 24, seed=5).requires_grad_(), randn(4, seed=4).requires_grad_()
    options = dict(causal=True, softmax_scale=0.3, window=(9, 2), softcap=1.5)

    got = flash_attn_func(q, k, v, bias, **options, sinks=sinks, causal_alignment=LEFT, return_lse=True)
    dout, dlse = randn(*got[0].shape, seed=6), randn(*got[1].shape, seed=7)
    outputs, given = (got, (dout, dlse)) if lse_counts else (got[:1], (dout,))
    grads = torch.autograd.grad(outputs, (q, k, v, bias, sinks), given)

    way, options = FlashAttention2(alignment=LEFT), options | dict(bias=bias.detach(), sinks=sinks.detach())
    q, k, v = (x.detach() for x in (q, k, v))
    want = way.forward(q, k, v, **options)
    wanted = way.backward(dout, q, k, v, *want, dlse=dlse if lse_counts else None, **options)
    for mine, other in zip((*got, *grads), (*want, *wanted), strict=True):
        assert_same_bits(mine, other)


def test_no_queries_and_no_keys():
    x = inputs(seqlen_q=0, bias=False)
    out = flash_attn_func(*x)
    assert out.shape == (2, 0, 4, 16)
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 3
    x = inputs(seqlen_k=0, bias=False)
    out, lse = flash_attn_func(*x, return_lse=True)
    assert not out.any() and (lse == -INF).all()
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 3


# --- packed ---------------------------------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch):
    """Records {kernel: its arguments} of the launches."""
    arguments_of, launch = {}, Kernel.launch

    def recording(self, *args, **arguments):
        arguments_of[self.name] = arguments
        return launch(self, *args, **arguments)

    monkeypatch.setattr(Kernel, "launch", recording)
    return arguments_of


def memory(x):
    """Return the address of a tensor's storage."""
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("way, dtype", covering(1, WAYS, DTYPES))
def test_kvpacked_equals_unpacked(way, dtype):
    """The same kernels run on the same values, so they give the same bits."""
    q, k, v, bias = inputs(dtype=dtype)
    kv = torch.stack([k, v], 2).detach().requires_grad_()
    want, want_lse = flash_attn_func(q, k, v, bias, **way, return_lse=True)
    dq, dk, dv, dbias = gradients(want, [q, k, v, bias])

    got, lse = flash_attn_kvpacked_func(q, kv, bias, **way, return_lse=True)
    grads = gradients(got, [q, kv, bias])

    pairs = [(got, want), (lse, want_lse)]
    for mine, other in pairs + list(zip(grads, (dq, torch.stack([dk, dv], 2), dbias), strict=True)):
        assert_same_bits(mine, other)


@pytest.mark.parametrize("way, dtype", covering(1, WAYS, DTYPES))
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
    """Every kernel gets views of the packed input and of the packed gradient."""
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
    """The input is a slice along seqlen, and its memory has the order (batch, 3, nheads, seqlen,
    headdim).
    """
    qkv = randn(2, 3, 4, 40, 16)[:, :, :, ::2].permute(0, 3, 1, 2, 4).requires_grad_()
    copy = qkv.detach().contiguous().requires_grad_()
    got, want = flash_attn_qkvpacked_func(qkv, causal=True), flash_attn_qkvpacked_func(copy, causal=True)
    assert_same_bits(got, want)
    assert_same_bits(gradients(got, [qkv])[0], gradients(want, [copy])[0])


# --- laws -----------------------------------------------------------------------------------------


def through_func(q, k, v, **options):
    return flash_attn_func(q, k, v, **options, return_lse=True)


def through_kvpacked(q, k, v, **options):
    return flash_attn_kvpacked_func(q, torch.stack([k, v], 2), **options, return_lse=True)


def through_qkvpacked(q, k, v, **options):
    return flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), **options, return_lse=True)


@cache  # the contract is tried once per object, and takes longer than a law
def as_implementation(function):
    """Return one of the functions as an Implementation.

    Packed forms support fewer features. A small share makes small tensors.
    """
    declared = triton_fa2.IMPLS[0]
    packed, supports = function is through_qkvpacked, declared.supports
    supports = replace(supports, cross=not packed, gqa=not packed)
    if function is not through_func:
        supports = replace(supports, headdims_v=())
    name = function.__name__
    return replace(declared, name=name, forward=function, backward="autograd", supports=supports, share=0.05)


LAWS = (
    "test_out_matches_the_definition",
    "test_gradients_match_the_definition",
    "test_query_sees_exactly_its_prefix",
    "test_any_subset_of_inputs_may_require_grad",
    "test_biased_attention_matches_the_definition",
    "test_infinite_bias_hides_exactly_its_keys",
)
PACKED = [  # the tests above compare their bits with those of flash_attn_func
    pytest.param(law, function, marks=pytest.mark.thorough)
    for law in LAWS[:3]
    for function in (through_kvpacked, through_qkvpacked)
]


FIRST = "test_gradients_match_the_definition"
FUNC = [pytest.param(law, through_func, marks=() if law == FIRST else pytest.mark.thorough) for law in LAWS]


@pytest.mark.parametrize("law, function", [*FUNC, *PACKED],
                         ids=lambda x: x if isinstance(x, str) else x.__name__)  # fmt: skip
def test_laws_hold(law, function):
    result = judge(laws()[law], as_implementation(function), Plan(device=DEVICE, examples=60, try_contract=False))
    assert result.verdict == PASS and result.cases >= 2, result.message or result.reason
