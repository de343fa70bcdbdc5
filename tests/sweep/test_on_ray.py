"""Shards are tasks of Ray.

One test needs Ray, and starts a cluster on this machine. The tests of wrong input and of a machine
that fails use a stand-in.
"""

import os
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from flash_attest.command import sweep
from flash_attest.runner.parts import Shard
from flash_attest.sweep import on_ray
from tests.places import PLUGINS, ROOT
from tests.sweep.sweeps import passed, runs, status_of, store
from tests.sweep.test_options import refused

OPTIONS = ("--shards", 2, "--seed", 5, "--runs", 1, "--impl-from", PLUGINS / "good.py", "--repeats", 4)


@pytest.mark.thorough  # needs Ray, which only `tox -e thorough` installs
def test_shards_of_a_local_cluster_become_one_file(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    command = [sys.executable, "-m", "flash_attest", "sweep", "--ray", *OPTIONS, "--db", tmp_path / "all.db"]
    ran = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [run.number for run in runs(tmp_path / "all.db")] == [0, 1]
    assert (tmp_path / "summary.json").exists() and (tmp_path / "all-shards" / "2.db").exists()


def swept(arguments):
    """Run flash-attest sweep --ray."""
    return sweep.run(["--ray", *arguments])


class Lost(Exception):
    """A stand-in for the exceptions of Ray."""


def ray(monkeypatch, run):
    """Replace Ray by a stand-in that runs tasks in this process."""
    module = SimpleNamespace(
        init=lambda **_: None,
        shutdown=lambda: None,
        remote=lambda **_: lambda function: SimpleNamespace(remote=lambda *arguments: partial(run, *arguments)),
        wait=lambda waiting: (waiting[:1], waiting[1:]),
        get=lambda task: task(),
        exceptions=SimpleNamespace(RayError=Lost),
    )
    monkeypatch.setattr(on_ray.importlib, "import_module", lambda name: module)


def test_a_shard_whose_machine_fails_is_named_and_the_others_are_joined(tmp_path, monkeypatch, capsys):
    def run(part, of, arguments):
        if part == 2:
            raise Lost("the node died")
        assert list(arguments) == [
            "--runs", "1", "--repeats", "4", "--seed", "5", "--device", "cpu", "--workers", "1",
            "--impl-from", "tests/plugins/good.py",
        ] and of == 2  # fmt: skip
        with_runs = store(tmp_path / "one.db", 5, Shard(part, of))
        with_runs.done(passed(0, seed=5))
        with_runs.close()
        return 0, "", (tmp_path / "one.db").read_bytes()

    ray(monkeypatch, run)
    assert swept([*map(str, OPTIONS), "--db", str(tmp_path / "all.db")]) == 1
    output = capsys.readouterr()
    assert "shard 2/2 ended with exit status 1:\nLost: the node died" in output.err
    assert [each.number for each in runs(tmp_path / "all.db")] == [0]
    assert "shard 2/2 of seed 5 is not among the files" in output.out


def test_ctrl_c_keeps_the_shards_that_have_ended(tmp_path, monkeypatch, capsys):
    def run(part, of, arguments):
        if part == 2:
            raise KeyboardInterrupt
        with closing(store(tmp_path / "one.db", 5, Shard(part, of))) as database:
            database.done(passed(0, seed=5))
        return 0, "", (tmp_path / "one.db").read_bytes()

    ray(monkeypatch, run)
    assert swept([*map(str, OPTIONS), "--seed=5", "--db", str(tmp_path / "all.db")]) == 1
    assert "shard 2/2 ended with exit status 130:\ninterrupted" in capsys.readouterr().err
    assert [each.number for each in runs(tmp_path / "all.db")] == [0]


def test_a_shard_that_was_killed_gives_all_its_runs(tmp_path, monkeypatch):
    """The result includes the runs that only the log of the shard's file has."""

    def killed(command, **_):
        child = os.fork()
        if child == 0:
            database = store(Path(command[-1]), 5)
            database.done(passed(0, seed=5))
            os._exit(1)
        return SimpleNamespace(returncode=status_of(child), stdout="")

    monkeypatch.setattr(on_ray.subprocess, "run", killed)
    status, _, data = on_ray.sweep_shard(1, 1, [])
    (tmp_path / "back.db").write_bytes(data)
    assert status == 1 and [each.number for each in runs(tmp_path / "back.db")] == [0]


def test_bad_options_are_refused_before_anything_starts(tmp_path, capsys, monkeypatch):
    def without(name):
        raise ImportError(name)

    monkeypatch.setattr(on_ray.importlib, "import_module", without)
    db = ("--db", tmp_path / "all.db")
    assert "Ray is not installed: pip install 'flash-attest[ray]'" in refused(capsys, *OPTIONS, *db, run=swept)
    assert "--shards 0: should be at least 1" in refused(capsys, "--shards", 0, "--seed", 1, *db, run=swept)
    assert "--gpus -1: should be at least 0" in refused(
        capsys, "--shards", 1, "--gpus", -1, "--seed", 1, *db, run=swept
    )
    assert "the following arguments are required: --seed" in refused(capsys, "--shards", 2, "--runs", 1, *db, run=swept)
    assert "argument --seed: -1: should be a whole" in refused(
        capsys, "--shards", 2, "--runs", 1, *db, "--seed=-1", run=swept
    )
    on_gpu = ("--shards", 2, "--runs", 1, *db, "--seed=x", "--gpus", 8)
    assert "argument --seed: x: should be a whole" in refused(capsys, *on_gpu, run=swept)
    elsewhere = refused(capsys, *OPTIONS, *db, "--impl-from", tmp_path / "mine.py:IMPL", run=swept)
    assert f"--impl-from {tmp_path}/mine.py:IMPL: lies outside of" in elsewhere
    assert "say how long" in refused(capsys, "--shards", 2, "--seed", 1, *db, run=swept)
    assert "unrecognized arguments: --hourly 3; did you mean --hours?" in refused(
        capsys, *OPTIONS, *db, "--hourly", 3, run=swept
    )
    (tmp_path / "all.db").write_text("")
    assert "already exists: name another file" in refused(capsys, *OPTIONS, *db, run=swept)
