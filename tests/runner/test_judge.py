"""Laws do not import the code that runs them, and judging does not need pytest."""

import subprocess
import sys

from tests.places import ROOT


def test_laws_load_without_the_runner_and_judging_loads_without_pytest():
    loads = """if True:
        import sys, flash_attest.properties.trial
        print("flash_attest.runner" in sys.modules)
        import flash_attest.runner.judge, flash_attest.runner.isolation.isolated
        print("pytest" in sys.modules)"""
    run = subprocess.run([sys.executable, "-c", loads], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_no_law_and_nothing_that_judges_imports_the_runner():
    assert [file for file in (ROOT / "properties").rglob("*.py") if "flash_attest.runner" in file.read_text()] == []
