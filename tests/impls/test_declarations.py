"""A wrong value in an Implementation is an early error that names it, not a silent default."""

import re
from dataclasses import replace

import pytest

from flash_attest.impls import ContractError, KnownFailure, torch_math
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.support import missing, unsupported
from flash_attest.properties.law import laws


@pytest.mark.parametrize(
    ("field", "value"),
    [("gqa", "no"), ("cross", 2), ("softmax_scale", 0.125), ("bias_grad", "float32"), ("cross", None)],
)
def test_a_flag_is_true_or_false(field, value):
    """softmax_scale=0.125 would mean every scale, and gqa="no" would mean GQA."""
    with pytest.raises(ContractError) as caught:
        replace(torch_math.IMPL, supports=replace(torch_math.IMPL.supports, **{field: value}))
    listed = "True, False, 'positive'" if field == "softmax_scale" else "True, False"
    assert caught.value.problems == [f"supports.{field}={value!r}: should be one of {listed}"]


def test_only_positive_scales_may_be_declared():
    impl = replace(torch_math.IMPL, supports=replace(torch_math.IMPL.supports, softmax_scale="positive"))
    for scale, taken in ((None, True), (0.5, True), (0.0, False), (-0.25, False)):
        assert (unsupported(impl, Case(softmax_scale=scale)) is None) is taken, scale
    reasons = {name: missing(impl, law.needs) for name, law in laws().items() if "scale" in name}
    needs = "takes no softmax_scale of 0 or less"
    assert reasons["test_scale_zero_is_q_zero"] == reasons["test_negative_scale_is_negated_q"] == needs
    assert reasons["test_default_scale_may_be_given"] is reasons["test_powers_of_four_move_between_q_and_scale"] is None


@pytest.mark.parametrize("tile", [64, (64,), "64", {64, 32}, (64, 0), (64.0, 64)])
def test_a_tile_is_two_numbers(tile):
    with pytest.raises(ContractError) as caught:
        replace(torch_math.IMPL, tile=tile)
    assert caught.value.problems == [f"tile={tile!r}: should be (BLOCK_M, BLOCK_N), both at least 1, or None"]


@pytest.mark.parametrize("known", [["test_no_race_is_traced"], "test_no_race_is_traced", None, {5: "why, #1"}])
def test_known_failures_are_a_mapping(known):
    with pytest.raises(ContractError) as caught:
        replace(torch_math.IMPL, known_failures=known)
    assert caught.value.problems == [f"known_failures={known!r}: should be {{'law': 'why, #123'}}"]


@pytest.mark.parametrize("known", [
    5, ("why, #1", "seqlen_q=65"), KnownFailure(5), KnownFailure("why, #1", 65), KnownFailure("why, #1", every_run=0),
])  # fmt: skip
def test_a_known_failure_is_a_reason_or_a_record_with_one(known):
    should = "should be 'why, #123', or KnownFailure('why, #123', 'seqlen_q=65 ...')"
    for given in (known, {"cpu": known}):
        with pytest.raises(ContractError) as caught:
            replace(torch_math.IMPL, known_failures={"no_race_is_traced": given})
        assert caught.value.problems == [f"known_failures['no_race_is_traced']={given!r}: {should}"]


def test_known_failures_have_one_form_whatever_was_written():
    impl = replace(
        torch_math.IMPL, known_failures={"repeats_agree": "why, #1", "test_copies_agree": {"cuda": "why, #2"}}
    )
    first, second = KnownFailure("why, #1"), KnownFailure("why, #2")
    one_form = {"test_repeats_agree": {"cuda": first, "cpu": first}, "test_copies_agree": {"cuda": second}}
    assert impl.known_failures == replace(impl, name="again").known_failures == one_form
    assert impl.known_failure("test_copies_agree", "cuda") == second
    assert not impl.known_failure("test_copies_agree", "cpu").why and not impl.known_failure("test_x", "cuda").why


@pytest.mark.parametrize("known", [{}, {"gpu": "why, #1"}])
def test_a_known_failure_of_a_device_names_the_device(known):
    with pytest.raises(ContractError) as caught:
        replace(torch_math.IMPL, known_failures={"test_no_race_is_traced": known})
    assert caught.value.problems[0].endswith("should be by device, as in {'cuda': 'why, #123'}")


def test_each_reason_of_a_device_names_its_issue():
    with pytest.raises(ContractError, match=re.escape("should name its issue")):
        replace(torch_math.IMPL, known_failures={"test_no_race_is_traced": {"cpu": "why, #1", "cuda": "why"}})


@pytest.mark.parametrize("equal", ["out", {"heads"}, True])
def test_equal_heads_are_names_of_outputs(equal):
    with pytest.raises(ContractError) as caught:
        replace(torch_math.IMPL, equal_heads=equal)
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == [f"equal_heads={equal!r}"]


@pytest.mark.parametrize("returned", [True, False, 0, "", 32])
def test_accepts_returns_none_or_a_reason(returned):
    """True, meant as "accepted", would refuse the case with the reason "True"."""
    supports = replace(torch_math.IMPL.supports, accepts=lambda case: returned)
    with pytest.raises(ContractError) as caught:
        unsupported(replace(torch_math.IMPL, supports=supports), Case())
    (problem,) = caught.value.problems
    assert problem.startswith(f"supports.accepts returns {returned!r}: should be None, or why not [for seqlen_q=")
