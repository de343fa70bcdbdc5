"""Runs that are stopped, killed or interrupted, and then resumed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from functools import partial

import pytest

from flash_attest.runner.plugin.resume import ResumeError, earlier
from flash_attest.runner.plugin.saved import JOURNAL
from tests.places import PLUGINS, ROOT
from tests.runs import attest, attest_each, command, environment, results

LAWS = ("properties/test_causal.py", "properties/test_forward.py")
SHORT = ("--impl-from", PLUGINS / "one_key_short.py", *LAWS)


@pytest.fixture(scope="module")
def each(tmp_path_factory):
    """Runs that stop at the first failure, followed by runs that resume them."""
    folder = tmp_path_factory.mktemp("resume")
    whole, part = f"--report={folder}/whole", f"--report={folder}/part"
    runs = {
        "stopped": (*SHORT, "-x", whole),
        "other seed": (*SHORT, "--resume", "--hypothesis-seed", "3", whole),
        "other laws": (*SHORT[:-1], "--resume", whole),
        "resumed": (*SHORT, "--resume", whole),
        "nowhere": (*SHORT, "--resume"),
        "part": (*SHORT, "-x", "--shard", "1/2", part),
        "other part": (*SHORT, "--resume", "--shard", "2/2", part),
        "part resumed": (*SHORT, "--resume", "--shard", "1/2", "--hypothesis-seed", "random", part),
    }
    return attest_each(runs, folder / "each"), folder


def test_a_stopped_run_says_how_far_it_came(each):
    run = each[0]["stopped"]
    assert run.returncode == 1
    assert re.search(r"ended early: \d+ of 9 decided; --resume goes on from there", run.stdout), run.stdout
    assert re.search(r"not green: \d+ of 9 were not judged", run.stdout)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other seed", "--resume: the seed differs: 0 then, 3 now"),
        ("other laws", "--resume: which laws are judged (-k, -m, paths, --shard) differs: 9, "),
        ("nowhere", " has no results.json\n"),
        ("other part", "--resume: the option shard differs: 1/2 then, 2/2 now"),
    ],
)
def test_another_run_is_not_gone_on_with(each, name, words):
    run = each[0][name]
    assert run.returncode == pytest.ExitCode.USAGE_ERROR and words in run.stdout, run.stdout
    assert "Error:" not in run.stdout and "Traceback" not in run.stdout
    if name == "nowhere":  # said before the tests are collected, and before workers start
        assert "--resume: nothing to resume: " in run.stdout and "collected" not in run.stdout


@pytest.mark.parametrize(("name", "report"), [("resumed", "whole"), ("part resumed", "part")])
def test_a_resumed_run_judges_the_rest(each, name, report):
    run, record = each[0][name], json.loads((each[1] / report / "results.json").read_text())
    facts, marked = record["environment"], [r for r in record["results"] if r["before"]]
    assert facts["complete"] and facts["decided"] == facts["planned"] == len(record["results"])
    assert 0 < len(marked) < len(record["results"])
    assert len({(r["law"], r["impl"]) for r in record["results"]}) == len(record["results"])
    assert "judged before: " in (each[1] / report / "index.html").read_text()
    assert "were not judged" not in run.stdout


def test_a_failure_that_was_kept_is_still_a_failure(each):
    run, report = each[0]["resumed"], each[1] / "whole"
    (entry,) = (e for e in results(report).values() if e["verdict"] == "fail" and e["before"])
    assert run.returncode == 1 and entry["message"].splitlines()[0] in run.stdout


def test_a_random_seed_goes_on_with_the_one_that_was_drawn(each):
    assert "seed 0, report in" in each[0]["part resumed"].stdout


READS = """
import os
from dataclasses import replace
from pathlib import Path
from tests.plugins import good

MODE, WEIGHTS = os.environ.get("HER_MODE"), Path(__file__).with_name("weights.bin")
IMPLS = [replace(good.IMPL, name="reads")]
"""


def test_after_a_change_on_disk_its_verdicts_are_judged_again_and_the_reason_named(tmp_path):
    hers, neighbour = tmp_path / "hers", tmp_path / "neighbour"
    for folder, name in ((hers, "reads"), (neighbour, "neighbour")):
        folder.mkdir()
        (folder / "plugin.py").write_text(READS.replace("reads", name))
        (folder / "weights.bin").write_bytes(b"1")
    files = (f"--impl-from={hers / 'plugin.py'}", f"--impl-from={neighbour / 'plugin.py'}")
    run = partial(
        attest, *files, "properties/test_forward.py", "--hypothesis-profile", "smoke", report=tmp_path / "report"
    )
    assert run().returncode == 0
    for folder in (hers, neighbour):
        (folder / "another_kernel.py").write_text("IMPL = None\n")
    again = run("--resume").stdout
    assert "judged again" not in again and "keeps 6 verdicts of the earlier run" in again
    (hers / "weights.bin").write_bytes(b"2")
    (tmp_path / "report" / JOURNAL).write_bytes(b"\n{nonsense}\n\0\0\0")
    again = run("--resume").stdout
    assert "\njudged again: weights.bin has changed: 3 verdicts of reads\n" in again, again
    for number, what in ((2, "no JSON"), (3, "no JSON")):
        assert f"{JOURNAL}, line {number} is {what}: its law is judged again\n" in again, again
    assert "keeps 3 verdicts of the earlier run" in again
    assert {entry["impl"] for entry in results(tmp_path / "report").values() if entry["before"]} == {"neighbour"}
    assert not (tmp_path / "report" / JOURNAL).exists()


def test_a_killed_run_goes_on_with_workers(tmp_path):
    """kill -9 loses only the law in progress. Decided laws are not judged again."""
    chosen = ("--impl-from", PLUGINS / "slow.py", "properties/test_seqlens.py", "properties/test_forward.py")
    process = subprocess.Popen(
        command(*chosen, report=tmp_path),
        cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 600
    while len(decided := decided_in(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before, planned = decided_in(tmp_path), earlier(tmp_path).record["environment"]["planned"]
    assert 3 <= len(decided) <= len(before) < planned
    assert "running: " in (tmp_path / "index.html").read_text()
    run = attest(*chosen, "-n", "1", "--resume", report=tmp_path)
    after = results(tmp_path)
    assert run.returncode == 0 and len(after) == planned, run.stdout
    assert {name: e["seconds"] for name, e in after.items() if e["before"]} == {
        name: e["seconds"] for name, e in before.items() if e["verdict"] != "unknown"
    }
    assert json.loads((tmp_path / "results.json").read_text())["environment"]["complete"]


def test_an_interrupt_after_the_kept_verdicts_are_read(tmp_path):
    """Nothing has been reported by then, and only the contract check was kept."""
    chosen = ("-p", "tests.plugins.interrupted_early", "--impl-from", PLUGINS / "good.py")
    chosen += ("-n", "0", "--hypothesis-profile", "smoke")
    for more in ((), ("--resume",)):
        run = attest(*chosen, *more, report=tmp_path)
        record = json.loads((tmp_path / "results.json").read_text())
        assert run.returncode == pytest.ExitCode.INTERRUPTED and "INTERNALERROR" not in run.stdout, run.stdout
        assert record["environment"]["state"] == "interrupted" and len(record["results"]) == 1
    assert "keeps 1 verdict of the earlier run" in run.stdout


def decided_in(report) -> dict[str, dict]:
    try:
        return {f"{e['law']}[{e['impl']}]": e for e in earlier(report).record["results"]}
    except ResumeError:
        return {}
