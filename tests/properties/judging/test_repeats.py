"""A law that fails for a cause that another law has explained says so in a short message, and goes
on to look for other causes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.explained import Explained
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, PLAIN, Result
from flash_attest.properties.law import laws

PLAN = Plan(examples=16, seed=1, try_contract=False, small=True)
OUT, COPY, SINGLE, LSE, HUGE = (
    laws()[f"test_{name}"]
    for name in (
        "out_matches_the_definition", "row_that_sees_one_key_copies_it", "single_query_matches_the_definition",
        "lse_matches_the_definition", "huge_scores_match_the_definition",
    )
)  # fmt: skip


def implementation(forward, **changed):
    grads = dict(bias_grad=False, sink_grad=False, lse_grad=False)
    supports = replace(torch_math.IMPL.supports, headdims={16, 32, 48, 64}, **grads)
    return replace(torch_math.IMPL, name="tested", forward=forward, backward=None, supports=supports, **changed)


def judged(impl, *in_order, plan=PLAN) -> list[Result]:
    """Return the results of these laws, each judged with what the laws before it have explained."""
    results: list[Result] = []
    for law in in_order:
        explained = [each for result in results if (each := Explained.of(result.as_dict()))]
        results.append(judge(law, impl, replace(plan, explained=explained)))
    return results


def sign_ignored(options):
    scale = options.get("softmax_scale")
    return options if scale is None else options | {"softmax_scale": abs(scale)}


def negative_scale(q, k, v, **options):
    return torch_math.forward(q, k, v, **sign_ignored(options))


def not_launched_at_48(q, k, v, **options):
    if q.shape[-1] == 48:
        raise RuntimeError("invalid configuration argument")
    return torch_math.forward(q, k, v, **options)


def lse_wrong_at_48_and_negative_scale(q, k, v, **options):
    out, lse = negative_scale(q, k, v, **options)
    return out, lse + 1 if q.shape[-1] == 48 else lse


def wrong_everywhere(q, k, v, **options):
    out, lse = torch_math.forward(q, k, v, **options)
    return out + 1, lse


def out_and_lse_wrong(q, k, v, **options):
    out, lse = torch_math.forward(q, k, v, **options)
    return out + 1, lse * 2


def test_the_same_exception_is_explained_once():
    """Another exception is no repeat."""
    first, second = judged(implementation(not_launched_at_48), OUT, LSE)
    assert (first.verdict, second.verdict) == (FAIL, FAIL)
    assert (first.same_as, second.same_as) == ("", OUT.name)
    assert second.reason == first.reason == "forward raises RuntimeError: invalid configuration argument"
    assert (second.smallest, second.clue) == (first.smallest, first.clue)
    assert second.beside == "right on 16 cases without headdim 48" and second.beside in second.message
    assert "Same cause as out_matches_the_definition" in second.message
    assert "3 of 3 repeats" in first.message and "3 of 3 repeats" not in second.message
    other = replace(Explained.of(first.as_dict()), reason="forward raises RuntimeError: another text")
    third = judge(LSE, implementation(not_launched_at_48), replace(PLAN, explained=[other], goes_on=False))
    assert (third.verdict, third.same_as) == (FAIL, "")


def test_a_second_cause_of_the_law_is_explained_whole():
    """The first law sees one of two defects, the second law both."""
    first = Explained.of(judge(OUT, implementation(negative_scale), PLAN).as_dict())
    second = judge(LSE, implementation(lse_wrong_at_48_and_negative_scale), replace(PLAN, explained=[first]))
    assert (second.verdict, second.same_as, second.clue) == (FAIL, "", "headdim 48")
    assert "Same cause as out_matches_the_definition" in second.message and "softmax_scale -0.25" in second.message
    assert "3 of 3 repeats" in second.message


def test_a_law_that_holds_on_the_known_case_is_no_repeat():
    known = Explained.of(judge(OUT, implementation(wrong_everywhere), PLAN).as_dict())
    result = judge(LSE, implementation(wrong_everywhere), replace(PLAN, explained=[known]))
    assert (result.verdict, result.same_as) == (PASS, "")


def test_plainest_cases_are_one_cause_only_if_the_same_tensor_is_wrong():
    out, lse, huge = judged(implementation(out_and_lse_wrong), OUT, LSE, HUGE)
    assert out.clue == lse.clue == PLAIN
    assert lse.same_as == "" and huge.same_as in (OUT.name, LSE.name)


def test_a_law_that_says_it_better_is_explained_whole():
    """An exact value says more than a number that is off."""
    out, copy = judged(implementation(wrong_everywhere), OUT, COPY)
    assert out.verdict == copy.verdict == FAIL
    assert copy.same_as == OUT.name and "Same cause" not in copy.message


@pytest.mark.thorough
def test_verdicts_do_not_depend_on_what_is_known():
    impl, everything = implementation(lse_wrong_at_48_and_negative_scale), (OUT, LSE, SINGLE, COPY)
    alone = [judge(law, impl, PLAN).verdict for law in everything]
    assert alone == [result.verdict for result in judged(impl, *everything)]
    assert alone == [result.verdict for result in reversed(judged(impl, *reversed(everything)))]


def test_a_given_case_is_explained_whole():
    first = judge(OUT, implementation(wrong_everywhere), PLAN)
    plan = replace(PLAN, explained=[Explained.of(first.as_dict())], case=parse_case(first.smallest))
    assert judge(SINGLE, implementation(wrong_everywhere), plan).same_as == ""


def test_failures_that_are_known_or_short_explain_nothing():
    result = judge(OUT, implementation(wrong_everywhere), PLAN).as_dict()
    assert Explained.of(result) is not None
    for change in ({"known": "#12"}, {"same_as": LSE.name}, {"clue": ""}, {"verdict": PASS}):
        assert Explained.of(result | change) is None


def test_values_are_the_same_after_json():
    explained = Explained.of(judge(OUT, implementation(wrong_everywhere), PLAN).as_dict())
    assert Explained.of_dict(json.loads(json.dumps(asdict(explained)))) == explained
