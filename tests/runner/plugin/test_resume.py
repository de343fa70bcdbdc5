"""--resume: which verdicts of a stopped or killed run are kept, and what is judged again."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.runner.plugin import resume, sources, table
from flash_attest.runner.plugin.resume import Earlier, Reads, ResumeError, kept
from tests.places import ROOT

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
