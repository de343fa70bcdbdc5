"""The implementations that need Numba are refused without it, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flash_attest.emulator.numba import INSTALL
from flash_attest.impls import numba as numba_fa2
from flash_attest.impls.numba.device import lacking
from tests.impls.runs import results
from tests.places import ROOT
from tests.runs import python

REASON = f"Numba is not installed: {INSTALL}"
OTHER = "python_tiled"  # a test below shows that all others load
with_numba = pytest.mark.skipif(bool(lacking()), reason=lacking())


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    report = tmp_path_factory.mktemp("without")
    laws = [f"properties/test_{chapter}.py" for chapter in ("contract", "forward")]
    smoke = ["--device", "cpu", "--hypothesis-profile", "smoke", "--report", report, "-p", "no:randomly"]
    asked = ["--impl", ",".join((OTHER, *numba_fa2.NAMES))]
    return python("-m", "pytest", "-p", "tests.plugins.without_numba", *smoke, *asked, *laws), results(report)


def test_without_numba_its_implementations_are_refused(without):
    """Each is refused once, by name and with the reason, because there is nothing that a law could
    judge.
    """
    run, entries = without
    of_numba = {key: entry for key, entry in entries.items() if "numba" in key[1]}
    assert set(of_numba) == {("test_contract_is_kept", name) for name in numba_fa2.NAMES}
    assert {(entry["verdict"], entry["reason"]) for entry in of_numba.values()} == {("refused", REASON)}
    assert REASON in run.stdout, run.stdout


def test_without_numba_nothing_else_changes(without):
    run, entries = without
    named = f"not green: nothing was judged of numba_fa1: {REASON}, of "
    assert run.returncode == 1 and f"\n{named}" in run.stdout, run.stdout + run.stderr  # they were asked for by name
    assert {entry["verdict"] for (_, name), entry in entries.items() if name == OTHER} <= {"pass", "refused"}
    assert entries[("test_out_matches_the_definition", OTHER)]["verdict"] == "pass"


def test_without_numba_all_others_load():
    program = """if True:
        import tests.plugins.without_numba
        from flash_attest.impls.contract.registry import ours
        import sys
        print([e.name for e in ours() if type(e.impl).__name__ == "Unloadable"], "numba" in sys.modules)"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[] False"]


@with_numba
def test_names_are_those_of_the_implementations():
    """The command line thus knows the names whether Numba is installed or not."""
    assert {impl.name for impl in numba_fa2.IMPLS} == set(numba_fa2.NAMES)
