"""Runs with options that users give: wrong options, the hook, known failures, an outside plug-in.

All of them run in one process.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.places import PLUGINS
from tests.runs import attest_each, results

WRONG = [
    (["--impl", "torch_mth"], "--impl torch_mth: unknown 'torch_mth'; known are cuda_fa1, "),
    (["--impl", "torch_mth", "--impl", "torch_math"], "--impl torch_mth,torch_math: unknown 'torch_mth'; known are "),
    (["--impl", ""], "--impl '': no name given; known are cuda_fa1, "),
    (["--case", "seqlen=65"], "there is no field 'seqlen'; the fields are batch, seqlen_q"),
    (["--case", "dtype=float8"], "dtype=float8: should be one of float32, float16, bfloat16"),
    (["--case-timeout=-1"], "--case-timeout -1: should be a number of seconds, or 0 for no limit"),
    (["--case-timeout", "nan"], "--case-timeout nan: should be a number of seconds, or 0 for no limit"),
    (["--emulated", "75"], "argument --emulated: invalid choice: '75' (choose from "),
    (["--repeats", "0"], "--repeats 0: should be at least 1"),
    (["--report=README.md"], "--report README.md: is a file, should be a folder"),
    (["--perturb", "noise"], "--perturb noise: no perturbation; those are other_case (a call of the same shape "),
    (["--perturb", "cold,none"], "--perturb cold,none: none stands alone"),
    (["--perturb", ","], "--perturb ',': names no perturbation; write none for no perturbation"),
    (["--impl-from", "no_such_file.py"], "--impl-from no_such_file.py: there is no file no_such_file.py"),
    (["--impl-from", "tests/plugins/nothing_in_it.py:YOURS"], "there is no YOURS in it; it has MINE"),
    (["--hypothesis-seed", "x"], "--hypothesis-seed x: should be a whole number, or random"),
    (["--hypothesis-profile", "fast"], "--hypothesis-profile fast: should be one of smoke, quick, default"),
    (["--impl-from", "tests/plugins/good.py", "--impl-from", "./tests/plugins/good.py"], "two implementations are named"),
]  # fmt: skip
# What names one of ours loads all of them, so this is thorough.
REPEATED = [(["--impl", ","], "--impl ,: no name given; known are cuda_fa1, ")]
SMOKE = ("--hypothesis-profile", "smoke")
KNOWN = "sees_exactly_its_prefix or padding_keys_count_nothing"
UNSUPPORTED = ("--impl-from", PLUGINS / "good.py", "--case", "seqlen_q=8 headdim=16 dtype=float32 causal=true")


@pytest.fixture(scope="module")
def each(tmp_path_factory, pytestconfig):
    wrong = WRONG + REPEATED * pytestconfig.getoption("--thorough")
    folder = tmp_path_factory.mktemp("each")
    elsewhere = folder / "my_attention.py"
    elsewhere.write_text((PLUGINS / "good.py").read_text())
    forward = "properties/test_forward.py"
    runs = {
        "hooked": (*SMOKE, "-p", "tests.plugins.hooked", "--impl", "hooked", forward),
        "beside ours": ("-p", "tests.plugins.hooked", "-k", "contract_is_kept and hooked"),
        "known": ("-v", "--impl-from", PLUGINS / "known.py", "-k", KNOWN),
        "unsupported": (*UNSUPPORTED, forward),
        "no isolation": (*SMOKE, "--impl-from", PLUGINS / "good.py", "--no-isolation", forward),
        "outside": (*SMOKE, f"--impl-from={elsewhere}", "-k", "winning_key"),
        **{str(arguments): (*arguments, forward) for arguments, _ in wrong},
    }
    return attest_each(runs, folder)


def test_a_module_joins_through_the_hook(each):
    run = each["hooked"]
    assert run.returncode == 0, run.stdout
    assert results(run.report)["test_out_matches_the_definition[hooked]"]["verdict"] == "pass"


def test_implementations_of_another_device_are_a_line_and_no_tests(each):
    run = each["beside ours"]
    there = json.loads((run.report / "results.json").read_text())
    elsewhere = there["environment"]["elsewhere"]
    assert elsewhere["torch_flex"].startswith("runs on cuda only") and "torch_math" not in elsewhere
    assert not elsewhere.keys() & {result["impl"] for result in there["results"]}
    assert f"not judged here: {', '.join(elsewhere)} (runs on cuda only)\n" in run.stdout
    assert run.stdout.endswith(f"; {len(elsewhere)} implementations need a GPU\n")


def test_known_failures_are_strict(each):
    run = each["known"]
    fails = results(run.report)["test_query_sees_exactly_its_prefix[known]"]
    fixed = results(run.report)["test_padding_keys_count_nothing[known]"]
    assert run.returncode == 1
    assert fails["verdict"] == "fail" and fails["known"] == "last query of a partial tile, #12"
    assert re.search(r"known failure  known  query_sees.*\(last query of a partial tile, #12\)", run.stdout)
    assert fixed["verdict"] == "fail" and "take it off the list" in fixed["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"), [*WRONG, *(pytest.param(*each, marks=pytest.mark.thorough) for each in REPEATED)]
)
def test_a_wrong_option_is_reported_before_anything_runs(each, arguments, words):
    run = each[str(arguments)]
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in run.stdout
    assert not (run.report / "results.json").exists()


def test_an_unsupported_case_is_refused(each):
    run = each["unsupported"]
    entry = results(run.report)["test_out_matches_the_definition[good]"]
    assert (entry["verdict"], entry["reason"]) == ("refused", "causal is not supported by good")
    assert run.returncode == 1 and "no law took the case: causal is not" in run.stdout


def test_without_isolation_the_header_says_so(each):
    run = each["no isolation"]
    assert run.returncode == 0, run.stdout
    says = "laws are judged in the pytest process, which a crash ends"
    assert says in run.stdout and says not in each["outside"].stdout


def test_a_plugin_may_be_outside_the_checkout(each):
    """The option needs `=`, because pytest takes a path after a space for a test and looks for
    settings there.
    """
    here = each["outside"]
    assert here.returncode == 0, here.stdout
    assert results(here.report)["test_winning_key_is_copied[good]"]["verdict"] == "pass"
