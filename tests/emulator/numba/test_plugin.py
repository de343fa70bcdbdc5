"""A plug-in in Numba is judged and traced without a GPU and without its author's help, but not with
Numba's simulator.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from numba import cuda

from flash_attest.impls.contract.loading import from_file
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.law import laws
from tests.impls.runs import results
from tests.places import ROOT
from tests.runs import python

FILE = ROOT / "tests" / "plugins" / "numba_kernels.py"
OUT, TRACED = "test_out_matches_the_definition", "test_no_race_is_traced"


@pytest.fixture(scope="module")
def plugins():
    """Return name -> the implementation, loaded as --impl-from loads it."""
    return {entry.name: entry.impl for entry in from_file(str(FILE))}


def verdict(law, impl, case):
    return judge(laws()[law], impl, Plan(case=parse_case(case), try_contract=False))


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_it_is_right_and_without_a_race_in_every_dtype(plugins, dtype):
    for law in (OUT, TRACED):
        result = verdict(law, plugins["right"], f"seqlen_q=41 headdim=16 dtype={dtype}")
        assert result.verdict == PASS, result.message


def test_a_race_is_found_with_its_python_lines(plugins):
    result = verdict(TRACED, plugins["racy"], "seqlen_q=41 headdim=16 dtype=float16")
    assert result.verdict == FAIL
    assert result.reason.startswith("race: ") and "_tile[" in result.reason and "numba_kernels.py:" in result.reason
    assert "k_tile[j, d] = k[b, first + j, h, d]" in result.message


def test_what_is_not_covered_is_unknown(plugins):
    impl = plugins["right"]

    @cuda.jit
    def attend_and_wait(q):
        cuda.cg.this_grid().sync()

    def forward(q, k, v):
        attend_and_wait[1, 1](q)
        return impl.forward(q, k, v)

    waits = replace(impl, forward=forward)
    result = verdict(OUT, waits, "seqlen_q=41 headdim=16 dtype=float16")
    assert (result.verdict, result.why) == (UNKNOWN, Reason.NOT_COVERED) and "a grid that waits" in result.reason


def test_a_run_of_pytest_needs_nothing_else(tmp_path):
    """The run activates the emulator before the file is imported."""
    asked = ["--impl-from", FILE, "--impl", "right,racy", "--hypothesis-profile", "smoke", "--report", tmp_path]
    run = python("-m", "pytest", "-q", *asked, "-k", f"{OUT} or {TRACED}", "properties")
    verdicts = {key: entry["verdict"] for key, entry in results(tmp_path).items()}
    assert run.returncode == 1, run.stdout + run.stderr
    assert (verdicts[OUT, "right"], verdicts[TRACED, "right"], verdicts[TRACED, "racy"]) == ("pass", "pass", "fail")
