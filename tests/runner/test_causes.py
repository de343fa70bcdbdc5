"""Failures that probably have one cause are grouped, and the law that describes the cause best
comes first.
"""

from __future__ import annotations

from flash_attest.properties.judging.verdict import FAIL, PASS, PLAIN, Result
from flash_attest.runner.causes import causes_of


def failure(law: str, reason: str, clue: str = "", chapter: str = "test_forward", impl: str = "mine", **fields) -> dict:
    return Result(impl, chapter, f"test_{law}", FAIL, reason, clue=clue, **fields).as_dict()


def grouped(*results: dict) -> list[list[str]]:
    """Return the laws of each cause, starting with the first law."""
    return [[r["law"].removeprefix("test_") for r in (cause.first, *cause.others)] for cause in causes_of([*results])]


def test_an_equal_headline_is_one_cause():
    raises = "forward raises RuntimeError: headdim 96"
    assert grouped(failure("a", raises), failure("b", raises), failure("c", "out is 1, should be 2")) == [
        ["a", "b"],
        ["c"],
    ]


def test_an_equal_clue_is_one_cause():
    a, b = failure("a", "out is 1", "causal"), failure("b", "lse is 2", "causal")
    assert grouped(a, b, failure("c", "out is 3", "dtype float16")) == [["a", "b"], ["c"]]


def test_failures_on_the_plainest_cases_are_one_cause():
    assert grouped(failure("a", "out is 1", PLAIN), failure("b", "out is 2", PLAIN)) == [["a", "b"]]


def test_a_headline_joins_what_two_clues_part():
    """The middle failure shares the headline of the first and the clue of the last."""
    assert grouped(failure("a", "x", "causal"), failure("c", "y", "bias"), failure("b", "x", "bias")) == [
        ["a", "b", "c"]
    ]


def test_lengths_are_one_clue_whichever_is_the_smallest():
    a, b = (failure(law, law, f"lengths of {n} or more") for law, n in (("a", 65), ("b", 129)))
    assert grouped(a, b) == [["a", "b"]]
    a, b = (failure(law, law, f"headdim {n}") for law, n in (("a", 65), ("b", 129)))
    assert grouped(a, b) == [["a"], ["b"]]


def test_a_gradient_a_race_and_an_output_are_three_causes():
    gradient = failure("b", "dq is 2", "causal", chapter="test_backward")
    race = failure("c", "a race", "causal", chapter="test_races")
    assert grouped(failure("a", "out is 1", "causal"), gradient, race) == [["a"], ["b"], ["c"]]


def test_no_cause_spans_implementations():
    a, b = (failure("a", "out is 1", "causal", impl=impl) for impl in ("mine", "hers"))
    assert [cause.impl for cause in causes_of([a, b])] == ["hers", "mine"]


def test_known_failures_and_passes_have_no_cause():
    passes = Result("mine", "test_forward", "test_b", PASS).as_dict()
    assert causes_of([failure("a", "out is 1", known="#12"), passes]) == []


def test_the_contract_comes_first_then_what_names_a_key_then_the_smallest_case():
    contract = failure("contract_is_kept", "no lse", chapter="test_contract")
    keys = failure("keys", "key 64 is missing", "causal", wrong={"tensor": "lse", "missing": [[64, 64]], "extra": []})
    small = failure("small", "out is 1", "causal", smallest="seqlen_q=2")
    large = failure("large", "out is 2", "causal", smallest="seqlen_q=200 causal=True")
    assert grouped(large, small, keys, contract) == [["contract_is_kept"], ["keys", "small", "large"]]


def test_a_clue_that_only_some_have_is_not_called_shared():
    (cause,) = causes_of([failure("a", "x", "causal"), failure("b", "x", "gqa")])
    assert cause.shared == "2 laws fail"
    (cause,) = causes_of([failure(law, law, f"lengths of {n} or more") for law, n in (("a", 65), ("b", 129))])
    assert cause.shared == "2 laws fail, with lengths of 65 or more"


def test_what_failures_share_is_said_in_words():
    (cause,) = causes_of([failure("a", "x", "causal"), failure("b", "y", "causal")])
    assert (cause.heading, cause.shared, cause.anchor) == ("x", "2 laws fail, with causal", "mine-a")
    (cause,) = causes_of([failure("a", "x")])
    assert cause.shared == ""
