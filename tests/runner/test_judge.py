"""Laws do not import the code that runs them, and judging does not need pytest."""

import subprocess
import sys

import pytest

from tests.places import ROOT


@pytest.mark.parametrize(
    "module, unwanted",
    [
        ("flash_attest.runner.judge", "pytest"),
        ("flash_attest.runner.isolation.isolated", "pytest"),
        ("flash_attest.properties.trial", "flash_attest.runner"),
    ],
)
def test_a_module_loads_without(module, unwanted):
    loads = f"import sys, {module}; print({unwanted!r} in sys.modules)"
    run = subprocess.run([sys.executable, "-c", loads], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_no_law_and_nothing_that_judges_imports_the_runner():
    assert [file for file in (ROOT / "properties").rglob("*.py") if "flash_attest.runner" in file.read_text()] == []
