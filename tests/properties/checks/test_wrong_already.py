"""Laws that compare two results do not judge results that are wrong alike."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Precision
from flash_attest.properties.checks.wrong_already import stop_if_wrong_alike
from flash_attest.properties.failures import Reason, WrongAlready
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN
from flash_attest.properties.law import laws
from tests.properties.rounding_kernels import kernel
from tests.trials import normal

RIGHT = kernel(Precision(), backward=False)
ORDER = laws()["test_order_of_keys_does_not_matter"]
BFLOAT16 = replace(RIGHT, supports=replace(RIGHT.supports, dtypes={torch.bfloat16}))
MANY = Plan(examples=30, try_contract=False, goes_on=False, small=True)


def another_function(q, k, v, **options):
    """Return 1 + 3 out, which bfloat16 rounds in larger steps than out.

    In float16 it would overflow.
    """
    out, lse = RIGHT.forward(q, k, v, **options)
    return (1 + 3 * out.float()).to(out.dtype), lse


@pytest.mark.parametrize("law", ["test_order_of_keys_does_not_matter", "test_split_keys_merge_by_lse"])
def test_the_rounding_of_another_function_is_not_blamed_on_the_subject_of_the_law(law):
    result = judge(laws()[law], replace(BFLOAT16, forward=another_function), MANY)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.WRONG_ALREADY)
    assert result.reason.startswith("not judged: out is wrong already, by up to ")


def test_the_function_itself_fails_by_the_definition():
    law = laws()["test_out_matches_the_definition"]
    assert judge(law, replace(RIGHT, forward=another_function), MANY).verdict == FAIL


def test_a_fault_that_is_the_subject_of_the_law_still_fails_in_a_wrong_kernel():
    def forward(q, k, v, **options):
        out, lse = another_function(q, k, v, **options)
        return out + v[:, :1].repeat_interleave(q.shape[2] // v.shape[2], 2).expand_as(out), lse

    halves = replace(RIGHT.supports, cross=False)
    result = judge(ORDER, replace(RIGHT, forward=forward, supports=halves), MANY)
    assert result.verdict == FAIL and "with its keys in another order" in result.reason


RIGHT_VALUES = normal(4, 8).double()
SIGMA = torch.full_like(RIGHT_VALUES, 1e-6)


def alike(got, want):
    differ = (got - want).abs() > 1e-5
    try:
        stop_if_wrong_alike("out", got, want, RIGHT_VALUES, SIGMA, differ, torch.float32, "independent")
    except WrongAlready:
        return True
    return False


def test_results_are_wrong_alike_if_they_differ_by_less_than_half_of_their_error():
    wrong = RIGHT_VALUES + 0.1
    assert alike(wrong, wrong + 0.04)
    assert not alike(wrong, wrong + 0.2)  # each has another error
    assert not alike(RIGHT_VALUES, RIGHT_VALUES + 1e-4)  # one is right


def test_one_element_may_be_right_by_chance():
    wrong = RIGHT_VALUES + 0.1
    wrong[0, 0] = RIGHT_VALUES[0, 0]
    assert alike(wrong, wrong + 1e-4)


def test_half_of_the_few_that_differ_may_be_right_by_chance():
    """1 + 3 out is out where that is -1/2."""
    wrong = RIGHT_VALUES + 0.1
    wrong[0, 0] = RIGHT_VALUES[0, 0]
    other = wrong.clone()
    other[0, :2] += 1e-4
    assert alike(wrong, other)


def test_rows_that_are_right_in_one_result_are_judged_though_others_are_wrong():
    one = RIGHT_VALUES.clone()
    one[:2] += 0.1
    other = one.clone()
    other[2:] += 1e-4
    assert not alike(one, other)


def test_nan_in_one_result_is_judged():
    wrong = RIGHT_VALUES + 0.1
    other = wrong.clone()
    other[0, 0] = torch.nan
    differ = ~((wrong - other).abs() <= 1e-5)
    stop_if_wrong_alike("out", other, wrong, RIGHT_VALUES, SIGMA, differ, torch.float32, "independent")
