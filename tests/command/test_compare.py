"""flash-attest compare: what it prints, its page, its exit status, and what it refuses."""

from __future__ import annotations

import json

import pytest

from flash_attest.command import compare
from tests.runner.page.data import ODD, compared


@pytest.fixture
def reports(tmp_path):
    """Two reports, each in its folder."""
    for name, record in zip(("old", "new"), compared(), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(record))
    return tmp_path / "old", tmp_path / "new"


def test_it_prints_what_changed_and_ends_with_1(reports, capsys):
    assert compare.run([str(path) for path in reports]) == 1
    printed = capsys.readouterr().out
    assert "   seed differs: 0 in A, 7 in B\n" in printed and "\nbetter (3)\n  mine  " in printed
    assert "  test_" not in printed
    assert f": pass -> fail: {ODD}\n" in printed.replace("\r", "")
    assert "out 3.1e3 -> 3\n" in printed
    assert printed.splitlines()[-1] == "6 laws got worse: 5 fell, 1 held and have no verdict in B"


def test_it_ends_with_0_where_nothing_got_worse(reports, capsys):
    same = json.loads((reports[0] / "results.json").read_text())
    (reports[1] / "results.json").write_text(json.dumps(same))
    assert compare.run([str(reports[0]), str(reports[1] / "results.json")]) == 0
    assert capsys.readouterr().out.endswith("\nnothing got worse: 94 laws compared\n")


def test_it_writes_a_page(reports, tmp_path, capsys):
    page = tmp_path / "changes.html"
    assert compare.run([*map(str, reports), "--page", str(page)]) == 1
    text = page.read_text()
    assert "<title>flash-attest compare: " in text and "<script>alert" not in text and text.endswith("</html>")
    assert f"page: {page}" in capsys.readouterr().out


def broken(folder, change) -> None:
    record = json.loads((folder / "results.json").read_text())
    change(record)
    (folder / "results.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "results.json").unlink(), "new: has no results.json"),
        (lambda folder: (folder / "results.json").write_text("{"), "should be the results.json of a run: it is no JSON"),
        (lambda folder: broken(folder, lambda r: r["results"][3].pop("law")), "result 3 is damaged: law should be"),
        (lambda folder: broken(folder, lambda r: r["results"][3].update(verdict="odd")),
         "result 3 is damaged: verdict should be one of fail, unknown, pass, refused, is 'odd'"),
        (lambda folder: broken(folder, lambda r: r.update(format=9)), "has format 9"),
    ],
)  # fmt: skip
def test_a_report_that_cannot_be_read_is_named(reports, spoil, words, capsys):
    spoil(reports[1])
    with pytest.raises(SystemExit) as ended:
        compare.run([str(path) for path in reports])
    assert ended.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "old"], "nowhere: there is no such folder or file"),
        (["old", "old"], "old: is A, too; should be another report"),
        (["old"], "the following arguments are required: B"),
        (
            ["old", "new", "--page", "nowhere/x.html"],
            "--page nowhere/x.html: cannot be written (No such file or directory)",
        ),
    ],
)
def test_a_wrong_command_is_one_line(reports, arguments, words, capsys, monkeypatch):
    monkeypatch.chdir(reports[0].parent)
    with pytest.raises(SystemExit) as ended:
        compare.run(arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err
