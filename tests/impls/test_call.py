"""Calls of an implementation: arguments, checks of the outputs, gradients of autograd."""

import math
import re

import pytest
import torch

from flash_attest.impls import ContractError, Implementation, torch_math
from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.tensors import Inputs, from_layout, to_layout
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.inputs import build
from tests.trials import SHAPE, implementation, normal

INF = math.inf


def inputs(**changed) -> Inputs:
    c = Case(**(dict(batch=2, seqlen_q=5, seqlen_k=7, nheads=3, nheads_k=3, headdim=8) | changed))
    return build(c, "cpu")


# --- outputs --------------------------------------------------------------------------------------


def zeros_like_q(q, k, v):
    return torch.zeros_like(q)


def zero_lse(q):
    return torch.zeros(q.shape[0], q.shape[2], q.shape[1])


def contract_error(impl: Implementation, **settings) -> ContractError:
    with pytest.raises(ContractError) as caught:
        run(impl, inputs(), **settings)
    return caught.value


@pytest.mark.parametrize(
    ("forward", "declared", "words"),
    [
        (lambda q, k, v: None, {}, "forward returns NoneType: should be out, or (out, lse)"),
        (lambda q, k, v: (q, q, q), {}, "forward returns tuple of 3"),
        (lambda q, k, v: (q, None), dict(lse="natural"), "forward returns tuple of 2 (tensor (2, 5, 3, 8), NoneType)"),
        (lambda q, k, v: (q, zero_lse(q)), {}, 'lse=None is declared: declare lse="natural" or "log2"'),
        (zeros_like_q, dict(lse="natural"), "forward returns out alone, but lse='natural' is declared"),
        (lambda q, k, v: q[:, 1:], {}, "out has shape (2, 4, 3, 8), should be (2, 5, 3, 8)"),
        (lambda q, k, v: q.half(), {}, "out has dtype torch.float16, should be torch.float32"),
        (lambda q, k, v: q.transpose(1, 2), {}, "this is layout 'bhsd': declare layout='bhsd'"),
        (lambda q, k, v: q.transpose(1, 2), dict(layout="bhsd"), "this is layout 'bshd': declare layout='bshd'"),
        (lambda q, k, v: (q, q.sum(-1)), dict(lse="natural"), "lse has shape (2, 5, 3), should be (2, 3, 5)"),
        (lambda q, k, v: (q, zero_lse(q).double()), dict(lse="natural"), "lse has dtype torch.float64, should be"),
    ],
)
def test_outputs_of_forward_are_checked(forward, declared, words):
    impl = implementation(forward, **declared)
    x = inputs()
    if impl.layout == "bhsd":
        x = Inputs(**{name: to_layout(impl, t) for name, t in x.items()})
    with pytest.raises(ContractError, match=re.escape(words)):
        run(impl, x)


def test_every_problem_of_the_outputs_is_reported_together():
    error = contract_error(implementation(lambda q, k, v: (q[:1].half(), zero_lse(q)[..., 0]), lse="natural"))
    assert len(error.problems) == 3 and "lse has shape (2, 3), should be (2, 3, 5)" in error.problems


@pytest.mark.parametrize(
    ("backward", "words"),
    [
        (lambda dout, q, k, v, out, lse: (q, k), "backward returns tuple of 2"),
        (lambda dout, q, k, v, out, lse: q, "backward returns tensor (2, 5, 3, 8): should be (dq, dk, dv)"),
        (lambda dout, q, k, v, out, lse: (q, k, None), "should be (dq, dk, dv)"),
        (lambda dout, q, k, v, out, lse: (k, q, v), "dq has shape (2, 7, 3, 8), should be (2, 5, 3, 8)"),
        (lambda dout, q, k, v, out, lse: (q, k, v.double()), "dv has dtype torch.float64, should be torch.float32"),
    ],
)
def test_outputs_of_backward_are_checked(backward, words):
    assert words in str(contract_error(implementation(zeros_like_q, backward=backward), backward=True))


def test_a_fourth_gradient_is_ignored_without_a_bias():
    impl = implementation(zeros_like_q, backward=lambda dout, q, k, v, out, lse: (q, k, v, None))
    assert [name for name, _ in run(impl, inputs(), backward=True).items()] == ["out", "dq", "dk", "dv"]


def test_forward_without_a_graph_cannot_be_differentiated():
    error = contract_error(implementation(lambda q, k, v: q.detach(), backward="autograd"), backward=True)
    assert "out does not require grad" in str(error)


def test_inputs_that_out_does_not_depend_on_are_named():
    error = contract_error(implementation(lambda q, k, v: q + 0, backward="autograd"), backward=True)
    assert str(error) == "autograd gives no gradient for k, v: out does not depend on it"


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("supports", "names"),
    [
        ({}, ()),
        (dict(causal="optional"), ("causal",)),
        (dict(causal="always"), ()),
        (dict(bias=("vector",)), ("bias",)),
        (dict(softmax_scale=True), ("softmax_scale",)),
        (dict(causal="optional", bias=("matrix",), softmax_scale=True), ("causal", "bias", "softmax_scale")),
    ],
    ids=str,
)
def test_keywords_are_passed_only_if_declared(supports, names):
    passed = {}

    def forward(q, k, v, **keywords):
        passed.update(keywords)
        return torch.zeros_like(q)

    run(implementation(forward, supports=dict(dtypes={torch.float32}, headdims={8}) | supports), inputs())
    assert set(passed) == set(names)


def test_keywords_are_passed_to_backward_too():
    passed = {}

    def backward(dout, q, k, v, out, lse, *, causal, softmax_scale):
        passed.update(causal=causal, softmax_scale=softmax_scale)
        return q, k, v

    impl = implementation(
        lambda q, k, v, **keywords: q, backward=backward, supports=dict(causal="optional", softmax_scale=True)
    )
    run(impl, inputs(), backward=True, causal=True, softmax_scale=0.5)
    assert passed == dict(causal=True, softmax_scale=0.5)


def test_backward_gets_the_outputs_of_forward():
    seen = {}

    def backward(dout, q, k, v, out, lse):
        seen.update(out=out, lse=lse, dout=dout)
        return q, k, v

    impl = implementation(lambda q, k, v: (2 * q, zero_lse(q) + 3), backward=backward, lse="log2")
    x = inputs()
    run(impl, x, backward=True)
    assert torch.equal(seen["out"], 2 * x.q) and torch.equal(seen["dout"], x.dout)
    assert (seen["lse"] == 3).all(), "backward should get lse in the base that forward returned"


def test_lse_in_base_2_is_converted():
    got = run(implementation(lambda q, k, v: (q, zero_lse(q) + 3), lse="log2"), inputs())
    assert got.lse.flatten()[0].item() == 3 * math.log(2)


def test_natural_lse_is_not_converted():
    got = run(implementation(lambda q, k, v: (q, zero_lse(q) + 3), lse="natural"), inputs())
    assert got.lse.dtype == torch.float32 and (got.lse == 3).all()


def test_tensors_are_converted_to_the_declared_layout_and_back():
    impl, x = implementation(layout="bhsd"), normal(*SHAPE)
    handed = to_layout(impl, x)
    assert handed.shape == (2, 3, 5, 8) and handed.is_contiguous()
    assert torch.equal(from_layout(impl, handed), x)


def test_dimensions_of_size_1_have_the_strides_of_a_new_tensor():
    """Tensor.contiguous() would keep others, which laws about other things would then meet."""
    impl = implementation(layout="bhsd")
    for shape in ((2, 5, 1, 8), (1, 1, 1, 1), (2, 0, 3, 8), (3, 1, 2, 1)):
        for x in (normal(*shape), normal(*shape[:3], 2)[..., :1].expand(shape)):
            handed = to_layout(impl, x)
            assert handed.stride() == torch.empty(handed.shape).stride() and torch.equal(from_layout(impl, handed), x)


def test_both_layouts_give_the_same_results():
    def bhsd(q, k, v):
        out, lse = torch_math.forward(*(t.transpose(1, 2) for t in (q, k, v)))
        return out.transpose(1, 2), lse

    x = inputs()
    plain = implementation(lse="natural", backward="autograd")
    turned = implementation(bhsd, lse="natural", backward="autograd", layout="bhsd")
    want = run(plain, x, backward=True)
    got = run(turned, Inputs(**{name: to_layout(turned, t) for name, t in x.items()}), backward=True)
    assert all(torch.equal(getattr(got, name), tensor) for name, tensor in want.items())


# --- autograd -------------------------------------------------------------------------------------

DIFFERENTIABLE = dict(dtypes={torch.float32}, headdims={8}, bias={"matrix"}, bias_grad=True, cross=True)


def differentiable(**changed) -> Implementation:
    return implementation(lse="natural", backward="autograd", supports=DIFFERENTIABLE | changed)


@pytest.mark.parametrize("wrt", [("q",), ("k", "v"), ("q", "k", "v"), ("bias",), ("q", "bias"), ()], ids=str)
def test_only_requested_gradients_are_returned(wrt):
    got = run(differentiable(), inputs(bias="matrix"), backward=True, wrt=wrt)
    assert {name for name, _ in got.items()} == {"out", "lse", *("d" + name for name in wrt)}


def test_lse_may_not_require_grad_if_only_v_does():
    got = run(differentiable(lse_grad=True), inputs(dlse=True), backward=True, wrt=("v",))
    assert {name for name, _ in got.items()} == {"out", "lse", "dv"}


def test_only_requested_inputs_require_grad():
    required = {}

    def forward(q, k, v, *, bias=None):
        required.update(q=q.requires_grad, k=k.requires_grad, v=v.requires_grad, bias=bias.requires_grad)
        return torch_math.forward(q, k, v, bias=bias)

    impl = implementation(forward, lse="natural", backward="autograd", supports=DIFFERENTIABLE)
    run(impl, inputs(bias="matrix"), backward=True, wrt=("k", "bias"))
    assert required == dict(q=False, k=True, v=False, bias=True)


def test_every_gradient_is_returned_unless_some_are_named():
    names = {name for name, _ in run(differentiable(), inputs(bias="matrix"), backward=True).items()}
    assert names == {"out", "lse", "dq", "dk", "dv", "dbias"}


def test_dbias_is_returned_only_if_declared():
    got = run(differentiable(bias_grad=False), inputs(bias="matrix"), backward=True)
    assert got.dbias is None and got.dq is not None


def test_gradients_are_those_of_autograd():
    x = inputs()
    q = x.q.clone().requires_grad_()
    torch_math.forward(q, x.k, x.v)[0].backward(x.dout)
    assert torch.equal(run(differentiable(), x, backward=True).dq, q.grad)


def test_inputs_never_require_grad_afterwards():
    x = inputs()
    run(differentiable(), x, backward=True)
    assert not any(t.requires_grad for _, t in x.items())


def test_outputs_carry_no_graph():
    got = run(differentiable(), inputs(), backward=True)
    assert not any(t.requires_grad for _, t in got.items())


@pytest.mark.parametrize("sizes", [dict(seqlen_q=0), dict(seqlen_k=0)], ids=str)
def test_gradients_of_an_empty_sequence_are_zero(sizes):
    """autograd may return None for an input on which no output depends."""

    def forward(q, k, v, *, bias=None):
        return torch.zeros_like(q), torch.full((q.shape[0], q.shape[2], q.shape[1]), -INF)

    impl = implementation(forward, lse="natural", backward="autograd", supports=DIFFERENTIABLE)
    x = inputs(**sizes)
    got = run(impl, x, backward=True)
    assert all(torch.equal(getattr(got, "d" + name), torch.zeros_like(getattr(x, name))) for name in "qkv")
