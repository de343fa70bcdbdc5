"""The file of a sweep survives kills at any moment, several processes, and a full disk."""

import os
import random
import signal
import sqlite3
import time
from contextlib import closing

import pytest

from flash_attest.properties.judging.verdict import PASS, UNKNOWN
from flash_attest.runner.parts import Shard
from flash_attest.sweep.records import DIED, DONE, DRAWN, REPORTED, RUNNING, Run, key_of
from flash_attest.sweep.store import Store, StoreError
from tests.sweep.sweeps import finding, passed, run, store

SELECT = "SELECT * FROM runs ORDER BY number"


@pytest.fixture
def database(tmp_path):
    with closing(store(tmp_path / "sweep.db")) as opened:
        yield opened


def everything(store) -> list[Run]:
    return [Run(**row) for row in store.rows(SELECT)]


def test_a_run_is_in_the_file_before_it_is_launched(database):
    database.launch(run(3))
    with closing(Store(database.path)) as other:
        (read,) = everything(other)
    assert (read.number, read.state, read.verdict) == (3, RUNNING, "") and read.started


def test_a_run_that_did_not_come_back_is_tried_again_once_and_then_reported(database):
    database.launch(run(0, worker="w0"))
    assert database.recover() == (1, 0)
    again = database.left("w1", "t", ["cpu"], ["mine"])
    assert (again.number, again.state, again.deaths, again.worker, again.session) == (0, RUNNING, 1, "w1", "t")
    assert database.left("w2", "t", ["cpu"], ["mine"]) is None  # it is taken
    assert database.recover() == (0, 1)
    (died,) = everything(database)
    assert (died.state, died.verdict, died.why) == (DONE, UNKNOWN, DIED) and "launched twice" in died.reason
    assert database.left("w0", "t", ["cpu"], ["mine"]) is None


def test_only_the_runs_of_the_worker_that_died_are_recovered(database):
    database.launch(run(0, worker="w0"))
    database.launch(run(1, worker="w1"))
    assert database.recover("w1") == (1, 0)
    assert [(each.state, each.deaths) for each in everything(database)] == [(RUNNING, 0), (DRAWN, 1)]


def test_a_run_that_the_sweep_ended_itself_has_not_died(database):
    database.launch(run(0))
    database.done(passed(1), [finding()])
    assert database.unreported("w0", ["cpu"], {"mine": "1"}) is not None
    database.release()
    assert [(each.state, each.deaths) for each in everything(database)] == [(DRAWN, 0), (DONE, 0)]
    assert database.unreported("w0", ["cpu"], {"mine": "1"}).deaths == 0


def test_a_run_is_left_for_a_sweep_of_its_implementation_and_device(database):
    database.keep(run(0, impl="other"))
    database.keep(run(1, device="cuda"))
    assert database.left("w0", "t", ["cpu"], ["mine"]) is None
    assert database.left("w0", "t", ["cpu", "cuda"], ["mine"]).number == 1


def test_a_finding_is_kept_once_and_counted(database):
    for number in range(3):
        database.done(passed(number), [finding(number)])
    (stored,) = database.findings()
    assert (stored.number, stored.times) == (0, 3)
    in_work = database.unreported("w0", ["cpu"], {"mine": "1"})
    database.done(passed(3), [finding(3)])  # another worker finds it meanwhile
    in_work.repeated = "found again in 9 of 10 runs"
    database.report(in_work)
    (stored,) = database.findings()
    assert (stored.times, stored.state, stored.repeated) == (4, REPORTED, "found again in 9 of 10 runs")
    assert database.unreported("w0", ["cpu"], {"mine": "1"}) is None


def test_a_finding_of_a_cpu_is_not_that_of_a_gpu(database):
    for number, device in enumerate(("cpu", "cuda", "cuda")):
        database.done(passed(number), [finding(number, device=device)])
    assert [(each.device, each.times) for each in database.findings()] == [("cpu", 1), ("cuda", 2)]


def test_a_finding_whose_reduction_kills_its_process_twice_is_reported_as_it_is(database):
    database.done(passed(0), [finding()])
    for _ in range(2):
        assert database.unreported("w0", ["cpu"], {"mine": "1"}) is not None
        database.recover()
    (stored,) = database.findings()
    assert (stored.state, stored.reduced) == (REPORTED, "no: two processes died of it")


def test_findings_of_another_version_wait_for_nobody(database):
    database.done(passed(0), [finding()])
    assert database.unreported("w0", ["cpu"], {"mine": "2"}) is None


@pytest.mark.parametrize(
    "one, other, same",
    [
        ("out: 3 of 100 repeats differ, by up to 1.5e-05", "out: 71 of 1000 repeats differ, by up to 0.25", True),
        ("out: 3 of 100 repeats differ", "dq: 3 of 100 repeats differ", False),
        ("race: s[4], read after write, a.cu:9 and a.cu:8", "race: s[70], read after write, a.cu:9 and a.cu:8", True),
        ("race: s[4], read after write, a.cu:9 and a.cu:8", "race: s[4], read after write, a.cu:9 and a.cu:7", False),
        ("race: s[4], read after write, a.cu:9 and a.cu:8", "race: s[4], write after read, a.cu:8 and a.cu:9", True),
        ("race: s, atomic and write, a.cu:9", "race: s, write and atomic, a.cu:9", True),
        ("out: 3 of 12 repeats differ from the first call, in 2 of 240 elements, by up to 1.5e-05",
         "out: 1 of 12 repeats differs from the first call, in 1 of 1 element, by up to inf", True),
        ("dq: 3 of 12 equal heads differ from the first one, in 2 of 3 calls, in 2 of 240 elements, by up to 0.5",
         "dq: 1 of 1 equal head differs from the first one, in 1 of 1 call, in 1 of 1 element, by up to nan", True),
        ("dq: 3 of 12 equal heads differ from the first one", "dk: 3 of 12 equal heads differ from the first one", False),
        ("outside: 4 bytes past the end of block2", "outside: 1 byte past the end of block2", True),
        ("outside: 4 bytes past the end of block2", "outside: 4 bytes past the end of block3", False),
    ],
)  # fmt: skip
def test_headlines_are_one_finding_if_only_their_numbers_differ(one, other, same):
    assert (key_of(one) == key_of(other)) is same


@pytest.mark.parametrize("part, numbers", [(1, [0, 3, 6]), (3, [2, 5, 8])])
def test_shards_have_other_numbers(tmp_path, part, numbers):
    with closing(store(tmp_path / "sweep.db", shard=Shard(part, 3))) as shard:
        assert [shard.next_number() for _ in range(3)] == numbers


@pytest.mark.parametrize("kills", [6, pytest.param(25, marks=pytest.mark.thorough)])
def test_it_is_whole_after_a_kill_at_any_moment(tmp_path, kills):
    """A process that writes runs is killed repeatedly. Each change in the file is complete or
    absent.
    """
    path, seen = tmp_path / "sweep.db", 0
    store(path).close()
    for kill in range(kills):
        child = os.fork()
        if child == 0:
            writer = Store(path)
            while True:
                number = writer.next_number()
                writer.launch(run(number))
                writer.done(run(number, verdict=PASS, repeats=number), [finding(number)])
        time.sleep(random.Random(kill).uniform(0.005, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with closing(Store(path)) as reader:
            assert reader.rows("PRAGMA integrity_check")[0][0] == "ok"
            records = everything(reader)
            (reserved,) = reader.rows("SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'next'")[0]
            done = [each for each in records if each.state == DONE]
            assert all(each.repeats == each.number and each.verdict == PASS for each in done)
            assert len(records) - len(done) <= kill + 1  # one in progress for each kill
            assert all(each.number < reserved for each in records)
            assert sum(f.times for f in reader.findings()) == len(done)
            assert len(done) >= seen
            seen = len(done)
    assert seen > kills


def test_the_log_is_put_into_the_file_or_an_error_says_why_not(database, tmp_path, monkeypatch):
    monkeypatch.setattr("flash_attest.sweep.store.PATIENCE", 0.0)
    copy = tmp_path / "copy.db"
    with closing(Store(database.path)) as other:
        other.keep(passed(0))
        with database._writing(), pytest.raises(StoreError, match=r"sweep\.db: .*(locked|another process uses it)"):
            other.settle()
        other.settle()
        copy.write_bytes(database.path.read_bytes())
    with closing(Store(copy)) as read:
        assert [each.number for each in everything(read)] == [0]


def test_processes_that_write_at_once_get_different_runs(tmp_path):
    path = tmp_path / "sweep.db"
    store(path).close()
    with closing(Store(path)) as first:
        for number in range(60):
            first.keep(run(1000 + number))
    children = []
    for worker in ("w0", "w1", "w2"):
        children.append(os.fork())
        if children[-1] == 0:
            mine = Store(path)
            for _ in range(20):
                mine.done(mine.left(worker, "s", ["cpu"], ["mine"]))
                mine.launch(run(mine.next_number(), worker=worker))
            os._exit(0)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    with closing(Store(path)) as reader:
        records = everything(reader)
    assert len(records) == 120 and sum(each.state == DONE for each in records) == 60


def test_a_full_disk_is_an_error_and_the_file_stays_whole(database):
    database.rows(f"PRAGMA max_page_count = {database.rows('PRAGMA page_count')[0][0] + 1}")
    with pytest.raises(StoreError, match=r"sweep\.db: database or disk is full"):
        for number in range(1000):
            database.keep(passed(number))
    count = len(everything(database))
    assert 0 < count < 1000
    with closing(Store(database.path)) as other:
        assert other.rows("PRAGMA integrity_check")[0][0] == "ok" and len(everything(other)) == count
        other.keep(passed(1000))  # there is space again


def test_files_that_are_not_from_a_sweep_are_refused_by_name(tmp_path):
    with pytest.raises(StoreError, match=r"absent\.db: there is no such file"):
        Store(tmp_path / "absent.db")
    (tmp_path / "text.db").write_text("not a database, but long enough to look like the header of one " * 20)
    with pytest.raises(StoreError, match=r"text\.db: it is not .*, or damaged \(file is not a database\): restore"):
        Store(tmp_path / "text.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(
        StoreError, match=r"other\.db: it is not the file of a sweep, or damaged \(no such table: facts\)"
    ):
        Store(tmp_path / "other.db")
    later = store(tmp_path / "later.db")
    with later._writing() as db:
        db.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
    later.close()
    with pytest.raises(StoreError, match=r"later\.db: its format is 99, should be 1"):
        Store(tmp_path / "later.db")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written to"):
        Store.made(tmp_path / "file" / "sweep.db", 0, Shard(1, 1))
