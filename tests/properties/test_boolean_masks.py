"""Implementations that take boolean masks, in the ways in which published functions take them."""

from dataclasses import replace

import pytest
import torch

from flash_attest import assert_attention_close
from flash_attest.impls import Implementation, Supports, torch_math
from flash_attest.impls.contract.declaration import declaration_problems
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS, REFUSED
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.trials import broken, fails

OUTSIDE = "test_calls_outside_the_promise_raise_or_are_right"
KINDS = {"boolean_vector", "boolean_matrix"}


def published(q, k, v, attn_mask=None):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def adapter(q, k, v, *, bias=None):
    if bias is not None and bias.dtype != torch.bool:
        raise ValueError("bias should be a mask in torch.bool")
    return published(q, k, v, attn_mask=bias)


def implementation(forward=adapter, kinds=frozenset(KINDS), **supports) -> Implementation:
    supports = Supports(dtypes={torch.float32}, headdims={8, 16}, bias=kinds, **supports)
    return Implementation(name="masked", layout="bhsd", forward=forward, backward="autograd", supports=supports)


@pytest.mark.parametrize("law", [
    "test_biased_attention_matches_the_definition", "test_out_averages_the_keys_that_a_bias_leaves",
    "test_keys_hidden_by_bias_change_no_bit", "test_bias_picks_its_key", "test_rows_without_keys_give_zero",
    "test_contract_is_kept", OUTSIDE,
])  # fmt: skip
def test_an_adapter_of_a_function_with_a_mask_passes(law):
    if law != "test_contract_is_kept":
        result = judge(laws()[law], implementation(), Plan(examples=12, small=True, try_contract=False))
        assert result.verdict == PASS, result.message or result.reason


def test_laws_about_numbers_are_refused_with_the_reason():
    result = judge(laws()["test_alibi_matches_the_definition"], implementation(), Plan(examples=5, try_contract=False))
    assert result.verdict == REFUSED
    assert result.reason == "takes boolean masks alone, which are not added to the scores"


def test_a_function_that_hides_where_its_mask_is_true_is_inverted():
    def hiding(q, k, v, *, bias=None):
        return adapter(q, k, v, bias=None if bias is None else ~bias)

    law = laws()["test_out_averages_the_keys_that_a_bias_leaves"]
    assert fails(law, implementation(hiding), Plan(examples=12))


def test_a_mask_that_is_added_though_only_numbers_are_declared_is_named():
    """torch.bool is often passed where numbers are expected, and adds 0 and 1."""

    def adding(q, k, v, *, bias=None):
        return torch_math.forward(q, k, v, bias=None if bias is None else bias.float())[0]

    supports = replace(implementation(kinds={"vector"}).supports, bias={"vector"})
    impl = replace(implementation(), forward=adding, layout="bshd", supports=supports)
    case = parse_case("seqlen_q=2 seqlen_k=2 headdim=8 bias=vector bias_mask=right seed=2")
    headline = broken(laws()[OUTSIDE].hold, Trial(impl, case, "cpu")).headline
    assert headline.startswith("called with bias boolean_vector, it raises no error")


def test_a_mask_has_no_gradient():
    impl = implementation()
    assert declaration_problems(replace(impl, supports=replace(impl.supports, bias={"vector", *KINDS}))) == []
    object.__setattr__(impl.supports, "bias_grad", True)
    assert declaration_problems(impl) == [
        "supports.bias_grad=True needs a bias of numbers and a backward: declare both, or bias_grad=False"
    ]


def test_results_with_a_boolean_mask_can_be_compared():
    q, k, v = (torch.randn(2, 3, n, 8) for n in (5, 7, 7))
    mask = torch.rand(2, 1, 5, 7) < 0.7
    mask[..., 0] = True
    assert_attention_close(published(q, k, v, mask), q, k, v, bias=mask, layout="bhsd")
    with pytest.raises(AssertionError, match="should be"):
        assert_attention_close(published(q, k, v, mask.float()), q, k, v, bias=mask, layout="bhsd")
