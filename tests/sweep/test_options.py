"""The command line of a sweep: a wrong option gives an early error that names its value."""

import re
from contextlib import closing

import pytest

from flash_attest.command import merge
from flash_attest.command import sweep as command
from flash_attest.properties.machine import gpus
from flash_attest.runner.parts import Shard
from flash_attest.sweep.options import parsed
from flash_attest.sweep.store import Store
from tests.sweep.sweeps import EXAMPLE, store

SHORT = ("--runs", "1", "--device", "cpu")


@pytest.fixture(autouse=True)
def leave_the_gpus_visible(monkeypatch):
    """Keep GPUs visible: a sweep on the CPU hides them from its process, which is a test process
    here.
    """
    monkeypatch.setattr(gpus, "hide_gpus", lambda: None)


def refused(capsys, *arguments, run=command.run, status: int = 2) -> str:
    """Return the last line of an error about the command, or, with status 1, about a file."""
    with pytest.raises(SystemExit) as ended:
        run([str(each) for each in arguments])
    assert ended.value.code == status
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments, error",
    [
        ((), "say how long: --hours H, --minutes M, or --runs N"),
        (("--hours", "0"), "--hours 0: should be above 0 (--minutes 0 only writes the report)"),
        (("--hours", "-1"), "argument --hours: -1: should be a number, 0 or above"),
        (("--minutes", "nan"), "argument --minutes: nan: should be a number, 0 or above"),
        (("--minutes", "ten"), "argument --minutes: ten: should be a number"),
        (("--runs", "0"), "argument --runs: 0: should be a whole number, at least 1"),
        (("--hours", "1", "--workers", "1.5"), "argument --workers: 1.5: should be a whole number, at least 1"),
        (("--hours", "1", "--repeats", "x"), "argument --repeats: x: should be a whole number, at least 1"),
        (("--hours", "1", "--seed", "-3"), "argument --seed: -3: should be a whole number, below 2**63"),
        (("--hours", "1", "--seed", str(2**63)), f"argument --seed: {2**63}: should be a whole number, below 2**63"),
        (("--hours", "1", "--shard", "3/2"), "argument --shard: 3/2: should be i/n with 1 <= i <= n, as in --shard 1/4"),
        (("--hours", "1", "--shard", "1/2"), "--shard 1/2: needs --seed N, the same for all shards"),
        (("--hours", "1", "--case-timeout", "inf"), "--case-timeout: inf: should be a number of seconds, or 0 for no limit"),
        (("--hours", "1", "--device", "cuda"), "--device cuda: PyTorch sees no CUDA device here"),
    ],
)  # fmt: skip
def test_bad_options_are_refused_with_their_value(arguments, error, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert error in refused(capsys, *arguments, "--db", tmp_path / "sweep.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments, seconds", [
    (("--hours", "8"), 28800), (("--minutes", "0.5"), 30), (("--hours", "1", "--minutes", "30"), 5400),
    (("--runs", "5"), float("inf")), (("--minutes", "0"), 0),
])  # fmt: skip
def test_how_long(arguments, seconds):
    assert parsed(list(arguments))[1].seconds == seconds


def test_implementations_that_cannot_be_swept_are_named(tmp_path, capsys):
    db = ("--db", tmp_path / "sweep.db", *SHORT)
    assert "--impl nothing: unknown 'nothing'; known are" in refused(capsys, *db, "--impl", "nothing")
    assert not (tmp_path / "sweep.db").exists()  # it would have drawn a seed
    assert "there is no file" in refused(capsys, *db, "--impl-from", tmp_path / "absent.py")
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name")
    assert "broken.py:1: importing it raises ModuleNotFoundError" in refused(
        capsys, *db, "--impl-from", broken, status=1
    )
    ends = tmp_path / "ends.py"
    ends.write_text("import os; os._exit(3)")
    assert "ends.py: importing it ends the process: exit status 3" in refused(
        capsys, *db, "--impl-from", ends, status=1
    )
    on_gpu = tmp_path / "on_gpu.py"
    on_gpu.write_text(
        "from flash_attest import Implementation\n"
        'IMPL = Implementation(name="on_gpu", forward=lambda q, k, v: q, devices={"cuda"})\n'
    )
    words = "there is nothing to sweep: on_gpu runs on cuda only"
    assert words in refused(capsys, *db, "--device", "cpu", "--impl-from", on_gpu)


def test_a_file_keeps_its_seed_and_shard(tmp_path, capsys):
    db = tmp_path / "sweep.db"
    store(db, seed=3, shard=Shard(1, 2)).close()
    error = refused(capsys, *SHORT, "--db", db, "--seed", 7)
    assert "its seed is 3, --seed says 7: leave it out, or name another file" in error
    assert "its shard is 1/2, --shard says 2/2" in refused(capsys, *SHORT, "--db", db, "--shard", "2/2")


def test_files_that_cannot_be_used_are_named(tmp_path, capsys):
    (tmp_path / "text.db").write_text("words " * 200)
    assert "text.db: it is not the file of a sweep, or damaged" in refused(capsys, *SHORT, "--db", tmp_path / "text.db")
    assert "cannot be written to" in refused(capsys, *SHORT, "--db", tmp_path / "text.db" / "sweep.db")
    Store.made(tmp_path / "all.db", 7, Shard(1, 1), merged=True).close()
    error = refused(capsys, *SHORT, "--db", tmp_path / "all.db", "--impl-from", EXAMPLE / "flash_forward.py")
    assert re.search(r"all\.db: is the merge of other files, so nothing is added: name another file", error)


def test_what_cannot_be_merged_is_named(tmp_path, capsys):
    with closing(store(tmp_path / "a.db")):
        pass
    existing = tmp_path / "a.db"
    into = ("--into", tmp_path / "new.db")
    assert "a FILE is given twice" in refused(capsys, existing, existing, *into, run=merge.run)
    assert "absent.db: there is no such file" in refused(capsys, tmp_path / "absent.db", *into, run=merge.run)
    assert "already exists" in refused(capsys, existing, "--into", existing, run=merge.run)
    assert not (tmp_path / "new.db").exists()
