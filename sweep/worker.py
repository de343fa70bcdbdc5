"""A worker of a sweep: a process that judges runs, on one GPU if there is one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from contextlib import closing

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.runner.isolation.child import die_with
from flash_attest.sweep import plan
from flash_attest.sweep.drawing import NoCase, Pair, drawn
from flash_attest.sweep.findings import Examiner, findings_of
from flash_attest.sweep.judging import Judging
from flash_attest.sweep.plan import LAYERS, Job
from flash_attest.sweep.records import DRAWN, Run
from flash_attest.sweep.store import Store, StoreError
from flash_attest.sweep.version import version_of

# The number of runs in a row without a verdict after which a pair of implementation and layer is
# given up, because the reason will not go away.
GIVEN_UP = {UNKNOWN: 3, REFUSED: 50}
NOT_ISOLATED = "kernels are called by the workers themselves: a crash takes a worker down, and nothing ends a call"
NO_DISK = 3  # the exit status of a worker that cannot write the file


def main(job: Job, name: str, gpu: str | None, parent: int) -> None:
    """Run a worker. Exit status 0: the time is over, or nothing is left to draw."""
    _settle(gpu, parent)
    with contextlib.suppress(KeyboardInterrupt):
        _work(job, name)


def _work(job: Job, name: str) -> None:
    try:
        with closing(Store(job.db)) as store:
            entries = plan.entries(job.names, job.files, job.device, job.limit, tried=True)
            judging = Judging(job, entries)
            try:
                if not judging.isolated:
                    store.note(job.session, "remarks", NOT_ISOLATED)
                Worker(job, name, store, entries, judging).work()
            finally:
                judging.close()
                for line in judging.left:
                    store.note(job.session, "remarks", line)
    except StoreError as error:
        print(error, file=sys.stderr)
        sys.exit(NO_DISK)


def _settle(gpu: str | None, parent: int) -> None:
    """Set up the process: signals, its end when the parent ends, and its GPU."""
    # Ctrl-C is handled by the parent, which ends this process by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # If kernels run in this process, a SystemExit would count as raised by the implementation, and
    # the verdict would be fail.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.platform == "linux":
        die_with(parent)
    elif os.getppid() != parent:
        os._exit(1)
    # Otherwise multiprocessing would also use "spawn" here, because this process was started that
    # way. A lock made in a judging process (torch.compile makes one) would then have a name, and
    # would be reported as leaked when that process ends.
    multiprocessing.set_start_method(None, force=True)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # nothing has touched CUDA in this process


class Worker:
    """Judges runs that other workers left, then draws new ones, until the time is over."""

    def __init__(self, job: Job, name: str, store: Store, entries: list, judging: Judging):
        self.job, self.name, self.store, self.judging = job, name, store, judging
        self.impls = {entry.name: entry.impl for entry in entries}
        self.versions = {entry.name: version_of(entry, job.device_name) for entry in entries}
        self.devices = sorted({job.device, "cpu"})
        self.pairs: list[Pair] = [
            (entry, layer)
            for entry in entries
            for layer in LAYERS.values()
            if layer.turns[job.device] and not layer.not_applicable(entry.impl, job.device)
        ]
        self.left = list(self.pairs)  # pairs that were not given up
        self.without: Counter[tuple[str, str, str]] = Counter()  # runs in a row that were refused or unknown

    def work(self) -> None:
        """Examine findings and judge runs until the time is over."""
        finished = 0
        while time.monotonic() < self.job.stop:
            if (finding := self.store.unreported(self.name, self.devices, self.versions)) is not None:
                Examiner(finding, self.impls[finding.impl], self.job, self.judging).examine()
                self.store.report(finding)
            elif 0 < self.job.most <= finished:
                return
            elif (run := self._next()) is not None:
                finished += self._judge(run)
            elif not self.left:
                return

    def _next(self) -> Run | None:
        """Return a run that was drawn and not finished, or a new one. In both cases it is in the
        file.
        """
        run = self.store.left(self.name, self.job.session, self.devices, list(self.impls))
        if run is not None:
            return run
        if not self.left:
            return None
        try:
            run = drawn(self.job, self.store.next_number(), self.pairs, self.versions, self.left)
        except NoCase as none:
            self._give_up(none.pair, str(none))
            return None
        if run is None:
            return None
        run.worker = self.name
        self.store.launch(run)
        return run

    def _judge(self, run: Run) -> bool:
        """Judge a run and record it. Returns whether it has finished."""
        law, impl = LAYERS[run.layer].law, self.impls[run.impl]
        run.version = self.versions[run.impl]  # an unfinished run may have been drawn for another version
        began = time.perf_counter()
        result = self.judging(law, impl, run.case_, run.perturbations, run.asked)
        run.seconds, run.repeats = time.perf_counter() - began, result.repeats
        if result.why is Reason.WORKER_DIED and not run.deaths:
            # The process may have been killed by something else, so the run gets a second try.
            run.deaths, run.state = 1, DRAWN
            self.store.keep(run)
            return False
        run.verdict, run.why, run.reason = result.verdict, result.why.value if result.why else "", result.reason
        self.store.done(run, findings_of(run, result, impl) if run.failed else [])
        self._note(run)
        return True

    def _note(self, run: Run) -> None:
        """Give up a pair if none of its last runs had a verdict."""
        names = (run.impl, run.layer)
        for other in {*GIVEN_UP} - {run.verdict}:
            self.without[(*names, other)] = 0
        if run.verdict in (PASS, FAIL):
            return
        self.without[(*names, run.verdict)] += 1
        if (n := self.without[(*names, run.verdict)]) >= GIVEN_UP[run.verdict]:
            why = f"{n} runs in a row without a verdict, the last: {run.reason}"
            for pair in [pair for pair in self.left if (pair[0].name, pair[1].name) == names]:
                self._give_up(pair, why)

    def _give_up(self, pair: Pair, why: str) -> None:
        """Stop drawing a pair, and record why. Other layers of the implementation continue."""
        self.left.remove(pair)
        self.store.note(self.job.session, "given_up", [pair[0].name, pair[1].name, why])
