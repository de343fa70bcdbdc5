"""--resume: which verdicts of a stopped or killed run are kept, and what is judged again."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.runner.plugin import resume, sources, table
from flash_attest.runner.plugin.resume import Earlier, Reads, ResumeError, earlier, kept
from flash_attest.runner.plugin.saved import JOURNAL
from tests.places import PLUGINS, ROOT
from tests.runs import attest, attest_each, command, environment, results

FACTS = {
    "seed": 0, "profile": "quick", "cases_per_law": 12, "repeats": 10, "device": "cpu", "emulated": "sm_80",
    "machine": "a processor",
    "options": {"impl": None, "case": None}, "variables": {"OMP_NUM_THREADS": "1"},
    "versions": {"torch": "2.13", "triton": None},
    "installed": {"flash-attn": "2.8"}, "sources": {"the suite": "a", "mine": "b"}, "tests": "4, abc",
}  # fmt: skip


def record(**changed) -> dict:
    verdicts = (PASS, FAIL, REFUSED, UNKNOWN)
    verdicts_so_far = [
        Result("mine", "test_forward", f"test_{n}", verdict).as_dict() for n, verdict in enumerate(verdicts)
    ]
    return {"environment": FACTS | {"started": "12:00"} | changed, "results": verdicts_so_far}


# --- what is kept ---------------------------------------------------------------------------------


def of(**changed) -> Earlier:
    return Earlier(record(**changed), [])


def test_what_is_decided_is_kept_and_marked():
    """An unknown law is not decided."""
    decided, again = kept(of(), FACTS)
    assert [(r["verdict"], r["before"]) for r in decided] == [(PASS, "12:00"), (FAIL, "12:00"), (REFUSED, "12:00")]
    later = Earlier(record(started="13:00") | {"results": decided}, [])
    assert {r["before"] for r in kept(later, FACTS).results} == {"12:00"}  # the first run, which judged them
    assert again == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": 7}, "the seed differs: 0 then, 7 now"),
        ({"profile": "smoke"}, "the profile differs: quick then, smoke now"),
        ({"cases_per_law": 2}, "the cases of a law differs"),
        ({"repeats": 100}, "the number of repeats differs"),
        ({"device": "cuda"}, "the device differs: cpu then, cuda now"),
        ({"emulated": "sm_90"}, "the emulated GPU differs: sm_80 then, sm_90 now"),
        ({"options": {"impl": "a,b", "case": None}}, "the option impl differs: none then, a,b now"),
        ({"tests": "3, abd"}, "which laws are judged (-k, -m, paths, --shard) differs: 4, abc then, 3, abd now"),
    ],
)
def test_another_command_is_named(changed, words):
    with pytest.raises(ResumeError) as error:
        kept(of(), FACTS | changed)
    assert str(error.value).startswith(f"--resume: {words}")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"machine": "H200"}, "the machine differs: a processor then, H200 now"),
        ({"installed": {"flash-attn": "2.9"}}, "the version of flash-attn differs: 2.8 then, 2.9 now"),
        ({"versions": {"torch": "2.13", "triton": "3.7"}}, "the version of triton differs: none then, 3.7 now"),
        ({"variables": {"OMP_NUM_THREADS": "2"}}, "the environment variable OMP_NUM_THREADS has changed"),
        ({"variables": {}}, "the environment variable OMP_NUM_THREADS is gone"),
        ({"variables": FACTS["variables"] | {"CC": "a"}}, "the environment variable CC is new"),
        ({"sources": {"the suite": "c", "mine": "b"}}, "the source of the suite differs"),
    ],
)
def test_if_the_surroundings_differ_everything_is_judged_again_and_the_reason_named(changed, words):
    assert kept(of(), FACTS | changed) == ([], [f"judged again: {words}: 3 verdicts"])


HERS = Reads("/hers", lambda names: ({*names} - {"unrelated"}, {"MODE"}))


def read(mode: str = "a", **files) -> dict:
    return {"/hers": {"files": files, "variables": {"MODE": mode}, "more": False}}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"read": read(weights="a", new="a")}, "new is new"),
        ({"read": read(weights="b")}, "weights has changed"),
        ({"read": read()}, "weights is gone"),
        (
            {"read": {"/hers": {"files": {"weights": "a"}, "variables": {"MODE": "b"}}}},
            "the environment variable MODE has changed",
        ),
        ({"sources": {"the suite": "a", "mine": "d", "other": "c"}}, "the source of mine differs"),
    ],
)
def test_what_a_plugin_could_read_is_compared_and_others_keep_their_verdicts(changed, words):
    """The other plug-in is in another folder."""
    facts = FACTS | {"sources": {"the suite": "a", "mine": "b", "other": "c"}, "read": read(weights="a")}
    there = record(sources=facts["sources"], read=facts["read"])
    there["results"] += [result | {"impl": "other"} for result in there["results"]]
    decided, again = kept(Earlier(there, []), facts | changed, {"mine": HERS})
    assert {result["impl"] for result in decided} == {"other"} and len(decided) == 3
    assert again == [f"judged again: {words}: 3 verdicts of mine"]


def test_a_file_that_does_not_concern_a_plugin_costs_no_verdict():
    facts = FACTS | {"read": read(weights="a")}
    there = Earlier(record(read=facts["read"]), [])
    decided, again = kept(there, facts | {"read": read(weights="a", unrelated="a")}, {"mine": HERS})
    assert len(decided) == 3 and again == []


def test_nothing_is_kept_of_a_report_that_has_not_recorded_what_was_read():
    facts = FACTS | {"read": read(weights="a")}
    assert kept(of(), facts, {"mine": HERS}) == (
        [],
        ["judged again: the earlier run has no record of its files: 3 verdicts of mine"],
    )
    old = record()
    del old["environment"]["sources"], old["environment"]["variables"]
    assert kept(Earlier(old, []), FACTS).results == []


def test_what_is_not_installed_is_looked_for_again():
    there = record()
    there["results"] = [Result("mine", "test_forward", "test_1", REFUSED, "no nvcc", Reason.NOT_INSTALLED).as_dict()]
    assert kept(Earlier(there, []), FACTS) == ([], [])


def test_every_option_is_compared_or_known_not_to_matter():
    """The effects of device, emulated and repeats are compared.

    The remaining options set the folder of a report, or how long to wait.
    """
    names = [option.name.replace("-", "_") for option in table.SUITE]
    others = {
        "device",
        "emulated",
        "repeats",
        "report",
        "resume",
        "case_timeout",
        "no_isolation",
        "time_limit",
        "law_time_limit",
    }
    assert set(names) - set(resume.OPTIONS) <= others


def test_a_result_survives_being_written_and_read():
    result = Result("a", "b", "c", UNKNOWN, "x", Reason.SUITE, 3, 1.5, {"running": 1.0}, {"out": float("inf")})
    assert Result.of_dict(json.loads(json.dumps(result.as_dict()))).as_dict() == result.as_dict()


# --- sources --------------------------------------------------------------------------------------


def loaded(path, name: str):
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHANGED = (
    "plugin.py",
    "attest_helper_a.py",
    "attest_helper_b.py",
    "attest_sizes.py",
    "attest_kernels/k.py",
    "kernel.cu",
    "k.so",
)


@pytest.mark.parametrize("changed", CHANGED)
def test_a_plugin_is_its_file_what_it_imports_and_its_kernels(tmp_path, monkeypatch, changed):
    (tmp_path / "plugin.py").write_text(
        "import math, torch, attest_helper_a\nfrom flash_attest import Implementation\n"
    )
    (tmp_path / "attest_helper_a.py").write_text(
        "from attest_helper_b import function\nfrom attest_sizes import BLOCK\nimport attest_kernels.k\n"
    )
    (tmp_path / "attest_sizes.py").write_text("BLOCK = 64\n")
    (tmp_path / "attest_kernels").mkdir()
    for name in ("attest_kernels/__init__.py", "attest_kernels/k.py", "k.so"):
        (tmp_path / name).write_text("")
    (tmp_path / "attest_helper_b.py").write_text("def function(): pass\n")
    (tmp_path / "kernel.cu").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("attest_helper_a", "attest_helper_b", "attest_sizes", "attest_kernels", "attest_plugin_of_a_test"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    loaded(tmp_path / "plugin.py", "attest_plugin_of_a_test")
    plugin = str(tmp_path / "plugin.py")
    before = sources.of_plugin(plugin)
    (tmp_path / "notes.txt").write_text("not a source")
    (tmp_path / "beside.py").write_text("not imported")
    assert sources.of_plugin(plugin) == before
    with open(tmp_path / changed, "a") as file:
        file.write("# changed\n")
    assert sources.of_plugin(plugin) != before


def test_a_plugin_of_another_process_is_what_its_text_imports(tmp_path):
    """With --untrusted, another process imports the plug-in."""
    (tmp_path / "plugin.py").write_text("from kern.k import forward\n")
    (tmp_path / "kern").mkdir()
    (tmp_path / "kern/k.py").write_text("from . import sizes\n")
    (tmp_path / "kern/sizes.py").write_text("BLOCK = 64\n")
    before = sources.of_plugin(str(tmp_path / "plugin.py"))
    (tmp_path / "kern/sizes.py").write_text("BLOCK = 128\n")
    assert sources.of_plugin(str(tmp_path / "plugin.py")) != before


def test_the_suite_is_its_rooms():
    assert sources.is_ours(str(ROOT / "oracle/masks.py")) and sources.is_ours(str(ROOT / "runner/plugin/suite.py"))
    assert not sources.is_ours(str(ROOT / "tests/trials.py")) and not sources.is_ours(pytest.__file__)
    assert sources.of_suite() == sources.of_suite()


# --- runs -----------------------------------------------------------------------------------------

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
