"""Damaged reports: every entry that cannot be read is named, and no other one is lost."""

from __future__ import annotations

import json

import pytest

from flash_attest.properties.judging.verdict import FAIL, PASS, Result
from flash_attest.runner.plugin.saved import JOURNAL, RESULTS, NoReport, read, sound

ENVIRONMENT = {"versions": {}, "started": "12:00", "decided": 0}


def entry(n: int, verdict: str = PASS, **fields) -> dict:
    return Result("mine", "test_forward", f"test_{n}", verdict).as_dict() | fields


def written(folder, results: list, journal: bytes | None = None, **more):
    (folder / RESULTS).write_text(json.dumps({"format": 2, "environment": ENVIRONMENT, "results": results} | more))
    if journal is not None:
        (folder / JOURNAL).write_bytes(journal)
    return folder


def line(result: object) -> bytes:
    return b"\n" + json.dumps(result).encode()


WRONG = [
    (b"\n{nonsense}", "line 3 is no JSON"),
    (b"\n" + b"\0" * 64, "line 3 is no JSON"),
    (b"\n\xff\xfe", "line 3 is no JSON"),
    (line(entry(7))[:50], "line 3 is no JSON"),
    (b"\n" + b"[" * 100_000, "line 3 is no JSON"),
    (line([1, 2]), "line 3 is damaged: it should be an object, is [1, 2]"),
    (line("x" * 99), f'line 3 is damaged: it should be an object, is "{"x" * 39}'),
    (line(entry(7, law=None)), "line 3 is damaged: law should be a text, is null"),
    (line({"law": "test_7"}), "line 3 is damaged: impl should be a text, is null"),
    (line(entry(7, verdict="green")), "line 3 is damaged: verdict should be one of fail, unknown, pass, refused, is 'green'"),
    (line(entry(7, cases="4")), 'line 3 is damaged: cases should be a whole number, is "4"'),
    (line(entry(7, cases=True)), "line 3 is damaged: cases should be a whole number, is true"),
    (line(entry(7, seconds=[])), "line 3 is damaged: seconds should be a number, is []"),
    (line(entry(7, worst_z={"out": "large"})), 'line 3 is damaged: a z should be a number, is "large"'),
    (line(entry(7, tried=[[1, 2]])), "line 3 is damaged: an entry of tried should have four numbers, is [1, 2]"),
    (line(entry(7, why="because")), "line 3 is damaged: why should be a kind of reason, is 'because'"),
    (line(entry(7, wrong=3)), "line 3 is damaged: wrong should be an object, is 3"),
    (line(entry(1, FAIL)), "line 3 has another verdict on test_1[mine]"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "words"), WRONG)
def test_a_bad_line_of_the_journal_is_named_and_costs_only_its_law(tmp_path, bad, words):
    folder = written(tmp_path, [entry(0)], line(entry(1)) + bad + line(entry(2)) + b"\n")
    record, damaged = sound(folder)
    assert damaged == [(f"{folder / JOURNAL}, {words}", False)]
    kept = {"test_0", "test_1", "test_2"} - ({"test_1"} if "another verdict" in words else set())
    assert {result["law"] for result in record["results"]} == kept
    assert record["environment"]["decided"] == len(kept)
    with pytest.raises(NoReport, match="line 3"):
        read(folder)  # a merge or a comparison needs all of it


def test_a_line_that_was_being_written_when_the_run_was_killed_is_no_damage(tmp_path):
    for end in range(1, 60, 7):
        folder = written(tmp_path, [], line(entry(1)) + line(entry(2))[: end + 1])
        _, damaged = sound(folder)
        assert damaged == [(f"{folder / JOURNAL}, line 3 is cut", True)]
        assert [result["law"] for result in read(folder)["results"]] == ["test_1"]


def test_equal_lines_count_once(tmp_path):
    folder = written(tmp_path, [], line(entry(1)) * 2)
    assert len(read(folder)["results"]) == 1 and sound(folder)[1] == []


def test_a_damaged_result_is_named(tmp_path):
    folder = written(tmp_path, [entry(0), entry(1, cases=None), 7, entry(0), entry(2), entry(2, FAIL)])
    record, damaged = sound(folder)
    assert [result["law"] for result in record["results"]] == ["test_0"]
    assert [words.partition(": ")[2] for words, _ in damaged] == [
        "result 1 is damaged: cases should be a whole number, is null",
        "result 2 is damaged: it should be an object, is 7",
        "result 5 has another verdict on test_2[mine]",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("\0" * 99, "it is no JSON"),
        ("[]", "it should hold an object, not []"),
        ("null", "it should hold an object, not null"),
        ("7", "it should hold an object, not 7"),
        ("{}", "it should have an environment with versions"),
        ('{"environment": 7, "results": []}', "it should have an environment with versions"),
        ('{"environment": {"versions": 7}, "results": []}', "it should have an environment with versions"),
        ('{"environment": {"versions": {}}, "results": 7}', "it should have a list of results"),
        ('{"environment": {"versions": {}}}', "it should have a list of results"),
        ('{"environment": {"versions": {}}, "results": [], "format": "2"}', "its format should be a whole number"),
    ],
)
def test_a_results_json_that_is_none_is_named(tmp_path, text, words):
    (tmp_path / RESULTS).write_text(text)
    with pytest.raises(NoReport) as raised:
        sound(tmp_path)
    assert str(raised.value) == f"{tmp_path / RESULTS} should be the results.json of a run: {words}"


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / RESULTS).write_bytes(b"\xff\xfe")
    with pytest.raises(NoReport, match="it is no text in UTF-8"):
        sound(tmp_path)
