"""An author's tests and options, @attention_laws and assert_attention_close, all in one run.

The run has two workers.
"""

import re

import pytest

from tests.package.installation import replay_of

OUT, CONTRACT = "out_matches_the_definition", "contract_is_kept"
HER_OPTIONS = ("--device", "tpu", "--resume")
REPORT = "a report"


@pytest.fixture(scope="module")
def printed(installed, hers) -> str:
    """Run some laws and all other tests. The report folder exists, and has a space in its name."""
    (hers / REPORT).mkdir()
    chosen = f"{OUT} or {CONTRACT} or close or options_are_hers"
    run = installed.run("pytest", "-n", 2, "-rA", "-k", chosen, *HER_OPTIONS, "--attest-report", REPORT, folder=hers)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    return run.stdout


def test_right_kernels_pass_and_wrong_ones_fail(printed):
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) \S*::(\S+)", printed, re.MULTILINE)
    assert {test: outcome for outcome, test in outcomes} == {
        "test_options_are_hers": "PASSED",
        f"test_right[{CONTRACT}]": "PASSED",
        f"test_right[{OUT}]": "PASSED",
        f"test_wrong[{CONTRACT}]": "PASSED",
        f"test_wrong[{OUT}]": "FAILED",
        "test_right_is_close": "PASSED",
        "test_wrong_is_not_close": "FAILED",
    }, printed


def test_the_end_counts_each_implementation(printed):
    assert re.search(r"^flash-attest: attention: 2 laws hold\b", printed, re.MULTILINE), printed
    assert re.search(r"^flash-attest: scaled_twice: 1 law fails; 1 holds\b", printed, re.MULTILINE), printed


def test_messages_are_those_of_the_suite(printed):
    law = printed.partition(f"test_wrong[{OUT}] __")[2].partition("\n____")[0]
    assert "times what rounding explains, 8 allowed" in law and "Observed" in law and "Traceback" not in law, printed
    assert re.search(r"AssertionError: out\[b=0 i=\d+ h=\d d=\d+\] is .* 8 allowed", printed), printed


def test_the_report_is_written(printed, hers):
    assert {path.name for path in (hers / REPORT).iterdir()} == {"index.html", "report.md", "results.json"}


def test_the_replay_line_fails_again_in_a_shell(printed, installed, hers):
    line = replay_of(printed)
    assert line.startswith(f"pytest 'tests/test_attention.py::test_wrong[{OUT}]' --attest-case 'seqlen_q="), printed
    run = installed.shell(line, hers)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED and "1 failed" in run.stdout, run.stdout
