"""The files of a report are valid at any moment, with any text, on a full disk, and with two runs
at once.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

from flash_attest.properties.judging.plain_text import all_plain, plain
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN, Result
from flash_attest.runner.plugin import folder as folders
from flash_attest.runner.plugin.folder import Folder, FolderError, Pace
from flash_attest.runner.plugin.report import INTERRUPTED, Report
from flash_attest.runner.plugin.saved import JOURNAL, read
from tests.places import PLUGINS, ROOT
from tests.plugins.odd_words import ODD
from tests.runs import attest, attest_each, results

ENVIRONMENT = {"versions": {}, "command": "pytest", "device": "cpu", "started": "2026-11-22"}


def result(n: int, verdict: str = PASS, **fields) -> dict:
    return Result(f"impl_{n % 7}", "test_forward", f"test_{n}", verdict, **fields).as_dict()


def started(tmp_path, planned: int = 3, **environment) -> Report:
    report = Report(tmp_path)
    planned_of = {f"impl_{n}": {"test_forward": 1} for n in range(planned)}
    report.start(ENVIRONMENT | environment, planned, planned_of=planned_of)
    return report


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


# --- folders that cannot be written to ------------------------------------------------------------


@contextmanager
def files_up_to(size: int):
    """Limit the size of files, so that writing fails as on a full disk, but with another error
    number.

    Bytecode is off, because Python would leave modules truncated at that size, which other
    processes could not import.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = before


@pytest.mark.parametrize("size", [0, 100])
def test_a_full_disk_is_told_at_the_start(tmp_path, size):
    with files_up_to(size), pytest.raises(FolderError, match=r"File too large.*name another one with --report=DIR"):
        started(tmp_path / "full")
    started(tmp_path / "full")  # it is no longer held


def test_a_full_disk_at_the_start_of_a_resumed_run_loses_nothing(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Pace, "due", lambda pace: False)
        started(tmp_path).add(result(1), result(2))  # and killed
    with files_up_to(100), pytest.raises(FolderError):
        Report(tmp_path).start(ENVIRONMENT, 3, read(tmp_path)["results"])
    assert len(read(tmp_path)["results"]) == 2


@pytest.mark.parametrize("path", ["a_file", "a_file/below", "/proc/attest"])
def test_a_folder_that_cannot_be_made_is_told_at_the_start(tmp_path, path):
    (tmp_path / "a_file").write_text("")
    with pytest.raises(FolderError, match=rf"--report .*{path}: cannot be written to .*--report=DIR"):
        started(tmp_path / path)


@pytest.mark.parametrize("due, file", [(True, "results.json"), (False, "since-results.jsonl")])
def test_a_disk_that_fills_up_is_told_once_and_the_run_goes_on(tmp_path, monkeypatch, due, file):
    """The results are due, or a verdict goes to the journal, as on a slow disk."""
    messages: list[str] = []
    report = Report(tmp_path, messages.append)
    monkeypatch.setattr(report._results_pace, "due", lambda: due)
    monkeypatch.setattr(report._page_pace, "due", lambda: False)
    report.start(ENVIRONMENT, 100)
    report.add(result(0))
    with files_up_to((tmp_path / "index.html").stat().st_size + 200):
        for n in range(1, 50):
            report.add(result(n, reason="x" * 1000))
        record = read(tmp_path)  # valid, although the disk is full
        assert messages == [f"{tmp_path}/{file} cannot be written: File too large"]
        assert 0 < len(record["results"]) < 50
    report.finish()
    assert len(messages) == 1 and len(read(tmp_path)["results"]) == 50  # there is space again


def test_a_run_whose_disk_fills_up_shows_its_verdicts_and_is_not_green(tmp_path):
    """Pytest prints one line when the disk fills up, and prints the table. Nobody would find the
    report that a green run has.
    """
    script = (
        "import resource, sys, pytest; from flash_attest.runner.plugin.report import Report; add = Report.add\n"
        "sys.dont_write_bytecode = True  # see files_up_to\n"
        "def limited(*a): resource.setrlimit(resource.RLIMIT_FSIZE, (20, -1)); add(*a)\n"
        "Report.add = limited; sys.exit(pytest.main(sys.argv[1:]))"
    )
    chosen = ["--impl-from", "tests/plugins/good.py", "-k", "forward or contract or bias", "-s"]
    run = subprocess.run(
        [sys.executable, "-c", script, *chosen, "--hypothesis-profile", "smoke", f"--report={tmp_path}", "--device=cpu"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr
    assert run.stdout.count("cannot be written: File too large\n") == 1, run.stdout
    assert "File too large: the verdicts above are all there is" in run.stdout
    trouble = f"{tmp_path}/results.json cannot be written: File too large"
    assert run.stdout.endswith(f"\nnot green: {trouble}; 3 laws hold; 13 do not apply\n")


@pytest.mark.parametrize("journal", [False, True])
def test_a_folder_that_vanishes_is_made_again_and_has_every_verdict(tmp_path, monkeypatch, journal):
    """Also if verdicts go to the journal, which nobody could read alone."""
    if journal:
        monkeypatch.setattr(Pace, "due", lambda pace: False)
    messages: list[str] = []
    report = Report(tmp_path / "gone", messages.append)
    report.start(ENVIRONMENT, 9)
    report.add(result(1))
    shutil.rmtree(tmp_path / "gone")
    report.add(result(2))
    report.add(result(3))
    assert [r["law"] for r in read(tmp_path / "gone")["results"]] == ["test_1", "test_2", "test_3"]
    assert messages == [f"{tmp_path / 'gone'} was removed or emptied: its files are written again"]
    with pytest.raises(FolderError, match="in use by"):  # by a process of its own, as locks are those of a process
        in_a_fork(lambda: started(tmp_path / "gone"))
    assert report.finish() == ""
    assert sorted(path.name for path in (tmp_path / "gone").iterdir()) == ["index.html", "report.md", "results.json"]


def in_a_fork(act) -> None:
    """Call `act` in a forked process, and raise its FolderError here."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            act()
        except FolderError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        if text := pipe.read():
            raise FolderError(text)


@pytest.mark.parametrize("instead", ["a file", "another run"])
def test_a_folder_that_cannot_be_made_again_is_told_and_not_green(tmp_path, instead):
    messages: list[str] = []
    report = Report(tmp_path / "gone", messages.append)
    report.start(ENVIRONMENT, 2)
    shutil.rmtree(tmp_path / "gone")
    if instead == "a file":
        (tmp_path / "gone").write_text("")
    else:
        other = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "gone"], cwd=ROOT, stdout=subprocess.PIPE)
        assert other.stdout.readline() == b"held\n"
        shutil.move(tmp_path / "gone", tmp_path / "theirs")
        (tmp_path / "gone").symlink_to(tmp_path / "theirs")
    report.add(result(1))
    trouble = report.finish()
    if instead == "another run":
        other.kill()
        other.communicate()
    why = "is a file, should be a folder" if instead == "a file" else "in use by process "
    assert trouble.startswith(f"{tmp_path}/gone/results.json cannot be written: {why}"), trouble
    assert messages == [trouble]


def test_a_folder_that_the_working_directory_leaves_is_still_the_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = Report(Path("report"))
    report.start(ENVIRONMENT, 1)
    monkeypatch.chdir("/")
    report.add(result(1))
    assert report.finish() == "" and len(read(tmp_path / "report")["results"]) == 1


def test_a_mistake_in_the_page_costs_no_verdict(tmp_path, monkeypatch):
    def raises(results, environment):
        raise KeyError("a field")

    monkeypatch.setattr("flash_attest.runner.plugin.report.run_page", raises)
    texts: list[str] = []
    report = Report(tmp_path, texts.append)
    report.start(ENVIRONMENT, 1)
    report.add(result(1))
    report.finish()
    assert texts == [f"{tmp_path / 'index.html'} cannot be made: KeyError: 'a field'"]
    assert len(read(tmp_path)["results"]) == 1 and not (tmp_path / folders.IN_USE).exists()


# --- two runs at once -----------------------------------------------------------------------------

HOLDER = """
import os, sys, time
from pathlib import Path
from flash_attest.runner.plugin.folder import Folder
Folder(Path(sys.argv[1])).take("pytest --impl mine")
if os.fork() == 0:
    time.sleep(1)  # the holder leaves a child behind, like a judging process
    os._exit(0)
print("held", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the folder and has a child."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_in_use_is_refused_with_its_process(tmp_path, holder):
    with pytest.raises(FolderError) as error:
        started(tmp_path)
    says = (
        f"--report {tmp_path}: in use by process {holder.pid} (pytest --impl mine): name another one with --report=DIR"
    )
    assert str(error.value) == says
    run = attest_each({"second": ("--impl-from", PLUGINS / "good.py", f"--report={tmp_path}")}, tmp_path / "each")[
        "second"
    ]
    assert run.returncode == pytest.ExitCode.USAGE_ERROR and says in run.stdout
    assert not (tmp_path / "results.json").exists()


def test_a_killed_run_holds_nothing(tmp_path, holder):
    """The surviving child of the run does not hold the folder either."""
    holder.kill()
    holder.wait()
    assert (tmp_path / folders.IN_USE).exists()
    started(tmp_path).finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "report.md", "results.json"]


def test_a_folder_is_free_when_its_run_has_ended(tmp_path):
    first = Folder(tmp_path)
    first.take("first")
    first.release()
    assert not list(tmp_path.iterdir())
    Folder(tmp_path).take("second")


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
