"""The files of a report are valid at any moment and with any text."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from flash_attest.properties.judging.plain_text import all_plain, plain
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.runner.plugin import folder as folders
from flash_attest.runner.plugin.folder import Pace
from flash_attest.runner.plugin.report import INTERRUPTED, Report
from flash_attest.runner.plugin.saved import JOURNAL, read
from tests.places import PLUGINS
from tests.plugins.odd_words import ODD
from tests.runner.plugin.reports import result, started
from tests.runs import attest, attest_each, results

# --- progress -------------------------------------------------------------------------------------


def environment_in(folder) -> dict:
    return json.loads((folder / "results.json").read_text())["environment"]


def test_results_say_after_each_verdict_how_many_there_are(tmp_path):
    report = started(tmp_path)
    seen = [environment_in(tmp_path)]
    for n in range(3):
        report.add(result(n))
        seen.append(environment_in(tmp_path))
    assert [(e["decided"], e["planned"], e["complete"], e["state"]) for e in seen] == [
        (n, 3, False, "running") for n in range(4)
    ]
    report.finish()
    assert (environment_in(tmp_path)["complete"], environment_in(tmp_path)["state"]) == (True, "complete")
    assert "left" not in environment_in(tmp_path)


def test_an_old_page_never_stands_beside_new_results(tmp_path):
    (tmp_path / "index.html").write_text("old")
    report = started(tmp_path)
    assert "running: 0 of 3 decided" in (tmp_path / "index.html").read_text()
    report.add(result(1))
    report.finish(INTERRUPTED)
    assert environment_in(tmp_path)["left"] == {"impl_0": {"test_forward": 1}, "impl_2": {"test_forward": 1}}
    page = (tmp_path / "index.html").read_text()
    assert "interrupted: 1 of 3 decided" in page and "<title>flash-attest: interrupted, 0 fail, 1 pass" in page


def test_a_page_that_cannot_be_written_is_removed(tmp_path, monkeypatch):
    (tmp_path / "index.html").write_text("old")
    monkeypatch.setattr(Report, "_write_page", lambda report: None)
    started(tmp_path)
    assert not (tmp_path / "index.html").exists()


def test_the_page_of_a_complete_run_has_no_banner(tmp_path):
    report = started(tmp_path, planned=1)
    report.add(result(1))
    report.finish()
    assert 'class="banner' not in (tmp_path / "index.html").read_text()


def test_a_law_judged_again_replaces_its_result(tmp_path):
    report = started(tmp_path)
    report.add(result(1), result(2))
    report.add(result(1, FAIL))
    assert [r["verdict"] for r in read(tmp_path)["results"]] == [FAIL, PASS]


# --- killed at any moment -------------------------------------------------------------------------


def test_verdicts_that_are_not_in_results_yet_are_in_the_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(Pace, "due", lambda pace: False)
    report = started(tmp_path, planned=9)
    for n in range(5):
        report.add(result(n))
    assert environment_in(tmp_path)["decided"] == 0
    with open(tmp_path / JOURNAL, "a") as file:  # killed while it was written
        file.write("\n" + json.dumps(result(7))[:40])
    record = read(tmp_path)
    assert [r["law"] for r in record["results"]] == [f"test_{n}" for n in range(5)]
    assert record["environment"]["decided"] == 5
    report.finish()
    assert len(json.loads((tmp_path / "results.json").read_text())["results"]) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "report.md", "results.json"]


def test_what_is_in_both_counts_once(tmp_path, monkeypatch):
    monkeypatch.setattr(Pace, "due", lambda pace: False)
    report = started(tmp_path)
    report.add(result(1))
    journal = (tmp_path / JOURNAL).read_bytes()
    report.finish()
    (tmp_path / JOURNAL).write_bytes(journal)  # killed between the two
    assert len(read(tmp_path)["results"]) == 1


def test_writing_keeps_to_its_share_of_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(folders.time, "perf_counter", lambda: now[0])
    pace, written = Pace(share=0.02, free=0.5), []
    for n in range(10_000):
        now[0] += 0.1  # a verdict
        if pace.due():
            with pace.writing():
                now[0] += n * 2e-6  # as long as the file is
            written.append(n)
    assert written[:600] == list(range(600))
    assert pace.spent <= 0.5 + 0.02 * now[0] < 25 and written[-1] > 9_900


# --- any text -------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, page: str):
        super().__init__()
        self.seen: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)


def assert_both_files_are_valid(folder) -> None:
    for name in ("results.json", "index.html"):
        text = (folder / name).read_bytes().decode("utf-8")  # strict
        assert not [c for c in text if c < " " and c not in "\n\t"] and "\x7f" not in text
    record = json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)
    json.dumps(record, ensure_ascii=False).encode("utf-8")  # no lone surrogate hides in an escape
    page = (folder / "index.html").read_text()
    assert Tags(page).seen.count("script") == 2 and page.rstrip().endswith("</html>")  # its data and its own script


def test_any_text_leaves_both_files_valid(tmp_path):
    report = started(tmp_path, command=f"pytest {ODD}")
    odd = result(1, FAIL, reason=ODD, message=ODD, replay=ODD, smallest=ODD)
    report.add(odd | {"worst_z": {ODD: float("inf")}, "impl": ODD})
    report.add(result(2, UNKNOWN, reason=ODD, message=ODD))
    report.finish(more=ODD)
    assert_both_files_are_valid(tmp_path)


def test_what_is_escaped_can_still_be_read():
    assert plain("\x1b[1mé 語\n\t\x00\udc80") == "\\x1b[1mé 語\n\t\\x00\\udc80"
    assert all_plain({"a": [float("nan"), 1.5, None, True]}) == {"a": ["nan", 1.5, None, True]}


@pytest.mark.parametrize("workers", [0, 1])
def test_an_odd_exception_is_a_failure_as_any_other(tmp_path, workers):
    """The text of the exception also passes through the channel of workers."""
    chosen = ("--impl-from", PLUGINS / "odd_words.py", "-k", "contract or out_matches", "-n", workers)
    run = attest(*chosen, "--hypothesis-profile", "smoke", report=tmp_path)
    entry = results(tmp_path)["test_contract_is_kept[odd_words]"]
    assert (run.returncode, entry["verdict"]) == (1, "fail"), run.stdout
    assert "\\x1b[31mred\\x1b[0m \\x00 \\udc80\\ud83d </pre>" in entry["message"]
    assert "INTERNALERROR" not in run.stdout and len(results(tmp_path)) == 2
    assert_both_files_are_valid(tmp_path)


# --- exceptions in the suite ----------------------------------------------------------------------


def test_an_exception_in_the_suite_is_unknown_and_red(tmp_path):
    plugins = ("-p", "tests.plugins.breaks_the_suite", "--impl-from", PLUGINS / "good.py")
    chosen = ("properties/test_forward.py", "properties/test_extremes.py", "-k", "out_matches or winning or huge")
    run = attest_each({"run": (*plugins, *chosen)}, tmp_path)["run"]
    entries = results(run.report)
    broken = {
        name: entries[f"{name}[good]"] for name in ("test_out_matches_the_definition", "test_winning_key_is_copied")
    }
    first, second = broken.values()
    assert {(e["verdict"], e["why"]) for e in broken.values()} == {("unknown", "suite")}
    where = r"\(tests/plugins/breaks_the_suite.py:\d+\)"
    assert re.fullmatch(rf"the suite raised KeyError: 'test_out_matches_the_definition' {where}", first["reason"])
    assert "Traceback (most recent call last)" in first["message"]
    assert re.fullmatch(rf"the suite raised LookupError: no fixture {where}", second["reason"])
    assert run.returncode == 1 and "not green: 2 laws undecided; 1 holds" in run.stdout
    assert Counter(e["verdict"] for e in entries.values()) == {"unknown": 2, "pass": 1}
