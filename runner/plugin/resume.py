"""Implements --resume: verdicts in the report folder are kept if nothing has changed since."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path

from flash_attest.properties.judging.verdict import UNKNOWN
from flash_attest.runner.plugin.environment import cpu_name
from flash_attest.runner.plugin.saved import NoReport, read

# Conditions that have to be the same, by their key in the environment of results.json.
SAME = {
    "seed": "the seed",
    "profile": "the profile",
    "cases_per_law": "the cases of a law",
    "repeats": "the number of repeats",
    "device": "the device",
    "machine": "the machine",
    "options": "the option",
    "versions": "the version of",
    "installed": "the version of",
    "sources": "the source of",
    "tests": "which laws are judged (-k, -m, paths, --shard)",
}

# Options that are compared as given. The others do not change verdicts, or are in SAME.
OPTIONS = ("impl", "impl_from", "untrusted", "case", "shard", "perturb")


class ResumeError(ValueError):
    """There is nothing to resume, or something has changed since. The message names it."""


def earlier(folder: Path) -> dict:
    """Return the results.json to resume from, with its journal. Raises ResumeError."""
    try:
        return read(folder)
    except NoReport as error:
        raise ResumeError(f"--resume: nothing to resume: {error}") from None


def kept(record: dict, environment: dict) -> list[dict]:
    """Return the decided results of an earlier run, marked with its start.

    Unknown verdicts are judged again. Raises ResumeError if the runs differ in anything that
    verdicts depend on.
    """
    was = record["environment"]
    for key, what in SAME.items():
        if key not in was or was[key] != environment[key]:
            then, now = was.get(key), environment[key]
            if isinstance(then, dict) and isinstance(now, dict):
                inner = next(name for name in (*then, *now) if then.get(name) != now.get(name))
                what, then, now = f"{what} {inner}", then.get(inner), now.get(inner)
            raise ResumeError(f"--resume: {what} differs: {_shown(then)} then, {_shown(now)} now")
    return [result | {"before": result.get("before") or was["started"]}
            for result in record["results"] if result["verdict"] != UNKNOWN]  # fmt: skip


def _shown(value: object) -> str:
    return "none" if value is None or value is False or value in ("", []) else str(value)


def machine(device: str) -> str:
    """Return the names of the CPU and GPUs of this machine.

    The GPUs come from the driver, because the pytest process must not begin to use CUDA.
    """
    names = [cpu_name()]
    if device == "cuda":
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
