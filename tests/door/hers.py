"""Runs pytest in another repository, on a machine without a GPU."""

from pathlib import Path

from tests import runs, warm
from tests.places import ROOT

WITHOUT_GPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": str(ROOT),
}  # the checkout takes the place of an installed package


def pytest_in(folder: Path, *arguments: str) -> runs.Run:
    """Run it there, with the plug-in that an installed package would register."""
    output, status = folder / "printed.txt", folder / "status.txt"
    output.unlink(missing_ok=True)
    how = {"arguments": ["-p", "flash_attest.pytest_plugin", "-p", "no:cacheprovider", *arguments]}
    asked = how | {"folder": str(folder), "output": str(output), "status": str(status)}
    ended = warm.ask(runs.environment() | WITHOUT_GPU, [asked])
    return runs.Run(ended, output.read_text(), folder)
