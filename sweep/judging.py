"""Judges a run: one law on one case, under the run's perturbations, in a process that may die."""

from __future__ import annotations

import signal

import torch

from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import Result
from flash_attest.properties.law import Law, laws
from flash_attest.properties.progress import NOW
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.isolation.leftovers import sentences
from flash_attest.runner.isolation.parent import possible
from flash_attest.runner.judge import Judge
from flash_attest.runner.plugin.process import prepare, prepare_to_fork
from flash_attest.sweep.plan import Job


def _start(device: str) -> dict:
    """Prepare a judging process."""
    # A worker's handler raises KeyboardInterrupt, which must not happen in the middle of a call.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return prepare(device, is_worker=True)


class Judging:
    """Judges runs. The contract of an implementation is checked before its first run."""

    def __init__(self, job: Job, entries: list[Entry]):
        plan = Plan(device=job.device, seed=job.seed, repeats=job.repeats, goes_on=False)
        judge = Judge(plan, entries, job.db.parent, "sweep")
        plan.write_down = NOW.begins  # the file of the sweep has the run already
        prepare_to_fork()
        self._judge: Judge | Isolated = judge
        # A process that has used CUDA, for example in a plug-in, cannot fork another process that
        # uses CUDA.
        self.isolated = possible() and not torch.cuda.is_initialized()
        if self.isolated:
            objects = [*laws().values(), *(entry.impl for entry in entries)]
            self._judge = Isolated(judge, _start, objects, job.limit, keeps_streams=False)
        else:
            prepare(job.device, is_worker=True)

    def __call__(self, law: Law, impl: Implementation, case: str, perturbations: str, repeats: int) -> Result:
        """Return the verdict of one run. repeats: the field of Plan."""
        changes = {"case": case, "perturbations": perturbations, "repeats": repeats}
        if isinstance(self._judge, Isolated):
            result = self._judge.law(law, impl, **changes)
            self._judge.forget_troubles()
        else:
            with self._judge.changed(**changes):
                result = self._judge.law(law, impl)
        result.made_plain()
        return result

    def close(self) -> None:
        """End the judging process."""
        self._judge.close()

    @property
    def left(self) -> list[str]:
        """The processes that had to be ended, in sentences."""
        return all_plain(sentences(getattr(self._judge, "left", {})))
