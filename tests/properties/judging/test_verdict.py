"""Tests the record of one law judged on one implementation, as results.json has it."""

from __future__ import annotations

import math

from flash_attest.properties.judging.verdict import MOST_TRIED, PASS, Result, thinned


def test_a_result_is_the_same_after_json():
    result = Result("mine", "test_forward", "test_a", PASS, worst_z={"out": math.inf})
    result.tried = [(1, 2, 64, None), (3, 4, 64, 1.5), (5, 6, 64, math.inf)]
    record = result.as_dict()
    assert record["tried"] == [[1, 2, 64, None], [3, 4, 64, 1.5], [5, 6, 64, "inf"]]
    assert Result.of_dict(record) == result


def test_a_few_cases_are_kept_one_by_one():
    tried = [(n, n, 64, 1.0) for n in range(MOST_TRIED)]
    assert thinned(tried) == tried


def test_of_many_cases_the_worst_of_each_range_of_sizes_is_kept():
    many = [(1 + n % 300, 1 + n % 200, 32 + n % 32, n / 1000) for n in range(4000)]
    few = thinned([*many, (65, 3, 33, math.inf), (65, 3, 128, None), (0, 0, 1, None)])
    assert len(few) < 30
    assert (65, 3, 33, math.inf) in few and (65, 3, 128, None) in few and (0, 0, 1, None) in few
    assert max(z for *_, z in few if z is not None and z < math.inf) == 3.999


def test_a_measured_case_stands_for_its_range_before_one_that_measures_nothing():
    many = [(64, 64, 64, None)] * MOST_TRIED + [(64, 64, 64, 0.0), (63, 1, 64, 2.0)]
    assert thinned(many) == [(63, 1, 64, 2.0)]
