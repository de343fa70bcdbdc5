"""Joins the reports of all parts of a run (--shard 1/n .. n/n) into one: results.json and
index.html.

    flash-attest merge part-1 part-2 part-3 --into attest-report

Refuses reports that are not the complete set of parts of one run. The exit status says whether the
whole run is green: a part cannot know whether another one has judged the laws of an implementation.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import law_name
from flash_attest.runner.causes import causes_of
from flash_attest.runner.green import Asked, concluded
from flash_attest.runner.isolation.leftovers import sentences
from flash_attest.runner.plugin import terminal
from flash_attest.runner.plugin.aside import Aside
from flash_attest.runner.plugin.report import Report
from flash_attest.runner.plugin.saved import read

SAME = (
    "seed",
    "profile",
    "cases_per_law",
    "repeats",
    "device",
    "emulated",
    "versions",
    "sources",
)  # fields that are equal in all parts of a run
OPTIONS = ("impl", "untrusted", "here", "case", "perturb")  # equal too; not impl_from, as `sources` covers it
OWN = ("command", "started", "seconds", "workers", "device_name", "platform")  # fields that differ between parts


class MergeError(ValueError):
    """The reports are not the complete set of parts of one run."""


def merged(records: dict[str, dict]) -> tuple[dict, list[dict]]:
    """Join the results.json of all parts, given by the name of each report.

    Returns environment and results of the whole run.

    Raises MergeError, naming the report and what is wrong with it.
    """
    for name, record in records.items():
        _check_one(name, record)
    parts = sorted(records, key=lambda name: records[name]["environment"]["shard"]["part"])
    environments = [records[name]["environment"] for name in parts]
    _check_all(dict(zip(parts, environments, strict=True)))
    results = _without_repeats(result for name in parts for result in records[name]["results"])
    twice = [key for key, n in Counter((r["law"], r["impl"]) for r in results).items() if n > 1]
    if twice:
        raise MergeError(f"{law_name(twice[0][0])} of {twice[0][1]} is in two parts")
    first = environments[0]
    if len(results) != (whole := first["shard"]["tests_of_all"]):
        raise MergeError(
            f"the parts have {len(results)} of {whole} results: their machines split the run at other places, as those that "
            "can run other implementations do"
        )
    joined = {key: value for key, value in first.items() if key not in ("shard", "remarks", "ended_processes")}
    joined |= {
        "command": _without_shard(first["command"]),
        "started": min(e["started"] for e in environments),
        "seconds": max(e["seconds"] for e in environments),  # of the longest part, as parts may run at the same time
        "workers": sum(e["workers"] for e in environments),
        "device_name": ", ".join(sorted({e["device_name"] for e in environments})),
        "asked": replace(Asked.of(first), part=False).as_dict(),
        "parts": [{key: e.get(key) for key in OWN} for e in environments],
    }
    return joined | _aside(environments), results


def _aside(environments: list[dict]) -> dict:
    """Return what all parts say beside their verdicts."""
    aside = Aside()
    for each in environments:
        aside.add([], each.get("ended_processes", {}))
        said = sentences(each.get("ended_processes", {}))
        aside.add([remark for remark in each.get("remarks", []) if remark not in said], {})
    return aside.facts()


def _without_repeats(results: Iterable[dict]) -> list[dict]:
    """Return the results, each contract check of what could not be judged once: every part has
    it.
    """
    once: dict[tuple, dict] = {}
    for n, result in enumerate(results):
        in_each = result.get("why") in (Reason.NOT_LOADED.value, Reason.NOT_INSTALLED.value)
        once.setdefault((result["law"], result["impl"]) if in_each else (n,), result)
    return list(once.values())


def _check_one(name: str, record: dict) -> None:
    """Check that a report is a part of a run and that this part ran to its end."""
    shard = record["environment"].get("shard")
    if shard is None:
        raise MergeError(f"{name} is the report of a whole run: should be one of a run with --shard")
    which, there = f"{name} (shard {shard['part']}/{shard['of']})", len(record["results"])
    if there != shard.get("tests") or "seconds" not in record["environment"]:
        wanted = shard.get("tests", "all")
        raise MergeError(f"{which} has {there} results, should have {wanted}: it did not run to its end")


def _check_all(environments: dict[str, dict]) -> None:
    """Check that the reports are parts of the same run, and that none is missing.

    Environments are in the order of the parts.
    """
    (first, one), *_ = environments.items()
    for name, other in environments.items():
        for key in SAME:
            if other.get(key) != one.get(key):
                raise MergeError(f"{key} differs: {_difference(one.get(key), other.get(key), first, name)}")
        for key in OPTIONS:
            was, now = (environment.get("options", {}).get(key) for environment in (one, other))
            if was != now:
                raise MergeError(f"the option --{key} differs: {_difference(was, now, first, name)}")
        if other["shard"]["of"] != one["shard"]["of"]:
            raise MergeError(
                f"the number of parts differs: {one['shard']['of']} in {first}, {other['shard']['of']} in {name}"
            )
    n, given = one["shard"]["of"], Counter(e["shard"]["part"] for e in environments.values())
    if twice := [part for part, times in given.items() if times > 1]:
        names = " and ".join(name for name, e in environments.items() if e["shard"]["part"] == twice[0])
        raise MergeError(f"shard {twice[0]}/{n} is given twice: {names}")
    if absent := [f"{part}/{n}" for part in range(1, n + 1) if part not in given]:
        raise MergeError(f"shard{'s' * (len(absent) > 1)} {', '.join(absent)} missing: all {n} parts are needed")
    for name, other in environments.items():
        if other["shard"]["digest_of_all"] != one["shard"]["digest_of_all"]:
            counts = f"{one['shard']['tests_of_all']} tests in {first}, {other['shard']['tests_of_all']} in {name}"
            raise MergeError(f"the runs that were split differ ({counts}): other implementations, laws or -k")


def _difference(one: object, other: object, first: str, name: str) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        key = next(key for key in (*one, *other) if one.get(key) != other.get(key))
        return f"{key} {one.get(key)} in {first}, {key} {other.get(key)} in {name}"
    return f"{one} in {first}, {other} in {name}"


def _without_shard(command: str) -> str:
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word == "--shard":
            next(words, None)
        elif not word.startswith("--shard="):
            kept.append(word)
    return shlex.join(kept)


def join(folders: list[Path], into: Path) -> int:
    """Join the reports of all parts into a folder, and print the table. Returns the exit status: 0
    if the whole run is green, else 1.

    Raises MergeError, NoReport or FolderError with a message for the user.
    """
    if into.resolve() in [folder.resolve() for folder in folders]:
        raise MergeError(f"--into {into}: should not be the report of a part")
    environment, results = merged({str(folder): read(folder) for folder in folders})
    report = Report(into, print)
    report.start(environment, len(results))
    report.add(*results)
    asked, named = Asked.of(environment), Asked.of(environment).named
    facts = {"device": environment["device"], "elsewhere": environment.get("elsewhere", {})}
    found = concluded(results, asked, **facts)
    if trouble := report.finish(**found):
        found = concluded(results, asked, **facts, trouble=trouble)
    console = Console(width=160, soft_wrap=True, emoji=False)
    terminal.print_rows(results, console, asked_for=named)
    terminal.print_unjudged(results, console, found["unjudged"])
    terminal.print_undecided(results, console, asked_for=named)
    terminal.print_causes(causes_of(results), console)
    print(f"{len(folders)} parts joined: {report.directory}/index.html (report.md, results.json)")
    print(found["verdict"])
    return 0 if found["green"] else 1
