"""A run is green only if a law was judged: what a run says of implementations without one."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from flash_attest.command import merge
from tests.places import PLUGINS
from tests.runs import attest_each

ABSENT = "kernels are not installed: pip install kernels"
ONE_KEY = "no case has two keys or more: declare that it supports longer ones"
WHY = {"absent": ABSENT, "one_row": ONE_KEY}
SMOKE = ("--hypothesis-profile", "smoke", "-n", "0")
LAWS = [f"properties/test_{chapter}.py" for chapter in ("contract", "forward", "laws", "seqlens")]
GOOD = ("--impl-from", PLUGINS / "good.py", *SMOKE)


@pytest.fixture(scope="module")
def each(tmp_path_factory):
    folder = tmp_path_factory.mktemp("each")
    runs = {
        "all": ("--impl-from", PLUGINS / "unjudged.py", "--impl=absent,good,one_row", *SMOKE, *LAWS,
                f"--junit-xml={folder / 'junit.xml'}"),
        "all on a gpu": ("--impl-from", PLUGINS / "unjudged.py", "--impl=on_gpu", *SMOKE, *LAWS),
        "known": ("--impl-from", PLUGINS / "unjudged.py", "--impl=known", *SMOKE, "properties/test_forward.py"),
        "refused": (*GOOD, "properties/test_bias.py"),
        "contract": (*GOOD, "-k", "contract_is_kept"),
        "its module": (*GOOD, "properties/test_contract.py"),
        "replay": ("--impl-from", PLUGINS / "unjudged.py", "--impl=good,one_row", *SMOKE, *LAWS, "--case",
                   "seqlen_q=1 seqlen_k=1 headdim=16 dtype=float32"),
        "part 1": (*GOOD, "--shard", "1/2", "properties/test_bias.py", f"--report={folder / 'one'}"),
        "part 2": (*GOOD, "--shard", "2/2", "properties/test_bias.py", f"--report={folder / 'two'}"),
    }  # fmt: skip
    return attest_each(runs, folder / "runs"), folder


def last_line(run) -> str:
    return run.stdout.rstrip().rpartition("\n")[2]


def test_the_last_line_names_each_and_why(each):
    run = each[0]["all"]
    named = ", of ".join(f"{impl}: {why}" for impl, why in WHY.items())
    assert run.returncode == 1
    assert last_line(run).startswith(f"not green: nothing was judged of {named}; "), run.stdout
    assert f"not judged  one_row  {ONE_KEY}\n" in run.stdout


def test_every_form_of_the_report_says_it(each):
    runs, folder = each
    report = runs["all"].report
    facts = json.loads((report / "results.json").read_text())["environment"]
    assert facts["unjudged"] == WHY and not facts["green"] and facts["verdict"] == last_line(runs["all"])
    assert f"- one\\_row: {ONE_KEY}\n" in (report / "report.md").read_text()
    assert f"one_row: {ONE_KEY}" in (report / "index.html").read_text()
    errors = {case.get("name"): case.find("error") for case in ElementTree.parse(folder / "junit.xml").iter("testcase")}
    marked = {name: error.get("message") for name, error in errors.items() if error is not None}
    assert marked == {
        f"test_contract_is_kept[{impl}]": f"nothing was judged of {impl}: {why}" for impl, why in WHY.items()
    }


def test_a_device_that_is_not_here_is_undecided_if_it_was_asked_for(each):
    assert last_line(each[0]["all on a gpu"]) == "not green: 24 laws undecided"


@pytest.mark.parametrize(
    ("name", "status", "line"),
    [
        (
            "known",
            1,
            "not green: nothing was judged of known: all 2 laws that apply are known failures; 2 laws fail as known; ",
        ),
        ("refused", 1, "not green: nothing was judged of good: takes no bias; "),
        ("contract", 0, "green: 1 law holds; only the contract was checked"),
        ("its module", 0, "green: 1 law holds; only the contract was checked"),
        ("replay", 0, "green: "),
        ("part 1", 0, "green: "),
        ("part 2", 0, "green: "),
    ],
)
def test_what_was_selected_decides(each, name, status, line):
    run = each[0][name]
    assert (run.returncode, last_line(run)[: len(line)]) == (status, line), run.stdout


def test_a_part_says_that_it_judged_no_law_and_the_whole_run_is_not_green(each, capsys):
    runs, folder = each
    lines = [last_line(runs[name]) for name in ("part 1", "part 2")]
    assert all(line.endswith("; no law was judged in this part") for line in lines), lines
    assert merge.run([str(folder / "one"), str(folder / "two"), "--into", str(folder / "whole")]) == 1
    printed = capsys.readouterr().out
    assert "\nnot judged  good  takes no bias\n" in printed
    assert printed.rstrip().rpartition("\n")[2].startswith("not green: nothing was judged of good: takes no bias; ")
