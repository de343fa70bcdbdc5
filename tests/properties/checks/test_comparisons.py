"""The comparisons at the end of every law: what passes, what fails, and with which message."""

import math
import re
from functools import partial

import pytest
import torch

from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.checks.comparisons import (
    check_agree,
    check_budget,
    check_near,
    check_same,
    check_same_or_agree,
    combined,
    stored_dtype,
    storing,
)
from flash_attest.properties.checks.pictures import number
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Expected, Trial
from tests.trials import AT, SHAPE, broken, normal, trial, with_one

INF, NAN = math.inf, math.nan


# --- check_same -----------------------------------------------------------------------------------


def test_equal_values_pass():
    x = normal(*SHAPE)
    check_same(trial(), "out", x, x.clone(), "should be")


def test_minus_zero_equals_zero():
    check_same(trial(), "out", torch.zeros(SHAPE), -torch.zeros(SHAPE), "should be")


def test_equal_infinities_pass():
    lse = torch.full((2, 3, 5), -INF)
    check_same(trial(), "lse", lse, lse.clone(), "should be")


def test_nan_equals_nan():
    x = with_one(normal(*SHAPE), NAN)
    check_same(trial(), "out", x, x.clone(), "should be")


def test_empty_tensors_pass():
    check_same(trial(), "out", torch.zeros(2, 0, 3, 8), torch.zeros(2, 0, 3, 8), "should be")


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (2.0, 1.0, "out[b=1 i=4 h=2 d=7] is 2, should be 1 (1 of 240 elements wrong)"),
        (1.0 + 2**-23, 1.0, "is 1.00000012, should be 1 (1 of 240 elements wrong)"),
        (NAN, 1.0, "out[b=1 i=4 h=2 d=7] is nan, should be 1 "),
        (1.0, NAN, "out[b=1 i=4 h=2 d=7] is 1, should be nan "),
        (INF, -INF, "out[b=1 i=4 h=2 d=7] is inf, should be -inf "),
    ],
    ids=str,
)
def test_a_single_difference_is_located(got, want, words):
    x = normal(*SHAPE)
    failure = broken(check_same, trial(), "out", with_one(x, got), with_one(x, want), "should be")
    assert words in failure.headline


def test_values_that_differ_in_the_last_bit_print_differently():
    """ "is 1, should be 1" would not show the difference."""
    x = normal(*SHAPE)
    failure = broken(check_same, trial(), "out", with_one(x, 1.0 + 2**-23), with_one(x, 1.0), "should be")
    got, want = re.search(r"is (\S+), should be (\S+) ", failure.headline).groups()
    assert got != want


def test_the_first_of_many_differences_is_shown():
    want = torch.zeros(SHAPE)
    want[0, 2], want[1, 0] = 1.0, 2.0
    headline = broken(check_same, trial(), "dq", torch.zeros(SHAPE), want, "should be").headline
    assert "dq[b=0 i=2 h=0 d=0] is 0, should be 1 (48 of 240 elements wrong)" in headline


def test_the_largest_difference_is_shown():
    want = torch.zeros(SHAPE)
    want[0, 0, 0, 0], want[AT] = 1.0, -5.0
    assert "largest difference 5" in broken(check_same, trial(), "out", torch.zeros(SHAPE), want, "is").observed


# --- check_near and check_agree -------------------------------------------------------------------


def sigma(size: float = 1e-6) -> torch.Tensor:
    return torch.full(SHAPE, size, dtype=torch.float64)


ZERO = torch.zeros(SHAPE)


def test_errors_within_the_budget_pass():
    want = normal(*SHAPE).double()
    check_near(trial(), "out", with_one((want + 1e-6).float(), want[AT] + 7e-6), want, sigma())


def test_the_largest_z_is_recorded():
    t, want = trial(), torch.zeros(SHAPE, dtype=torch.float64)
    for error in (2e-6, 5e-6, 3e-6):
        check_near(t, "out", with_one(want.float(), error), want, sigma())
    assert t.meter.worst_z["out"] == pytest.approx(5, rel=1e-3)


TIMES = ": {} times what rounding explains, 8 allowed"


@pytest.mark.parametrize(("value", "times"), [(1e-4, TIMES.format(100)), (NAN, ""), (INF, ""), (-INF, "")])
def test_one_element_beyond_its_budget_is_located(value, times):
    want = torch.zeros(SHAPE, dtype=torch.float64)
    failure = broken(check_near, trial(), "out", with_one(want.float(), value), want, sigma())
    assert failure.headline == (
        f"out[b=1 i=4 h=2 d=7] is {number(value)}, should be 0{times} (1 of 240 elements wrong)"
    )


def test_the_worst_element_is_located():
    want = torch.zeros(SHAPE, dtype=torch.float64)
    got = with_one(with_one(want.float(), 1e-4, at=(0, 0, 0, 0)), 2e-4)
    assert "out[b=1 i=4 h=2 d=7] is 0.0002" in broken(check_near, trial(), "out", got, want, sigma()).headline


def test_the_error_is_shown_beside_its_sigma():
    want = torch.zeros(SHAPE, dtype=torch.float64)
    failure = broken(check_near, trial(), "out", with_one(want.float(), 1e-4), want, sigma())
    assert "off by 0.0001 there, where rounding explains 1e-06 (one sigma)" in failure.observed


def test_the_error_is_shown_beside_the_worst_case_where_roundings_may_be_alike():
    want = torch.zeros(SHAPE, dtype=torch.float64)
    failure = broken(check_near, trial(regime="flat"), "out", with_one(want.float(), 1e-4), want, sigma())
    assert "off by 0.0001 there, where rounding explains 6.4e-06 at its worst" in failure.observed


def test_small_errors_in_all_elements_fail():
    want = torch.zeros(4, 50, 4, 50, dtype=torch.float64)
    failure = broken(check_near, trial(), "out", (want + 4e-6).float(), want, torch.full_like(want, 1e-6))
    assert failure.headline.startswith("out: the error over all elements is ")
    assert any("no single element exceeds its limit" in line for line in failure.observed)


def test_two_results_may_both_have_rounding_errors():
    a = torch.zeros(SHAPE)
    check_agree(trial(), "out", with_one(a, 1.0e-5), a, sigma(), "should be", right=ZERO)
    with pytest.raises(LawBroken):
        check_agree(trial(), "out", with_one(a, 1.2e-5), a, sigma(), "should be", right=ZERO)


@pytest.mark.parametrize(("value", "times"), [(1e-3, TIMES.format(707)), (NAN, ""), (INF, "")])
def test_a_disagreement_of_two_results_is_located(value, times):
    """Both have errors, so the sigma of their difference is sqrt(2) times the sigma of each."""
    a = torch.zeros(SHAPE)
    check = partial(check_agree, right=ZERO)
    headline = broken(check, trial(), "out", with_one(a, value), a, sigma(), "alone it is").headline
    assert headline == (f"out[b=1 i=4 h=2 d=7] is {number(value)}, alone it is 0{times} (1 of 240 elements wrong)")


def test_nan_in_both_results_is_no_difference():
    """The laws of the definition find the NaN. The other elements are compared."""
    a = with_one(torch.zeros(SHAPE), NAN)
    for check, words in ((check_near, ()), (partial(check_agree, right=ZERO), ("should be",))):
        check(trial(), "out", a, a.clone(), sigma(), *words)
        other = with_one(a, 1.0, at=(0, 0, 0, 0))
        assert broken(check, trial(), "out", other, a, sigma(), *words).headline.startswith(
            "out[b=0 i=0 h=0 d=0] is 1, "
        )
        assert broken(check, trial(), "out", torch.zeros(SHAPE), a, sigma(), *words).headline.startswith(
            "out[b=1 i=4 h=2 d=7] is 0, "
        )


def test_repeatable_outputs_must_have_the_same_bits():
    a, b = Outputs(out=torch.zeros(SHAPE)), Outputs(out=torch.full(SHAPE, 1e-9))
    expected = Expected(Outputs(out=ZERO), Outputs(out=sigma()))
    check_same_or_agree(trial(repeatable={"lse"}), "out", a, b, expected, "should be")
    with pytest.raises(LawBroken):
        check_same_or_agree(trial(repeatable={"out"}), "out", a, b, expected, "should be")


# --- check_budget ---------------------------------------------------------------------------------


def attention(t: Trial, **changed) -> Outputs:
    want = t.want()
    return Outputs(out=changed.get("out", want.out.float()), lse=changed.get("lse", want.lse.float()))


def test_the_oracle_is_within_its_own_budget():
    t = trial()
    check_budget(t, attention(t))
    assert set(t.meter.worst_z) == {"out", "lse"}


def test_every_output_is_checked_against_the_budget():
    t = trial()
    lse = with_one(t.want().lse.float(), 0.0, at=(1, 2, 4))
    assert "lse[b=1 h=2 i=4] is 0" in broken(check_budget, t, attention(t, lse=lse)).headline


def test_only_the_named_outputs_are_checked():
    t = trial()
    check_budget(t, attention(t, lse=t.want().lse.float() + 1), None, "out")


# --- sums and roundings ---------------------------------------------------------------------------


def test_sigmas_add_in_quadrature_or_linearly_as_the_regime_requires():
    a, b = torch.tensor([3.0]), torch.tensor([4.0])
    forms = {combined(trial(regime), a, b).item() for regime in ("spread", "exact", "flat", "selecting")}
    assert combined(trial("spread"), a, b) == 5 and forms == {5, 7}


def test_storing_costs_half_an_ulp():
    assert storing(trial(dtype=torch.float16), torch.tensor([1.0])).item() == pytest.approx(2**-11, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "dtype", "stored"),
    [
        ("lse", torch.float64, torch.float32),
        ("out", torch.float16, torch.float16),
        ("out", torch.float64, torch.bfloat16),
    ],
)
def test_stored_dtype_is_the_dtype_that_the_output_was_rounded_to(name, dtype, stored):
    assert stored_dtype(trial(dtype=torch.bfloat16), name, torch.zeros(1, dtype=dtype)) == stored
