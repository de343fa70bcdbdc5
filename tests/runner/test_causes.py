"""Failures that probably have one cause are grouped, and the law that describes the cause best
comes first.
"""

from __future__ import annotations

from flash_attest.properties.judging.verdict import FAIL, PASS, PLAIN, Result
from flash_attest.runner.causes import causes_of, in_words


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


def test_the_plainest_cases_are_one_cause_only_of_one_tensor():
    out, lse = ({"tensor": name, "missing": [], "extra": []} for name in ("out", "lse"))
    a, b, c = (
        failure("a", "x", PLAIN, wrong=out),
        failure("b", "y", PLAIN, wrong=lse),
        failure("c", "z", PLAIN, wrong=out),
    )
    assert grouped(a, b, c) == [["a", "c"], ["b"]]


def test_a_law_that_fails_on_the_smallest_case_of_another_has_its_cause():
    a, b = failure("a", "x", "causal"), failure("b", "y", "bias", same_as="test_a", smallest="")
    assert grouped(b, a, failure("c", "z", "gqa")) == [["a", "b"], ["c"]]


def test_what_a_law_wants_is_the_clue_of_other_laws():
    a = failure("a", "x", PLAIN, smallest="seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True")
    assert grouped(a, failure("b", "y", "causal"), failure("c", "z", "bias vector")) == [["b", "a"], ["c"]]


def test_a_race_at_the_same_lines_is_one_cause():
    one = failure("a", "out is 1, should be 2 (race, fa2.cuh:76 and fa2.cuh:82)")
    same = failure("b", "race in shared memory: kernels/fa2.cuh:82 and kernels/fa2.cuh:76", chapter="test_races")
    assert grouped(one, same) == [["a", "b"]]
    elsewhere = failure("b", "race in shared memory: fa2.cuh:90 and fa2.cuh:76", chapter="test_races")
    assert grouped(one, elsewhere) == [["a"], ["b"]]


def test_what_is_computed_instead_is_a_cause_and_the_clue_of_most_laws_comes_first():
    matches = ["out and lse are those without the last key"]
    a = failure("a", "x", "headdim 2 or more", matches=matches)
    b, c = (failure(law, law, "causal", matches=matches) for law in "bc")
    assert grouped(a, b, c) == [["b", "c", "a"]]
    other = failure("d", "z", "headdim 3 or more", matches=["lse is in base 2"])
    assert grouped(a, b, other) == [["a", "b"], ["d"]]


def test_an_exception_raised_at_two_places_is_two_causes():
    a, b, c = (
        failure(
            law, "forward raises ValueError: no", message=f"...\n  at mine.py:3, in forward: f()\n  at {at}: raise\n"
        )
        for law, at in (("a", "mine.py:9, in f"), ("b", "mine.py:9, in f"), ("c", "mine.py:20, in g"))
    )
    assert grouped(a, b, c) == [["a", "b"], ["c"]]


def test_a_whole_message_comes_first_unless_the_contract_fails():
    whole = failure("whole", "x", "causal", smallest="seqlen_q=200", chapter="test_extremes")
    short = failure(
        "short", "y", "causal", same_as="test_whole", chapter="test_causal", message="\nSame cause as whole"
    )
    assert grouped(short, whole) == [["whole", "short"]]


def test_a_value_without_a_budget_describes_better():
    exact = failure("exact", "x", "causal", chapter="test_extremes")
    near = failure("near", "y", "causal", chapter="test_causal", worst_z={"out": 9.0})
    assert grouped(near, exact) == [["exact", "near"]]


def test_entries_of_known_failures_that_are_out_of_date_are_no_common_cause():
    a, b = (failure(law, "passes, but known_failures lists it (#12): take it off the list") for law in "ab")
    assert grouped(a, b) == [["a"], ["b"]]


def test_laws_and_causes_are_counted():
    a, b, c = failure("a", "x", "causal"), failure("b", "y", "causal"), failure("c", "z", "gqa")
    assert in_words(causes_of([a, b, c])) == "3 laws fail for 2 causes"
    assert in_words(causes_of([a, b])) == "2 laws fail for 1 cause"
    assert in_words(causes_of([a, c])) == ""


def test_a_cause_in_results_names_its_laws():
    (cause,) = causes_of(
        [failure("b", "y", "causal", same_as="test_a", message="\nSame cause as a"), failure("a", "x", "causal")]
    )
    assert cause.as_dict() == {
        "impl": "mine", "law": "test_a", "laws": ["test_a", "test_b"], "reason": "x",
        "shared": "2 laws fail, with causal",
    }  # fmt: skip


def test_a_headline_joins_what_two_clues_part():
    """The middle failure shares the headline of the first and the clue of the last."""
    assert grouped(failure("a", "x", "causal"), failure("c", "y", "bias"), failure("b", "x", "bias")) == [
        ["b", "c", "a"]
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
