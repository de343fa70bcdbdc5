"""The folder of a report: a full disk, one that vanishes, and two runs at once."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from flash_attest.runner.plugin import folder as folders
from flash_attest.runner.plugin.folder import Folder, FolderError, Pace
from flash_attest.runner.plugin.report import Report
from flash_attest.runner.plugin.saved import read
from tests.places import PLUGINS, ROOT
from tests.runner.plugin.reports import ENVIRONMENT, result, started
from tests.runs import attest_each

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
