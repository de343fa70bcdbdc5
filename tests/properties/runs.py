"""Helpers: runs of pytest on the laws in new processes, and what they reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"


def options(*arguments: object, report: Path) -> list[str]:
    quick = ["--device", "cpu", "--hypothesis-profile", "quick", f"--report={report}", "-p", "no:randomly"]
    return [*quick, *map(str, arguments)]


def command(*arguments: object, report: Path) -> list[str]:
    return [sys.executable, "-m", "pytest", *options(*arguments, report=report)]


def attest(*arguments: object, report: Path) -> subprocess.CompletedProcess:
    """Run pytest on the laws with these arguments."""
    return subprocess.run(
        command(*arguments, report=report), cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment()
    )


def environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HYPOTHESIS"))}
    return inherited | {"COLUMNS": "160"}


def results(report: Path) -> dict[str, dict]:
    """law[impl] -> its entry in results.json."""
    entries = json.loads((report / "results.json").read_text())["results"]
    return {f"{entry['law']}[{entry['impl']}]": entry for entry in entries}


IN_ONE_PROCESS = """
import contextlib, io, json, sys
import pytest
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        status = int(pytest.main(arguments))
    print(json.dumps([status, printed.getvalue()]))
"""


@dataclass
class Run:
    """One of several runs in one process. returncode: what pytest.main gives, the exit status otherwise."""

    returncode: int
    stdout: str
    report: Path


def attest_each(runs: dict[str, tuple], folder: Path) -> dict[str, Run]:
    """Each of the runs, one after another in one new process, which imports torch once."""
    reports = {name: folder / str(n) for n, name in enumerate(runs)}
    each = [options(*arguments, report=reports[name]) for name, arguments in runs.items()]
    process = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(each)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment(),
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    answers = map(json.loads, process.stdout.splitlines())
    return {name: Run(*answer, reports[name]) for name, answer in zip(runs, answers, strict=True)}
