"""The matrix of races: each planted race in its own process, judged by every cell.

It resumes like the matrix of mutants/power.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from flash_attest.emulator.errors import EmulatorError
from flash_attest.mutants import ALL, by_name
from flash_attest.mutants.mutant import Mutant, build
from flash_attest.mutants.power.child import Begins, Judged, NeedsAnother
from flash_attest.mutants.power.matrix import KILLS, Matrix
from flash_attest.mutants.power.records import Entry
from flash_attest.mutants.races.cells import Cell, case_for, cells, verdict_of
from flash_attest.mutants.races.kinds import planted
from flash_attest.properties.calling.raised import device_works
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import UNKNOWN
from flash_attest.runner.plugin.process import prepare

TOGETHER = 2  # processes that launch on a GPU at the same time, if timing matters
SIGN = 5.0  # seconds between two signs of life of a process that waits for the lock


@dataclass(frozen=True)
class How:
    """The settings for judging a race. This is a plain record, because it is sent to other
    processes.

    cells: the cells to judge now.
    """

    device: str
    repeats: int
    seed: int
    cells: tuple[Cell, ...]


class Races(Matrix):
    """Judges the cells that a record of races lacks."""

    def __init__(self, record, names, how: How, workers: int, seconds: float, file, say):
        self.missing = partial(missing_cells, how.cells)
        super().__init__(record, names, how, workers, seconds, file, say)
        self.line_of = partial(line_of, how.cells)

    def run(self) -> None:
        with TemporaryDirectory() as folder:
            self.judge = partial(judge_cells, Path(folder))
            super().run()


def missing_cells(wanted: tuple[Cell, ...], entry: Entry) -> list[str]:
    """Return the cells without a verdict."""
    return [str(cell) for cell in wanted if str(cell) not in entry.verdicts]


def line_of(wanted: tuple[Cell, ...], name: str, entry: Entry) -> str:
    """Return the line for a finished race, with the cells that find it."""
    by = [found_by(entry, cell) for cell in wanted if entry.verdicts.get(str(cell)) in KILLS]
    return f"{name}: {', '.join(by) or 'not found'}; {entry.seconds:.0f} s"


def found_by(entry: Entry, cell: Cell) -> str:
    """Return the cell, and the number of repeats after which it found the race: "repeat cold 7"."""
    return f"{cell} {entry.details.get(str(cell), '').partition(':')[0]}"


def judge_cells(folder: Path, pipe: Connection, name: str, how: How, wanted: list[str]) -> None:
    """Judge a planted race by these cells, and send a message before and after each.

    Cells that depend on timing wait for a lock, after everything is compiled; the locks are in
    `folder`.
    """
    # Ctrl-C: the parent ends this process, after it has read the results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    mutant = replace(planted(ALL)[name].mutant, device=how.device)
    with suppress(Exception):  # the first cell raises the error again
        build(mutant)
    prepare(how.device, is_worker=True)
    known, by_name = Known(), {str(cell): cell for cell in cells(how.device)}
    turn = FileLock(folder / str(os.getpid() % TOGETHER))
    try:
        if how.device == "cuda":
            with suppress(Exception):
                _compile(mutant)
        for item in wanted:
            cell = by_name[item]
            with _turn(turn, pipe, item) if how.device == "cuda" and cell.layer != "sanitizer" else nullcontext():
                pipe.send(Begins(item))
                started = time.perf_counter()
                verdict, detail = _verdict(cell, mutant, how, known)
            pipe.send(Judged(item, verdict, detail, time.perf_counter() - started))
            if not device_works(how.device):
                pipe.send(NeedsAnother())
                return
    except BrokenPipeError:  # the parent process has ended
        return


def _turn(lock: FileLock, pipe: Connection, item: str):
    """Take the lock, and return it as a context manager.

    While waiting, tell the parent that the process lives.
    """
    while True:
        try:
            return lock.acquire(timeout=SIGN)
        except Timeout:
            pipe.send(Begins(item))


def _compile(mutant: Mutant) -> None:
    impl = build(mutant)
    trial = Plan("cuda").trial(impl, case_for(impl, "cuda"))
    trial.run(backward=trial.backward)


def _verdict(cell: Cell, mutant: Mutant, how: How, known: Known) -> tuple[str, str]:
    try:
        return verdict_of(cell, build(mutant), how.device, how.repeats, how.seed, by_name.origin(mutant), known)
    except EmulatorError as error:  # the edited file does not compile, so nothing was judged
        return UNKNOWN, (str(error).splitlines() or [""])[0]
    except Exception as error:
        return UNKNOWN, f"judging it raises {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
