"""Files of shards, nights and copies are joined, and the joined file gets a report."""

import json
import sqlite3
from contextlib import closing

import pytest

from flash_attest.command import merge
from flash_attest.properties.judging.verdict import FAIL
from flash_attest.runner.parts import Shard
from flash_attest.sweep.merge import MergeError, merged
from flash_attest.sweep.store import Store
from tests.sweep.sweeps import finding, passed, run, runs, store


def shard(folder, part, *, seed=7, numbers=3, session=None, findings=()):
    """Create the file of a shard with some runs and findings."""
    path = folder / f"{seed}-{part}.db"
    with closing(store(path, seed, Shard(part, 2))) as database:
        session = session or f"session {seed} {part}"
        database.begin(session, {"device_name": "a machine", "workers": 1, "command": "", "implementations": ["mine"]})
        for _ in range(numbers):
            number = database.next_number()
            database.done(passed(number, seed=seed, session=session))
        for each in findings:
            database.done(
                run(database.next_number(), seed=seed, session=session, verdict=FAIL, started="2026-01-02"), [each]
            )
    return path


def test_shards_become_one_file(tmp_path):
    files = [shard(tmp_path, part) for part in (1, 2)]
    assert merged(files, tmp_path / "all.db") == []
    assert [each.number for each in runs(tmp_path / "all.db")] == [0, 1, 2, 3, 4, 5]
    assert merged([tmp_path / "all.db"], tmp_path / "again.db") == []
    assert runs(tmp_path / "again.db") == runs(tmp_path / "all.db")


def test_the_joined_file_is_one_file(tmp_path):
    """There is no log beside the file, which a copy would lose."""
    merged([shard(tmp_path, 1)], tmp_path / "all.db")
    with closing(sqlite3.connect(tmp_path / "all.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with closing(Store(tmp_path / "all.db")):
        assert not list(tmp_path.glob("all.db-*"))


def test_a_missing_shard_is_named(tmp_path):
    assert merged([shard(tmp_path, 2)], tmp_path / "all.db") == ["shard 1/2 of seed 7 is not among the files"]


def test_nights_with_other_seeds_are_joined(tmp_path):
    files = [shard(tmp_path, part, seed=seed) for part in (1, 2) for seed in (7, 8)]
    assert merged(files, tmp_path / "all.db") == []
    assert len(runs(tmp_path / "all.db")) == 12


def test_a_finding_of_two_shards_is_reported_once(tmp_path):
    files = [
        shard(tmp_path, 1, findings=[finding(6, state="reported", found="2026-01-05")]),
        shard(tmp_path, 2, findings=[finding(7), finding(9)]),
    ]
    merged(files, tmp_path / "all.db")
    with closing(Store(tmp_path / "all.db")) as joined:
        (only,) = joined.findings()
    assert (only.times, only.state, only.number) == (3, "reported", 6)


def test_an_older_copy_of_a_file_adds_nothing(tmp_path):
    path = shard(tmp_path, 1, findings=[finding(6)])
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    with closing(Store(path)) as later:
        later.launch(run(8, session="session 7 1"))
    with closing(Store(copy)) as older, closing(Store(path)) as later:
        older.launch(run(8, session="session 7 1"))
        later.done(passed(8, session="session 7 1"))
    merged([copy, path], tmp_path / "all.db")
    with closing(Store(tmp_path / "all.db")) as joined:
        assert [each.times for each in joined.findings()] == [1]
    assert [each.state for each in runs(tmp_path / "all.db")] == ["done"] * 5


def test_the_same_shard_of_two_hosts_is_refused(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    files = [shard(folder, 1, session=folder.name) for folder in (one, other)]
    with pytest.raises(MergeError, match=r"one/7-1\.db and .*other/7-1\.db have different runs 0 of seed 7"):
        merged(files, tmp_path / "all.db")
    assert not (tmp_path / "all.db").exists()


@pytest.mark.parametrize("findings, status", [([], 0), ([finding(7)], 1)])
def test_the_command_writes_the_report_and_is_red_if_something_was_found(tmp_path, findings, status):
    files = [str(shard(tmp_path, 1)), str(shard(tmp_path, 2, findings=findings))]
    assert merge.run([*files, "--into", str(tmp_path / "all.db"), "--report", str(tmp_path / "report")]) == status
    report = json.loads((tmp_path / "report" / "summary.json").read_text())
    (layer,) = report["implementations"]["mine"]["layers"]
    assert layer["runs"] == 6 + status and bool(report["not_green"]) is bool(findings)
