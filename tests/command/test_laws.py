"""flash-attest laws."""

import json

from flash_attest.command import laws as command
from flash_attest.command import laws_page
from flash_attest.documents import sections
from flash_attest.properties.law import laws
from tests.command.test_command import refused

NAME = "query_sees_exactly_its_prefix"


def test_the_table_has_a_line_for_each_law_with_a_planted_bug(capsys):
    assert command.run([]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{name.removeprefix('test_')} " in printed for name in laws())
    assert "If all keys have the same v, then dq, dk and dbias are 0, up to rounding" in printed
    assert printed.splitlines()[-1] == f"{len(laws()) + 1} laws; flash-attest laws NAME has the whole rule"


def test_a_name_gives_the_whole_rule_and_all_planted_bugs(capsys):
    assert command.run([NAME]) == 0
    printed = capsys.readouterr().out
    rule = laws()[f"test_{NAME}"].rule
    assert all(line.strip() in printed for line in rule.splitlines())
    assert "needs     causal, lse" in printed and "docs/why/bugs.md#masks" in printed
    assert "causal_sees_one_key_too_many\n      the bound is one too far" in printed


def test_json_has_every_law_and_each_has_a_planted_bug(capsys):
    assert command.run(["--json"]) == 0
    described = {law["name"]: law for law in json.loads(capsys.readouterr().out)}
    assert {*described} == {*laws(), "test_contract_is_kept"}
    assert all(law["rule"] and law["planted"] for law in described.values())
    assert described["test_sanitizers_report_nothing"]["device"] == "cuda"


def test_a_chapter_and_a_law_of_another_one(capsys):
    assert command.run(["repeats_agree", "--chapter", "forward", "--json"]) == 0
    assert {law["chapter"] for law in json.loads(capsys.readouterr().out)} == {"forward", "races"}


def test_a_chapter_alone(capsys):
    assert command.run(["--chapter", "forward", "--json"]) == 0
    assert {law["chapter"] for law in json.loads(capsys.readouterr().out)} == {"forward"}


def test_a_misspelt_name_gets_a_suggestion(capsys):
    said = refused(command.run, "query_sees_its_prefix", capsys=capsys)
    assert f"no law is called query_sees_its_prefix; did you mean {NAME}?" in said


def test_first_sentence():
    assert command.first_sentence("One thing. Another.\n\nMore.") == "One thing."
    assert command.first_sentence("A rule\nin two lines\n\nMore.") == "A rule in two lines"


def test_the_page_of_the_docs_is_current():
    text = laws_page.PAGE.read_text()
    assert laws_page.page(text) == text, "python -m flash_attest.command.laws_page writes it"


def test_every_law_has_an_anchor_on_the_page():
    anchors = [section.anchor for section in sections(laws_page.PAGE.read_text()) if section.level == 3]
    assert anchors == [law["name"].removeprefix("test_") for law in command.described()]
