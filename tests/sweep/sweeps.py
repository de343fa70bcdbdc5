"""Helpers: a kernel with a planted race, runs, and sweeps in forks of this process.

Forks do not have to import everything again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import torch

from flash_attest.command import sweep as command
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.progress import NOW
from flash_attest.races.poison import poisoned
from flash_attest.runner.parts import Shard
from flash_attest.sweep import crew, report, worker
from flash_attest.sweep.records import DRAWN, FOUND, Finding, Run
from flash_attest.sweep.store import Store
from tests.places import ROOT

EXAMPLE = ROOT / "examples"
# From the second tile of keys on, this barrier keeps the next tile from overwriting the previous
# one.
BARRIER = "__syncthreads();  // V, P and alpha are still being read"
HEADDIMS = "headdims=range(1, 129)"
NAME = "racy"
WHOLE = Shard(1, 1)


def racy(folder: Path) -> Path:
    """Return a plug-in whose kernel is the kernel of examples/ without BARRIER, with small head
    dims, which are soon traced.
    """
    source = (EXAMPLE / "flash_forward.cu").read_text()
    assert source.count(BARRIER) == 1
    (folder / "flash_forward.cu").write_text(source.replace(BARRIER, BARRIER.removeprefix("__syncthreads();  ")))
    plugin = folder / f"{NAME}.py"
    text = (EXAMPLE / "flash_forward.py").read_text().replace("cuda_flash_forward", NAME)
    assert text.count(HEADDIMS) == 1
    plugin.write_text(text.replace(HEADDIMS, "headdims={1, 4}"))
    return plugin


def run(number: int, **fields) -> Run:
    """Return a run with some default values, which `fields` replace."""
    about = dict(seed=7, session="s", impl="mine", version="1", layer="repeat", law="test_repeats_agree", device="cpu")
    about |= dict(case_="seqlen_q=1", perturbations="", asked=10, state=DRAWN)
    return Run(**about | dict(number=number) | fields)


def finding(number: int = 0, **fields) -> Finding:
    """Return a finding with some default values, which `fields` replace."""
    about = dict(seed=7, impl="mine", version="1", layer="repeat", law="test_repeats_agree", device="cpu")
    about |= dict(case_="seqlen_q=1", perturbations="", asked=10, state=FOUND, found="2026-01-02", replay="pytest x")
    about |= dict(key="out: # of # repeat differ", headline="out: 3 of 10 repeats differ", message="out: 3 of 10")
    return Finding(**about | dict(number=number) | fields)


def store(path: Path, seed: int = 7, shard: Shard = WHOLE) -> Store:
    """Return a new store with one session, s."""
    database = Store.made(path, seed, shard)
    database.begin("s", {"device_name": "a machine", "workers": 1, "command": "sweep", "implementations": ["mine"]})
    return database


def passed(number: int, **fields) -> Run:
    """Return a run that found nothing in ten repeats."""
    return run(number, **dict(verdict=PASS, repeats=10, started=f"2026-01-01T00:00:{number:02}+00:00") | fields)


@contextlib.contextmanager
def sweeping(*arguments: object, log: Path, largest: int = 0) -> Iterator[int]:
    """Runs a sweep in a fork of this process, with its own process group, which is killed at the
    end.

    largest: the bytes of a file beyond which writing fails, as on a full disk.
    """
    with poisoned(0, "cpu", [1]):
        torch.empty(1)  # the first call imports much of torch, which each judging process would repeat
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setsid()
            if largest:
                sys.dont_write_bytecode = True  # other processes could not import truncated files
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
            with open(log, "a") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            torch.set_num_threads(1)
            crew.get_context, crew.worker = (
                lambda _: multiprocessing.get_context("fork"),
                SimpleNamespace(main=_worker, NO_DISK=worker.NO_DISK),
            )
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with open(log, "a") as file:
                status = command.run([str(each) for each in arguments], report.Console(file=file, width=200))
        except SystemExit as error:
            status = error.code
        finally:
            os._exit(status)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)


def _worker(*arguments: object) -> None:
    """Run a worker in a fork."""
    NOW.__init__()  # a restarted worker needs its own shared memory with its judging process
    worker.main(*arguments)


def status_of(child: int) -> int:
    """Wait for a process. Returns its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def swept(*arguments: object, log: Path, largest: int = 0) -> int:
    """Run a whole sweep. Returns its exit status."""
    with sweeping(*arguments, log=log, largest=largest) as child:
        return status_of(child)


def runs(db: Path, where: str = "1") -> list[Run]:
    """Return the runs in a file, which may be in use; [] if there is no file yet."""
    if not db.exists():
        return []
    with closing(Store(db)) as database:
        return [Run(**row) for row in database.rows(f"SELECT * FROM runs WHERE {where} ORDER BY number")]


def until(holds: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until `holds` returns a true value."""
    stop = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < stop, "it took too long"
        time.sleep(0.02)


def processes_of_group(group: int) -> list[int]:
    """Return the processes of a session, without zombies."""
    processes = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            after = (entry / "stat").read_text().rpartition(")")[2].split()
            if entry.name.isdecimal() and int(after[3]) == group and after[0] != "Z":
                processes.append(int(entry.name))
    return processes
