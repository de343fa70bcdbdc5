"""A plug-in in Triton is judged and traced without a GPU and without its author's help, but not
with Triton's interpreter.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flash_attest.emulator.triton import is_active
from flash_attest.impls.contract.loading import from_file
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.traced import trace_failure
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.law import laws
from tests.impls.runs import results
from tests.places import ROOT
from tests.runs import python

FILE = ROOT / "tests" / "plugins" / "triton_kernels.py"
OUT, TRACED = "test_out_matches_the_definition", "test_no_race_is_traced"


@pytest.fixture(scope="module")
def plugins():
    """Return name -> the implementation, loaded as --impl-from loads it."""
    return {entry.name: entry.impl for entry in from_file(str(FILE))}


def verdict(law, impl, case):
    return judge(laws()[law], impl, Plan(case=parse_case(case), try_contract=False))


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_it_is_right_and_without_a_race_in_every_dtype(plugins, dtype):
    assert is_active()
    for law in (OUT, TRACED):
        result = verdict(law, plugins["right"], f"seqlen_q=41 headdim=16 dtype={dtype}")
        assert result.verdict == PASS, result.message


def test_a_race_is_found_with_its_python_lines(plugins):
    result = verdict(TRACED, plugins["racy"], "seqlen_q=41 headdim=16 dtype=float16")
    assert result.verdict == FAIL and result.reason.startswith("race: ") and "triton_kernels.py:" in result.reason
    assert "tl.load(row + tl.arange(0, block))" in result.message


def test_what_is_not_covered_is_unknown(plugins):
    impl = plugins["right"]
    clusters = replace(impl, forward=_with_clusters(impl.forward))
    result = verdict(OUT, clusters, "seqlen_q=41 headdim=16 dtype=float16")
    assert (result.verdict, result.why) == (UNKNOWN, Reason.NOT_COVERED) and "num_ctas=2" in result.reason


def _with_clusters(forward):
    kernel = forward.__globals__["attend"]

    def launch(q, k, v):
        x = torch.empty(1)
        kernel[(1,)](q, k, v, q, x, 1.0, 1, 1, 16, 16, False, num_ctas=2)

    return launch


def test_a_trace_that_breaks_off_says_why(plugins):
    """A case that failed on a GPU may use something that the emulator does not cover."""
    right, law, case = plugins["right"], laws()[OUT], parse_case("seqlen_q=41 headdim=16 dtype=float16")

    def raises(q, k, v):
        right.forward(q, k, v)
        raise ValueError("q is on the CPU")

    (line,) = trace_failure(Judgement(law, replace(right, forward=_with_clusters(right.forward))), case).lines
    assert line.startswith("not traced: ") and "num_ctas=2" in line
    (line,) = trace_failure(Judgement(law, replace(right, forward=raises)), case).lines
    after = "until forward raises ValueError: q is on the CPU: no race, and no access out of bounds"
    assert line == f"traced (1 launch) {after}"
    (line,) = trace_failure(Judgement(replace(law, device="cuda"), right), case).lines
    assert line == "a plain call of this case, traced (1 launch): no race, and no access out of bounds"


def test_a_run_of_pytest_needs_nothing_else(tmp_path):
    """The run activates the emulator before the file is imported."""
    asked = ["--impl-from", FILE, "--impl", "right,racy", "--hypothesis-profile", "smoke", "--report", tmp_path]
    run = python("-m", "pytest", "-q", *asked, "-k", f"{OUT} or {TRACED}", "properties")
    verdicts = {key: entry["verdict"] for key, entry in results(tmp_path).items()}
    assert run.returncode == 1, run.stdout + run.stderr
    assert verdicts[OUT, "right"] == verdicts[TRACED, "right"] == "pass"
    assert verdicts[TRACED, "racy"] == "fail"  # not every case of the other law shows the race


def test_a_run_with_the_interpreter_says_so(tmp_path):
    asked = ["--impl-from", FILE, "--impl", "right", "--hypothesis-profile", "smoke", "--report", tmp_path]
    run = python("-m", "pytest", "-q", *asked, "-k", TRACED, "properties", TRITON_INTERPRET="1")
    assert "PytestConfigWarning: TRITON_INTERPRET is set: kernels of plug-ins run in Triton's interpreter" in run.stdout
    assert results(tmp_path)[(TRACED, "right")]["reason"].startswith("traced=True, but no traced kernel was launched")


def test_with_the_interpreter_nothing_is_activated():
    program = "import flash_attest.emulator.triton as e; print(e.activate(), e.is_active())"
    assert python("-c", program, TRITON_INTERPRET="1").stdout.split() == ["False", "False"]
    assert python("-c", program).stdout.split() == ["True", "True"]
