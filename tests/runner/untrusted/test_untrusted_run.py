"""Runs of pytest with --untrusted: the report, and options that make no sense."""

import json
from dataclasses import replace

import pytest

from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.runner.untrusted.entries import held
from tests.places import PLUGINS
from tests.runner.untrusted.runs import HERE
from tests.runner.untrusted.tricks import right
from tests.runs import attest, attest_each, results
from tests.trials import implementation

SMOKE = ("--untrusted", "--hypothesis-profile", "smoke", "-n", "0")
OUT = "test_out_matches_the_definition or contract_is_kept"
LAWS = ("-k", f"{OUT} or test_offsets_need")
RUNS = {
    "good": (*SMOKE, *LAWS, "--impl-from", PLUGINS / "good.py"),
    "wrong": (
        *SMOKE,
        "-k",
        OUT,
        "--impl-from",
        f"{HERE}/tricks.py:TWO",
        "--impl",
        "reads_the_expected_value_in_frames",
    ),
    "nothing": ("--untrusted", "-n", "0", "--collect-only"),
    "ours": (
        "--untrusted",
        "-n",
        "0",
        "--collect-only",
        "--impl-from",
        PLUGINS / "good.py",
        "--impl",
        "good,torch_math",
    ),
    "absent": ("--untrusted", "-n", "0", "--collect-only", "--impl-from", "no_such_file.py"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return attest_each(RUNS, tmp_path_factory.mktemp("untrusted"))


def test_a_right_kernel_passes_and_what_it_called_is_reported(runs):
    run = runs["good"]
    assert run.returncode == 0, run.stdout
    entries = results(run.report)
    law = entries["test_out_matches_the_definition[good]"]
    assert law["verdict"] == PASS
    assert law["observed"]["operators"]["aten::einsum"] == law["observed"]["calls"] > 0
    assert entries["test_contract_is_kept[good]"]["observed"]["declared"]["supports"]["headdims"] == [16, 24]
    assert "observed good  calls no attention of PyTorch, but " in run.stdout
    assert f"untrusted: files are imported, and called, in a kernel process, held by {held()}" in run.stdout
    assert json.loads((run.report / "results.json").read_text())["environment"]["sandbox"] == held()
    assert "Observed: good calls no attention of PyTorch" in (run.report / "index.html").read_text()


def test_laws_that_need_one_process_are_refused_with_the_reason(runs):
    law = results(runs["good"].report)["test_offsets_need_64_bits[good]"]
    assert law["verdict"] == "refused" and law["reason"].startswith(
        "with --untrusted the kernel runs in another process"
    )


def test_the_replay_line_says_untrusted(runs):
    assert runs["wrong"].returncode == 1
    law = results(runs["wrong"].report)["test_out_matches_the_definition[reads_the_expected_value_in_frames]"]
    assert law["verdict"] == FAIL and " --untrusted --impl-from=" in law["replay"]


@pytest.mark.thorough  # test_tricks.py has the words for one law; each call of the contract starts a process
def test_a_kernel_that_ends_its_process_fails_in_the_words_of_a_crash(tmp_path):
    asked = ("--impl-from", f"{HERE}/tricks.py:TWO", "--impl", "ends_with_status_0")
    contract = results(attest(*SMOKE, "-k", OUT, *asked, report=tmp_path).report)[
        "test_contract_is_kept[ends_with_status_0]"
    ]
    assert contract["verdict"] == FAIL and contract["reason"] == "forward ends the process: exit status 0"


@pytest.mark.parametrize(
    ("name", "words"),
    (
        ("nothing", "--untrusted: judges what --impl-from names; add --impl-from FILE.py"),
        (
            "ours",
            "--untrusted --impl good,torch_math: torch_math is one of ours, which are judged without --untrusted",
        ),
        ("absent", "--impl-from no_such_file.py: there is no file no_such_file.py"),
    ),
)
def test_options_that_make_no_sense_are_refused(runs, name, words):
    assert runs[name].returncode == 4 and words in runs[name].stdout


def test_answers_kept_from_an_earlier_run_fail_with_another_seed():
    """A file may know the inputs of one seed (docs/use/for-generated-kernels.md)."""
    answers = {}

    def recording(q, k, v):
        return answers.setdefault(tuple(t.numpy().tobytes() for t in (q, k, v)), right(q, k, v)).clone()

    def knowing(q, k, v):
        return answers[key].clone() if (key := tuple(t.numpy().tobytes() for t in (q, k, v))) in answers else 0 * q

    law, impl = laws()["test_out_matches_the_definition"], implementation(recording)
    assert judge(law, impl, Plan(examples=5, try_contract=False)).verdict == PASS
    impl = replace(impl, forward=knowing)
    assert judge(law, impl, Plan(examples=5, try_contract=False)).verdict == PASS
    assert judge(law, impl, Plan(examples=5, seed=1, try_contract=False, goes_on=False)).verdict == FAIL
