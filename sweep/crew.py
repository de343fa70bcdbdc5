"""Starts the workers of one host, restarts workers that die, and ends all when the time is over."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from multiprocessing import connection, get_context
from multiprocessing.context import SpawnProcess

from flash_attest.sweep import worker
from flash_attest.sweep.plan import Job
from flash_attest.sweep.progress import Progress
from flash_attest.sweep.store import Store, StoreError

POLL = 1.0  # seconds between readings of the file
GRACE = 60.0  # seconds after the end of the time for runs that are in progress
STOPPING = 10.0  # seconds for a worker to end after a signal
MOST_DEATHS = 5  # deaths of a worker in a row, without a finished run
COMPLETE, INTERRUPTED, STOPPED = "complete", "interrupted", "stopped"


class Crew:
    """The workers of one host. places: (name of the worker, its GPU or None)."""

    def __init__(self, job: Job, places: list[tuple[str, str | None]], store: Store, progress: Progress):
        self.job, self.places, self.store, self.progress = job, dict(places), store, progress
        self.trouble = ""  # the reason why the sweep stopped early
        self._context = get_context("spawn")  # a fork would inherit locks and threads of this process
        self._workers: dict[str, SpawnProcess] = {}
        self._deaths: Counter[str] = Counter()
        self._done_at_death: dict[str, int] = {}
        self._most: dict[str, int] = {}  # the number of runs that each worker is to make; 0: no limit

    def work(self) -> str:
        """Keep the workers busy until the time is over. Returns how the sweep ended."""
        try:
            self._share_out()
            while self._workers and not self.trouble and time.monotonic() < self.job.stop + GRACE:
                self._watch()
            self._end_all()
            self.progress.show(self.store, last=True)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rest takes seconds
            self._end_all()
            return INTERRUPTED
        except StoreError as error:
            self.trouble = self.trouble or str(error)
            self._end_all()
        self.trouble = self.trouble or self._too_early()
        return STOPPED if self.trouble else COMPLETE

    def _too_early(self) -> str:
        """Return why the workers ended early or made fewer runs than --runs; "" if neither
        happened.
        """
        if time.monotonic() >= self.job.stop:
            return ""
        done = sum(map(self._done, self.places))
        if done < self.job.most:
            return f"{done} of {self.job.most} runs were made: see the runs without a verdict"
        return "" if self.job.most else "nothing is left to draw: see the runs without a verdict"

    def _share_out(self) -> None:
        """Start every worker with its share of the runs."""
        share, more = divmod(self.job.most, len(self.places))
        self._most = {name: share + (n < more) for n, name in enumerate(self.places)}
        for name in self.places:
            self._start(name, 0)

    def _start(self, name: str, done: int) -> None:
        """Start a worker, unless it has made all of its runs."""
        if self.job.most and done >= self._most[name]:
            return
        job = replace(self.job, most=self._most[name] - done if self.job.most else 0)
        process = self._context.Process(target=worker.main, args=(job, name, self.places[name], os.getpid()), name=name)
        process.start()
        self._workers[name] = process

    def _watch(self) -> None:
        connection.wait([process.sentinel for process in self._workers.values()], POLL)
        for name, process in list(self._workers.items()):
            if process.is_alive():
                continue
            process.join()
            del self._workers[name]
            if process.exitcode == worker.NO_DISK:
                self.trouble = f"{self.job.db} cannot be written"
            elif process.exitcode != 0:
                self._died(name, process.exitcode)
        self.progress.show(self.store)

    def _died(self, name: str, status: int) -> None:
        """Recover the run of a worker that died, and restart the worker, up to MOST_DEATHS times.

        The run is tried again. If it ends a worker twice, it gets a verdict.
        """
        self.store.recover(name)
        done = self._done(name)
        self._deaths[name] = 1 if done > self._done_at_death.get(name, 0) else self._deaths[name] + 1
        self._done_at_death[name] = done
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        self.progress.tell(f"worker {name} ended by {how}")
        if self._deaths[name] >= MOST_DEATHS:
            self.progress.tell(
                f"worker {name} is not started again: it ended {MOST_DEATHS} times without finishing a run"
            )
            if not self._workers:
                self.trouble = "no worker is left: see standard error"
            return
        self._start(name, done)

    def _done(self, name: str) -> int:
        sql = "SELECT count(*) FROM runs WHERE session = ? AND worker = ? AND state = 'done'"
        return self.store.rows(sql, self.job.session, name)[0][0]

    def _end_all(self) -> None:
        """End all workers. The next sweep tries the runs in progress again."""
        for process in self._workers.values():
            process.terminate()
        stop = time.monotonic() + STOPPING
        for process in self._workers.values():
            process.join(max(0.0, stop - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._workers.clear()
        try:
            self.store.release()
        except StoreError as error:  # the next sweep takes runs in progress for dead ones
            print(error, file=sys.stderr)
