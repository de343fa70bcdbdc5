"""Tests the last lines of a run: what is printed for each kind of result."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.runner.causes import causes_of
from flash_attest.runner.plugin import conclusion, terminal


@pytest.fixture
def console(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(conclusion.sys, "stdout", text)
    console = conclusion.console_of(SimpleNamespace(_tw=SimpleNamespace(fullwidth=80, hasmarkup=False)))
    console.printed = text.getvalue
    return console


def result(verdict: str, law: str = "test_a", chapter: str = "test_forward", **fields) -> dict:
    return Result("mine", chapter, law, verdict, **fields).as_dict()


def test_without_a_terminal_a_junit_file_that_cannot_be_read_ends_no_run(tmp_path):
    """The option -p no:terminal leaves nothing to print to."""
    options = {"xmlpath": str(tmp_path / "missing.xml"), "junitprefix": None}
    plugins = SimpleNamespace(get_plugin=lambda name: None)
    config = SimpleNamespace(pluginmanager=plugins, getoption=lambda name, default: options[name])
    run = SimpleNamespace(undecided={}, last_line=lambda: ("not green", False))
    ending = conclusion.LastLine(run).pytest_sessionfinish(SimpleNamespace(config=config))
    next(ending)
    with pytest.raises(StopIteration):
        ending.send(None)


def test_text_of_an_implementation_is_printed_as_it_is(console):
    odd = "[bold]:x: [red]'''[/]"
    terminal.print_causes(causes_of([result(FAIL, reason=odd, replay="pytest a:x:b")]), console)
    assert console.printed() == f"fail  mine: {odd}\n      pytest a:x:b\n"


def test_a_failure_without_a_command_names_its_law(console):
    terminal.print_causes(causes_of([result(FAIL, reason="passes, but known_failures lists it")]), console)
    assert console.printed() == "fail  mine: a passes, but known_failures lists it\n"


def test_of_many_causes_the_first_are_printed(console):
    many = [result(FAIL, law=f"test_{n}", reason=str(n)) for n in range(20)]
    terminal.print_causes(causes_of(many), console)
    assert console.printed().endswith("      and 12 more: the page has all of them\n")


def test_what_is_undecided_has_its_reason_and_command(console):
    undecided = [
        result(UNKNOWN, law=f"test_{law}", reason="does not return", why=Reason.TIMED_OUT, replay=f"pytest {law}")
        for law in "ab"
    ]
    terminal.print_undecided(undecided, console, asked_for=False)
    assert console.printed() == "unknown  mine  2 laws: does not return\n      pytest a\n"


def test_laws_that_wait_for_a_broken_contract_have_no_line(console):
    waits = result(UNKNOWN, reason="the contract is broken", why=Reason.CONTRACT)
    contract = result(FAIL, law="test_contract_is_kept", chapter="test_contract", reason="no lse")
    terminal.print_undecided([waits, contract], console, asked_for=False)
    assert console.printed() == ""
    terminal.print_undecided([waits], console, asked_for=False)
    assert "the contract is broken" in console.printed()


def test_what_is_not_installed_is_one_line(console):
    absent = [Result(name, "test_contract", "test_contract_is_kept", REFUSED, "no Triton", Reason.NOT_INSTALLED)
              for name in "ba"]  # fmt: skip
    terminal.print_absent([each.as_dict() for each in absent], console)
    assert console.printed() == "not judged here: a, b (no Triton)\n"


@pytest.mark.parametrize(
    ("results", "word"),
    [
        ([result(PASS), result(FAIL)], "fail"),
        ([result(FAIL, why=Reason.NOT_LOADED)], "not loaded"),
        ([result(PASS), result(UNKNOWN, why=Reason.RESOURCES)], "unknown"),
        ([result(PASS), result(FAIL, known="#12")], "known failure"),
        ([result(PASS), result(REFUSED), result(UNKNOWN, why=Reason.NO_SANITIZER)], "pass"),
        ([result(REFUSED)], "refused"),
    ],
)
def test_the_worst_verdict_stands_for_several(results, word):
    assert terminal.verdict_of(results, asked_for=False).word == word


@pytest.mark.parametrize(("verdict", "word"), [(PASS, "unknown"), (FAIL, "fail"), (REFUSED, "unknown")])
def test_an_implementation_with_laws_that_were_not_judged_does_not_pass(verdict, word, console):
    results, left = [result(verdict), result(PASS) | {"impl": "other"}], {"mine": {"test_forward": 2, "test_bias": 1}}
    terminal.print_rows(results, console, asked_for=False, left=left)
    heading, mine, other = console.printed().splitlines()
    assert "not judged" in heading and mine.split()[1] == word and other.split()[1] == "pass"
    assert "3" in mine.split() and "3" not in other.split()
    terminal.print_chapters(results, console, asked_for=False, left={"mine": {"test_bias": 1}})
    assert "not judged" not in console.printed().splitlines()[-3]  # no row is about that chapter


def test_rows_are_printed_without_wrapping():
    text = io.StringIO()
    narrow = Console(file=text, width=130, soft_wrap=True)
    terminal.print_rows([result(PASS, cases=1234, worst_z={"dq": 3.21})], narrow, asked_for=False)
    assert text.getvalue().splitlines()[1].split() == ["mine", "pass", "1", "1,234", "3.21", "dq", "0.0"]
