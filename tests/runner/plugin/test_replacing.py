"""A worker of pytest-xdist that has lost its GPU is replaced (runner/plugin/replacing.py)."""

import os
from types import SimpleNamespace

import pytest

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.runner.plugin.replacing import AGAIN, MAY_END, MOST_FOR_EACH, OVER_KEY, Replacing
from tests.plugins.loses_gpu import ILLEGAL, LAW
from tests.runs import attest, results

TEST, NEXT = f"properties/test_laws.py::{LAW}[loses_gpu]", "properties/test_laws.py::test_order[loses_gpu]"


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 1])
def test_later_laws_are_judged_by_another_worker(tmp_path, workers):
    of = ("-p", "tests.plugins.loses_gpu", "--impl", "loses_gpu", "--no-isolation", "-n", workers)
    laws = ("properties/test_laws.py", "-k", "out_scales or out_is or order_of")
    run = attest(*of, *laws, "--hypothesis-profile", "smoke", report=tmp_path)
    verdicts = {name.partition("[")[0]: result for name, result in results(run.report).items()}
    lost, before = verdicts.pop(LAW), verdicts.pop("test_out_scales_with_v")
    assert (lost["verdict"], lost["reason"]) == (FAIL, f"forward raises RuntimeError: {ILLEGAL}"), run.stdout
    later = {(result["verdict"], result["why"]) for result in verdicts.values()}
    assert before["verdict"] == PASS and len(verdicts) == 2
    assert later == ({(PASS, "")} if workers else {(UNKNOWN, Reason.CONTEXT_LOST.value)}), run.stdout
    assert (f"gw0 has lost the GPU in {TEST}: another worker goes on" in run.stdout) == bool(workers)
    assert "worker died" not in run.stdout and not [*tmp_path.glob("last-case-*")]


class Ended(BaseException):
    pass


@pytest.fixture
def reporter(monkeypatch):
    """Stand for a Reporter, and end no process."""

    def end(status):
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    judging = SimpleNamespace(over=True, close=lambda: told.append("closed"))
    told: list[str] = []
    return SimpleNamespace(judging=judging, tell=told.append, told=told, options=SimpleNamespace(workers=2))


def report_of(test: str, outcome: str = "failed"):
    node = SimpleNamespace(gateway=SimpleNamespace(id="gw1"), workerinput={})
    return SimpleNamespace(nodeid=test, outcome=outcome, user_properties=[], node=node)


def told_by_a_worker(replacing: Replacing):
    """Return the report of a test that a worker sends."""
    hook = replacing.pytest_runtest_makereport(None, SimpleNamespace(when="call"))
    next(hook)
    with pytest.raises(StopIteration) as returned:
        hook.send(report_of(TEST))
    return returned.value.value


@pytest.mark.parametrize(("may_end", "over"), [(True, True), (True, False), (False, True)])
def test_a_worker_ends_before_its_next_test_if_its_gpu_is_lost(reporter, may_end, over):
    reporter.judging.over = over
    replacing = Replacing(SimpleNamespace(workerinput={MAY_END: may_end}), reporter)
    ends = may_end and over
    assert told_by_a_worker(replacing).user_properties == [(OVER_KEY, True)] * ends
    if ends:
        with pytest.raises(Ended):
            replacing.pytest_runtest_protocol(None)
    else:
        replacing.pytest_runtest_protocol(None)
    assert reporter.told == ["closed"] * ends


@pytest.mark.parametrize("announced", [True, False])
def test_the_test_that_was_next_is_judged_again(reporter, announced):
    pending: list[str] = []
    replacing, crash = Replacing(SimpleNamespace(), reporter), report_of(NEXT)
    last = report_of(TEST)
    last.user_properties = [(OVER_KEY, True)] * announced
    replacing.pytest_runtest_logreport(last)
    replacing.pytest_handlecrashitem(NEXT, crash, SimpleNamespace(mark_test_pending=pending.append))
    assert (pending, crash.outcome) == (([NEXT], AGAIN) if announced else ([], "failed"))
    assert replacing.pytest_report_teststatus(crash) == (("", "", "") if announced else None)


def test_so_many_workers_are_replaced_that_the_run_goes_on(reporter):
    """pytest-xdist ends it when more than 4 have ended for each one that it was told to start."""
    replacing, node = Replacing(SimpleNamespace(), reporter), report_of(TEST).node
    for number, may_end in ((0, True), (MOST_FOR_EACH * 2 - 1, True), (MOST_FOR_EACH * 2, False)):
        replacing.replaced = number
        replacing.pytest_configure_node(node)
        assert node.workerinput[MAY_END] == may_end
