"""Real runs: laws that fail for one cause stand under one heading, and two causes have two."""

from __future__ import annotations

import json

import pytest

from tests.places import PLUGINS
from tests.runs import attest_each

ONE, KEYS, BOTH, CONTRACT = "not_launched", "small_masks", "both", "resizes_lse"
LAWS = "contract or sees_exactly or averages or lse_matches or out_matches or hidden_keys_change"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    seed = "--hypothesis-seed=6"  # four laws draw the head dim that is not launched; the first that fails says it best
    chosen = ("--impl-from", PLUGINS / "causes.py", "-k", LAWS, "--hypothesis-profile", "smoke", seed, "-n", 1)
    return attest_each({"run": chosen}, tmp_path_factory.mktemp("causes"))["run"]


@pytest.fixture(scope="module")
def record(run) -> dict:
    return json.loads((run.report / "results.json").read_text())


def causes(record: dict, impl: str) -> list[dict]:
    return [cause for cause in record["causes"] if cause["impl"] == impl]


def failed(record: dict, impl: str) -> list[dict]:
    return [result for result in record["results"] if result["impl"] == impl and result["verdict"] == "fail"]


def test_a_head_dim_that_cannot_be_launched_is_one_cause(record):
    (cause,) = causes(record, ONE)
    assert len(cause["laws"]) == len(failed(record, ONE)) > 3
    assert cause["reason"] == "forward raises RuntimeError: invalid configuration argument"
    assert cause["shared"].endswith("laws fail, with headdim 32")


def test_hidden_keys_are_one_cause(record):
    (cause,) = causes(record, KEYS)
    assert len(cause["laws"]) == len(failed(record, KEYS)) > 2


def test_two_causes_have_two_headings(record):
    reasons = [cause["reason"] for cause in causes(record, BOTH)]
    assert len(reasons) == 2, reasons
    assert sum("invalid configuration" in reason for reason in reasons) == 1
    laws = [law for cause in causes(record, BOTH) for law in cause["laws"]]
    assert sorted(laws) == sorted(result["law"] for result in failed(record, BOTH))


def test_a_broken_contract_comes_first_and_stands_alone(record):
    first, *others = causes(record, CONTRACT)
    assert first["laws"] == ["test_contract_is_kept"] and others


def test_the_first_law_of_a_cause_has_the_whole_message(record):
    results = {(result["impl"], result["law"]): result for result in record["results"]}
    for cause in record["causes"]:
        first, *others = (results[cause["impl"], law] for law in cause["laws"])
        assert not (first["same_as"] and "\nSame cause as " in first["message"]) and "Replay" in first["message"]
        assert all(other["replay"] for other in others)
    short = [result for result in record["results"] if result["same_as"]]
    assert short and all(results[each["impl"], each["same_as"]]["verdict"] == "fail" for each in short)


def test_the_first_failure_is_printed_before_the_last_law_and_not_again(run):
    before, _, after = run.stdout.partition("= failures =")
    assert before.count("\nReplay\n") == 1 and "the whole message stands further up" in after
    assert run.stdout.count("bringing up nodes") <= 1
    assert "laws fail for " in after


def test_nothing_of_what_workers_share_is_left(run):
    assert sorted(path.name for path in run.report.iterdir()) == ["index.html", "report.md", "results.json"]


def test_all_places_name_the_causes(run):
    words = next(line for line in run.stdout.splitlines() if " laws fail for " in line)
    assert words in (run.report / "report.md").read_text() and words in (run.report / "index.html").read_text()
