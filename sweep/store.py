"""The SQLite file of a sweep.

Every run is written before it is launched, because a process may be killed at any moment. Several
processes write, one statement at a time. The file uses a write-ahead log, so each change is
complete or absent, whichever process dies.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from flash_attest.properties.judging.verdict import UNKNOWN
from flash_attest.runner.parts import Shard
from flash_attest.sweep.records import DIED, DONE, DRAWN, FOUND, IN_WORK, REPORTED, RUNNING, Finding, Run
from flash_attest.sweep.tables import TAKE_FINDING, TAKE_RUN, columns_of, create, is_counted, problem_of, put

FORMAT = "1"
PATIENCE = 60.0  # seconds to wait for another process to write: the disk may be slow
TWICE = (
    "launched twice, and neither time did it come back: it takes its process down, or the sweep was killed both times"
)


class StoreError(ValueError):
    """The file cannot be read or written, or is not from a sweep. The message says which file and
    why.
    """


class Store:
    """A connection to the file. Each process has its own."""

    def __init__(self, path: Path):
        self.path = path
        try:
            if path.is_dir():
                raise StoreError(f"{path}: is a folder, should be the file of a sweep: name the file in it")
            if not path.is_file():
                raise StoreError(f"{path}: there is no such file")
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}): name another file") from None
        self._db = self._connected(path)
        with self._errors():
            facts = dict(self._db.execute("SELECT name, value FROM facts"))
        if facts.get("format") != FORMAT:
            raise StoreError(
                f"{path}: its format is {facts.get('format')}, should be {FORMAT}: another version wrote it; name another "
                "file, or use that version"
            )
        try:
            self.seed, self.shard = int(facts["seed"]), Shard(int(facts["part"]), int(facts["of"]))
            self.merged = {"yes": True, "no": False}[facts["merged"]]
            _ = int(facts["next"])
        except (KeyError, ValueError, TypeError) as error:
            raise self.damaged(f"its facts are not those of a sweep ({type(error).__name__}: {error})") from None
        if not self.merged:  # nothing is added to a merged file
            with self._errors():
                self._db.execute("PRAGMA journal_mode = WAL")

    @classmethod
    def made(cls, path: Path, seed: int, shard: Shard, merged: bool = False) -> Store:
        """Create a file."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written to ({error.strerror})") from None
        facts = {"format": FORMAT, "seed": seed, "part": shard.part, "of": shard.of, "next": 0}
        facts["merged"] = "yes" if merged else "no"
        try:
            create(path, facts)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{path}: cannot be written to ({error})") from None
        return cls(path)

    def damaged(self, what: str) -> StoreError:
        """Return the error for a file that is not as a sweep leaves it."""
        return StoreError(f"{self.path}: {what}: restore a copy of it, or name another file")

    def check(self, layers: Collection[str]) -> None:
        """Read the whole file. Raises StoreError if it is damaged, before anything is added to it.

        layers: the names that a run may have.
        """
        with self._errors():
            for table in ("facts", "sessions", "runs", "findings"):
                there = {tuple(row)[1:] for row in self._db.execute(f"PRAGMA table_info({table})")}
                if there != columns_of(table):
                    raise self.damaged(f"its table {table} is not the table of a sweep")
            (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise self.damaged(" ".join(found.split()))
        for row in self.rows("SELECT id, environment FROM sessions"):
            if problem := problem_of(row["environment"]):
                raise self.damaged(f"the environment of session {row['id']} {problem}")
        for row in self.rows("SELECT DISTINCT layer FROM runs"):
            if row["layer"] not in layers:
                raise self.damaged(f"it has runs of a layer {row['layer']!r}, should be one of {', '.join(layers)}")

    def settle(self) -> None:
        """Move the log into the file, so that the file may be copied.

        Raises StoreError if another process uses the file.
        """
        with self._errors():
            if self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise StoreError(f"{self.path}: another process uses it, so its log cannot be put into it")

    def close(self) -> None:
        """Close the connection. The last process to close moves the log into the file.

        A full disk may prevent that; `settle` reports it.
        """
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    # --- sessions ---------------------------------------------------------------------------------

    def begin(self, session: str, environment: dict) -> None:
        """Record that a session starts."""
        with self._writing() as db:
            db.execute("INSERT INTO sessions (id, started, state, environment) VALUES (?, ?, 'running', ?)",
                       (session, now(), json.dumps(environment)))  # fmt: skip

    def end(self, session: str, state: str, seconds: float) -> None:
        """Record how a session ended."""
        with self._writing() as db:
            db.execute("UPDATE sessions SET ended = ?, state = ?, seconds = ? WHERE id = ?",
                       (now(), state, seconds, session))  # fmt: skip

    def note(self, session: str, name: str, value: object) -> None:
        """Add a value to a list in the environment of a session, unless another worker has added
        it.

        The lists are "given_up", which has pairs, and "remarks".
        """
        with self._writing() as db:
            (text,) = db.execute("SELECT environment FROM sessions WHERE id = ?", (session,)).fetchone()
            environment = json.loads(text)
            notes = environment.setdefault(name, [])
            if value not in notes:
                notes.append(value)
                db.execute("UPDATE sessions SET environment = ? WHERE id = ?", (json.dumps(environment), session))

    def noted(self, session: str, name: str) -> list:
        """Return a list that `note` has made."""
        ((text,),) = self.rows("SELECT environment FROM sessions WHERE id = ?", session)
        return json.loads(text).get(name, [])

    def recover(self, worker: str | None = None) -> tuple[int, int]:
        """Recover the runs and findings that a dead worker left in progress (None: those of all
        workers).

        They are tried again. After a second death they get a verdict. Returns the number of runs to
        try again, and the number of runs that got a verdict.
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
        """Release runs and findings in progress that the sweep itself ended, so that no death is
        counted.
        """
        with self._writing() as db:
            db.execute("UPDATE runs SET state = ? WHERE state = ?", (DRAWN, RUNNING))
            db.execute("UPDATE findings SET state = ? WHERE state = ?", (FOUND, IN_WORK))

    # --- runs -------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """Reserve a number that no other run of any shard has."""
        with self._writing() as db:
            (n,) = db.execute("SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'next'").fetchone()
            db.execute("UPDATE facts SET value = ? WHERE name = 'next'", (str(n + 1),))
        return n * self.shard.of + self.shard.part - 1

    def launch(self, run: Run) -> None:
        """Record a run that is about to be launched."""
        run.state, run.started = RUNNING, now()
        self.keep(run)

    def keep(self, run: Run) -> None:
        """Record a run as it is."""
        with self._writing() as db:
            put(db, "runs", run)

    def left(self, worker: str, session: str, devices: list[str], impls: list[str]) -> Run | None:
        """Take a run of these implementations that was drawn earlier and has no verdict.

        The run is then in progress for this worker. Returns None if there is none.
        """
        taken_by = {"state": RUNNING, "worker": worker, "session": session, "started": now()}
        among = {"open": DRAWN, "devices": json.dumps(devices), "impls": json.dumps(impls)}
        with self._writing() as db:
            rows = db.execute(TAKE_RUN, taken_by | among).fetchall()
        return Run(**rows[0]) if rows else None

    def done(self, run: Run, findings: Iterable[Finding] = ()) -> None:
        """Record a finished run. If the file already has its finding, the finding's count is
        increased.
        """
        run.state = DONE
        with self._writing() as db:
            put(db, "runs", run)
            for finding in findings:
                if not is_counted(db, finding):
                    put(db, "findings", finding)

    # --- findings ---------------------------------------------------------------------------------

    def unreported(self, worker: str, devices: list[str], impls: dict[str, str]) -> Finding | None:
        """Take a finding of these implementations (name -> version) to repeat and reduce.

        The finding is then in progress for this worker. Returns None if there is none.
        """
        values = {"state": IN_WORK, "worker": worker, "open": FOUND, "devices": json.dumps(devices)}
        with self._writing() as db:
            for impl, version in impls.items():
                rows = db.execute(TAKE_FINDING, {**values, "impl": impl, "version": version}).fetchall()
                if rows:
                    return Finding(**rows[0])
        return None

    def report(self, finding: Finding) -> None:
        """Record a finding that has been repeated and reduced."""
        finding.state = REPORTED
        with self._writing() as db:
            # Other workers may have found it again in the meantime.
            (finding.times,) = db.execute("SELECT times FROM findings WHERE impl = ? AND version = ? AND law = ? "
                                          "AND device = ? AND key = ?", finding.place).fetchone()  # fmt: skip
            put(db, "findings", finding)

    # --- reading ----------------------------------------------------------------------------------

    def rows(self, sql: str, *values: Any, **named: Any) -> list[sqlite3.Row]:
        """Return the rows of a SELECT. values, named: the values of its question marks or of its
        names.
        """
        with self._errors():
            return self._db.execute(sql, named or values).fetchall()

    def findings(self) -> list[Finding]:
        """Return all findings, in the order in which they were found."""
        return [Finding(**row) for row in self.rows("SELECT * FROM findings ORDER BY found, impl, law, key")]

    def fill(self, sessions: Iterable[tuple], runs: Iterable[Run], findings: Iterable[Finding]) -> None:
        """Write many rows in one transaction."""
        with self._writing() as db:
            db.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", sessions)
            for run in runs:
                put(db, "runs", run)
            for finding in findings:
                put(db, "findings", finding)

    # --- SQLite -----------------------------------------------------------------------------------

    def _connected(self, path: Path) -> sqlite3.Connection:
        with self._errors():
            db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
            db.row_factory = sqlite3.Row
            # This is enough if processes die. A power cut may cost the last runs.
            db.execute("PRAGMA synchronous = NORMAL")
        return db

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: either everything in the block is written, or nothing."""
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
            # A full disk and an unreadable file are OperationalErrors, as an absent table is.
            if type(error) is sqlite3.DatabaseError or "no such" in str(error) or "decode" in str(error):
                raise self.damaged(f"it is not the file of a sweep, or damaged ({error})") from error
            raise StoreError(f"{self.path}: {error}") from error


def now() -> str:
    """Return the date and time, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
