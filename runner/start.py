"""Starts judging, in separate processes if possible and otherwise in this one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from flash_attest.impls.contract.entry import Entry
from flash_attest.properties.judging.origin import Origin, OwnRun
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.law import laws
from flash_attest.runner.explanations import FILE, Explanations
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.judge import Judge
from flash_attest.runner.limits import NO_LIMITS, TimeLimits
from flash_attest.runner.plugin.process import prepare, prepare_to_fork


def judge_of(
    plan: Plan,
    entries: list[Entry],
    folder: Path,
    *,
    isolated: bool,
    limit: float,
    limits: TimeLimits = NO_LIMITS,
    name: str = "main",
    is_worker: bool = False,
    keeps_streams: bool = False,
    origin_of: Callable[[Entry], Origin] = lambda entry: OwnRun(entry.option),
) -> Judge | Isolated:
    """Return the judge of these entries by this plan.

    folder, name: the folder and name of the file that records the last launched case. limit:
    seconds for a call, 0 for none. limits: of a law and of the run. is_worker: whether other
    processes judge beside this one. keeps_streams: whether kernels print where this process prints.
    """
    judge = Judge(plan, entries, folder, name, origin_of, limits)
    judge.explanations = Explanations(folder / FILE if is_worker else None)
    prepare_to_fork()
    start = partial(prepare, is_worker=is_worker)
    if not isolated:
        judge.device_name = start(plan.device)["device_name"]
        return judge
    objects = [*laws().values(), *(entry.impl for entry in entries)]
    return Isolated(judge, start, objects, limit, keeps_streams)
