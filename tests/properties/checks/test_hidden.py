"""A kernel may add up keys in an order that depends on keys which the query does not see."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Precision
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws
from tests.properties.rounding_kernels import INF, _heads, _scores, kernel
from tests.trials import fails

LAWS = ("test_hidden_keys_change_no_bit", "test_keys_hidden_by_bias_change_no_bit")
RIGHT = kernel(Precision(), backward=False)


def adding_up(in_order, leak=0.0, maximum_of_all=False):
    """Return an implementation that adds up one key after another.

    in_order: whether keys are ordered by their values first. leak: the weight of hidden keys.
    maximum_of_all: whether hidden keys count for the maximum that is subtracted.
    """

    def forward(q, k, v, *, causal=False, bias=None, softmax_scale=None):
        s, _, _ = _scores(Precision(), "scores", q, k, causal, bias, softmax_scale)
        seen, v = s > -INF, _heads(v, q.shape[2])
        if maximum_of_all:
            s = _scores(Precision(), "scores", q, k, False, None, softmax_scale)[0]
        if in_order:
            order = _heads(k, q.shape[2])[..., 0].argsort(-1)
            columns = order[:, :, None].expand_as(s)
            s, seen, v = s.gather(-1, columns), seen.gather(-1, columns), v.gather(2, order[..., None].expand_as(v))
        m = s.amax(-1, keepdim=True) if s.shape[-1] else torch.zeros_like(s[..., :1])
        p = torch.where(seen, torch.exp(s - m.masked_fill(m == -INF, 0.0)), leak)
        l, out = p.sum(-1, keepdim=True), torch.zeros_like(q.transpose(1, 2), dtype=torch.float32)
        for j in range(p.shape[-1]):
            out = out + p[..., j : j + 1].to(q.dtype).float() * v[:, :, j : j + 1]
        alive = seen.any(-1, keepdim=True)
        out = torch.where(alive, out / l, 0.0).transpose(1, 2).to(q.dtype)
        return out, torch.where(alive, m + torch.log(l), -INF).squeeze(-1)

    return replace(RIGHT, name="adding_up", forward=forward)


@pytest.mark.parametrize("examples", [12, pytest.param(2000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("law", LAWS)
def test_keys_may_be_ordered_by_their_values(law, examples):
    result = judge(
        laws()[law], adding_up(in_order=True), Plan(examples=examples, try_contract=False, small=examples < 20)
    )
    assert result.verdict == PASS, result.message


@pytest.mark.parametrize("in_order", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("law", LAWS)
def test_a_hidden_key_of_the_least_weight_shows(law, in_order):
    """2e-9 is e^-20, the weight that a mask of -20 leaves."""
    assert fails(laws()[law], adding_up(in_order, leak=2e-9), Plan(examples=40, small=True))


@pytest.mark.parametrize("law", LAWS)
def test_a_maximum_of_hidden_keys_shows(law):
    """It changes no result until all visible keys underflow."""
    impl = adding_up(in_order=False, maximum_of_all=True)
    assert fails(laws()[law], impl, Plan(examples=40, small=True))
