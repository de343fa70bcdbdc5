"""The GPU failures to trace are chosen, traced in a process without a GPU, and described in
messages.

No process is started here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from flash_attest.impls.contract.entry import Entry
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.explain import where_in_bugs
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN, Result
from flash_attest.properties.progress import NOW
from flash_attest.runner import judge as session
from flash_attest.runner.isolation import crashes, tracing
from flash_attest.runner.isolation.endings import Ending, Kind
from flash_attest.runner.judge import Judge
from tests.plugins import good
from tests.runner.isolation.judging import LAW, LONG

IMPL = replace(good.IMPL, name="mine", traced=True)
RACE = {"phrase": "race, mine.py:3", "lines": ["traced:", "  race: x"]}
CLEAN = {"phrase": "", "lines": ["traced (1 launch): no race, and no access out of bounds"]}
MESSAGE = (
    f"wrong\n  mine   {LONG}\n\nObserved\n  wrong in\n\nSuggests\n  {where_in_bugs(LAW.bug)}\n\nReplay\n  pytest\n"
)


@pytest.fixture
def added(monkeypatch, tmp_path):
    """Add a trace: added(answer, **options) -> a failure with its trace.

    Further calls are failures of the same run.
    """
    monkeypatch.setattr(session, "visible_gpus", lambda: ["0"])
    traced, targets = Counter(), []

    def add(answer=RACE, impl=IMPL, law=LAW, **options):
        plan, plug_in = Plan(device="cuda", goes_on=options.pop("goes_on", True)), options.pop("plug_in", True)
        judge = Judge(plan, [Entry(impl, "", "--impl-from=mine.py" if plug_in else "")], tmp_path, "main")

        def ask(judges, request):
            targets.append(judges)
            if isinstance(answer, Exception):
                raise answer
            return answer

        result = Result("mine", "", law.name, **{"verdict": FAIL, "reason": "wrong", "smallest": str(LONG)} | options)
        result.message = MESSAGE
        tracing.add_trace(judge.judgement(law, impl), result, traced, ask)
        return result

    add.asked = targets
    return add


def test_a_race_is_named_in_the_headline_and_in_the_message(added):
    result = added()
    assert added.asked == [("mine", "cpu")] and result.reason == "wrong (race, mine.py:3)"
    assert result.message.startswith("wrong (race, mine.py:3)\n  mine ")
    assert "  wrong in\n  traced:\n    race: x\n\nSuggests\n" in result.message
    assert where_in_bugs("races") in result.message and where_in_bugs(LAW.bug) not in result.message


def test_where_there_is_none_the_message_says_so(added):
    result = added(CLEAN)
    assert result.reason == "wrong" and "  traced (1 launch): no race, and no access out of bounds\n" in result.message


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(dict(verdict=UNKNOWN, why=Reason.RESOURCES), id="no_failure"),
        pytest.param(dict(smallest=""), id="no_case"),
        pytest.param(dict(goes_on=False), id="only_the_verdict_counts"),
        pytest.param(dict(plug_in=False), id="traced_where_it_was_judged"),
        pytest.param(dict(impl=replace(IMPL, traced=False)), id="not_traceable"),
        pytest.param(dict(impl=replace(IMPL, known_failures={LAW.name: "why, #123"})), id="known"),
        pytest.param(dict(law=replace(LAW, needs=("traced",))), id="the_law_traces"),
    ],
)
def test_nothing_is_added_where_nothing_is_to_be_traced(added, options):
    assert added(**options).message == MESSAGE and not added.asked


def test_the_first_three_failures_are_traced(added):
    for _ in range(tracing.MOST_TRACED):
        added(CLEAN)
    assert "  not traced: 3 failures of mine have been\n" in added().message
    assert len(added.asked) == tracing.MOST_TRACED


def test_a_large_case_costs_no_process(added):
    large = "seqlen_q=2000 seqlen_k=2000 headdim=16 dtype=float32"
    assert "  not traced: the case is too large\n" in added(smallest=large).message and not added.asked
    assert "traced:" in added().message


def test_a_process_that_ends_leaves_the_verdict_and_says_how(added):
    NOW.reset()
    ending = Ending(Kind.EXITED, "exit status 1", NOW.seen(), ("numba-cuda 0.28: should be 0.30",), ())
    result = added(ending)
    assert result.verdict == FAIL
    assert "not traced: where no GPU is visible the process ended outside of a call: exit status 1;" in result.message
    assert "; it printed: numba-cuda 0.28: should be 0.30\n" in result.message
    assert "  not traced: [Errno 11] no more\n" in added(OSError(11, "no more")).message


def test_facts_stand_below_all_that_was_observed():
    """There are empty lines between several findings."""
    message = "2 races\n\nObserved\n  2 findings\n\n  race: a\n\n  race: b\n\nReplay\n  pytest\n"
    assert crashes.with_facts(message, ["fact"]).endswith("\n\n  race: b\n  fact\n\nReplay\n  pytest\n")
