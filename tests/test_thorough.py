"""Tests that repeat for confidence are left out unless asked for, and are counted where they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.thorough import *"
TESTS = """
import pytest

def test_once(): pass

@pytest.mark.parametrize("n", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2))])
def test_some(n): pass
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "2 passed, 2 deselected"),
        (("-n", "2"), "2 passed, 2 deselected"),
        (("--thorough",), "4 passed"),
        (("--thorough", "-m", "thorough"), "2 passed, 2 deselected"),
    ],
    ids=" ".join,
)
def test_what_repeats_for_confidence_runs_only_when_asked_for(tmp_path, options, words):
    """The last line says how many tests are left out, with workers too."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", tmp_path, "-p", "no:hypothesispytest", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert f"{words} in " in run.stdout.splitlines()[-1], run.stdout + run.stderr
