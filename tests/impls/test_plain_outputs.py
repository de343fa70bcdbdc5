"""Outputs of a tensor subclass are judged as plain tensors, so the subclass cannot affect
comparisons.
"""

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.contract.call import run
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.law import laws
from tests.impls.test_call import contract_error, differentiable, inputs
from tests.trials import implementation


class Lying(torch.Tensor):
    """A tensor that is equal to everything, finite, and at distance 0 from everything."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            got = func(*args, **kwargs or {})
            name = func.__name__
            if name in ("eq", "__eq__", "isfinite"):
                return torch.ones_like(got)
            if name in ("ne", "__ne__", "isnan", "sub", "__sub__", "__rsub__"):
                return torch.zeros_like(got)
            return got.as_subclass(cls) if isinstance(got, torch.Tensor) else got

    def detach(self):
        return self

    def as_subclass(self, cls):
        return self


def test_outputs_are_plain_tensors_whatever_class_is_returned():
    def forward(q, k, v):
        out, lse = torch_math.forward(q, k, v)
        return (out + 1).as_subclass(Lying), lse.as_subclass(Lying)

    def backward(dout, q, k, v, out, lse):
        seen.append((type(out), type(lse)))
        return tuple((t + 1).as_subclass(Lying) for t in (q, k, v))

    x, seen = inputs(), []
    plain = run(implementation(lse="natural"), x)
    got = run(implementation(forward, lse="natural", backward=backward), x, backward=True)
    assert {type(t) for _, t in got.items()} == {torch.Tensor}
    assert torch.equal(got.lse, plain.lse) and torch.equal(got.out, plain.out + 1)
    assert torch.equal(got.dq, x.q + 1)
    assert seen == [(Lying, Lying)]  # backward gets what forward returned


def test_outputs_of_another_class_are_differentiated():
    def forward(q, k, v):
        return torch_math.forward(q, k, v)[0].as_subclass(Lying)

    x = inputs()
    got = run(implementation(forward, backward="autograd"), x, backward=True)
    assert torch.equal(got.dq, run(differentiable(), x, backward=True).dq) and type(got.dq) is torch.Tensor


def test_a_class_that_cannot_become_a_plain_tensor_breaks_the_contract():
    class Dispatching(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **kwargs or {})

    error = contract_error(implementation(lambda q, k, v: torch.Tensor._make_subclass(Dispatching, q.clone())))
    assert str(error) == "out is a Dispatching, whose __torch_dispatch__ is in the way: return a torch.Tensor"


@pytest.mark.parametrize("law", ("test_out_matches_the_definition", "test_lse_matches_the_definition"))
def test_a_class_of_its_own_hides_no_wrong_value(law):
    def forward(q, k, v):
        return tuple((t + 1e-2).as_subclass(Lying) for t in torch_math.forward(q, k, v))

    result = judge(laws()[law], implementation(forward, lse="natural"), Plan(examples=3))
    assert result.verdict == FAIL and " times what rounding explains, 8 allowed" in result.reason


# --- tensors with which operations raise ----------------------------------------------------------


def inferred(tensor):
    with torch.inference_mode():
        return tensor * 1


def inside_vmap(tensor):
    inside = []
    torch.vmap(lambda x: inside.append(x * 1) or x)(tensor)
    return inside[0]


def without_memory(tensor):
    tensor = tensor * 1
    tensor.untyped_storage().resize_(0)
    return tensor


def out_of(change, **declared):
    """Return an implementation whose out is changed in this way."""
    return implementation(lambda q, k, v: change(torch_math.forward(q, k, v)[0]), **declared)


def gradient_of(change):
    """Return an implementation whose dk is changed in this way."""

    def backward(dout, q, k, v, out, lse):
        return q * 1, change(k), v * 1

    return implementation(lse="natural", backward=backward)


INFERENCE = (
    "is an inference tensor, which autograd does not save and optimizers cannot update: call kernels under "
    "torch.no_grad() instead of torch.inference_mode()"
)
TRANSFORM = "is a tensor of a torch.func transform (vmap, grad) that has ended: return what the transform returns"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (inferred, INFERENCE),
        (inside_vmap, TRANSFORM),
        (without_memory, "has a storage of 0 bytes, should have "),
        (lambda k: k.to_sparse(), "has layout torch.sparse_coo, should be torch.strided"),
        (lambda k: torch.nested.nested_tensor([k[0]]), "is a nested tensor, should be a torch.Tensor"),
        (lambda k: k.to("meta"), "is on meta, should be on cpu"),
        (
            lambda k: torch.quantize_per_tensor(k, 0.1, 0, torch.quint8),
            "has dtype torch.quint8, should be torch.float32",
        ),
    ],
)
def test_gradients_with_which_operations_raise_break_the_contract(change, words):
    error = contract_error(gradient_of(change), backward=True)
    assert str(error).startswith(f"dk {words}")


def test_inference_tensors_are_named_by_the_law_about_gradients():
    result = judge(laws()["test_gradients_match_the_definition"], gradient_of(inferred), Plan(examples=2))
    assert result.verdict == UNKNOWN and f"dk {INFERENCE}" in result.reason  # the contract is broken
    result = judge(
        laws()["test_gradients_match_the_definition"], gradient_of(inferred), Plan(examples=2, try_contract=False)
    )
    assert (result.verdict, result.reason) == (FAIL, f"dk {INFERENCE}")


def test_an_inference_tensor_of_a_trained_forward_breaks_the_contract():
    def forward(q, k, v):
        return tuple(inferred(t) for t in torch_math.forward(q, k, v))

    backward = gradient_of(lambda k: k * 1).backward
    assert str(contract_error(implementation(forward, lse="natural", backward=backward))) == f"out {INFERENCE}"


def test_an_inference_tensor_without_a_backward_is_judged_in_its_own_memory():
    kept = []

    def forward(q, k, v):
        with torch.inference_mode():
            kept.append(torch_math.forward(q, k, v)[0])
        return kept[-1]

    got = run(implementation(forward), inputs())
    assert not got.out.is_inference() and got.out.data_ptr() == kept[0].data_ptr()
    got.out.mul_(torch.ones_like(got.out))
    for law in ("test_out_matches_the_definition", "test_outputs_may_be_written_to"):
        assert judge(laws()[law], implementation(forward), Plan(examples=3)).verdict == PASS


@pytest.mark.parametrize(
    "change",
    [
        torch.nn.Parameter,
        lambda k: torch.nn.Parameter(k)[:],
        lambda k: torch._neg_view(-k),
        lambda k: k.expand(k.shape),
    ],
)
def test_gradients_of_odd_but_usable_kinds_are_plain(change):
    got = run(gradient_of(change), x := inputs(), backward=True)
    assert (
        torch.equal(got.dk, x.k) and not got.dk.requires_grad and not got.dk.is_neg() and type(got.dk) is torch.Tensor
    )


def test_zeros_without_memory_are_zeros():
    got = run(gradient_of(lambda k: torch._efficientzerotensor(k.shape)), inputs(), backward=True)
    assert bool((got.dk == 0).all()) and got.dk.add_(1).sum() == got.dk.numel()


def test_attributes_that_hide_methods_are_not_seen():
    def shadowed(out):
        out.clone = out.detach = out.is_inference = None
        return out

    assert run(out_of(shadowed), inputs()).copy().out.isfinite().all()
