"""The tolerance for a copied row of v: zero, or the error that the declared precision allows."""

import math

import pytest
import torch

from flash_attest.impls import Precision
from flash_attest.properties.checks.comparisons import check_copied
from flash_attest.properties.failures import LawBroken
from tests.trials import SHAPE, normal, trial, with_one


def test_a_copied_row_of_v_must_have_the_same_bits():
    v = normal(*SHAPE)
    check_copied(trial(), v, v.clone(), "should be")
    with pytest.raises(LawBroken):
        check_copied(trial(), v * (1 + 2**-20), v, "should be")


def test_tf32_may_round_a_copied_row():
    v = normal(*SHAPE)
    t = trial(precision=Precision(multiply="tf32"))
    check_copied(t, v * (1 + 2**-11), v, "should be")
    with pytest.raises(LawBroken):
        check_copied(t, v * (1 + 2**-9), v, "should be")


def test_tf32_rounds_only_float32():
    """float16 operands are exact in tf32."""
    v = with_one(normal(*SHAPE).half(), 1.5)
    t = trial(precision=Precision(multiply="tf32"), dtype=torch.float16)
    with pytest.raises(LawBroken):
        check_copied(t, with_one(v, 1.5 + 2**-10), v, "should be")


def test_nan_is_not_a_copy_under_tf32():
    v = normal(*SHAPE)
    with pytest.raises(LawBroken):
        check_copied(trial(precision=Precision(multiply="tf32")), with_one(v, math.nan), v, "should be")
