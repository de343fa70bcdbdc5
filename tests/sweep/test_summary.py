"""The summary of a file of runs: bounds, clean implementations, reasons for not being green, the
page.
"""

from contextlib import closing

import pytest

from flash_attest.properties.judging.verdict import FAIL, REFUSED, UNKNOWN
from flash_attest.sweep import report
from flash_attest.sweep.records import DIED
from flash_attest.sweep.summary import summary
from tests.sweep.sweeps import finding, passed, run, store


@pytest.fixture
def there(tmp_path):
    with closing(store(tmp_path / "sweep.db")) as made:
        yield made


def layers(made, name="mine"):
    return {row["layer"]: row for row in made["implementations"][name]["layers"]}


def test_bounds_follow_the_rule_of_three(there):
    for number in range(30):
        there.done(passed(number))
    for number in range(30, 33):
        there.done(passed(number, layer="trace", law="test_no_race_is_traced", repeats=4))
    made = summary(there)
    assert layers(made)["repeat"]["bound_of_a_case"] == pytest.approx(3 / 30)
    assert layers(made)["repeat"]["bound_of_a_repeat"] == pytest.approx(3 / 300)
    assert layers(made)["trace"]["bound_of_a_case"] is None  # 3 runs bound nothing
    assert layers(made)["trace"]["bound_of_a_repeat"] == pytest.approx(3 / 12)
    assert made["not_green"] == []


def test_runs_without_a_verdict_bound_nothing(there):
    there.done(passed(0))
    there.done(run(1, verdict=UNKNOWN, why="timed out", reason="forward does not return within 120 s", repeats=100))
    there.done(run(2, verdict=REFUSED, why="no case", repeats=100))
    there.launch(run(3))
    row = layers(summary(there))["repeat"]
    assert (row["runs"], row["repeats"], row["undecided"], row["refused"], row["open"]) == (1, 10, 1, 1, 1)


def test_it_is_clean_since_the_first_run_after_the_last_finding(there):
    there.done(passed(0))
    assert summary(there)["implementations"]["mine"]["clean_since"] == "2026-01-01T00:00:00+00:00"
    there.done(run(1, verdict=FAIL, started="2026-02-01"), [finding(1, version="1")])
    assert summary(there)["implementations"]["mine"]["clean_since"] is None
    there.done(passed(2, version="1", started="2026-02-02"))
    assert summary(there)["implementations"]["mine"]["clean_since"] is None  # a race may hide for a while
    there.done(passed(3, version="2", started="2026-03-01"))  # another version
    made = summary(there)
    assert made["implementations"]["mine"]["clean_since"] == "2026-03-01"
    assert layers(made)["repeat"]["runs"] == 1 and made["implementations"]["mine"]["earlier_versions"] == {"runs": 3}
    assert made["not_green"] == [] and [f["current"] for f in made["findings"]] == [False]


def test_not_green_says_what_was_found_and_what_is_undecided(there):
    there.done(passed(0))
    there.done(run(1, verdict=FAIL), [finding(1)])
    there.done(run(2, verdict=UNKNOWN, why=DIED, reason="launched twice"))
    there.done(run(3, verdict=UNKNOWN, why="timed out", reason="does not return"))
    there.done(run(4, verdict=UNKNOWN, why="timed out", reason="does not return"))
    assert summary(there)["not_green"] == [
        "mine, repeat: out: 3 of 10 repeats differ",
        "mine, repeat: 2 runs could not be decided: does not return",
        "mine, repeat: 1 run did not come back",
    ]


def test_a_machine_without_the_sanitizer_is_green_and_says_so(there):
    there.done(passed(0))
    there.done(
        run(1, layer="sanitizer", verdict=UNKNOWN, why="no sanitizer", reason="compute-sanitizer is not installed")
    )
    made = summary(there)
    assert made["not_green"] == [] and layers(made)["sanitizer"]["undecided"] == 1
    assert "compute-sanitizer is not installed" in report.page(made)


def test_a_known_failure_is_shown_and_green(there):
    there.done(passed(0))
    there.done(run(1, verdict=FAIL), [finding(1, known="dq is summed by atomics, #3")])
    made = summary(there)
    assert made["not_green"] == [] and made["implementations"]["mine"]["clean_since"] is None
    assert "known: dq is summed by atomics, #3" in report.page(made)


def test_an_implementation_without_a_verdict_is_not_green(there):
    there.done(run(0, verdict=REFUSED, why="no case"))
    assert summary(there)["not_green"] == ["the last sweep decided no run of mine"]


def begin(there, session, **environment):
    """Begin a session that takes place on a later night."""
    there.begin(session, {"device_name": "a machine", "workers": 1, "command": "sweep"} | environment)
    with there._writing() as db:
        db.execute("UPDATE sessions SET started = '2099-' || substr(started, 6) WHERE id = ?", (session,))


def test_a_sweep_that_decided_nothing_is_not_green_whatever_the_nights_before_said(there):
    there.done(passed(0))
    begin(there, "t", implementations=["mine", "other"])
    there.done(passed(1, session="t", impl="other"))
    assert summary(there)["not_green"] == ["the last sweep decided no run of mine"]
    there.done(passed(2, session="t"))
    assert summary(there)["not_green"] == []


def test_what_was_undecided_in_an_earlier_sweep_is_shown_and_not_red(there):
    there.done(run(0, verdict=UNKNOWN, why="timed out", reason="does not return"))
    begin(there, "t", implementations=["mine"])
    there.done(passed(1, session="t"))
    made = summary(there)
    assert made["not_green"] == [] and made["undecided"][0]["times"] == 1


def test_the_last_sweep_of_a_joined_file_is_that_of_all_shards(there):
    begin(there, "t", implementations=["mine"], seed=7, shard="1/2")
    begin(there, "u", implementations=["other"], seed=7, shard="2/2")
    there.done(passed(0, session="u", impl="other"))
    assert summary(there)["not_green"] == ["the last sweep decided no run of mine"]


def test_shards_of_unlike_hosts_all_count(there):
    """A GPU of another model is another version, but a finding on it does not count as an earlier
    one.
    """
    there.done(passed(0, version="before"))
    for session, version in (("t", "H200"), ("u", "A100")):
        begin(there, session, implementations=["mine"], seed=7, shard=f"{session}/2")
        there.done(passed(ord(session), session=session, version=version, started=f"2099-{version}"))
    there.done(run(200, session="t", version="H200", verdict=FAIL), [finding(200, version="H200")])
    made = summary(there)
    mine, (row,) = made["implementations"]["mine"], made["implementations"]["mine"]["layers"]
    assert mine["versions"] == ["A100", "H200"] and mine["earlier_versions"] == {"runs": 1}
    assert (row["runs"], row["failed"], mine["findings"], mine["clean_since"]) == (3, 1, 1, None)
    assert made["not_green"] == [f"mine, repeat: {made['findings'][0]['headline']}"]
    assert "<td>mine (2 versions)</td>" in report.page(made)


def test_comparisons_of_heads_bound_no_single_launch(there):
    for number in range(10):
        there.done(passed(number, layer="copies", law="test_copies_agree"))
    row = layers(summary(there))["copies"]
    assert row["bound_of_a_case"] == pytest.approx(3 / 10) and row["bound_of_a_repeat"] is None


def test_what_is_drawn_no_more_is_named(there):
    there.done(passed(0))
    for _ in range(2):  # by two workers
        there.note("s", "given_up", ["mine", "trace", "no case lies in what it supports"])
    made = summary(there)
    assert [(row["layer"], row["reason"]) for row in made["given_up"]] == [
        ("trace", "no case lies in what it supports")
    ]
    assert "no case lies in what it supports" in report.page(made)


def test_the_page_shows_text_as_text(there):
    text = "<script>alert(1)</script>"
    there.done(run(0, verdict=FAIL), [finding(0, headline=text, message=text, replay="pytest 'x[y]' --case 'a=1'")])
    page = report.page(summary(there))
    assert text not in page and "&lt;script&gt;" in page and "pytest &#39;x[y]&#39;" in page


def test_sessions_say_how_fast_they_were(there):
    for number in range(11):
        there.done(passed(number, started=f"2026-01-01T00:00:{6 * number % 60:02}+00:00"))
    (session,) = summary(there)["sessions"]
    assert session["runs"] == 11 and session["runs_per_minute"] == pytest.approx(60 * 11 / 54, abs=0.1)
