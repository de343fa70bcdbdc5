"""Runs pytest on the laws, and programs, in separate processes, and reads reports."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import warm
from tests.places import ROOT


def options(*arguments: object, report: Path) -> list[str]:
    quick = ["--device", "cpu", "--hypothesis-profile", "quick", f"--report={report}", "-p", "no:randomly"]
    return [*quick, *map(str, arguments)]


def command(*arguments: object, report: Path) -> list[str]:
    return [sys.executable, "-m", "pytest", *options(*arguments, report=report)]


@dataclass
class Run:
    """A run. returncode: the exit status, or minus a signal's number. stdout: the output, including
    stderr.
    """

    returncode: int
    stdout: str
    report: Path


def attest(*arguments: object, report: Path, **variables: str) -> Run:
    """Run pytest on the laws with these arguments. variables: added to its environment."""
    return _attest([(arguments, report)], variables)[0]


def attest_each(runs: dict[str, tuple], folder: Path) -> dict[str, Run]:
    """Make several runs, one after another, in one process that imports the suite only once."""
    results_of_runs = _attest([(arguments, folder / str(n)) for n, arguments in enumerate(runs.values())])
    return dict(zip(runs, results_of_runs, strict=True))


def _attest(runs: list[tuple[tuple, Path]], variables: Mapping[str, str] | None = None) -> list[Run]:
    """Make the runs [(arguments, report)] in a process.

    If the process ends early, this happens in the last run.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(n)) for n in range(len(runs))]
        requests = [
            {"arguments": options(*arguments, report=report), "output": f"{file}.out", "status": str(file)}
            for file, (arguments, report) in zip(files, runs, strict=True)
        ]
        ended = warm.ask(environment() | (variables or {}), requests)
        assert all(file.exists() for file in files[:-1]), f"the process of {len(runs)} runs ended early, with {ended}"
        statuses = [*(int(file.read_text()) for file in files[:-1]), ended]
        printed = [Path(request["output"]).read_text(errors="backslashreplace") for request in requests]
    return [Run(*of, report) for *of, (_, report) in zip(statuses, printed, runs, strict=True)]


def check(*arguments: object, folder: Path, **variables: str) -> Run:
    """Run flash-attest in a folder, where `check` leaves its report.

    variables: added to its environment.
    """
    output, status = folder / "printed.txt", folder / "status.txt"
    output.unlink(missing_ok=True)
    request = {"arguments": [*map(str, arguments)], "output": str(output), "status": str(status)}
    ended = warm.ask(environment() | variables, [request | {"command": True, "folder": str(folder)}])
    return Run(ended, output.read_text(errors="backslashreplace"), folder / "attest-report")


@dataclass
class Ran:
    """A program that has ended, with what it printed. returncode: as in Run."""

    returncode: int
    stdout: str
    stderr: str


def python(*arguments: object, folder: Path = ROOT, **variables: str) -> Ran:
    """Run a program in a fork of a process that has imported torch and the suite.

    arguments: of Python, a file or -c or -m. variables: added to its environment. It is only for
    programs to which it does not matter what was imported before.
    """
    with tempfile.TemporaryDirectory() as written:
        output, errors = Path(written, "output"), Path(written, "errors")
        request = {"arguments": [*map(str, arguments)], "output": str(output), "errors": str(errors), "python": True}
        status = warm.ask(environment() | variables, [request | {"folder": str(folder), "status": f"{written}/status"}])
        return Ran(status, output.read_text(errors="backslashreplace"), errors.read_text(errors="backslashreplace"))


def environment() -> dict[str, str]:
    """Return the environment variables for a run."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HYPOTHESIS"))}
    return inherited | {"COLUMNS": "160", "OMP_NUM_THREADS": "1"}


def results(report: Path) -> dict[str, dict]:
    """Return law[impl] -> its entry in results.json."""
    entries = json.loads((report / "results.json").read_text())["results"]
    return {f"{entry['law']}[{entry['impl']}]": entry for entry in entries}
