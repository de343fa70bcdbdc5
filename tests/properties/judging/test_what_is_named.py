"""Facts that a failure names: which outputs are right, which dout hides the mistake, what lse
holds.
"""

import re
from dataclasses import replace

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL
from flash_attest.properties.law import laws

LSE = laws()["test_lse_matches_the_definition"]
GRADIENTS = laws()["test_gradients_match_the_definition"]
PREFIX = laws()["test_query_sees_exactly_its_prefix"]
PLAN = Plan(examples=20, try_contract=False, goes_on=False, small=True)


# --- lse ------------------------------------------------------------------------------------------

# What the functions of these tests do not take.
NOT_TODAY = dict(window="none", softcap=False, sinks=False, sink_grad=False, lse_grad=False, headdims_v=())


def with_lse(other):
    """Return torch_math with lse = other(lse, m, l).

    m is the row maximum and l the row sum, over visible keys.
    """

    def forward(q, k, v, causal=False, bias=None, softmax_scale=None):
        out, lse = torch_math.forward(q, k, v, causal=causal, bias=bias, softmax_scale=softmax_scale)
        groups = q.shape[2] // k.shape[2]
        scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        s = torch.einsum("bihd,bjhd->bhij", q.double(), k.repeat_interleave(groups, 2).double()) * scale
        s = s if bias is None else s + bias
        rows, keys = s.shape[-2:]
        if causal:
            s = s.masked_fill(~torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows), -torch.inf)
        m = s.amax(-1).nan_to_num(neginf=0.0)
        l = (lse.double() - m).exp()
        return out, other(lse.double(), m, l).float()

    declared = replace(torch_math.IMPL.supports, bias_grad=False, **NOT_TODAY)
    return replace(torch_math.IMPL, name="tested", forward=forward, backward=None, supports=declared)


MEANINGS = [
    (lambda lse, m, l: l, "lse equals the row sum l, not its logarithm plus the maximum m: should be m + log l"),
    (lambda lse, m, l: m, "lse equals the row maximum m, without the logarithm of the row sum l: should be m + log l"),
    (lambda lse, m, l: l.log(), "lse equals log l, without the maximum m that was subtracted: should be m + log l"),
    (lambda lse, m, l: m + l, "lse equals m + l, without the logarithm of the row sum l: should be m + log l"),
    (lambda lse, m, l: m + l.log2(), "lse equals m + log2 l: should be m + ln l"),
    (lambda lse, m, l: lse / 0.6931471805599453, 'lse is in base 2: declare lse="log2", or multiply it by ln 2'),
    (lambda lse, m, l: -lse, "lse has the wrong sign: should be log sum_j exp(score)"),
    (lambda lse, m, l: lse.exp(), "lse is the sum itself, not its logarithm: should be log sum_j exp(score)"),
]


@pytest.mark.parametrize(("other", "words"), MEANINGS, ids=[words for _, words in MEANINGS])
def test_a_wrong_lse_is_named(other, words):
    impl = with_lse(other)
    another = "base 2" in words or "log sum_j" in words
    assert conformance.problems(impl, "cpu")[:1] == ([words] if another else [])
    result = judge(LSE, impl, PLAN)
    assert result.verdict == FAIL and words in observed(result)
    assert re.search(r" wrong\): lse is [^:]+$", result.reason), result.reason


def test_a_law_that_counts_keys_names_it_too():
    result = judge(PREFIX, with_lse(lambda lse, m, l: l), PLAN)
    assert result.verdict == FAIL and result.reason.endswith(": lse is the row sum l")


@pytest.mark.parametrize("other", [lambda lse, m, l: lse + 0.5, lambda lse, m, l: torch.where(m > 1, lse + 3, lse)])
def test_an_lse_that_is_nothing_known_is_not_named(other):
    result = judge(LSE, with_lse(other), PLAN)
    assert result.verdict == FAIL and "lse equals" not in result.message and result.reason.endswith(" wrong)")


def test_a_right_lse_is_not_named():
    assert conformance.problems(with_lse(lambda lse, m, l: lse), "cpu") == []


# --- outputs --------------------------------------------------------------------------------------


def with_gradients(change):
    """Return torch_math with a backward that gives change(dout, dq, dk, dv)."""

    def backward(dout, q, k, v, out, lse):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.enable_grad():
            grads = torch.autograd.grad(torch_math.forward(*leaves)[0], leaves, dout)
        return change(dout, *grads)

    plain = replace(
        torch_math.IMPL.supports,
        causal="never",
        bias="none",
        bias_grad=False,
        softmax_scale=False,
        gqa=False,
        **NOT_TODAY,
    )
    return replace(torch_math.IMPL, name="tested", backward=backward, supports=plain)


def observed(result):
    return [line.strip() for line in result.message.split("Observed\n")[1].split("\nSuggests")[0].splitlines()]


def test_outputs_that_are_right_are_named():
    result = judge(GRADIENTS, with_gradients(lambda dout, dq, dk, dv: (dq, dk, 2 * dv)), PLAN)
    assert result.reason.startswith("dv[") and "right: dq, dk" in observed(result)


def test_outputs_that_are_wrong_too_are_named():
    wrong = with_gradients(lambda dout, dq, dk, dv: (dq + 1, dk, dv + 1))
    assert "right: dk   wrong, too: dv" in observed(judge(GRADIENTS, wrong, PLAN))


def test_the_dout_that_would_hide_it_is_named():
    """The kernel uses the dout of the next query, which is right if all rows of dout are equal."""
    case = parse_case("seqlen_q=5 headdim=4")
    swapped = with_gradients(lambda dout, dq, dk, dv: (dq, dk, dv + 0.1 * (dout - dout.roll(1, 1)).pow(2).sum(1, True)))
    lines = observed(judge(GRADIENTS, swapped, replace(PLAN, case=case)))
    assert "dv is right with dout = 1 or the same dout in every query, which would hide this mistake" in lines
    assert "dv is wrong with dout = 0 but in query 0 and dout = 0 but in query 4, too" in lines


def test_a_mistake_that_every_dout_shows_says_so():
    lines = observed(judge(GRADIENTS, with_gradients(lambda dout, dq, dk, dv: (dq, dk, 2 * dv)), PLAN))
    assert lines.count("dv is wrong with dout = 1, too") == 1 and not any("would not show" in line for line in lines)
