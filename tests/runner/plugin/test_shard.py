"""--shard i/n: how a run is split, the report of a part, and the merge of all reports."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flash_attest.command import merge
from flash_attest.impls import torch_math
from flash_attest.properties.law import laws
from flash_attest.runner.parts import Shard, parse
from flash_attest.runner.plugin.merge import MergeError, merged
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.plugin.report import Report
from flash_attest.runner.plugin.saved import read
from flash_attest.runner.plugin.shard import NOTHING, cut, split, weight
from tests.places import PLUGINS
from tests.runs import attest, results

IMPLS = [replace(torch_math.IMPL, name=name) for name in ("a", "b", "c")]


class Item(SimpleNamespace):
    """A test item. It equals only itself, as pytest's items do."""

    __hash__, __eq__ = object.__hash__, object.__eq__


def collected(impls=IMPLS) -> list[Item]:
    """Return the items that pytest collects for these implementations: every law, and the contract
    check.

    They have the attributes that split() reads.
    """
    return [
        Item(
            callspec=SimpleNamespace(id=impl.name, params={"impl": impl}),
            function=SimpleNamespace(law=law) if law else SimpleNamespace(),
            originalname=law.name if law else "test_contract_is_kept",
            fixturenames=["impl", "judge"],
        )
        for law in (None, *laws().values())
        for impl in impls
    ]


def names(items: list) -> list[str]:
    return [f"{item.originalname}[{item.callspec.id}]" for item in items]


@pytest.mark.parametrize(("text", "shard"), [("1/1", Shard(1, 1)), ("2/3", Shard(2, 3)), (" 12/12 ", Shard(12, 12))])
def test_a_shard_is_read(text, shard):
    assert parse(text) == shard and str(shard) == text.strip()


@pytest.mark.parametrize("text", ["3/2", "0/2", "a/b", "1", "", "1/2/3", "-1/2", "1/-2", "0/0", "1.0/2", "²/3"])
def test_a_wrong_shard_is_a_usage_error_that_names_it_and_the_form(text):
    config = SimpleNamespace(getoption={"--shard": text}.get)
    with pytest.raises(pytest.UsageError) as error:
        _ = Options(config).shard
    assert str(error.value) == f"--shard {text}: should be i/n with 1 <= i <= n, as in --shard 1/4"


@pytest.mark.parametrize("n", [1, 2, 3, 7, 50])
def test_parts_are_disjoint_and_together_everything(n):
    run = collected()
    parts = [split(run, Shard(i, n), "cpu") for i in range(1, n + 1)]
    assert sorted(name for mine, _, _ in parts for name in names(mine)) == sorted(names(run))
    assert all(len(mine) == facts["tests"] > 0 for mine, _, facts in parts)
    assert all(len(mine) + len(others) == len(run) == facts["tests_of_all"] for mine, others, facts in parts)
    assert len({facts["digest_of_all"] for _, _, facts in parts}) == 1


def test_the_split_does_not_depend_on_the_order_of_collection():
    run = collected()
    mine, _, facts = split(run, Shard(2, 3), "cpu")
    again, _, facts_again = split(run[::-1], Shard(2, 3), "cpu")
    assert set(names(mine)) == set(names(again)) and facts == facts_again
    assert names(again) == names(mine)[::-1]  # the order is kept


def test_another_run_has_another_digest():
    assert len({split(collected(impls), Shard(1, 2), "cpu")[2]["digest_of_all"] for impls in (IMPLS, IMPLS[:2])}) == 2


def test_an_implementation_is_in_few_parts():
    """n - 1 cuts make at most n - 1 more pieces than there are implementations."""
    where = {(item.callspec.id, i) for i in range(1, 5) for item in split(collected(), Shard(i, 4), "cpu")[0]}
    assert len(where) <= len(IMPLS) + 3


def test_tests_of_the_suite_itself_stay():
    own = Item(fixturenames=["tmp_path"])
    mine, others, facts = split([own, *collected()], Shard(2, 2), "cpu")
    assert own in mine and own not in others and facts["tests_of_all"] == len(collected())


@pytest.mark.parametrize(
    ("weights", "n", "parts"),
    [
        ([1, 1, 1, 1], 2, [1, 1, 2, 2]),
        ([3, 1, 1, 1], 2, [1, 2, 2, 2]),
        ([1, 1, 1, 1], 1, [1, 1, 1, 1]),
        ([100, 1, 1], 3, [1, 2, 3]),
        ([1, 1, 100], 3, [1, 2, 3]),
        ([1, 100, 1, 1, 1], 3, [1, 2, 3, 3, 3]),
        ([1, 1], 5, [1, 2]),
        ([], 3, []),
    ],
)
def test_a_line_is_cut_into_pieces_of_equal_weight(weights, n, parts):
    assert cut(weights, n) == parts


def test_no_part_is_empty_or_far_heavier():
    weights = [1 + n % 7 for n in range(200)]
    for n in range(1, 30):
        parts = cut(weights, n)
        heavy = [sum(w for w, part in zip(weights, parts, strict=True) if part == i) for i in range(1, n + 1)]
        assert parts == sorted(parts) and set(parts) == set(range(1, n + 1))
        assert max(heavy) <= sum(weights) / n + 7


def test_what_launches_nothing_weighs_nothing():
    law, traced, streams = (
        laws()[name]
        for name in (
            "test_out_matches_the_definition",
            "test_no_race_is_traced",
            "test_work_waits_on_the_current_stream",
        )
    )
    impl = torch_math.IMPL
    assert weight(law, impl, "cpu") == 1.0 and weight(None, impl, "cpu") == 1.0
    assert weight(replace(law, share=0.1), impl, "cpu") == 0.1
    assert weight(law, replace(impl, devices={"cuda"}), "cpu") == NOTHING  # it does not run here
    assert weight(traced, impl, "cpu") == NOTHING  # refused
    assert (weight(streams, impl, "cpu"), weight(streams, impl, "cuda")) == (NOTHING, streams.share)
    assert weight(traced, replace(impl, traced=True, devices={"cpu"}), "cuda") == traced.share  # judged on the CPU


# --- reports --------------------------------------------------------------------------------------


@pytest.fixture
def parts() -> dict[str, dict]:
    """The results.json of both parts of a run."""

    def record(part: int, laws: list[str]) -> dict:
        environment = {
            "versions": {"torch": "2.9", "triton": None}, "device": "cpu", "device_name": f"machine {part}",
            "platform": "Linux", "started": f"2026-11-22T08:0{part}:00+00:00", "seed": 0, "profile": "quick",
            "cases_per_law": 12, "repeats": 100, "command": f"pytest --shard {part}/2 -n auto", "seconds": 10.0 * part,
            "workers": 2, "sources": {"the suite": "a"},
            "shard": {"part": part, "of": 2, "tests": len(laws), "tests_of_all": 3, "digest_of_all": "d"},
        }  # fmt: skip
        result = dict(impl="a", chapter="test_forward", verdict="pass", reason="", known="", cases=1, seconds=1.0,
                      seconds_of={}, worst_z={}, message="")  # fmt: skip
        return {"environment": environment, "results": [result | {"law": law} for law in laws]}

    return {"two": record(2, ["test_c"]), "one": record(1, ["test_a", "test_b"])}


def test_parts_are_joined(parts):
    environment, results = merged(parts)
    assert [result["law"] for result in results] == ["test_a", "test_b", "test_c"]
    assert environment["command"] == "pytest -n auto" and "shard" not in environment
    assert (environment["workers"], environment["seconds"]) == (4, 20.0)
    assert environment["device_name"] == "machine 1, machine 2"
    assert [part["command"] for part in environment["parts"]] == [
        "pytest --shard 1/2 -n auto",
        "pytest --shard 2/2 -n auto",
    ]


def test_what_cannot_be_loaded_is_in_each_part_and_once_in_the_joined_report(parts):
    unloaded = parts["one"]["results"][0] | {"law": "test_contract_is_kept", "impl": "b", "why": "not loaded"}
    for record in parts.values():
        facts = record["environment"]["shard"]
        record["results"].append(unloaded)
        record["environment"]["shard"] = facts | {"tests": facts["tests"] + 1, "tests_of_all": 4}
    _, results = merged(parts)
    assert [(result["law"], result["impl"]) for result in results].count(("test_contract_is_kept", "b")) == 1


def change(record: dict, **environment) -> dict:
    return {**record, "environment": record["environment"] | environment}


def shard_of(record: dict, **facts) -> dict:
    return change(record, shard=record["environment"]["shard"] | facts)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda one, two: [one, change(two, seed=1)], "seed differs: 0 in 0, 1 in 1"),
        (lambda one, two: [one, change(two, profile="smoke")], "profile differs: quick in 0, smoke in 1"),
        (lambda one, two: [one, change(two, device="cuda")], "device differs: cpu in 0, cuda in 1"),
        (lambda one, two: [one, change(two, repeats=10)], "repeats differs: 100 in 0, 10 in 1"),
        (lambda one, two: [one, change(two, sources={"the suite": "b"})], "the suite a in 0, the suite b in 1"),
        (lambda one, two: [one, change(two, versions={"torch": "2.8", "triton": None})], "torch 2.9 in 0, torch 2.8 in 1"),
        (lambda one, two: [one, change(two, options={"case": "seqlen_q=1"})], "--case differs: None in 0, seqlen_q=1 in 1"),
        (lambda one, two: [shard_of(one, tests_of_all=4), shard_of(two, tests_of_all=4)], "the parts have 3 of 4 results"),
        (lambda one, two: [one, shard_of(two, of=3)], "the number of parts differs: 2 in 0, 3 in 1"),
        (lambda one, two: [one], "shard 2/2 missing: all 2 parts are needed"),
        (lambda one, two: [shard_of(one, of=4), shard_of(two, of=4)], "shards 3/4, 4/4 missing: all 4 parts are needed"),
        (lambda one, two: [one, two, two], "shard 2/2 is given twice: 1 and 2"),
        (lambda one, two: [one, shard_of(two, tests_of_all=5, digest_of_all="e")], "differ (3 tests in 0, 5 in 1)"),
        (lambda one, two: [one, shard_of(two, tests=7)], "1 (shard 2/2) has 1 results, should have 7: it did not"),
        (lambda one, two: [one, change(two, shard=None)], "1 is the report of a whole run: should be"),
        (lambda one, two: [shard_of(one, tests=1) | {"results": two["results"]}, two], "c of a is in two parts"),
    ],
)  # fmt: skip
def test_what_are_not_the_parts_of_one_run_is_refused(parts, wrong, words):
    records = copy.deepcopy(wrong(parts["one"], parts["two"]))
    with pytest.raises(MergeError) as error:
        merged({str(n): record for n, record in enumerate(records)})
    assert words in str(error.value)


def test_a_part_does_not_look_complete(parts, tmp_path):
    report = Report(tmp_path)
    report.start(parts["one"]["environment"], planned=2)
    report.add(*parts["one"]["results"])
    report.finish()
    page = (tmp_path / "index.html").read_text()
    assert "<title>flash-attest (shard 1/2): " in page and "Shard 1/2: 2 of 3 verdicts." in page


def test_the_joined_report_is_one_of_a_whole_run(parts, tmp_path, capsys):
    for name, record in parts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(record))
    into = tmp_path / "whole"
    assert merge.run([str(tmp_path / "two"), str(tmp_path / "one"), "--into", str(into)]) == 0
    page, record = (into / "index.html").read_text(), json.loads((into / "results.json").read_text())
    assert "hard 1/2" not in page and len(record["results"]) == 3
    assert capsys.readouterr().out.endswith("\ngreen: 3 laws hold\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one", "--into", "one"], "--into one: should not be the report of a part"),
        (["one", "one", "--into", "whole"], "a REPORT_DIR is given twice"),
        (["nowhere", "--into", "whole"], "nowhere has no results.json"),
    ],
)
def test_a_wrong_merge_is_a_usage_error(parts, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        merge.run(arguments)
    assert end.value.code == 2 and words in capsys.readouterr().err and not (tmp_path / "whole").exists()


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    report = tmp_path_factory.mktemp("second")
    chosen = ("--impl-from", PLUGINS / "good.py", "-k", "forward or contract", "--hypothesis-profile", "smoke")
    return attest(*chosen, "-n", "1", "--shard", "2/2", report=report), report


def test_a_run_judges_its_part(second):
    run, report = second
    assert run.returncode == 0, run.stdout
    environment = json.loads((report / "results.json").read_text())["environment"]
    facts, judged = environment["shard"], len(results(report))
    assert (facts["part"], facts["of"], facts["tests"]) == (2, 2, judged) and 0 < judged < facts["tests_of_all"]
    assert f"shard 2/2: {judged} of {facts['tests_of_all']} verdicts" in run.stdout
    assert "judges shard 2/2 of the laws on cpu" in run.stdout


def test_a_real_part_alone_is_no_whole(second):
    _, report = second
    with pytest.raises(MergeError, match="shard 1/2 missing: all 2 parts are needed"):
        merged({"second": read(report)})


def test_smoke_has_its_own_cases_and_repeats(second):
    _, report = second
    environment = json.loads((report / "results.json").read_text())["environment"]
    assert (environment["profile"], environment["cases_per_law"], environment["repeats"]) == ("smoke", 2, 10)
