"""Whole failure messages are compared with snapshots.

To rewrite snapshots/*.txt, run this with ATTEST_UPDATE_SNAPSHOTS=1, and read the diff.

Numbers with a decimal point or an exponent depend on the machine's arithmetic. They are replaced by
#, except after an "=" (settings of the case). The number in "... times what rounding explains" is
replaced, too. Whole numbers (lengths, counts of elements, indices) and all words are compared.
"""

from __future__ import annotations

import difflib
import os
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from flash_attest.impls import python_tiled
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.visible_keys import LEGEND
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging.explain import explain
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.origin import OwnRun
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.search import Found
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN, Result
from flash_attest.properties.trial import Trial
from flash_attest.runner.judge import Judge
from tests.places import ROOT
from tests.properties.mistakes import (
    FAILURES,
    OF_FEATURES,
    OUT,
    PREFIX,
    attention,
    implementation,
    lse_in_base_2,
)

SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = "ATTEST_UPDATE_SNAPSHOTS"
MEASURED = re.compile(
    r"\b\d[\d.e+]*(?= times what rounding explains)|(?<![=\w.])-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?![\w.])"
)


BREAK_A_RULE = [name for name in FAILURES if name != "exception"]
PLAN = Plan(examples=60, repeats=40, origin=OwnRun("--impl-from my_attention.py"), try_contract=False)


@cache
def judge_failures() -> dict[str, Result]:
    """Judge once per process, because the last two implementations count their calls.

    xdist may set up the fixtures of a module again.
    """
    return {name: judge(law, impl, PLAN) for name, (law, impl) in FAILURES.items()}


@pytest.fixture(scope="module")
def failures() -> dict[str, Result]:
    return judge_failures()


def masked(text: str) -> str:
    """Replace machine-dependent numbers, this checkout's path, lines of mistakes.py, and seeds."""
    text = re.sub(r"(mistakes\.py):\d+", r"\1:#", text.replace(str(ROOT), "."))
    return MEASURED.sub("#", re.sub(r" seed=\d+", "", text))


def check_snapshot(name: str, text: str) -> None:
    path, got = SNAPSHOTS / f"{name}.txt", masked(text)
    if os.environ.get(UPDATE):
        path.write_text(got)
    want = path.read_text() if path.exists() else ""
    diff = "\n".join(difflib.unified_diff(want.splitlines(), got.splitlines(), str(path.name), "now", lineterm=""))
    assert got == want, f"the message changed; if it is better now, run with {UPDATE}=1\n{diff}"


# --- the whole message ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAILURES)
def test_message_matches_its_snapshot(name, failures):
    assert failures[name].verdict == FAIL
    check_snapshot(name, failures[name].message)


# The same parts of a message, with other words of properties/instead.
ALIKE = ("cap_before_the_scale", "window_one_key_longer", "pages_as_if_in_order", "last_split_left_out")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough if name in ALIKE else ()) for name in OF_FEATURES]
)
def test_message_of_a_feature_matches_its_snapshot(name):
    check_snapshot(name, judge(*OF_FEATURES[name], PLAN).message)


def test_message_of_a_broken_contract_matches_its_snapshot(tmp_path):
    check_snapshot("lse_in_base_2", contract_result(tmp_path, lse_in_base_2).message)


def contract_result(tmp_path, forward) -> Result:
    return Judge(Plan(), [], tmp_path, "main").contract(implementation(forward))


# --- the first line -------------------------------------------------------------------------------

TIMES = "# times what rounding explains, 8 allowed"
INTERMITTENT = "not on every run: "
FIRST_LINES = {
    "causal_mask_one_key_short": r"query 64 sees 64 keys, should see 65: key 64 is missing",
    "delta_too_small": r"dq\[b=0 i=0 h=0 d=0\] is #, should be 0: " + TIMES + r" \(1 of 1 element wrong\)",
    "column_never_written": r"out\[b=0 i=0 h=0 d=0\] is nan, where fresh memory held other bits; before that it was # "
    r"\(1 of 1 element wrong\)",
    "race": r"out: 1 of 40 repeats differs from the first call, in 1 of 24 elements, by up to #",
    "exception": r"forward raises RuntimeError: CUDA error: invalid configuration argument",
    "input_modified": r"q\[b=0 i=0 h=0 d=0\] changed from # to # during the call \(1 of 1 element changed\)",
    "two_defects": r"out\[b=0 i=64 h=0 d=0\] is #, should be #: " + TIMES + r" \(1 of 65 elements wrong\)",
    "dv_doubled": r"dv\[b=0 j=0 h=0 d=0\] is #, should be #: " + TIMES + r" \(1 of 1 element wrong\)",
    "sum_as_lse": r"lse\[b=0 h=0 i=0\] is 1, should be #: "
    + TIMES
    + r" \(1 of 1 element wrong\): lse is the row sum l",
    "flaky": INTERMITTENT + r"out\[b=0 i=64 h=0 d=0\] is #, should be #: " + TIMES + r" \(1 of 65 elements wrong\)",
}


@pytest.mark.parametrize("name", FAILURES)
def test_first_line_is_enough_to_file_an_issue(name, failures):
    """The line says what is wrong, where, and both values. The report and pytest's summary
    show it.
    """
    first = failures[name].message.splitlines()[0]
    assert re.fullmatch(FIRST_LINES[name], masked(first)), first
    assert failures[name].reason == first


@pytest.mark.parametrize("name", FAILURES)
def test_first_line_is_short(name, failures):
    """The prefix of an intermittent failure is not counted."""
    assert len(failures[name].message.splitlines()[0].removeprefix(INTERMITTENT)) <= 140


@pytest.mark.parametrize("name", FAILURES)
def test_second_line_names_the_implementation_and_the_case(name, failures):
    impl = FAILURES[name][1]
    assert failures[name].message.splitlines()[1] == f"  {impl.name}   {failures[name].smallest}"


@pytest.mark.parametrize("name", BREAK_A_RULE)
def test_rule_is_the_laws_docstring(name, failures):
    law, _ = FAILURES[name]
    rule = failures[name].message.split("\nRule\n")[1].split("\nObserved\n")[0]
    assert [line.strip() for line in rule.strip().splitlines()] == [line.strip() for line in law.rule.splitlines()]


def test_exception_shows_no_rule(failures):
    """A law does not explain an exception, so neither its rule nor its kind of bugs is shown."""
    message = failures["exception"].message
    assert "\nObserved\n" in message and "\nRule\n" not in message and "\nSuggests" not in message
    assert "docs/why/bugs.md" not in message


@pytest.mark.parametrize("name", FAILURES)
def test_message_ends_with_the_replay_command(name, failures):
    law, impl = FAILURES[name]
    often = ["  (it does not fail on every run: try it several times)"] if name == "flaky" else []
    assert failures[name].message.split("\nReplay\n")[1].splitlines() == [f"  {failures[name].replay}", *often]
    assert failures[name].replay == (
        f"pytest 'properties/{law.chapter}.py::{law.name}[{impl.name}]' --impl-from my_attention.py "
        f"--case '{failures[name].smallest}'"
    )


@pytest.mark.parametrize("name", FAILURES)
def test_lines_are_readable(name, failures):
    """There are no trailing spaces, tensors, objects, or numbers with 17 digits."""
    for line in failures[name].message.splitlines():
        assert line == line.rstrip()
        assert not re.search(r"tensor\(|<function|object at 0x|\d\.\d{9}", line), line


@pytest.mark.parametrize("name", BREAK_A_RULE)
def test_message_links_to_bugs_of_its_kind(name, failures):
    """An intermittent failure of any law is presumed to be a race.

    The section about tolerances has no bug of a kernel, so no message links to it.
    """
    law, _ = FAILURES[name]
    kind = "races" if name == "flaky" else law.bug
    if kind == "tolerances":
        assert "docs/why/bugs.md" not in failures[name].message
        return
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "why" / "bugs.md").read_text(), flags=re.M)
    assert re.findall(r"docs/why/bugs\.md#(\S+)", failures[name].message) == [kind]
    assert kind in {heading.lower().replace(" ", "-").replace(",", "") for heading in headings}


# --- what is observed -----------------------------------------------------------------------------


def lines(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.message.splitlines()]


def test_partial_tile_is_shown(failures):
    shown = lines(failures["causal_mask_one_key_short"])
    assert "0 0..63 full 0 of 64" in shown and "1 64..64 partial 1 of 1" in shown


def test_neighbouring_lengths_are_tried(failures):
    (line,) = [line for line in lines(failures["causal_mask_one_key_short"]) if line.startswith("other lengths")]
    assert line == (
        "other lengths, seqlen_q = seqlen_k = n: right at 1 2 16 32 33 34 63 64 128 wrong at 66 127 129 130 "
        "(right up to 64 and at multiples of 64)"
    )


def test_neighbouring_lengths_are_tried_as_long_as_there_is_time(monkeypatch):
    monkeypatch.setattr("flash_attest.properties.judging.neighbours.SECONDS_OF_LENGTHS", 0.0)
    result = judge(*FAILURES["causal_mask_one_key_short"], PLAN)
    assert result.verdict == FAIL and "other lengths" not in result.message


@pytest.mark.parametrize("name", ["race", "flaky"])
def test_neighbouring_lengths_are_not_tried_for_intermittent_failures(name, failures):
    assert "other lengths" not in failures[name].message


def test_failure_that_repeats_is_reported_as_no_race(failures):
    assert any("3 of 3 repeats fail in the same way" in line for line in lines(failures["delta_too_small"]))


def test_intermittent_failure_is_reported_as_a_race(failures):
    assert any(line.startswith("the same call gives different results") for line in lines(failures["flaky"]))


def test_intermittent_failure_is_never_reported_as_no_race():
    """The message does not deny a race, even if all repeats that are run for it fail."""
    law, impl = FAILURES["causal_mask_one_key_short"]
    case = Case(seqlen_q=65, seqlen_k=65, headdim=1, causal=True)
    with pytest.raises(LawBroken) as caught:
        law.function(Trial(impl, case, "cpu"))
    message = explain(Judgement(law, impl, PLAN), Found(caught.value, case, flaky=True))
    assert "not a race" not in message


def test_intermittent_failure_is_not_investigated():
    """Further calls may all be correct, and say nothing about the wrong one."""
    law, case = PREFIX, Case(seqlen_q=65, seqlen_k=65, headdim=1, causal=True)
    with pytest.raises(LawBroken) as caught:
        law.function(Trial(FAILURES["causal_mask_one_key_short"][1], case, "cpu"))

    def correct_again(q, k, v, *, causal=False):
        return attention(q, k, v, torch.ones(65, 65, dtype=torch.bool).tril())[:2]

    impl = implementation(correct_again, supports=dict(causal="optional"))
    message = explain(Judgement(law, impl, PLAN), Found(caught.value, case, flaky=True))
    assert message.splitlines()[0] == "query 64 sees 64 keys, should see 65" and LEGEND not in message
    assert "0 of 3 repeats fail" in message


def test_guess_is_marked_as_a_guess(failures):
    message = failures["causal_mask_one_key_short"].message
    assert (
        "\nSuggests (read off the pattern, not proven)\n  one short: `<` where `<=` was meant in the last query"
        in message
    )


def test_exception_is_shown_with_the_line_that_raised(failures):
    assert any("no_kernel_for_long_keys" in line and "mistakes.py" in line for line in lines(failures["exception"]))


def test_laws_of_an_implementation_that_breaks_the_contract_are_unknown():
    result = judge(OUT, implementation(lse_in_base_2, "breaks_the_contract"), Plan())
    assert result.verdict == UNKNOWN
    assert result.reason.startswith("the contract is broken (see contract_is_kept): lse is in base 2")


def test_failures_shrink_to_the_smallest_case(failures):
    smallest = {name: result.smallest for name, result in failures.items()}
    assert smallest["causal_mask_one_key_short"] == "seqlen_q=65 seqlen_k=65 headdim=1 dtype=float32 causal=True"
    assert smallest["delta_too_small"] == "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32"
    assert smallest["column_never_written"] == "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32"
    assert smallest["exception"] == "seqlen_q=33 seqlen_k=33 headdim=1 dtype=float32"


# --- machine-dependent numbers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0: 12.3 times what rounding explains, 8 allowed", "0: # times what rounding explains, 8 allowed"),
        ("0: 123 times what rounding explains, 8 allowed", "0: # times what rounding explains, 8 allowed"),
        ("0: 7.05e+05 times what rounding explains", "0: # times what rounding explains"),
        ("0: inf times what rounding explains", "0: inf times what rounding explains"),
        ("3 times as many keys", "3 times as many keys"),
        ("is -1.5e-07, should be 0", "is #, should be 0"),
        ("off by 3e+05", "off by #"),
        ("softmax_scale=0.5 seqlen_q=65", "softmax_scale=0.5 seqlen_q=65"),
        ("query 64..127 of 0..129", "query 64..127 of 0..129"),
        ("p < 3/n, at 95 %", "p < 3/n, at 95 %"),
        ("see test_causal.py:12", "see test_causal.py:12"),
    ],
)
def test_only_measured_numbers_are_masked(text, want):
    assert masked(text) == want


def test_a_correct_implementation_has_no_message():
    result = judge(OUT, python_tiled.IMPL, Plan(examples=3))
    assert (result.message, result.replay, result.smallest) == ("", "", "")
