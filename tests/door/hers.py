"""Runs pytest in another repository, on a machine without a GPU."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import runs, warm
from tests.kernel_author import LAWS
from tests.places import ROOT

# The checkout stands in for an installed package, whose plug-in pytest would find.
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
PLUGIN = ("-p", "flash_attest.pytest_plugin")


def pytest_in(folder: Path, *arguments: object, **variables: str) -> runs.Run:
    """Run pytest in a folder, in a process that has imported torch.

    variables: added to its environment.
    """
    output, status = folder / "printed.txt", folder / "status.txt"
    output.unlink(missing_ok=True)
    request = {"arguments": [*PLUGIN, "-p", "no:randomly", *map(str, arguments)], "folder": str(folder)}
    request |= {"output": str(output), "status": str(status)}
    returncode = warm.ask(runs.environment() | WITHOUT_GPU | variables, [request])
    return runs.Run(returncode, output.read_text(), folder)


def process_in(folder: Path, *arguments: object, **variables: str) -> subprocess.Popen:
    """Start pytest in a folder as a new process, in which torch has not been imported."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *PLUGIN, *map(str, arguments)],
        cwd=folder, env=runs.environment() | WITHOUT_GPU | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def pytest_alone(folder: Path, *arguments: object, **variables: str) -> runs.Run:
    """Run pytest in a folder as a new process, and wait for it."""
    process = process_in(folder, *arguments, **variables)
    printed, _ = process.communicate()
    return runs.Run(process.returncode, printed, folder)


@contextlib.contextmanager
def beside(folder: Path, source: str) -> Iterator[str]:
    """Add another test file while this block runs. Yields its name."""
    file = folder / "tests" / "test_beside.py"
    file.write_text(f"{LAWS}\n{source}")
    try:
        yield "tests/test_beside.py"
    finally:
        file.unlink()
