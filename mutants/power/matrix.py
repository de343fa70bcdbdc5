"""The matrix: judges every planted bug by all laws and all peers, several bugs at a time.

Each bug has a process of its own. Results are on disk during the run, and a run that was
interrupted continues where it stopped. If a process ends by itself or takes too long for one law,
that law gets a verdict, and another process continues with the next one.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from flash_attest.mutants.mutant import CONTRACT, Mutant, build, elsewhere
from flash_attest.mutants.power.child import PEER, SEARCH, Begins, How, Judged, NeedsAnother, items, judge_items
from flash_attest.mutants.power.records import Entry, Record
from flash_attest.properties.cases.support import not_here
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.runner.isolation.endings import FROM_OUTSIDE

CRASH, HANG = "crash", "hang"  # beside the suite's verdicts
KILLS = (FAIL, CRASH)  # not HANG, as a process that takes long may be on a slow machine
LOSSES = 4  # processes that one bug may lose; its other items are unknown then
SECONDS_BETWEEN_SAVES = 2.0
PRELOADED = "flash_attest.mutants.power.child"


@dataclass
class Running:
    """A process that judges a bug."""

    name: str
    process: BaseProcess
    pipe: Connection
    left: list[str]
    item: str = ""
    since: float = field(default_factory=time.monotonic)


def why_not_here(mutant: Mutant, device: str) -> str:
    """Return why a mutant for this device ("cpu" or "cuda") cannot be judged here, or ""."""
    return elsewhere(mutant) or not_here(build(mutant), device) or ""


def missing_items(entry: Entry) -> list[str]:
    """Return the items of a bug that have no verdict, and SEARCH if the named law did not fail."""
    left = [item for item in items() if item not in entry.verdicts]
    if not entry.searched and entry.verdicts.get(entry.law) not in KILLS:
        left.append(SEARCH)
    return left


def killers(entry: Entry) -> list[str]:
    """Return the laws, and CONTRACT, that kill the bug."""
    return [item for item in (CONTRACT, *laws()) if entry.verdicts.get(item) in KILLS]


def peer_killers(entry: Entry) -> list[str]:
    """Return the names of the peers that reject the bug."""
    rejecting = (item for item, verdict in entry.verdicts.items() if item.startswith(PEER) and verdict in KILLS)
    return [item.removeprefix(PEER) for item in rejecting]


def line_of(name: str, entry: Entry) -> str:
    """Return two lines about a finished bug. The second one has the laws that kill it."""
    by, peers = killers(entry), ", ".join(peer_killers(entry)) or "none"
    own = "" if entry.law in by else f" (its own law: {entry.searched or 'not'} in more cases)"
    return f"{name}: {len(by)} laws{own}; other suites: {peers}; {entry.seconds:.0f} s\n    {', '.join(by) or 'none'}"


class Matrix:
    """Judges what a record lacks. told: called with a line about each bug that is finished.

    judge: the function that a process runs. missing(entry) -> the items that a bug lacks.
    line_of(name, entry) -> the line about a finished bug.
    """

    judge = staticmethod(judge_items)
    missing = staticmethod(missing_items)
    line_of = staticmethod(line_of)

    def __init__(
        self, record: Record, names: list[str], how: How, workers: int, seconds: float, file: Path | None,
        told: Callable[[str], None],
    ):  # fmt: skip
        self.record, self.how, self.workers = record, how, workers
        self.seconds, self.file, self.told = seconds, file, told
        self.waiting = [n for n in names if not record.entries[n].elsewhere and self.missing(record.entries[n])]
        self.total, self.losses, self.running, self.saved = len(self.waiting), {}, [], 0.0
        # A fork of a process that has imported torch starts at once, but only a new process can use
        # a GPU.
        self.context = multiprocessing.get_context("spawn" if how.device == "cuda" else "forkserver")
        if how.device != "cuda":
            self.context.set_forkserver_preload([PRELOADED])

    def run(self) -> None:
        """Judge until nothing is missing. The record is saved however this ends."""
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.workers:
                    self._start(self.waiting.pop(0))
                self._listen()
                self._save(SECONDS_BETWEEN_SAVES)
        finally:
            for one in self.running:
                one.process.kill()
            self._save(0.0)

    def _start(self, name: str) -> None:
        left = self.missing(self.record.entries[name])
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=self.judge, args=(theirs, name, self.how, left), daemon=True)
        process.start()
        theirs.close()
        self.running.append(Running(name, process, ours, left))

    def _listen(self) -> None:
        """Take one message from each process that sent some; end those that take too long."""
        ready = wait([one.pipe for one in self.running], timeout=1.0)
        for one in list(self.running):
            if one.pipe in ready:
                self._take(one)
            elif time.monotonic() - one.since > self.seconds:
                self._lost(one, HANG, f"not done after {self.seconds:.0f} s")

    def _take(self, one: Running) -> None:
        try:
            message = one.pipe.recv()
        except (EOFError, OSError):
            one.process.join()
            if self.missing(self.record.entries[one.name]):
                status = one.process.exitcode
                killed = -status in FROM_OUTSIDE  # because memory ran out, say
                self._lost(one, UNKNOWN if killed else CRASH, f"the process ended with status {status}")
            else:
                self._finish(one)
            return
        one.since = time.monotonic()
        match message:
            case Begins(item):
                one.item = item
            case Judged(item, verdict, detail, seconds):
                self._note(one.name, item, verdict, detail, seconds)
                one.item = ""
            case NeedsAnother():
                self._replace(one)

    def _note(self, name: str, item: str, verdict: str, detail: str, seconds: float = 0.0) -> None:
        entry = self.record.entries[name]
        entry.seconds = round(entry.seconds + seconds, 2)
        if item == SEARCH:
            entry.searched = verdict
        else:
            entry.verdicts[item] = verdict
        if detail:
            entry.details[item] = detail

    def _lost(self, one: Running, verdict: str, why: str) -> None:
        """Give the item of a process its verdict. The process has ended, or is ended here."""
        left = self.missing(self.record.entries[one.name])
        self._note(one.name, one.item or left[0], verdict if one.item else UNKNOWN, why, time.monotonic() - one.since)
        self.losses[one.name] = self.losses.get(one.name, 0) + 1
        if self.losses[one.name] >= LOSSES:
            for item in self.missing(self.record.entries[one.name]):
                self._note(one.name, item, UNKNOWN, f"not judged, as {LOSSES} processes were lost before")
        self._replace(one)

    def _replace(self, one: Running) -> None:
        """End the process. Another one judges the other items."""
        one.process.kill()
        one.process.join()
        if self.missing(self.record.entries[one.name]):
            self.running.remove(one)
            self.waiting.insert(0, one.name)
        else:
            self._finish(one)

    def _finish(self, one: Running) -> None:
        self.running.remove(one)
        done = self.total - len(self.waiting) - len(self.running)
        self.told(f"[{done} of {self.total}] {self.line_of(one.name, self.record.entries[one.name])}")

    def _save(self, after: float) -> None:
        if self.file is not None and time.monotonic() - self.saved >= after:
            self.record.save(self.file)
            self.saved = time.monotonic()
