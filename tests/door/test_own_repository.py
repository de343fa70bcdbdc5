"""Tests under @attention_laws in another repository: outcomes, messages, reports, and how a run
ends.
"""

import json
import re
import shlex
import signal
import time

import pytest

from tests.door.hers import beside, process_in, pytest_in

OUT = "out_matches_the_definition"


@pytest.fixture(scope="module")
def whole(repository):
    """One run of some laws of every implementation, with two workers and a report."""
    chosen = f"{OUT} or contract or her_own or order_of_keys"
    return pytest_in(repository, "-n", 2, "-rA", "-k", chosen, "--attest-report", "her report")


def outcomes(run) -> dict[str, str]:
    """Return test -> outcome."""
    pairs = re.findall(r"^(PASSED|FAILED|XFAIL|SKIPPED) (?:\[\d+\] )?\S*::(\S+)", run.stdout, re.MULTILINE)
    return {test: outcome for outcome, test in pairs}


def test_each_law_is_a_test_with_its_own_outcome(whole):
    assert whole.returncode == pytest.ExitCode.TESTS_FAILED, whole.stdout
    of = outcomes(whole)
    assert of["test_of_her_own"] == "PASSED"
    assert {of[f"test_right[{law}]"] for law in ("contract_is_kept", OUT, "order_of_keys_does_not_matter")} == {
        "PASSED"
    }
    assert {of[f"test_in_a_class[{OUT}-{again}]"] for again in ("False", "True")} == {"FAILED"}
    assert of[f"test_known[{OUT}]"] == "XFAIL" and "known: scaled twice, #12" in whole.stdout


def test_the_message_is_that_of_the_suite_without_a_traceback(whole):
    sections = whole.stdout.partition("= FAILURES =")[2].split("\n____")
    first, *others = [text for text in sections if "TestWrong.test_in_a_class" in text]
    assert "times what rounding explains, 8 allowed" in first and "Observed" in first
    assert others and all("for the same cause as " in text for text in others)
    assert "Traceback" not in first and "decorator.py" not in first


def test_a_crash_is_a_failure_with_its_smallest_case(whole):
    assert outcomes(whole)["test_crash[contract_is_kept]"] == "FAILED"
    assert "ends the process: signal 11 (segmentation fault)" in whole.stdout


def test_the_end_counts_each_implementation(whole):
    assert re.search(r"^flash-attest: attention: 3 laws hold$", whole.stdout, re.MULTILINE)
    assert re.search(r"^flash-attest: on_gpu: 3 laws need a GPU$", whole.stdout, re.MULTILINE)
    assert "flash-attest: known: 2 laws hold; 1 fails as known" in whole.stdout


def test_the_report_has_every_verdict(whole, repository):
    record = json.loads((repository / "her report" / "results.json").read_text())
    assert record["environment"]["complete"] and record["environment"]["profile"] == "smoke"
    verdicts = {(result["impl"], result["law"]): result["verdict"] for result in record["results"]}
    assert verdicts[("attention", f"test_{OUT}")] == "pass" and verdicts[("scaled_twice", f"test_{OUT}")] == "fail"


def test_the_replay_line_works_in_her_repository(whole, repository):
    lines = [line.strip() for line in whole.stdout.splitlines() if line.startswith("  pytest '")]
    line = next(line for line in lines if f"TestWrong::test_in_a_class[{OUT}" in line)
    assert "--attest-case 'seqlen_q=" in line and line.startswith("pytest 'tests/test_attn.py::")
    again = pytest_in(repository, *shlex.split(line)[1:])
    assert again.returncode == pytest.ExitCode.TESTS_FAILED and "1 failed" in again.stdout


def test_first_failure_and_last_failed(repository, tmp_path):
    cache = ("-o", f"cache_dir={tmp_path / 'cache'}")  # other runs in this repository write to its own
    first = pytest_in(repository, *cache, "-x", "-q", "-k", f"class and ({OUT} or contract)")
    assert "1 failed" in first.stdout and "stopping after 1 failures" in first.stdout
    failed = json.loads((tmp_path / "cache/v/cache/lastfailed").read_text())
    assert len(failed) == 1, first.stdout
    again = pytest_in(repository, *cache, "--lf", "-q", "-k", "class", f"--attest-report={tmp_path / 'report'}")
    assert "1 failed" in again.stdout and again.returncode == pytest.ExitCode.TESTS_FAILED, (failed, again.stdout)
    environment = json.loads((tmp_path / "report" / "results.json").read_text())["environment"]
    assert environment["complete"] and environment["planned"] == 1


def test_nothing_stays_in_the_temporary_folder(repository, tmp_path):
    run = pytest_in(repository, "-n", 1, "-k", "test_right and contract", TMPDIR=str(tmp_path))
    assert run.returncode == 0, run.stdout
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("attest-")]


def test_what_was_not_judged_is_not_green(repository):
    """The law does not take this case."""
    run = pytest_in(repository, "-q", "-k", f"test_right and {OUT}", "--attest-case", "seqlen_q=4 headdim=64")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert "flash-attest: not green: no law took the case" in run.stdout


CAUGHT = """
@attention_laws(forward=scaled_twice, name="caught", dtypes={torch.float32}, headdims={16}, layout="bhsd")
def test_caught(law):
    for _ in range(2):
        with pytest.raises(Exception, match="explains"):
            law()
"""


def test_a_failure_that_its_test_expects_is_not_counted_as_one(repository):
    with beside(repository, CAUGHT) as file:
        run = pytest_in(repository, "-q", file, "-k", OUT, "--attest-profile", "quick")
    assert run.returncode == 0 and "flash-attest: green: 1 law fails as known" in run.stdout, run.stdout


ON_GPU = """
@attention_laws(forward=attention, name="only_on_gpu", devices={"cuda"}, **FIELDS)
def test_only_on_gpu(law):
    law()

@attention_laws(forward=attention, name="here", **FIELDS)
def test_here(law):
    law()
"""


def test_a_run_in_which_no_implementation_could_be_judged_is_not_green(repository):
    """One of another device is excused beside one that is judged."""
    laws = f"({OUT} or contract)"
    with beside(repository, ON_GPU) as file:
        alone = pytest_in(repository, "-q", file, "-k", f"{laws} and only_on_gpu")
        both = pytest_in(repository, "-q", file, "-k", laws)
    why = "runs on cuda only; this run judges on cpu"
    line = f"flash-attest: not green: nothing was judged of only_on_gpu: {why}; 2 laws need a GPU\n"
    assert alone.returncode == pytest.ExitCode.TESTS_FAILED and alone.stdout.endswith(line), alone.stdout
    assert both.returncode == 0 and both.stdout.endswith("flash-attest: green: 2 laws hold; 2 need a GPU\n"), (
        both.stdout
    )


UNJUDGED = """
@pytest.fixture
def fails(request):
    if "out_matches" in request.node.name:
        raise RuntimeError("no data")

@attention_laws(forward=attention, name="unjudged", **FIELDS)
def test_unjudged(law, fails):
    law()

@attention_laws(forward=attention, name="skipped", **FIELDS)
def test_skipped(law):
    pytest.skip("not today")
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_test_that_ends_before_its_law_is_judged_is_not_green(repository, workers, tmp_path):
    report = f"--attest-report={tmp_path / 'report'}"
    with beside(repository, UNJUDGED) as file:
        run = pytest_in(repository, "-q", "-n", workers, file, "-k", f"({OUT} or contract) and unjudged", report)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert run.stdout.endswith("flash-attest: not green: 1 of 2 were not judged; 1 law holds\n"), run.stdout
    assert not json.loads((tmp_path / "report" / "results.json").read_text())["environment"]["green"]


def test_a_test_that_she_skips_is_not_missed(repository):
    with beside(repository, UNJUDGED) as file:
        run = pytest_in(repository, "-q", file, "-k", "contract")
    assert run.returncode == 0 and run.stdout.endswith(
        "flash-attest: green: 1 law holds; only the contract was checked\n"
    ), run.stdout


CARELESS = """
import os, signal, torch
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.autocast("cpu").__enter__()
torch.set_grad_enabled(False)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.chdir("/")

@attention_laws(forward=attention, name="careless", **FIELDS)
def test_careless(law):
    law()
"""


def test_laws_do_not_depend_on_what_her_module_sets_when_it_is_imported(repository):
    with beside(repository, CARELESS) as file:
        run = pytest_in(repository, "-q", file, "-k", f"({OUT} or contract) and careless", "--attest-report=careless")
    assert run.returncode == 0 and run.stdout.endswith("flash-attest: green: 2 laws hold\n"), run.stdout
    assert (repository / "careless" / "results.json").exists()


SLOW = """
import time

def slow(q, k, v, *, causal=False):
    time.sleep(1000)

@attention_laws(forward=slow, layout="bhsd", dtypes={torch.float32}, headdims={16})
def test_slow(law):
    law()
"""


def until(condition, seconds=300.0):
    """Wait until a condition holds."""
    stop = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < stop
        time.sleep(0.1)


def test_ctrl_c_ends_the_run_in_order(repository, tmp_path):
    with beside(repository, SLOW) as file:
        process = process_in(repository, file, "-k", "contract", TMPDIR=str(tmp_path))
        until(lambda: any(tmp_path.glob("attest-*/last-case-*")))
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == pytest.ExitCode.INTERRUPTED and "Error" not in printed, printed
    assert not list(tmp_path.glob("attest-*"))
