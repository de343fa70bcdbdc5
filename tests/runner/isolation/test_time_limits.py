"""A law that is not decided within its time limit, or within the limit of the run, is unknown."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import replace

import pytest

from flash_attest import check
from flash_attest.properties.failures import LawBroken, Reason, WrongAlready
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.progress import Seen
from flash_attest.runner.isolation.endings import Ending, Kind
from flash_attest.runner.limits import Deadline, TimeLimits
from flash_attest.runner.plugin.progress import Progress
from tests.plugins import good
from tests.runner.isolation.judging import LAW, LONG, OTHER, endless, hostile, isolated


def slow(seconds: float, above: int = 0):
    return hostile(lambda: time.sleep(seconds), above=above, name="slow")


def test_a_law_stops_between_two_cases(tmp_path):
    """The judging process lives on, and other laws are judged in it."""
    impl = slow(0.5)
    with isolated(tmp_path, impl, limits=TimeLimits(law=5.0), try_contract=False) as judging:
        result = judging.law(LAW, impl)
        process = judging._process
        judging.law(OTHER, impl, case=str(LONG))
        assert judging._process is process
    assert (result.verdict, result.why) == (UNKNOWN, Reason.TIME_LIMIT)
    assert re.fullmatch(r"the time limit of a law, 5 s, is over: \d+ cases? judged by then, all right", result.reason)
    assert result.cases < 20


def test_a_law_that_does_not_stop_itself_is_ended(tmp_path):
    impl = hostile(endless)
    with isolated(tmp_path, impl, good.IMPL, limits=TimeLimits(law=6.0), case=LONG) as judging:
        result, neighbour = judging.law(LAW, impl), judging.law(LAW, good.IMPL)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.TIME_LIMIT)
    assert result.reason.startswith("the process was ended in forward: the time limit of a law, 6 s, is over; the last")
    assert result.smallest == str(LONG) and neighbour.verdict == PASS


def test_a_failure_that_was_found_before_stands(tmp_path):
    def law(trial):
        if trial.case.seqlen_q > 20:
            failed.append(trial.case)
            raise LawBroken("out is wrong")
        if failed:  # a step of shrinking
            time.sleep(1000)

    failed: list = []
    limits = TimeLimits(law=8.0)
    with isolated(tmp_path, good.IMPL, limits=limits, goes_on=False, try_contract=False) as judging:
        result = judging.law(replace(LAW, function=law), good.IMPL)
    assert (result.verdict, result.reason) == (FAIL, "out is wrong")
    assert "a smaller case was looked for, but then:\n    the process was ended" in result.message


def test_nothing_begins_after_the_limit_of_the_run(tmp_path):
    impl, limits = slow(0.05), TimeLimits(run=1.0, began=time.monotonic() - 2.0)
    with isolated(tmp_path, impl, limits=limits) as judging:
        results = judging.contract(impl), judging.law(LAW, impl)
        assert judging._process is None
    assert {(result.verdict, result.why) for result in results} == {(UNKNOWN, Reason.TIME_LIMIT)}
    assert {result.reason for result in results} == {"not judged: the time limit of the run, 1 s, is over"}


def test_the_sooner_of_both_limits_counts():
    limits = TimeLimits(law=60.0, run=100.0, began=time.monotonic() - 90.0)
    assert limits.of_law() == limits.of_run and limits.of_run.at == pytest.approx(time.monotonic() + 10.0, abs=1.0)
    assert TimeLimits(law=60.0, run=100.0, began=time.monotonic()).of_law().words.startswith("the time limit of a law")
    assert TimeLimits().of_law() == Deadline() and not TimeLimits().over


def test_a_contract_check_that_hangs_ends_with_the_limit(tmp_path):
    impl = replace(good.IMPL, name="hangs", forward=lambda q, k, v: endless())
    with isolated(tmp_path, impl, limits=TimeLimits(law=1.0)) as judging:
        result = judging.contract(impl)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.TIME_LIMIT)


@pytest.mark.parametrize("apart", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_check_takes_both_limits(apart):
    laws = [LAW.name, OTHER.name]
    result = check(slow(0.2), laws=laws, profile="quick", law_time_limit=1.0, time_limit=1.5, isolated=apart)
    assert [r.why for r in result.results] == [Reason.TIME_LIMIT] * 2 and not result.ok
    assert "2 could not be decided" in result.undecided
    with pytest.raises(ValueError, match="time_limit=-1: should be a number of seconds, or 0 for no limit"):
        check(good.IMPL, time_limit=-1)


def test_a_given_case_has_a_time_limit_too():
    case = "seqlen_q=3 seqlen_k=3 headdim=16 dtype=float32"
    (result,) = check(good.IMPL, laws=[LAW.name], case=case, isolated=False, law_time_limit=0.0001).results
    assert (result.verdict, result.why) == (UNKNOWN, Reason.TIME_LIMIT)
    assert result.reason.startswith("the time limit of a law, 0.0001 s, is over")


def over(law, function):
    """Return the verdict of a law whose time is over after the first case."""

    def slow_one(trial):
        time.sleep(1.2)
        function()

    plan = Plan(examples=5, until=(time.monotonic() + 1.0, "over"), try_contract=False)
    return judge(replace(law, function=slow_one), good.IMPL, plan)


def test_what_was_found_by_then_is_not_called_all_right():
    def wrong_already():
        raise WrongAlready("both are wrong")

    def together(trials):
        next(iter(trials))
        raise LawBroken("wrong beside others")

    assert over(LAW, lambda: None).reason == "over: 1 case judged by then, all right"
    assert over(LAW, wrong_already).reason == "over: 0 cases judged by then"
    result = over(replace(LAW, together=together), lambda: None)
    assert (result.verdict, result.reason) == (FAIL, "not on every run: wrong beside others")


def test_a_law_whose_contract_check_takes_its_time_does_not_take_that_of_the_next(tmp_path):
    """The first calls, which compile, may be slow."""
    impl = replace(good.IMPL, name="first", forward=lambda q, k, v: slow_at_first(tmp_path, q, k, v))
    with isolated(tmp_path, impl, limits=TimeLimits(law=5.0)) as judging:
        first, second = judging.law(LAW, impl), judging.law(OTHER, impl)
    assert (first.verdict, first.why) == (UNKNOWN, Reason.TIME_LIMIT)
    assert first.reason.startswith("the process was ended in forward: the time limit of a law, 5 s, is over")
    assert (second.verdict, second.reason) == (PASS, "")


def slow_at_first(folder, q, k, v):
    with contextlib.suppress(FileExistsError):
        (folder / "called").touch(exist_ok=False)
        time.sleep(1000)
    return good.forward(q, k, v)


@pytest.mark.parametrize("kind", [Kind.TIME_LIMIT, Kind.TOO_MANY])
def test_what_the_suite_ended_is_not_called_an_end_by_the_implementation(kind):
    ending = Ending(kind, "why", Seen(f"test_a[b] {LONG}", True, 0.0, 1.0, "forward", 1, False, 0.0, None))
    assert ending.headline == ending.sentence and "ends the process" not in ending.headline


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.5, "0.5 s"), (1.0, "1 s"), (100.0, "100 s"), (600, "10 min"), (5400, "90 min"), (7200, "2 h")],
)
def test_a_limit_is_said_as_it_was_set(seconds, words):
    assert TimeLimits(law=seconds).of_law().words == f"the time limit of a law, {words}, is over"


def test_progress_says_when_the_limit_of_the_run_is_near():
    judged = [(LAW.name, f"impl_{n}") for n in range(10)]

    def line(run: float, began_before: float) -> str:
        progress = Progress(judged, {}, TimeLimits(run=run, began=time.monotonic() - began_before))
        progress.began -= began_before
        progress.add({"law": LAW.name, "impl": "impl_0", "verdict": PASS, "known": "", "seconds": 1.0})
        return progress.line(time.perf_counter())

    assert line(1000.0, 10.0) == "1 of 10 laws judged, about 2 min left"
    assert line(60.0, 10.0).endswith("left, the time limit ends the run in 50 s")  # too soon for what is left
    assert line(11.0, 10.0).endswith("the time limit ends the run in 1 s")
