"""The tables of a sweep's file: how they are made, what they must hold, and the statements that
change them.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from flash_attest.sweep.records import Finding, Run, columns

SCHEMA = Path(__file__).with_name("schema.sql")
# Each of these is one statement, so no other worker takes the same row between the choice and the
# change.
TAKE_RUN = """
UPDATE runs SET state = :state, worker = :worker, session = :session, started = :started
WHERE (seed, number) = (
    SELECT seed, number FROM runs
    WHERE state = :open AND device IN (SELECT value FROM json_each(:devices))
        AND impl IN (SELECT value FROM json_each(:impls))
    ORDER BY seed, number LIMIT 1
)
RETURNING *
"""
TAKE_FINDING = """
UPDATE findings SET state = :state, worker = :worker
WHERE rowid = (
    SELECT rowid FROM findings
    WHERE state = :open AND device IN (SELECT value FROM json_each(:devices)) AND impl = :impl AND version = :version
    ORDER BY seed, number LIMIT 1
)
RETURNING *
"""


def create(path: Path, facts: Mapping[str, object]) -> None:
    """Create the file with its tables and facts. Raises sqlite3.Error and OSError."""
    new = path.with_name(f"{path.name}.part")  # a process that dies here leaves no incomplete file
    new.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(new)) as db:
        db.executescript(f"BEGIN;\n{SCHEMA.read_text(encoding='utf-8')}COMMIT;")
        db.executemany("INSERT INTO facts VALUES (?, ?)", [(name, str(value)) for name, value in facts.items()])
        db.commit()
    new.replace(path)


def columns_of(table: str) -> set[tuple]:
    """Return the columns of a table of a new file: name, type, and what it must hold."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA.read_text(encoding="utf-8"))
        return {row[1:] for row in db.execute(f"PRAGMA table_info({table})")}


def problem_of(environment: str) -> str:
    """Return what is wrong with the environment of a session, or ""."""
    try:
        facts = json.loads(environment)
    except ValueError as error:
        return f"is not JSON ({error})"
    if not isinstance(facts, dict):
        return f"is {type(facts).__name__}, should be an object"
    for name in ("given_up", "left_out", "remarks", "implementations"):
        if not isinstance(facts.get(name, []), list):
            return f"has {name}={facts[name]!r}, should be a list"
    for name in ("given_up", "left_out"):
        if wrong := [each for each in facts.get(name, []) if not (isinstance(each, list) and len(each) == 3)]:
            return f"has {wrong[0]!r} in {name}, should be an implementation, a layer and a reason"
    return ""


def is_counted(db: sqlite3.Connection, finding: Finding) -> bool:
    """Count a finding that the file already has. Returns whether the file has it."""
    return db.execute("UPDATE findings SET times = times + ? WHERE impl = ? AND version = ? AND law = ? AND device = ? "
                      "AND key = ?", (finding.times, *finding.place)).rowcount > 0  # fmt: skip


def put(db: sqlite3.Connection, table: str, record: Run | Finding) -> None:
    """Insert a row, or replace the row with the same key."""
    names = columns(type(record))
    db.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
               tuple(getattr(record, name) for name in names))  # fmt: skip
