"""Reads from pytest's reports of tests what they say about laws: results from workers, and dead
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from flash_attest.impls.contract.entry import Entry
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.judgement import replay_of
from flash_attest.properties.judging.origin import OURS, Origin
from flash_attest.properties.judging.plan import CALLED_WITH, contract_test
from flash_attest.properties.judging.verdict import UNKNOWN, Result, law_name
from flash_attest.runner.plugin import sources
from flash_attest.runner.plugin.last_case import last_case_in

# The keys under which a worker passes these to the controller:
KEY = "attest"  # a result
GPU_KEY = "attest_gpu_name"  # the name of the GPU, which only a judging process may ask for
SHARD_KEY = "attest_shard"  # what is known about the part of the run
TESTS_KEY = "attest_tests"  # how many tests judge laws, in somebody's repository
LACKS_KEY = "attest_lacks_laws"  # whether some laws of these implementations were deselected
PLANNED_KEY = "attest_planned"  # `by_chapter` of the laws to judge, in somebody's repository


def result_of(report, key: str = KEY) -> dict | None:
    """Return the result that a worker passed with the report of a test."""
    return next((value for name, value in getattr(report, "user_properties", ()) if name == key), None)


def judged_in(test: str) -> tuple[str, str, str] | None:
    """Return chapter, law and implementation of a test id; None if the test judges no
    implementation.
    """
    path, _, name = test.partition("::")
    law, _, impl = name.removesuffix("]").partition("[")
    return (Path(path).stem, law, impl) if impl and path.startswith("properties/") else None


def by_chapter(judged: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Return implementation -> chapter -> how many laws, for (implementation, chapter) of each."""
    counted: dict[str, dict[str, int]] = {}
    for impl, chapter in judged:
        of = counted.setdefault(impl, {})
        of[chapter] = of.get(chapter, 0) + 1
    return counted


def raised_in(report) -> dict | None:
    """Return the result of a test that raised before it had a result.

    Either its fixtures or this plug-in raised.
    """
    if (judged := judged_in(report.nodeid)) is None or report.when == "teardown":
        return None
    chapter, law, impl = judged
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext
    first = crash.message.partition("\n")[0] if crash else text.strip().rpartition("\n")[2]
    where = f" ({sources.shown(crash.path)}:{crash.lineno})" if crash else ""
    reason = f"the suite raised {first}{where}"
    return Result(impl, chapter, law, UNKNOWN, reason, Reason.SUITE, message=text).as_dict()


def died(report, directory: Path, entries: Iterable[Entry], origin_of: Callable[[Entry], Origin]) -> dict | None:
    """Return the result of a test whose worker died, with the case that the worker wrote down
    last.
    """
    if (judged := judged_in(report.nodeid)) is None:
        return None
    chapter, law, impl = judged
    case = last_case_in(directory / f"last-case-{report.attest_worker}.txt")
    if not case.startswith((report.nodeid, contract_test(impl))):  # it belongs to the previous law
        case = ""
    known = f"the last case launched was {case}" if case else "it had launched no case"
    reason = f"worker {report.attest_worker} died; {known}"
    origin = next((origin_of(entry) for entry in entries if entry.name == impl), OURS)
    replay = replay_of(origin, report.nodeid, case.partition(" ")[2].partition(CALLED_WITH)[0])
    report.longrepr = f"{impl}: {law_name(law)}: {reason}\n\nReplay\n  {replay}\n"
    return Result(impl, chapter, law, UNKNOWN, reason, Reason.WORKER_DIED, message=reason, replay=replay).as_dict()
