"""Implements --resume: verdicts in the report folder are kept if nothing that they depend on has
changed since.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import UNKNOWN, Result
from flash_attest.runner.page.words import plural
from flash_attest.runner.plugin import inputs
from flash_attest.runner.plugin.environment import cpu_name
from flash_attest.runner.plugin.saved import EMPTY, NoReport, sound

NOT_INSTALLED = Reason.NOT_INSTALLED.value  # costs nothing to find out again

# What the command says has to be the same, by its key in the environment of results.json: another
# command is another run, which would overwrite this one.
COMMAND = {
    "seed": "the seed",
    "profile": "the profile",
    "cases_per_law": "the cases of a law",
    "repeats": "the number of repeats",
    "device": "the device",
    "emulated": "the emulated GPU",
    "options": "the option",
    "tests": "which laws are judged (-k, -m, paths, --shard)",
}
# If any of these differs, every law is judged again.
SURROUNDINGS = {
    "machine": "the machine",
    "versions": "the version of",
    "installed": "the version of",
    "variables": "the environment variable",
}
SUITE = "the suite"  # its key among the sources

# Options that are compared as given. The others do not change verdicts, or are in COMMAND.
OPTIONS = ("impl", "impl_from", "untrusted", "here", "case", "shard", "perturb")


class ResumeError(ValueError):
    """There is nothing to resume, or the command is another one. The message says which."""


class Earlier(NamedTuple):
    """A report from which a run goes on. damaged: what is wrong with entries that it lacks."""

    record: dict
    damaged: list[str]


class Kept(NamedTuple):
    """The verdicts of an earlier run that still hold, and lines that say why others are judged
    again.
    """

    results: list[dict]
    again: list[str]


def earlier(folder: Path) -> Earlier:
    """Return the results.json to resume from, with its journal. Raises ResumeError."""
    try:
        record, damaged = sound(folder)
    except NoReport as error:
        raise ResumeError(f"--resume: nothing to resume: {error}") from None
    return Earlier(record, [words for words, _ in damaged])


class Reads(NamedTuple):
    """The folder of a plug-in, and the function that says what in there concerns it."""

    folder: str
    concern: inputs.Concern


def kept(earlier: Earlier, environment: dict, reads: Mapping[str, Reads] = MappingProxyType({})) -> Kept:
    """Return the decided results of an earlier run, marked with its start.

    Unknown verdicts are judged again, and those that depend on something that has changed.
    reads: of each plug-in. Raises ResumeError if the earlier run had another command.
    """
    record = earlier.record
    was = record["environment"]
    for key, what in COMMAND.items():
        if words := _difference(was.get(key), environment[key], what):
            raise ResumeError(f"--resume: {words}")
    again = [f"{words}: its law is judged again" for words in earlier.damaged]
    decided = [r for r in record["results"] if r["verdict"] != UNKNOWN and r.get("why") != NOT_INSTALLED]
    surroundings = (_difference(was.get(key), environment[key], what) for key, what in SURROUNDINGS.items())
    if words := next(filter(None, surroundings), "") or _source_of(SUITE, was, environment):
        return Kept([], [*again, *([f"judged again: {words}: {plural(len(decided), 'verdict')}"] if decided else [])])
    changed = {
        name: words
        for name in environment["sources"]
        if name != SUITE and (words := _changed(name, reads.get(name), was, environment))
    }
    for words in dict.fromkeys(changed.values()):
        names = [name for name, why in changed.items() if why == words]
        if n := sum(result["impl"] in names for result in decided):
            again.append(f"judged again: {words}: {plural(n, 'verdict')} of {', '.join(names)}")
    marked = []
    for result in decided:
        if result["impl"] in changed:
            continue
        before = EMPTY | result | {"before": result.get("before") or was.get("started", "an earlier run")}
        try:
            Result.of_dict(before)
        except (TypeError, ValueError) as error:
            again.append(f"{result['law']}[{result['impl']}] is judged again: its entry is damaged: {error}")
        else:
            marked.append(before)
    return Kept(marked, again)


def _changed(name: str, reads: Reads | None, was: dict, now: dict) -> str:
    """Say what a plug-in depends on and has changed; "" if nothing has."""
    if reads is not None:
        then = was["read"].get(reads.folder) if isinstance(was.get("read"), Mapping) else None
        if words := inputs.difference(then, now["read"][reads.folder], reads.concern):
            return words
    return _source_of(name, was, now)


def _source_of(name: str, was: dict, now: dict) -> str:
    then = was.get("sources")
    then = then.get(name) if isinstance(then, Mapping) else None
    return "" if then == now["sources"][name] else f"the source of {name} differs"


def _difference(then: object, now: object, what: str) -> str:
    """Return "the seed differs: 0 then, 7 now"; "" if both are equal."""
    if then == now:
        return ""
    if isinstance(then, dict) and isinstance(now, dict):
        inner = next(
            name for name in (*then, *now) if then.get(name) != now.get(name) or (name in then) != (name in now)
        )
        what, then, now = f"{what} {inner}", then.get(inner), now.get(inner)
        if what.startswith("the environment variable"):  # only digests are known
            return f"{what} {'is new' if then is None else 'is gone' if now is None else 'has changed'}"
    return f"{what} differs: {_shown(then)} then, {_shown(now)} now"


def _shown(value: object) -> str:
    return "none" if value is None or value is False or value in ("", []) else str(value)


def machine(device: str) -> str:
    """Return the names of the CPU and GPUs of this machine, and the version of the GPUs' driver.

    They come from the driver, because the pytest process must not begin to use CUDA.
    """
    names = [cpu_name()]
    if device == "cuda":
        with contextlib.suppress(OSError):
            if version := re.search(r"\d+\.[\d.]+", Path("/proc/driver/nvidia/version").read_text()):
                names.append(f"driver {version[0]}")
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
            with contextlib.suppress(OSError):
                names += [
                    line.partition(":")[2].strip()
                    for line in file.read_text().splitlines()
                    if line.startswith("Model:")
                ]
    return ", ".join(names)


def digest_of(tests: Iterable[str]) -> str:
    """Return a digest of the names of all tests of a run, which does not depend on their order."""
    names = sorted(tests)
    return f"{len(names)}, {hashlib.sha256(chr(10).join(names).encode(errors='replace')).hexdigest()[:8]}"
