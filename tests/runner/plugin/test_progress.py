"""A run reports its progress: how much is done, and how long the rest will take."""

from __future__ import annotations

import pytest

from flash_attest.properties.judging.verdict import FAIL, PASS, Result
from flash_attest.runner.plugin import progress
from flash_attest.runner.plugin.progress import Progress, seconds_of
from flash_attest.texts import duration

LAWS = [("test_out_matches_the_definition", "mine"), ("test_sequences_of_length_1", "mine")]


class Clock:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def result(judged: tuple[str, str], verdict: str = PASS, **fields) -> dict:
    return Result(judged[1], "test_forward", judged[0], verdict, **fields).as_dict()


def test_a_short_run_says_nothing(clock):
    ahead = Progress(LAWS, {})
    clock.now = 14.0
    assert ahead.add(result(LAWS[0])) == ""


def test_the_rest_is_estimated_from_what_earlier_runs_took(clock):
    ahead = Progress(LAWS, {LAWS[0]: 1.0, LAWS[1]: 9.0})
    clock.now = 20.0
    assert ahead.add(result(LAWS[0], FAIL)) == "1 of 2 laws judged, 1 fails, about 3 min left"


def test_nothing_is_estimated_from_hardly_anything(clock):
    ahead = Progress(LAWS, {LAWS[0]: 1.0, LAWS[1]: 99.0})
    clock.now = 20.0
    assert ahead.add(result(LAWS[0])) == "1 of 2 laws judged"


def test_lines_become_rarer(clock):
    many = [(f"test_{n}", "mine") for n in range(300)]
    ahead = Progress(many, {})
    said = []
    for judged in many:
        clock.now += 1.0
        if ahead.add(result(judged)):
            said.append(clock.now)
    assert said == [15.0, 45.0, 105.0, 165.0, 225.0, 285.0]


def test_a_law_that_no_run_has_timed_takes_as_long_as_on_others(clock):
    other = (LAWS[1][0], "hers")
    ahead = Progress([*LAWS, other], {LAWS[0]: 2.0, LAWS[1]: 4.0})
    assert ahead.weights[other] == 4.0


def test_what_an_earlier_run_has_judged_is_not_counted(clock):
    ahead = Progress(LAWS[1:], {})
    clock.now = 20.0
    assert ahead.add(result(LAWS[0], FAIL)) == ""
    assert ahead.add(result(LAWS[1])) == "1 of 1 laws judged"


def test_a_run_of_another_kind_tells_nothing():
    record = {"environment": {"profile": "smoke", "device": "cpu"}, "results": [result(LAWS[0], seconds=3.0)]}
    assert seconds_of(record, {"profile": "smoke", "device": "cpu"}) == {LAWS[0]: 3.0}
    assert seconds_of(record, {"profile": "quick", "device": "cpu"}) == {}


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (80, "80 s"), (200, "3 min"), (7300, "2 h")])
def test_durations_are_said_in_the_unit_that_people_use(seconds, words):
    assert duration(seconds) == words
