"""The page of a sweep: the verdict first, a matrix, and a card for each finding."""

import re
from contextlib import closing

import pytest

from flash_attest.properties.judging.verdict import FAIL, REFUSED, UNKNOWN
from flash_attest.sweep.page import cards_of, headline, page
from flash_attest.sweep.summary import summary
from tests.sweep.sweeps import finding, passed, run, store


@pytest.fixture
def there(tmp_path):
    with closing(store(tmp_path / "sweep.db")) as file:
        yield file


def strip(text):
    """Return tone, headline, and the rest of the strip."""
    return re.search(r'<header class="strip (\w+)">.*?</span> (.*?)</h1>(.*?)</header>', text, re.S).groups()


def cells(text):
    """Return implementation -> the class of each of its cells."""
    body = re.search(r'<table class="matrix">.*?</table>', text, re.S)[0]
    rows = re.findall(r'data-impl="(\w+)"><th.*?</th>(.*?)</tr>', body, re.S)
    return {name: re.findall(r'class="cell (\w+)"', row) for name, row in rows}


def test_a_green_sweep_says_how_much_was_tried(there):
    for number in range(30):
        there.done(passed(number))
    tone, verdict, rest = strip(page(summary(there)))
    assert (tone, verdict) == ("good", "nothing found in 30 runs of 1 implementation")
    assert "a machine" in rest and "300 repeats" in rest and '<ul class="why">' not in rest


def test_findings_are_told_first_and_linked(there):
    there.done(passed(0))
    there.done(run(1, verdict=FAIL), [finding(1)])
    there.done(run(2, verdict=UNKNOWN, why="timed out", reason="does not return"))
    text = page(summary(there))
    tone, verdict, rest = strip(text)
    assert (tone, verdict) == ("bad", "not green: 1 finding in 2 runs of 1 implementation")
    assert rest.index("out: 3 of 10 repeats differ") < rest.index("1 run could not be decided: does not return")
    targets = re.findall(r' id="([^"]+)"', text)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(targets) and len(targets) == len(set(targets))
    assert rest.count("out: 3 of 10 repeats differ") == 1  # not again among the reasons


def test_undecided_runs_alone_are_not_red(there):
    there.done(passed(0))
    there.done(run(1, verdict=UNKNOWN, why="timed out", reason="does not return"))
    tone, verdict, _ = strip(page(summary(there)))
    assert (tone, verdict) == ("open", "not green: nothing found in 1 run of 1 implementation, but 1 reason")


def test_no_verdict_is_not_green(there):
    assert strip(page(summary(there)))[:2] == ("open", "not green: no run has a verdict")
    assert headline([], [], 0, 0) == "not green: no run has a verdict"


def test_each_finding_has_its_replay_and_its_message_to_copy(there):
    there.done(run(0, verdict=FAIL), [finding(0, repeated="found again in 9 of 10 runs", reduced="from seqlen_q=9")])
    text = page(summary(there))
    (anchor,) = re.findall(r'<details class="card fail" id="([^"]+)"', text)
    for what in "replay", "message":
        assert f'data-copy="{anchor}.{what}"' in text and f'id="{anchor}.{what}"' in text
    assert "Repeated: found again in 9 of 10 runs." in text and "Reduced: from seqlen_q=9." in text


def test_the_matrix_has_the_worst_of_each_layer(there):
    there.done(passed(0))
    there.done(passed(1, layer="trace", law="test_no_race_is_traced"))
    there.done(run(2, layer="trace", law="test_no_race_is_traced", verdict=UNKNOWN, why="timed out", reason="no end"))
    there.done(run(3, impl="other", verdict=FAIL), [finding(3, impl="other")])
    there.done(run(4, impl="known", verdict=FAIL), [finding(4, impl="known", known="#3")])
    there.done(run(5, impl="known", layer="trace", verdict=REFUSED, why="no case"))
    assert cells(page(summary(there))) == {
        "other": ["fail"],
        "known": ["known", "refused"],
        "mine": ["pass", "unknown"],
    }


def test_what_is_not_swept_says_why(there):
    there.done(passed(0))
    there.note("s", "left_out", ["mine", "sanitizer", "it needs a GPU"])
    text = page(summary(there))
    assert cells(text) == {"mine": ["pass", "elsewhere"]} and "mine, sanitizer: not swept, it needs a GPU" in text


def test_findings_that_count_come_first_and_three_are_open():
    findings = [vars(finding(n, key=str(n))) | {"current": True} for n in range(7)]
    findings[2]["current"] = False
    findings[4]["known"] = "#3"
    cards = cards_of(findings)
    assert [card["key"] for card in cards] == ["0", "1", "3", "5", "6", "4", "2"]
    assert [card["kind"] for card in cards] == ["fail"] * 5 + ["known", "elsewhere"]
    assert [card["open"] for card in cards] == [True] * 3 + [False] * 4
    assert len({card["anchor"] for card in cards}) == 7


def test_a_known_failure_is_green_and_marked(there):
    there.done(passed(0))
    there.done(run(1, verdict=FAIL), [finding(1, known="dq is summed by atomics, #3")])
    text = page(summary(there))
    assert strip(text)[:2] == ("good", "nothing found in 2 runs of 1 implementation, except 1 known failure")
    assert '<details class="card known"' in text
