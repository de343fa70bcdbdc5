"""Outputs of a tensor subclass are judged as plain tensors, so the subclass cannot affect
comparisons.
"""

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.contract.call import run
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL
from flash_attest.properties.law import laws
from tests.impls.test_call import contract_error, differentiable, inputs
from tests.trials import implementation

pytestmark = pytest.mark.usefixtures("one_thread")


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
