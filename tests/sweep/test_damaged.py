"""A damaged file of a sweep is refused, by name and with what to do, before anything is added."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flash_attest.command import merge, sweep
from flash_attest.sweep.store import Store
from tests.sweep.sweeps import finding, passed, store


@pytest.fixture
def database(tmp_path) -> Path:
    """A file with some runs and a finding."""
    path = tmp_path / "sweep.db"
    with closing(store(path)) as opened:
        for number in range(200):
            opened.done(passed(number), [finding(number)] if number == 3 else [])
    return path


def cut(path: Path, share: float) -> None:
    with open(path, "r+b") as file:
        file.truncate(int(share * path.stat().st_size))


def overwrite(path: Path, at: float) -> None:
    with open(path, "r+b") as file:
        file.seek(int(at * path.stat().st_size))
        file.write(os.urandom(4096))


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


COPIED = "CREATE TABLE copy AS SELECT * FROM runs; DROP TABLE runs; ALTER TABLE copy RENAME TO runs"
DAMAGED = {
    "empty": (lambda p: p.write_bytes(b""), "no such table: facts"),
    "text": (lambda p: p.write_text("rubbish " * 500), "file is not a database"),
    "binary": (lambda p: p.write_bytes(os.urandom(8192)), "file is not a database"),
    "cut": (lambda p: cut(p, 0.5), "malformed"),
    "cut_short": (lambda p: cut(p, 0.01), ""),
    "overwritten": (lambda p: overwrite(p, 0.6), ""),
    "folder": (a_folder, "is a folder, should be the file of a sweep"),
    "another_format": (lambda p: sql(p, "UPDATE facts SET value = '9' WHERE name = 'format'"), "its format is 9"),
    "no_seed": (lambda p: sql(p, "DELETE FROM facts WHERE name = 'seed'"), "KeyError: 'seed'"),
    "odd_seed": (lambda p: sql(p, "UPDATE facts SET value = 'x' WHERE name = 'seed'"), "invalid literal for int"),
    "odd_merged": (lambda p: sql(p, "UPDATE facts SET value = '?' WHERE name = 'merged'"), "KeyError: '?'"),
    "no_table": (lambda p: sql(p, "DROP TABLE findings"), "its table findings is not the table of a sweep"),
    "no_column": (lambda p: sql(p, "ALTER TABLE runs DROP COLUMN repeats"), "its table runs is not"),
    "one_column_more": (lambda p: sql(p, "ALTER TABLE runs ADD COLUMN x TEXT"), "its table runs is not"),
    "other_types": (lambda p: sql(p, *COPIED.split("; ")), "its table runs is not"),
    "no_json": (lambda p: sql(p, "UPDATE sessions SET environment = '{'"), "session s is not JSON"),
    "json_list": (lambda p: sql(p, "UPDATE sessions SET environment = '[]'"), "session s is list, should be an object"),
    "odd_json": (
        lambda p: sql(p, """UPDATE sessions SET environment = '{"given_up": ["mine"]}'"""),
        "has 'mine' in given_up, should be an implementation, a layer and a reason",
    ),
    "unknown_layer": (lambda p: sql(p, "UPDATE runs SET layer = 'odd'"), "runs of a layer 'odd', should be one of"),
}


def refusal(command, *arguments, capfd) -> str:
    """Return the only line that a command prints, which ends with status 2."""
    with pytest.raises(SystemExit) as ended:
        command.run([str(argument) for argument in arguments])
    printed = capfd.readouterr()
    assert ended.value.code == 2 and printed.out == ""
    assert printed.err.count("\n") == 1 and "Traceback" not in printed.err, printed.err
    return printed.err


@pytest.mark.parametrize("name", DAMAGED)
def test_it_is_named_with_what_to_do(name, database, tmp_path, capfd):
    damage, words = DAMAGED[name]
    damage(database)
    swept = refusal(sweep, "--minutes", 0, "--db", database, capfd=capfd)
    assert str(database) in swept and words in swept
    assert re.search(r"name another file|name the file in it", swept)
    if not database.is_dir():
        with closing(store(tmp_path / "right.db")) as right:
            right.done(passed(1000))
        joined = refusal(merge, database, tmp_path / "right.db", "--into", tmp_path / "both.db", capfd=capfd)
        assert str(database) in joined and words in joined
        assert not (tmp_path / "both.db").exists()


def test_a_file_that_is_whole_is_not_refused(database, tmp_path, capfd):
    assert sweep.run(["--minutes", "0", "--db", str(database)]) == 1  # it has a finding
    assert "1 found" in capfd.readouterr().out
    with closing(Store(database)) as opened:
        assert len(opened.findings()) == 1


@pytest.mark.skipif(os.getuid() == 0, reason="needs a user whom permissions bind")
def test_a_file_that_may_not_be_read_is_named(database, capfd):
    database.chmod(0)
    assert "name another file" in refusal(sweep, "--minutes", 0, "--db", database, capfd=capfd)


def test_a_folder_in_place_of_its_unfinished_file_is_named(tmp_path, capfd):
    (tmp_path / "new.db.part").mkdir()
    how = ("--runs", 1, "--impl", "torch_math", "--device", "cpu", "--db", tmp_path / "new.db")
    assert "cannot be written to" in refusal(sweep, *how, capfd=capfd)
