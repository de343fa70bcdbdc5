"""Helpers that judge laws in separate processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import flash_attest.emulator.importing  # noqa: F401  (otherwise each process imports it)
from flash_attest.impls import Implementation
from flash_attest.impls.contract.entry import Entry
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import Result
from flash_attest.properties.law import laws
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.judge import Judge
from flash_attest.runner.limits import NO_LIMITS, TimeLimits
from flash_attest.runner.plugin.process import prepare
from tests.plugins import good

LAW = laws()["test_out_matches_the_definition"]
OTHER = laws()["test_winning_key_is_copied"]
ROWS = good.IMPL.supports
LONG = parse_case("seqlen_q=65 seqlen_k=65 headdim=16 dtype=float32")


def hostile(act: Callable[[], object], *, above: int = 40, name: str = "hostile", **declared) -> Implementation:
    """Return a correct implementation that calls act() for lengths above `above`.

    Length 64 is exempt, because the contract check tries it.
    """

    def forward(q, k, v):
        if q.shape[1] > above and q.shape[1] != 64:
            act()
        return good.forward(q, k, v)

    return Implementation(name=name, forward=forward, supports=ROWS, **declared)


@contextlib.contextmanager
def isolated(
    folder: Path,
    *impls: Implementation,
    limit: float = 60.0,
    plugins: bool = True,
    limits: TimeLimits = NO_LIMITS,
    **plan,
) -> Iterator[Isolated]:
    """Yield the judge of these implementations. As plug-ins, each of them has a separate
    process.
    """
    entries = [Entry(impl, "", "--impl-from=mine.py" if plugins else "") for impl in impls]
    judge = Judge(replace(Plan(examples=20, case_timeout=limit), **plan), entries, folder, "main", limits=limits)
    judging = Isolated(judge, partial(prepare, is_worker=True), [*laws().values(), *impls], limit, False)
    try:
        yield judging
    finally:
        judging.close()


def judged(act: Callable[[], object], folder: Path, **options) -> tuple[Result, Result]:
    """Return a law's verdicts on an implementation that calls act(), then on a correct one."""
    impl = hostile(act)
    with isolated(folder, impl, good.IMPL, **options) as judging:
        return judging.law(LAW, impl), judging.law(LAW, good.IMPL)


def endless() -> None:
    """Never return, without taking time from others."""
    while True:
        time.sleep(1000)


def descriptors() -> set[str]:
    """Return the open files of this process."""
    return set(os.listdir("/proc/self/fd"))
