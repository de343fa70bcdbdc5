"""Runs the suite in a process, as users do: verdicts, messages, exit statuses, files."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from flash_attest.runner.plugin import suite
from tests.places import PLUGINS, ROOT
from tests.runs import attest, command, environment, results

PATIENT = ("-p", "tests.plugins.patient")
KEYS = {"impl", "chapter", "law", "verdict", "reason", "cases", "seconds", "worst_z", "message", "replay"}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    report = tmp_path_factory.mktemp("good")
    files = "--impl-from", PLUGINS / "good.py", "--impl-from", PLUGINS / "always_causal.py"
    return attest(*files, "--hypothesis-profile", "smoke", report=report), report


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    report = tmp_path_factory.mktemp("failing")
    laws = [ROOT / "properties" / name for name in ("test_causal.py", "test_seqlens.py")]
    return attest("--impl-from", PLUGINS / "one_key_short.py", *PATIENT, "-n", "1", *laws, report=report), report


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    report = tmp_path_factory.mktemp("broken")
    files = ("broken_import", "broken_syntax", "nothing_in_it", "wrong_declaration", "contract_breakers", "good")
    sources = [word for name in files for word in ("--impl-from", PLUGINS / f"{name}.py")]
    laws = [ROOT / "properties" / name for name in ("test_contract.py", "test_forward.py")]
    return attest(*sources, *laws, report=report), report


def test_correct_plugins_pass_every_law_that_applies(good):
    run, report = good
    assert run.returncode == 0, run.stdout
    undecided = {entry["law"] for entry in results(report).values() if entry["verdict"] not in ("pass", "refused")}
    # These laws are about GPUs, so the run stays green.
    assert undecided == {
        "test_work_waits_on_the_current_stream",
        "test_tensors_beyond_2_31_elements",
        "test_sanitizers_report_nothing",
    }
    assert {entry["impl"] for entry in results(report).values()} == {"good", "always_causal"}


def test_every_law_has_one_entry_with_every_key(good):
    _, report = good
    record = json.loads((report / "results.json").read_text())
    names = [(entry["impl"], entry["law"]) for entry in record["results"]]
    assert len(names) == len(set(names)) > 90
    assert all(set(entry) >= KEYS for entry in record["results"])
    assert {"versions", "device", "seed", "profile", "command", "sources"} <= set(record["environment"])
    assert record["environment"]["complete"] and record["environment"]["decided"] == len(names)
    assert record["environment"]["versions"]["torch"]


def test_refusals_say_why(good):
    _, report = good
    entry = results(report)["test_biased_attention_matches_the_definition[good]"]
    assert (entry["verdict"], entry["reason"]) == ("refused", "takes no bias")


def test_a_row_of_the_table_shows_verdict_laws_cases_and_worst_z(good):
    run, _ = good
    assert re.search(r"^implementation +verdict +pass +fail +refused +not here +cases", run.stdout, re.M)
    for name, elsewhere in (("always_causal", ""), ("good", "3")):  # three of its laws apply on a GPU only
        row = rf"^{name} +pass +\d+ +\d+ +{elsewhere} +\d[\d,]* +[\d.]+ \w+ +[\d.]+$"
        assert re.search(row, run.stdout, re.M), run.stdout
    assert "seed 0" in run.stdout and "judges on cpu" in run.stdout


def test_the_last_line_says_green(good):
    run, report = good
    line = run.stdout.splitlines()[-1]
    assert re.fullmatch(r"green: \d+ laws hold; \d+ do not apply; 3 need a GPU", line), line
    environment = json.loads((report / "results.json").read_text())["environment"]
    assert (environment["verdict"], environment["green"]) == (line, True)


def test_the_report_needs_no_network(good):
    _, report = good
    page = (report / "index.html").read_text()
    assert page.startswith("<!doctype html>") and "always_causal" in page
    assert not re.search(r"https?://|<link|<img|\ssrc=|url\(|@import", re.sub(r"<pre.*?</pre>", "", page, flags=re.S))


def test_only_the_report_is_left_on_disk(good):
    _, report = good
    assert sorted(path.name for path in report.iterdir()) == ["index.html", "report.md", "results.json"]


def test_a_failure_ends_with_status_1_and_the_last_lines_say_what_and_where(failing):
    run, _ = failing
    assert run.returncode == 1
    *_, last = end = run.stdout.splitlines()[-10:]
    line = "fail  one_key_short: query 16 sees 16 keys, should see 17: key 16 is missing (5 laws fail"
    assert any(text.startswith(line) for text in end), run.stdout
    assert last == "not green: 5 laws fail; 6 hold; 4 do not apply"


def test_failures_stand_by_cause_with_one_whole_message_each(failing):
    run, _ = failing
    assert run.stdout.count("\nReplay\n") == 1
    assert "\n4 more laws fail for the same cause\n" in run.stdout
    assert "short test summary" not in run.stdout


def test_a_failure_is_shown_with_its_smallest_case(failing):
    _, report = failing
    entry = results(report)["test_query_sees_exactly_its_prefix[one_key_short]"]
    assert entry["smallest"] == "seqlen_q=17 seqlen_k=17 headdim=16 dtype=float32 causal=True"


def test_a_failure_does_not_stop_other_laws(failing):
    _, report = failing
    assert results(report)["test_padding_keys_count_nothing[one_key_short]"]["verdict"] == "pass"


def test_the_replay_command_fails_in_the_same_way(failing, tmp_path):
    _, report = failing
    entry = results(report)["test_query_sees_exactly_its_prefix[one_key_short]"]
    program, *arguments = shlex.split(entry["replay"])
    again = attest(*arguments, report=tmp_path)
    assert program == "pytest" and again.returncode == 1
    assert results(tmp_path)["test_query_sees_exactly_its_prefix[one_key_short]"]["reason"] == entry["reason"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken_import", "broken_import.py:3: importing it raises ModuleNotFoundError"),
        ("broken_syntax", "broken_syntax.py:1: importing it raises SyntaxError"),
        ("nothing_in_it", "IMPL or IMPLS should be an Implementation, or a list of them; it has MINE"),
        ("wrong_declaration", "name='Wrong-Declaration': should match"),
        ("wrong_declaration", "supports.causal=True: should be one of 'never', 'optional', 'always'"),
        ("wrong_shape", "out has shape (2, 64, 3, 8), should be (2, 64, 3, 16)"),
        ("wrong_layout", "declare layout='bhsd'"),
        ("wrong_dtype", "out has dtype torch.float16, should be torch.float32"),
        ("lse_undeclared", 'declare lse="natural"'),
        ("lse_missing", "forward returns out alone, but lse='natural' is declared"),
        ("lse_in_base_2", 'lse is in base 2: declare lse="log2"'),
        ("modifies_q", "q is modified"),
        ("raises", "forward raises RuntimeError: no kernel image"),
        ("returns_nothing", "forward returns NoneType: should be out, or (out, lse)"),
        ("takes_no_causal", 'take the keyword, or declare supports.causal="never"'),
        ("two_gradients", "backward returns tuple of 2"),
        ("not_differentiable", "out does not require grad"),
    ],
)
def test_a_broken_plugin_gets_a_message_that_says_what_to_change(broken, name, words):
    _, report = broken
    entry = results(report)[f"test_contract_is_kept[{name}]"]
    assert entry["verdict"] == "fail"
    assert words in entry["message"], entry["message"]
    assert "--impl-from" in entry["replay"]


def test_a_broken_plugin_does_not_stop_others(broken):
    _, report = broken
    assert results(report)["test_out_matches_the_definition[good]"]["verdict"] == "pass"


def test_laws_are_unknown_where_the_contract_is_broken(broken):
    run, report = broken
    entry = results(report)["test_out_matches_the_definition[raises]"]
    assert entry["verdict"] == "unknown" and "the contract is broken" in entry["reason"]
    assert run.returncode == 1


@pytest.mark.thorough  # tests/runner/isolation/test_core.py shrinks such cases without a run
@pytest.mark.parametrize("workers", ("0", "1"))
def test_an_implementation_that_ends_its_process_fails_with_its_smallest_case(workers, tmp_path):
    arguments = (*PATIENT, "-n", workers, "-k", "out_matches", "properties/test_forward.py")
    run = attest("--impl-from", PLUGINS / "crashes.py", *arguments, report=tmp_path)
    entry = results(tmp_path)["test_out_matches_the_definition[crashes]"]
    assert run.returncode == 1
    assert (entry["verdict"], entry["reason"]) == ("fail", "forward ends the process: exit status 3")
    assert entry["smallest"].startswith("seqlen_q=41 seqlen_k=41 headdim=16 dtype=float32 seed=")
    assert re.search(r"--impl-from=.*crashes.py --case 'seqlen_q=41 ", entry["replay"])
    assert not list(tmp_path.glob("last-case-*"))


def test_a_process_that_ends_outside_the_promise_names_the_call(tmp_path):
    """A call outside of the contract should raise or be right. The law about such calls runs
    last.
    """
    plugin = PLUGINS / "crashes_outside.py"
    attest("--impl-from", plugin, "properties/test_calling.py", "properties/test_seqlens.py", report=tmp_path)
    entries = results(tmp_path)
    entry = entries.pop("test_calls_outside_the_promise_raise_or_are_right[crashes_outside]")
    assert entry["verdict"] == "fail"
    assert re.fullmatch(r"forward ends the process, called with headdim \d+: exit status 3", entry["reason"])
    assert re.search(r"--case 'seqlen_q=[^,]*'$", entry["replay"])
    assert {e["verdict"] for e in entries.values()} <= {"pass", "refused", "unknown"} and len(entries) > 4
    assert not any("process" in e["reason"] for e in entries.values())


def results_so_far(report) -> dict:
    return results(report) if (report / "results.json").exists() else {}


@pytest.mark.thorough  # test_interrupts.py interrupts runs at chosen moments
def test_an_interrupted_run_keeps_its_results(tmp_path):
    process = subprocess.Popen(
        command("--impl-from", PLUGINS / "slow.py", report=tmp_path),
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may start this with SIGINT ignored
    )  # fmt: skip
    deadline = time.monotonic() + 600
    # Interrupt while a case waits. At other moments pytest may fail to print the position, because
    # Python 3.11 gives None as a line number.
    while not (results_so_far(tmp_path) and any(tmp_path.glob("last-case-*"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    # Python drops an interrupt that arrives in a destructor, so send it until the process ends.
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
    output, _ = process.communicate(timeout=600)
    entries = results(tmp_path)
    assert process.returncode == 2, output
    facts = json.loads((tmp_path / "results.json").read_text())["environment"]
    assert 0 < len(entries) < 40 and (facts["complete"], facts["state"]) == (False, "interrupted")
    says = f"interrupted: {len(entries)} of {facts['planned']} decided"
    assert says in (tmp_path / "index.html").read_text() and f"{says}; --resume goes on from there" in output
    assert "not green: " in output.splitlines()[-1]
    assert not [word for word in ("--full-trace", "KeyboardInterrupt", "Traceback") if word in output], output


def test_workers_get_a_gpu_before_any_part_of_cuda_is_loaded(tmp_path):
    """The GPU is set through CUDA_VISIBLE_DEVICES."""
    law = ("-k", "contract_is_kept", "--device", "auto", "-n", "1")
    variables = {"CUDA_VISIBLE_DEVICES": "4,7", "ATTEST_TEST_DIR": str(tmp_path)}
    run = attest("--impl-from", PLUGINS / "names_gpu.py", *law, report=tmp_path / "report", **variables)
    assert run.returncode == 0, run.stdout
    seen = {path.name.removeprefix("gpu-"): path.read_text() for path in tmp_path.glob("gpu-gw*")}
    assert seen == {"gw0": "4"}  # which worker gets which is tested below


@pytest.mark.parametrize("given", (True, False))
@pytest.mark.parametrize(
    ("free", "gpus"),  # GiB
    [
        ((80, 80), ["4", "7", "4"]),
        ((1, 80), ["7", "7", "7"]),
        ((6, 80), ["4", "7", "7"]),
        ((1, 1), ["4", "7", "4"]),
        (None, ["4", "7", "4"]),
    ],
)
def test_workers_get_the_gpus_with_room_in_turn(given, free, gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(suite, "free_memory", lambda gpus: free and [gib << 30 for gib in free])
    monkeypatch.setattr(suite, "cores", lambda: 64)
    attest = SimpleNamespace(options=SimpleNamespace(seed=0, began=""), chosen=SimpleNamespace(tried={}))
    config = SimpleNamespace(getoption={"--device": "auto"}.get, attest=attest, stash=pytest.Stash())
    nodes = [SimpleNamespace(gateway=SimpleNamespace(id=f"gw{n}"), config=config, workerinput={}) for n in range(3)]
    if not given:
        fit = {(80, 80): 24, (1, 80): 12, (6, 80): 13}.get(free, 1)
        assert suite.pytest_xdist_auto_num_workers(config) == fit
    for node in nodes:
        suite.pytest_configure_node(node)
    assert [node.workerinput["attest_gpu"] for node in nodes] == gpus
