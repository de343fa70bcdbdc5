"""The oracle computes small cases of a GPU on the CPU, with the same answer."""

from dataclasses import replace

import pytest
import torch

from flash_attest import oracle
from flash_attest.impls import torch_math
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.machine import nearby
from flash_attest.properties.machine.nearby import Nearby
from flash_attest.properties.trial import Trial

ELSEWHERE = "cpu:0"  # another name of the CPU, to which tensors are moved as they are to a GPU
CASE = Case(2, 5, 7, 4, 2, 3, torch.float16, bias="matrix", bias_dtype=torch.float32, causal=True)


@pytest.fixture
def trial():
    """Return a trial whose oracle computes on the device ELSEWHERE."""
    one = Trial(torch_math.IMPL, CASE, "cpu")
    one.nearby = Nearby(ELSEWHERE)
    return one


def test_the_answer_is_the_same(trial):
    plain = Trial(torch_math.IMPL, CASE, "cpu")
    for backward in (False, True):
        want, usual = trial.want(backward=backward), plain.want(backward=backward)
        sigma, as_usual = trial.budget(want, backward=backward), plain.budget(usual, backward=backward)
        for name in ("out", "lse", "dq", "dk", "dv", "dbias"):
            for got, expected in ((want, usual), (sigma, as_usual)):
                got, expected = getattr(got, name), getattr(expected, name)
                assert got is expected is None or (torch.equal(got, expected) and got.is_contiguous())


def test_tensors_of_any_dtype_layout_and_size_arrive_by_one_copy(monkeypatch):
    copies = []
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *a: copies.append(a) or to(self, *a))
    q = torch.randn(2, 3, 1, 5).bfloat16()
    x = Inputs(q=q, k=q[:, :1].expand(2, 4, 1, 5), v=torch.empty(2, 0, 1, 5).half(), dout=q.mT.contiguous().mT,
               bias=torch.randn(2, 1, 1, 4, dtype=torch.float64, requires_grad=True))  # fmt: skip
    expanded = replace(
        x, dout=torch.ones((), dtype=torch.bfloat16).expand(2, 3, 1, 5), v=torch.ones(3).as_strided((1,), (0,))
    )
    for given in (x, expanded):
        (here,) = Nearby(ELSEWHERE).bring(given)
        for name, tensor in given.items():
            moved = getattr(here, name)
            assert torch.equal(moved, tensor) and moved.dtype == tensor.dtype and moved.is_contiguous(), name
            assert not moved.requires_grad and (not tensor.numel() or moved.data_ptr() != tensor.data_ptr())
    assert copies == [("cpu",)] * 2


def test_what_was_sent_is_not_fetched_again(trial):
    want = trial.want()
    (x, here), (again, same) = trial.nearby.bring(trial.x, want), trial.nearby.bring(trial.x, want)
    assert x is again is not trial.x and here is same is not want


def test_what_has_changed_since_is_fetched_again(trial):
    (before,) = trial.nearby.bring(trial.x)
    trial.x.bias.add_(1)
    (after,) = trial.nearby.bring(trial.x)
    assert torch.equal(after.bias, before.bias + 1)


@pytest.mark.parametrize("changed", [{"seqlen_q": 100}, {"headdim": 100}, {"nheads": 40}, {"seqlen_k": 100}])
def test_large_cases_stay_where_they_are(changed, monkeypatch):
    monkeypatch.setattr(nearby, "MOST_ELEMENTS", 2 * 4 * 7 * 10)
    for case, stays in ((CASE, False), (CASE.but(**changed), True)):
        x = Trial(torch_math.IMPL, case, "cpu").x
        assert (Nearby(ELSEWHERE).bring(x)[0] is x) == stays
        assert Nearby("cpu").bring(x)[0] is x


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_small_cases_are_computed_on_the_cpu(monkeypatch):
    there = Trial(torch_math.IMPL, CASE, "cuda")
    asked, attention = [], oracle.attention
    monkeypatch.setattr(oracle, "attention", lambda q, *a, **k: asked.append(q.device.type) or attention(q, *a, **k))
    assert there.want().out.is_cuda and there.budget(there.want()).out.is_cuda
    monkeypatch.setattr(nearby, "MOST_ELEMENTS", 0)
    assert there.want().out.is_cuda
    assert asked == ["cpu", "cpu", "cuda"]
