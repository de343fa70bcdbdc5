"""The SQLite file of a sweep: every run is in it before it is launched, and a process may be killed at any moment.

A write-ahead log makes each change whole or absent, whichever process dies; several processes write, one statement at a time.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from flash_attest.properties.judging.verdict import UNKNOWN
from flash_attest.runner.parts import Shard
from flash_attest.sweep.records import DIED, DONE, DRAWN, FOUND, IN_WORK, REPORTED, RUNNING, Finding, Run, columns

SCHEMA = Path(__file__).with_name("schema.sql")
FORMAT = "1"
PATIENCE = 60.0  # seconds to wait for another process that writes: its disk may be slow
TWICE = (
    "launched twice, and neither time did it come back: it takes its process down, or the sweep was killed both times"
)
# One statement each, so that no other worker takes the same row between the choice and the change.
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


class StoreError(ValueError):
    """The file cannot be read or written, or is no sweep. The text says which and why."""


class Store:
    """A connection to the file. Each process has its own."""

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise StoreError(f"{path}: there is no such file")
        self._db = self._connected(path)
        with self._errors():
            facts = dict(self._db.execute("SELECT name, value FROM facts"))
        if facts.get("format") != FORMAT:
            raise StoreError(f"{path}: its format is {facts.get('format')}, should be {FORMAT}")
        self.seed, self.shard = int(facts["seed"]), Shard(int(facts["part"]), int(facts["of"]))
        self.merged = facts["merged"] == "yes"
        if not self.merged:  # nothing is added to that
            with self._errors():
                self._db.execute("PRAGMA journal_mode = WAL")

    @classmethod
    def made(cls, path: Path, seed: int, shard: Shard, merged: bool = False) -> Store:
        """A new file."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written to ({error.strerror})") from None
        new = path.with_name(f"{path.name}.part")  # a process that dies here leaves no half of a file
        new.unlink(missing_ok=True)
        facts = {"format": FORMAT, "seed": seed, "part": shard.part, "of": shard.of, "next": 0}
        facts["merged"] = "yes" if merged else "no"
        try:
            with contextlib.closing(sqlite3.connect(new)) as db:
                db.executescript(f"BEGIN;\n{SCHEMA.read_text()}COMMIT;")
                db.executemany("INSERT INTO facts VALUES (?, ?)", [(name, str(value)) for name, value in facts.items()])
                db.commit()
            new.replace(path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{path}: cannot be written to ({error})") from None
        return cls(path)

    def settle(self) -> None:
        """Put the log into the file, which may be copied then. Raises StoreError if another process is at work on it."""
        with self._errors():
            if self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise StoreError(f"{self.path}: another process uses it, so its log cannot be put into it")

    def close(self) -> None:
        """The last process to close puts the log into the file, as far as the disk allows (settle says if it does not)."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    # --- sessions -------------------------------------------------------------------------------------------------------

    def begin(self, session: str, environment: dict) -> None:
        """A session starts."""
        with self._writing() as db:
            db.execute("INSERT INTO sessions (id, started, state, environment) VALUES (?, ?, 'running', ?)",
                       (session, now(), json.dumps(environment)))  # fmt: skip

    def end(self, session: str, state: str, seconds: float) -> None:
        """It ended, as `state` says."""
        with self._writing() as db:
            db.execute("UPDATE sessions SET ended = ?, state = ?, seconds = ? WHERE id = ?",
                       (now(), state, seconds, session))  # fmt: skip

    def note(self, session: str, name: str, value: object) -> None:
        """Add to a list in the environment of a session, unless another worker has: a pair that is given up, a remark."""
        with self._writing() as db:
            (text,) = db.execute("SELECT environment FROM sessions WHERE id = ?", (session,)).fetchone()
            environment = json.loads(text)
            listed = environment.setdefault(name, [])
            if value not in listed:
                listed.append(value)
                db.execute("UPDATE sessions SET environment = ? WHERE id = ?", (json.dumps(environment), session))

    def noted(self, session: str, name: str) -> list:
        """What was noted."""
        ((text,),) = self.rows("SELECT environment FROM sessions WHERE id = ?", session)
        return json.loads(text).get(name, [])

    def recover(self, worker: str | None = None) -> tuple[int, int]:
        """Nothing is in progress, or not by this worker: what has no end gets another try, the second time a verdict.

        Returns how many runs are to be tried again, and how many have died for good.
        """
        mine, who = ("AND worker = ?", (worker,)) if worker is not None else ("", ())
        with self._writing() as db:
            db.execute(f"UPDATE findings SET state = ?, reduced = 'no: two processes died of it' WHERE state = ? "
                       f"AND deaths > 0 {mine}", (REPORTED, IN_WORK, *who))  # fmt: skip
            db.execute(f"UPDATE findings SET state = ?, deaths = deaths + 1 WHERE state = ? {mine}",
                       (FOUND, IN_WORK, *who))  # fmt: skip
            gone = db.execute(f"UPDATE runs SET state = ?, deaths = deaths + 1, verdict = ?, why = ?, reason = ? "
                              f"WHERE state = ? AND deaths > 0 {mine}",
                              (DONE, UNKNOWN, DIED, TWICE, RUNNING, *who)).rowcount  # fmt: skip
            again = db.execute(f"UPDATE runs SET state = ?, deaths = deaths + 1 WHERE state = ? {mine}",
                               (DRAWN, RUNNING, *who)).rowcount  # fmt: skip
        return again, gone

    def release(self) -> None:
        """What is in progress was ended by the sweep itself: it is to be tried again, and nothing died."""
        with self._writing() as db:
            db.execute("UPDATE runs SET state = ? WHERE state = ?", (DRAWN, RUNNING))
            db.execute("UPDATE findings SET state = ? WHERE state = ?", (FOUND, IN_WORK))

    # --- runs -----------------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A number that no other run of any shard has."""
        with self._writing() as db:
            (n,) = db.execute("SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'next'").fetchone()
            db.execute("UPDATE facts SET value = ? WHERE name = 'next'", (str(n + 1),))
        return n * self.shard.of + self.shard.part - 1

    def launch(self, run: Run) -> None:
        """Write a run down: it is about to be launched."""
        run.state, run.started = RUNNING, now()
        self.keep(run)

    def keep(self, run: Run) -> None:
        """Write a run as it is."""
        with self._writing() as db:
            _put(db, "runs", run)

    def left(self, worker: str, session: str, devices: list[str], impls: list[str]) -> Run | None:
        """A run of these implementations that was drawn before and has no verdict, now in progress by this worker."""
        taken_by = {"state": RUNNING, "worker": worker, "session": session, "started": now()}
        among = {"open": DRAWN, "devices": json.dumps(devices), "impls": json.dumps(impls)}
        with self._writing() as db:
            rows = db.execute(TAKE_RUN, taken_by | among).fetchall()
        return Run(**rows[0]) if rows else None

    def done(self, run: Run, findings: Iterable[Finding] = ()) -> None:
        """It has an end. A finding that is there already counts once more."""
        run.state = DONE
        with self._writing() as db:
            _put(db, "runs", run)
            for finding in findings:
                if not _known(db, finding):
                    _put(db, "findings", finding)

    # --- findings -------------------------------------------------------------------------------------------------------

    def unreported(self, worker: str, devices: list[str], impls: dict[str, str]) -> Finding | None:
        """A finding of these implementations (name -> version) that is to be repeated and reduced, now by this worker."""
        values = {"state": IN_WORK, "worker": worker, "open": FOUND, "devices": json.dumps(devices)}
        with self._writing() as db:
            for impl, version in impls.items():
                rows = db.execute(TAKE_FINDING, {**values, "impl": impl, "version": version}).fetchall()
                if rows:
                    return Finding(**rows[0])
        return None

    def report(self, finding: Finding) -> None:
        """It has been repeated and reduced. Other workers may have found it again meanwhile."""
        finding.state = REPORTED
        with self._writing() as db:
            (finding.times,) = db.execute("SELECT times FROM findings WHERE impl = ? AND version = ? AND law = ? "
                                          "AND device = ? AND key = ?", finding.place).fetchone()  # fmt: skip
            _put(db, "findings", finding)

    # --- reading --------------------------------------------------------------------------------------------------------

    def rows(self, sql: str, *values: Any, **named: Any) -> list[sqlite3.Row]:
        """What a SELECT gives, of values for its question marks, or for its names."""
        with self._errors():
            return self._db.execute(sql, named or values).fetchall()

    def findings(self) -> list[Finding]:
        """All of them, the first found first."""
        return [Finding(**row) for row in self.rows("SELECT * FROM findings ORDER BY found, impl, law, key")]

    def fill(self, sessions: Iterable[tuple], runs: Iterable[Run], findings: Iterable[Finding]) -> None:
        """Write everything at once."""
        with self._writing() as db:
            db.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", sessions)
            for run in runs:
                _put(db, "runs", run)
            for finding in findings:
                _put(db, "findings", finding)

    # --- SQLite ---------------------------------------------------------------------------------------------------------

    def _connected(self, path: Path) -> sqlite3.Connection:
        with self._errors():
            db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
            db.row_factory = sqlite3.Row
            db.execute(
                "PRAGMA synchronous = NORMAL"
            )  # enough for processes that die; a power cut may cost the last runs
        return db

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One change: all of the block, or nothing."""
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error


def now() -> str:
    """The date and time, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _known(db: sqlite3.Connection, finding: Finding) -> bool:
    """Whether it is there; it is counted then."""
    return db.execute("UPDATE findings SET times = times + ? WHERE impl = ? AND version = ? AND law = ? AND device = ? "
                      "AND key = ?", (finding.times, *finding.place)).rowcount > 0  # fmt: skip


def _put(db: sqlite3.Connection, table: str, record: Run | Finding) -> None:
    """Insert a row, or replace the one with its key."""
    names = columns(type(record))
    db.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
               tuple(getattr(record, name) for name in names))  # fmt: skip
