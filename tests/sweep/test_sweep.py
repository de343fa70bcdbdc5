"""Whole sweeps find and reduce a planted race, continue after a kill, and end in order on
Ctrl-C.
"""

import json
import multiprocessing
import os
import re
import signal

import pytest

from flash_attest.impls import torch_math
from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.loading import from_file
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.sweep import version, worker
from flash_attest.sweep.plan import LAYERS
from flash_attest.sweep.records import DONE, DRAWN, RUNNING
from flash_attest.sweep.store import Store, StoreError
from flash_attest.sweep.version import version_of
from tests.places import PLUGINS, ROOT
from tests.runs import python
from tests.sweep.sweeps import NAME, processes_of_group, racy, runs, status_of, sweeping, swept, until

pytestmark = pytest.mark.usefixtures("gxx")

RIGHT = "good"


@pytest.fixture
def right():
    """The options of a fast sweep of a correct implementation."""
    return "--impl-from", PLUGINS / "good.py", "--device", "cpu", "--seed", "5", "--repeats", "4"


def new_ones_run(db) -> bool:
    """Return whether runs are in progress of which none has died before."""
    open_runs = runs(db, "state <> 'done'")
    return bool(open_runs) and all(run.state == RUNNING and not run.deaths for run in open_runs)


def summary(folder) -> dict:
    return json.loads((folder / "summary.json").read_text())


def test_the_command_sweeps_in_processes_of_its_own(tmp_path, right):
    """The workers are spawned, not forked as in the other tests.

    A call makes a lock of multiprocessing, as torch.compile does.
    """
    source = (PLUGINS / "good.py").read_text().replace("import torch\n", "import multiprocessing\n\nimport torch\n", 1)
    if multiprocessing.get_start_method() == "fork":  # other methods report every lock as leaked
        source = source.replace("    scores =", "    forward.lock = multiprocessing.RLock()\n    scores =")
    plugin = tmp_path / "locking.py"
    plugin.write_text(source)
    options = [plugin if each == PLUGINS / "good.py" else each for each in right]
    command = "-m", "flash_attest", "sweep", *options, "--runs", 1, "--workers", 1, "--db", tmp_path / "sweep.db"
    ran = python(*command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == "" and "not green" not in ran.stdout and RIGHT in ran.stdout
    (only,) = runs(tmp_path / "sweep.db")
    assert (only.number, only.state, only.verdict) == (0, DONE, PASS)
    assert summary(tmp_path)["sessions"][0]["state"] == "complete"


def test_a_planted_race_is_found_reduced_and_reported_once(tmp_path, monkeypatch):
    """Two workers find the race by traces. Each finding has its smallest case and a working
    replay.
    """
    monkeypatch.setattr(worker, "LAYERS", {"trace": LAYERS["trace"]})
    plugin, db, log = racy(tmp_path), tmp_path / "sweep.db", tmp_path / "log"
    options = "--runs", 3, "--workers", 2, "--impl-from", plugin, "--seed", 1, "--repeats", 10, "--device", "cpu"
    assert swept(*options, "--db", db, log=log) == 1, log.read_text()
    assert {run.worker for run in runs(db)} == {"w0", "w1"}
    report = summary(tmp_path)
    traced = [finding for finding in report["findings"] if finding["layer"] == "trace"]
    keys = [(finding["law"], finding["key"]) for finding in report["findings"]]
    assert traced and len(set(keys)) == len(keys)
    loads = next(finding for finding in traced if "flash_forward.cu:27" in finding["headline"])  # of the next tile
    case = parse_case(loads["case_"])
    assert (case.batch, case.nheads, case.seqlen_q, case.headdim) == (1, 1, 1, 1) and case.seqlen_k == 33
    assert loads["repeated"] == "found again in 20 of 20 orders of threads" and loads["reduced"].startswith("from ")
    assert loads["replay"].endswith(f"--case '{case}'") and "--impl-from=" in loads["replay"]
    assert "  " + loads["replay"] in loads["message"] and loads["headline"] in loads["message"]
    (entry,) = from_file(str(plugin))
    again = judge(laws()[loads["law"]], entry.impl, Plan(case=case))
    assert again.verdict == FAIL and loads["headline"] in again.findings
    assert report["implementations"][NAME]["clean_since"] is None
    assert f"not green: {NAME}, trace: {loads['headline']}" in log.read_text()
    page = (tmp_path / "index.html").read_text()
    assert page.count('<details class="card') == len(report["findings"]) and "flash_forward.cu:27" in page


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_killed_sweep_goes_on_where_it_was(tmp_path, right, kills):
    """After kills, runs in progress are tried again. No run is missing, and none is made twice."""
    db, log = tmp_path / "sweep.db", tmp_path / "log"
    nights = 0
    while nights < kills or not runs(db, "state = 'running'"):  # a kill between two runs leaves none
        nights += 1
        assert nights < 20
        with sweeping(*right, "--minutes", 10, "--workers", 2, "--db", db, log=log) as child:

            def in_progress(nights=nights):
                sessions = {run.session for run in runs(db, "state = 'done'")}
                return len(sessions) == nights and new_ones_run(db)

            until(in_progress)
            os.kill(child, signal.SIGKILL)
            assert status_of(child) == -signal.SIGKILL
            until(lambda: not processes_of_group(child), 10)  # workers end with it
        assert not (tmp_path / "summary.json").exists()
    before = {run.number: run for run in runs(db)}
    open_runs = [run for run in before.values() if run.state == RUNNING]
    assert open_runs and len({run.session for run in before.values()}) == nights
    assert swept(*right, "--runs", 4, "--workers", 2, "--db", db, log=log) == 0, log.read_text()
    after = {run.number: run for run in runs(db)}
    assert all(run.state == DONE and run.verdict for run in after.values()), log.read_text()
    assert all(after[run.number].deaths == run.deaths + 1 for run in open_runs)
    assert all(after[number] == run for number, run in before.items() if run.state == DONE)
    assert f"an earlier sweep was killed: {len(open_runs)} runs are tried again" in log.read_text()
    report = summary(tmp_path)
    assert [session["state"] for session in report["sessions"]] == [*["running"] * nights, "complete"]
    layers = report["implementations"][RIGHT]["layers"]
    assert sum(layer["runs"] for layer in layers) == len(after) and not report["not_green"]
    assert report["implementations"][RIGHT]["clean_since"] == min(run.started for run in after.values())


def test_ctrl_c_leaves_the_files_whole(tmp_path, right):
    """Runs in progress are drawn again, and no death is counted for them."""
    db, log = tmp_path / "sweep.db", tmp_path / "log"
    with sweeping(*right, "--hours", 1, "--workers", 2, "--db", db, log=log) as child:
        until(lambda: len(runs(db, "state = 'done'")) >= 1 and runs(db, "state = 'running'"))
        os.killpg(child, signal.SIGINT)  # as a terminal does: to all of them
        assert status_of(child) == 130, log.read_text()
        until(lambda: not processes_of_group(child), 10)
    report = summary(tmp_path)
    assert report["sessions"][0]["state"] == "interrupted" and not report["not_green"]
    assert {run.state for run in runs(db)} <= {DONE, DRAWN} and not any(run.deaths for run in runs(db))
    assert not [file.name for file in tmp_path.iterdir() if file.suffix in (".part", ".db-wal")]
    assert "Traceback" not in log.read_text()


@pytest.mark.thorough
def test_a_worker_that_is_killed_is_started_again(tmp_path, right):
    """The worker's run is tried again. A run that kills its worker twice is unknown, which is not
    green.
    """
    plugin, log, db = tmp_path / "killer.py", tmp_path / "log", tmp_path / "sweep.db"
    flag = tmp_path / "kills"
    plugin.write_text(KILLER.format(flag=str(flag)))
    flag.write_text("2")
    options = "--impl-from", plugin, "--device", "cpu", "--seed", "5", "--repeats", "4"
    assert swept(*options, "--runs", 3, "--workers", 1, "--db", db, log=log) == 1
    report = summary(tmp_path)
    dead = [row for row in report["undecided"] if row["why"] == "died"]
    assert [row["times"] for row in dead] == [1], (report["undecided"], log.read_text())
    assert "killer, " in report["not_green"][0] and report["not_green"][0].endswith("1 run did not come back")
    assert "worker w0 ended by signal 9" in log.read_text()
    assert sum(layer["runs"] for layer in report["implementations"]["killer"]["layers"]) >= 1


# The first two calls kill the worker: the parent of the process that started the judging one.
KILLER = """
import os, signal, time
from pathlib import Path
import torch
from flash_attest.impls import Implementation, Supports
from flash_attest.impls.torch_math import forward as right

FLAG = Path({flag!r})

def forward(q, k, v):
    left = int(FLAG.read_text())
    if left:
        FLAG.write_text(str(left - 1))
        os.kill(int(Path(f"/proc/{{os.getppid()}}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        time.sleep(60)
    return right(q, k, v)[0]

IMPL = Implementation(name="killer", forward=forward, devices={{"cpu"}},
                      supports=Supports(dtypes={{torch.float32}}, headdims={{16}}))
"""


@pytest.mark.thorough
def test_a_full_disk_ends_the_sweep_and_the_next_one_goes_on(tmp_path, right):
    db, log = tmp_path / "sweep.db", tmp_path / "log"
    assert swept(*right, "--minutes", 5, "--workers", 1, "--db", db, log=log, largest=120_000) == 3
    assert f"stopped: {db} cannot be written" in log.read_text()
    before = runs(db, "state = 'done'")
    assert before and (tmp_path / "summary.json").exists()
    assert swept(*right, "--runs", 2, "--workers", 1, "--db", db, log=log) == 0
    assert len(runs(db, "state = 'done'")) > len(before)


def test_a_disk_that_is_full_still_ends_the_next_sweep_in_the_same_way(tmp_path, right, monkeypatch):
    log = tmp_path / "log"

    def full(*_):
        raise StoreError("sweep.db: database or disk is full")

    monkeypatch.setattr(Store, "recover", full)
    assert swept(*right, "--runs", 1, "--workers", 1, "--db", tmp_path / "sweep.db", log=log) == 3
    assert "stopped: sweep.db: database or disk is full" in log.read_text() and "Traceback" not in log.read_text()
    assert (tmp_path / "summary.json").exists()


def test_a_file_in_use_is_refused(tmp_path, right, capfd):
    db, log = tmp_path / "sweep.db", tmp_path / "log"
    with sweeping(*right, "--hours", 1, "--workers", 1, "--db", db, log=log):
        until(lambda: (tmp_path / "sweep.db.lock").exists() and db.exists())
        assert swept(*right, "--runs", 1, "--db", db, log=log) == 2
    assert f"{db}: in use by another sweep" in capfd.readouterr().err


def test_nothing_runs_with_minutes_0(tmp_path, right):
    """The report shows the runs of the file. An empty file is not green."""
    assert swept("--minutes", 0, "--seed", 1, "--db", tmp_path / "sweep.db", log=tmp_path / "log") == 1
    assert summary(tmp_path)["not_green"] == ["no run has a verdict"]


def test_the_version_of_an_implementation_follows_its_sources(tmp_path):
    plugin = racy(tmp_path)
    mine = Entry(torch_math.IMPL, str(plugin), "--impl-from")
    before = version_of(mine, "a GPU")
    assert re.fullmatch("[0-9a-f]{16}", before) and version_of(mine, "a GPU") == before
    kernel = tmp_path / "flash_forward.cu"
    kernel.write_text(kernel.read_text() + "\n// changed\n")
    assert version_of(mine, "a GPU") != before
    ours = [Entry(torch_math.IMPL, str(ROOT / path)) for path in ("impls/numba", "impls/torch_math.py")]
    assert len({version_of(each, name) for each in ours for name in ("a GPU", "another GPU")}) == 4


def test_the_version_of_an_implementation_follows_what_it_is_built_on(tmp_path, monkeypatch):
    plugin = tmp_path / "mine.py"
    plugin.write_text("import importlib.metadata\nimport yaml\nfrom rich.table import Table\n")
    mine, ours = Entry(torch_math.IMPL, str(plugin), "--impl-from"), Entry(torch_math.IMPL, str(ROOT / "impls/numba"))
    installed = {"torch": "2", "triton": "3", "numba": "1", "numba-cuda": "1", "rich": "4", "pytest": "5"}
    monkeypatch.setattr(version.metadata, "version", lambda package: installed.get(package, "1"))

    def changed(package):
        before = version_of(mine, ""), version_of(ours, "")
        installed[package] += ".1"
        return tuple(
            now != then for now, then in zip((version_of(mine, ""), version_of(ours, "")), before, strict=True)
        )

    assert {name: changed(name) for name in installed} == {
        "torch": (True, True), "triton": (True, True), "numba": (True, True), "numba-cuda": (True, True),
        "rich": (True, False), "pytest": (False, False),
    }  # fmt: skip
    before = version_of(ours, "")
    monkeypatch.setattr(version, "_shared", lambda: [str(plugin)])
    assert version_of(ours, "") != before
