"""Guesses from wrong values: NaN, zeros, and factors that have a name."""

import math

import pytest
import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.comparisons import check_agree, check_same
from flash_attest.properties.checks.read_off import guesses
from flash_attest.properties.checks.reading import Counts, Values
from tests.trials import SHAPE, broken, normal, trial, with_one

CASE = Case(batch=2, seqlen_q=5, seqlen_k=5, nheads=6, nheads_k=2, headdim=9)


def reading(got, want, name="dk", case=CASE, defined=True):
    return Values.of(name, case, got, want, ~(got == want), want.abs() * 1e-6, defined=defined)


def named(got, want, **changed):
    return [guess.detail or guess.words for guess in guesses(reading(got, want, **changed))]


def test_nan_is_recognized():
    x = normal(*SHAPE)
    assert named(with_one(x, math.nan), x)[0].startswith("NaN: ")


def test_zeros_are_recognized():
    x = normal(*SHAPE)
    assert named(0 * x, x)[0].startswith("zeros: ")


def test_zeros_are_not_said_if_another_case_has_other_values():
    x = normal(*SHAPE)
    (zeros,) = guesses(reading(0 * x, x))
    assert zeros.holds(reading(0 * x, x)) is True and zeros.holds(reading(0.5 * x, x)) is False
    assert zeros.holds(reading(0.5 * x, x, name="dv")) is None  # another tensor cannot tell


def test_two_results_that_differ_say_nothing_about_nan_and_zeros():
    """NaN around the inputs, or in fresh memory, is put there by the law."""
    x = normal(*SHAPE)
    assert named(0 * x, x, defined=False) == named(with_one(x, math.nan), x, defined=False) == []
    assert broken(check_same, trial(), "out", x + 1, x, "as before").reading.defined is False
    agree = lambda: check_agree(trial(), "out", x + 1, x, 1e-6 * x.abs(), "as before", right=x)  # noqa: E731
    assert broken(agree).reading.defined is False


@pytest.mark.parametrize(
    ("factor", "name"),
    [
        (2.0, "2"),
        (0.5, "1/2"),
        (-1.0, "the sign is wrong"),
        (math.log(2), "ln 2"),
        (1 / math.log(2), "1 / ln 2, the factor of a logarithm in base 2"),
        (9.0, "headdim"),
        (1 / 9, "softmax_scale squared"),
    ],
)
def test_a_named_factor_is_recognized(factor, name):
    x = normal(*SHAPE)
    assert named(x * factor, x)[0] == name


@pytest.mark.parametrize(
    ("factor", "names"),
    [(1 / 3, ["softmax_scale", "nheads_k / nheads"]), (3.0, ["1 / softmax_scale", "nheads / nheads_k"])],
)
def test_a_case_with_another_head_dim_tells_names_apart(factor, names):
    x = normal(*SHAPE)
    both = [guess for guess in guesses(reading(x * factor, x)) if guess.detail]
    assert [guess.detail for guess in both] == names
    other = reading(x * (0.5 if factor < 1 else 2.0), x, case=CASE.but(headdim=4))
    assert [guess.holds(other) for guess in both] == [True, False]


def test_a_factor_without_a_name_needs_another_case_with_it():
    x = normal(*SHAPE)
    (guess,) = guesses(reading(0.9 * x, x))
    assert "0.9 times" in guess.words and not guess.detail and guess.least == 2
    assert guess.holds(reading(0.9 * x + 0, x)) is True and guess.holds(reading(0.8 * x, x)) is False


def test_a_single_wrong_row_is_no_constant_factor():
    """All columns of a row are wrong by one factor if the row sum is wrong."""
    x = normal(1, 1, 1, 8)
    assert named(x * 0.9, x, name="out") == []


def test_equal_elements_show_no_constant_factor():
    """With one key, out is v in all rows, and the v of an earlier call is some multiple of it."""
    x = torch.full(SHAPE, 0.7)
    assert named(-1.758 * x, x, name="out") == []


def test_a_factor_of_a_few_elements_is_not_constant():
    x = normal(*SHAPE)
    assert named(with_one(0.5 * x, 3.0), x) == []


def test_noise_gets_no_guess():
    assert named(normal(*SHAPE), normal(*SHAPE, seed=1)) == []


@pytest.mark.parametrize(("off", "name"), [(math.log(2), "ln 2: l is twice the row sum"), (0.3, None)])
def test_an_offset_of_lse_is_named(off, name):
    lse = normal(2, 3, 5)
    assert next(iter(named(lse + off, lse, name="lse")), None) == name


def test_counts_say_nothing_about_values():
    x = normal(*SHAPE)
    (guess,) = (g for g in guesses(reading(2 * x, x)) if g.detail)
    assert guess.holds(Counts(CASE, "bottom_right", None, None)) is None
