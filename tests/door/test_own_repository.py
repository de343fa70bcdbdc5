"""@attention_laws in somebody's repository, whose conftest.py has options of the same names as ours."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import warm
from tests.places import ROOT

CONFTEST = """
def pytest_addoption(parser):
    for name in ("--device", "--case", "--report", "--repeats", "--shard", "--impl", "--perturb"):
        parser.addoption(name, default="hers")
    parser.addoption("--resume", action="store_true")
"""
KERNELS = """
import ctypes
import torch

def attention(q, k, v, *, causal=False):
    s = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    n, m = s.shape[-2:]
    if causal:
        s = s.masked_fill(torch.ones(n, m, dtype=torch.bool).triu(1 + m - n), -torch.inf)
    return torch.einsum("bhij,bhjd->bhid", s.softmax(-1), v)

def scaled_twice(q, k, v, *, causal=False):
    return attention(q * 2, k, v, causal=causal)

def crashes(q, k, v, *, causal=False):
    if q.shape[2] > 1:
        ctypes.string_at(0)
    return attention(q, k, v, causal=causal)
"""
TESTS = """
import pytest, torch
from flash_attest import attention_laws
from kernels import attention, crashes, scaled_twice

FIELDS = dict(layout="bhsd", causal="optional", headdims={16}, dtypes={torch.float32}, outside="undefined")

@attention_laws(forward=attention, **FIELDS)
def test_right(law):
    law()

class TestWrong:
    @pytest.mark.parametrize("again", [False, True])
    @attention_laws(forward=scaled_twice, **FIELDS)
    def test_in_a_class(self, law, again):
        law()

@attention_laws(forward=crashes, **FIELDS)
def test_crash(law):
    law()

KNOWN = {"test_out_matches_the_definition": "scaled twice, #12"}

@attention_laws(forward=scaled_twice, name="known", known_failures=KNOWN, **FIELDS)
def test_known(law):
    law()

@attention_laws(forward=attention, name="on_gpu", devices={"cuda"}, **FIELDS)
def test_on_a_gpu(law):
    law()

def test_of_her_own(request):
    assert request.config.getoption("--device") == "hers"
"""
OUT = "out_matches_the_definition"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hers")
    (folder / "tests").mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "tests" / "test_attn.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["."]\nattest_profile = "smoke"\naddopts = "-p flash_attest.pytest_plugin"\n'
    )
    return folder


ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | {"COLUMNS": "200"}


def run(folder, *arguments):
    """pytest in her repository; the checkout takes the place of an installed package."""
    with tempfile.TemporaryDirectory() as kept:
        output, status = Path(kept, "output"), Path(kept, "status")
        how = {"arguments": ["-p", "no:randomly", *map(str, arguments)], "folder": str(folder)}
        ended = warm.ask(
            ENVIRONMENT | {"PYTHONPATH": str(ROOT)}, [how | {"output": str(output), "status": str(status)}]
        )
        return SimpleNamespace(returncode=ended, stdout=output.read_text())


def run_alone(folder, *arguments, **variables):
    """The same as a new process, in which torch has not been imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flash_attest.pytest_plugin", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=folder,
        env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
    )


@contextlib.contextmanager
def beside(folder, source):
    """In this block another file of tests is there."""
    file = folder / "tests" / "test_beside.py"
    imports = (
        "import pytest, torch\nfrom flash_attest import attention_laws\nfrom kernels import attention, scaled_twice\n"
    )
    file.write_text(f"{imports}\n{source}")
    try:
        yield
    finally:
        file.unlink()


def until(there, seconds=60.0):
    stop = time.perf_counter() + seconds
    while not there():
        assert time.perf_counter() < stop
        time.sleep(0.1)


@pytest.fixture(scope="module")
def whole(repository):
    """One run of some laws of everything, with two workers and a report."""
    chosen = f"{OUT} or contract or her_own or order_of_keys"
    return run(repository, "-n", 2, "-rA", "-k", chosen, "--attest-report", "her report")


def outcomes(ran) -> dict[str, str]:
    found = re.findall(r"^(PASSED|FAILED|XFAIL|SKIPPED) (?:\[\d+\] )?\S*::(\S+)", ran.stdout, re.MULTILINE)
    return {test: outcome for outcome, test in found}


def test_each_law_is_a_test_with_its_own_outcome(whole):
    assert whole.returncode == pytest.ExitCode.TESTS_FAILED, whole.stdout
    found = outcomes(whole)
    assert found["test_of_her_own"] == "PASSED"
    assert {found[f"test_right[{law}]"] for law in ("contract_is_kept", OUT, "order_of_keys_does_not_matter")} == {
        "PASSED"
    }
    assert {found[f"test_in_a_class[{OUT}-{again}]"] for again in ("False", "True")} == {"FAILED"}
    assert found[f"test_known[{OUT}]"] == "XFAIL" and "known: scaled twice, #12" in whole.stdout


def test_the_message_is_that_of_the_suite_without_a_traceback(whole):
    sections = whole.stdout.partition("= FAILURES =")[2].split("\n____")
    first, *others = [text for text in sections if "TestWrong.test_in_a_class" in text]
    assert "times what rounding explains, 8 allowed" in first and "Observed" in first
    assert others and all("probably for the same reason as test_" in text for text in others)
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
    again = run(repository, *shlex.split(line)[1:])
    assert again.returncode == pytest.ExitCode.TESTS_FAILED and "1 failed" in again.stdout


def test_first_failure_and_last_failed(repository):
    first = run(repository, "--cache-clear", "-x", "-q", "-k", f"class and ({OUT} or contract)")
    assert "1 failed" in first.stdout and "stopping after 1 failures" in first.stdout
    again = run(repository, "--lf", "-q", "-k", "class")
    assert "1 failed" in again.stdout and again.returncode == pytest.ExitCode.TESTS_FAILED


def test_nothing_stays_in_the_temporary_folder(repository, tmp_path):
    ran = run_alone(repository, "-n", 2, "-k", "test_right and contract", TMPDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stdout
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("attest-")]


def test_what_was_not_judged_is_not_green(repository):
    """The case is none that the law takes."""
    ran = run(repository, "-q", "-k", f"test_right and {OUT}", "--attest-case", "seqlen_q=4 headdim=64")
    assert (
        ran.returncode == pytest.ExitCode.TESTS_FAILED and "flash-attest: not green: no law took the case" in ran.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--attest-case", "seqlen=4"), "--attest-case: there is no field 'seqlen'"),
        (("--attest-repeats", "0"), "--attest-repeats 0: should be at least 1"),
        (("--attest-perturb", "noise"), "--attest-perturb noise: no perturbation"),
        (("-o", "attest_profile=small"), "attest_profile=small: should be one of smoke, quick"),
        (("-o", "attest_seed=one"), "attest_seed=one: should be a number"),
        (("--attest-device", "cuda"), "--attest-device cuda: torch.cuda.is_available() is False here"),
    ],
)
def test_a_wrong_option_is_one_line(repository, arguments, words):
    ran = run(repository, "-q", "-k", "test_right and contract", *arguments)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR and f"ERROR: {words}" in ran.stdout, ran.stdout


def test_a_report_folder_outside_needs_the_equals_sign(repository, tmp_path):
    """After a space pytest takes a folder that exists for the place of the tests, and does not read her settings."""
    plugin = ("-q", "-p", "flash_attest.pytest_plugin", "-k", "test_right and contract")
    ran = run(repository, *plugin, "--attest-report", tmp_path)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR and f"write --attest-report={tmp_path}" in ran.stdout, (
        ran.stdout
    )
    assert run(repository, *plugin, f"--attest-report={tmp_path}").returncode == 0
    assert (tmp_path / "results.json").exists()


def test_an_option_comes_before_the_settings(repository):
    """Also where it is the default."""
    hangs = ("-q", "-k", "test_right and contract", "-o", "attest_case_timeout=0.000001")
    assert "flash-attest: not green: 1 law undecided" in run(repository, *hangs).stdout
    assert run(repository, *hangs, "--attest-case-timeout", "120").returncode == 0


def test_two_of_one_name_fail_in_workers_too(repository):
    source, words = BESIDE["two of one name"]
    with beside(repository, source):
        ran = run(repository, "-q", "-n", 2, "tests/test_beside.py", "-k", "contract")
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED and words in ran.stdout and "INTERNALERROR" not in ran.stdout


CAUGHT = """
@attention_laws(forward=scaled_twice, name="caught", dtypes={torch.float32}, headdims={16}, layout="bhsd")
def test_caught(law):
    for _ in range(2):
        with pytest.raises(Exception, match="explains"):
            law()
"""


def test_a_failure_that_its_test_expects_is_not_counted_as_one(repository):
    with beside(repository, CAUGHT):
        ran = run(repository, "-q", "tests/test_beside.py", "-k", OUT)
    assert ran.returncode == 0 and "flash-attest: green: 1 law fails as known" in ran.stdout, ran.stdout


def test_the_report_of_last_failed_is_complete(repository, tmp_path):
    assert run(repository, "--cache-clear", "-q", "-k", f"class and {OUT}").returncode == 1
    run(repository, "--lf", "-q", f"--attest-report={tmp_path / 'report'}")
    environment = json.loads((tmp_path / "report" / "results.json").read_text())["environment"]
    assert environment["complete"] and environment["planned"] == 1


SLOW = """
import time

def slow(q, k, v, *, causal=False):
    time.sleep(60)

@attention_laws(forward=slow, layout="bhsd", dtypes={torch.float32}, headdims={16})
def test_slow(law):
    law()
"""


def test_ctrl_c_ends_the_run_in_order(repository, tmp_path):
    with beside(repository, SLOW):
        command = [sys.executable, "-m", "pytest", "-q", "tests/test_beside.py", "-k", "contract"]
        how = dict(cwd=repository, env=ENVIRONMENT | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)})
        process = subprocess.Popen(command, **how, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        until(lambda: any(tmp_path.glob("attest-*/last-case-*")))
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED and "Error" not in printed, printed
    assert not list(tmp_path.glob("attest-*"))


BESIDE = {
    "two of one name": (
        "@attention_laws(forward=attention)\ndef test_a(law): law()\n"
        "@attention_laws(forward=attention)\ndef test_b(law): law()\n",
        "two implementations are named 'attention'",
    ),
    "an unknown field": (
        "@attention_laws(forward=attention, head_dims={64})\ndef test_a(law): law()\n",
        "no field head_dims; did you mean headdims?",
    ),
    "a wrong value": (
        "@attention_laws(forward=attention, layout='sbhd')\ndef test_a(law): law()\n",
        "layout='sbhd': should",
    ),
    "an unknown law": (
        "@attention_laws(forward=attention, known_failures={'test_speed': 'slow, #1'})\ndef test_a(law): law()\n",
        "known_failures names test_speed: there is no such law",
    ),
}


@pytest.mark.parametrize("what", BESIDE)
def test_a_wrong_declaration_is_named(repository, what):
    source, words = BESIDE[what]
    with beside(repository, source):
        ran = run(repository, "-q", "tests/test_beside.py", "-k", "contract")
    assert ran.returncode in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED)
    assert words in ran.stdout, ran.stdout


def test_a_run_without_laws_imports_no_torch(tmp_path):
    (tmp_path / "test_other.py").write_text("import sys\n\ndef test_other():\n    assert 'torch' not in sys.modules\n")
    ran = run_alone(tmp_path, "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout


def test_help_spells_options_with_their_prefix(tmp_path):
    ran = run_alone(tmp_path, "--help")
    assert "as in --attest-case " in ran.stdout and "--{" not in ran.stdout, ran.stdout


HOOKED = """
def pytest_attention_impls(config):
    return []
"""


def test_the_hook_is_known_in_every_run(tmp_path):
    (tmp_path / "conftest.py").write_text(HOOKED)
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    ran = run_alone(tmp_path)
    assert ran.returncode == 0, ran.stdout
