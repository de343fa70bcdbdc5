"""Tests that only repeat other checks are left out unless asked for, and are counted."""

import os

import pytest

from tests.places import ROOT
from tests.runs import python
from tests.thorough import covering

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
    """The last line says how many tests are left out, with and without workers."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    run = python(
        "-m",
        "pytest",
        "-p",
        "no:warnings",
        "-c",
        os.devnull,
        "--rootdir",
        tmp_path,
        *options,
        folder=tmp_path,
        PYTHONPATH=str(ROOT),
    )
    assert f"{words} in " in run.stdout.splitlines()[-1], run.stdout + run.stderr


@pytest.mark.parametrize(("together", "few"), [(1, 3), (2, 6), (3, 12)])
def test_values_meet_in_few_combinations(together, few):
    parameters = covering(together, dict(a=1, b=2, c=3), dict(x=4, y=5), dict(no=6, yes=7))
    assert len(parameters) == 12 and parameters[1].id == "a-x-yes" and parameters[1].values == (1, 4, 7)
    assert sum(not param.marks for param in parameters) == few


def test_values_are_chosen_about_as_often():
    parameters = covering(1, dict.fromkeys("abcdef"), dict(x=0, y=1))
    assert sorted(param.values[1] for param in parameters if not param.marks) == [0, 0, 0, 1, 1, 1]
