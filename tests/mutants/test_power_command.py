"""flash-attest power --matrix, --write, --rows, --page: their outputs and their errors."""

import json
import re
from dataclasses import replace

import pytest

from flash_attest.command.power import run
from flash_attest.mutants import ALL, command
from flash_attest.mutants.mutant import CONTRACT
from flash_attest.mutants.power import command as power
from flash_attest.mutants.power.records import RecordError, environment
from flash_attest.mutants.power.report import document, summary
from flash_attest.mutants.power.rules import PEERS
from flash_attest.mutants.power.tables import table_of, tables_of, written
from flash_attest.mutants.tiled.build import planted
from flash_attest.properties.law import laws
from flash_attest.runner.parts import Shard
from tests.mutants.power_records import ALLCLOSE, NAMES, TWO_LAWS, WHERE, record_lacking
from tests.places import ROOT

pytestmark = pytest.mark.usefixtures("gpus_stay")


def two_found():
    """Make a record: a bug that a law and allclose catch, a survivor, one not judged here."""
    record = record_lacking(names=(*NAMES, "dq_is_not_scaled"))
    caught, _, elsewhere = record.entries.values()
    caught.verdicts |= {TWO_LAWS[0]: "fail", ALLCLOSE: "fail"}
    elsewhere.elsewhere, elsewhere.verdicts = "shows on a GPU only", {}
    return record


def test_a_survivor_stays_in_the_count():
    text = summary(table_of(two_found()))
    assert text.startswith("On a CPU (") and "the laws catch 1 of 2 planted bugs, 1 of them with 3 cases" in text
    assert "allclose 1e-2 1," in text and "FlashAttention 0," in text
    assert "Not judged here: 1 (shows on a GPU only)." in text
    assert f"Not in the file, so neither judged nor counted: {len(ALL) - 3}." in text


def test_a_bug_that_more_cases_catch_is_counted_apart():
    record = two_found()
    record.entries[NAMES[1]].searched = "fail"
    assert "2 of 2 planted bugs, 1 of them with 3 cases" in summary(table_of(record))
    assert "1 by the law that they name in up to 300 cases" in summary(table_of(record))


def test_what_is_not_finished_is_said():
    record = two_found()
    del record.entries[NAMES[1]].verdicts[CONTRACT]
    assert "Not finished: 1 of 2." in summary(table_of(record))


def test_the_document_counts_and_names_what_survives():
    text = document([table_of(two_found())])
    assert "| **caught by the laws** | **1** |" in text and "| caught by allclose 1e-2 | 1 |" in text
    assert "| judged | 2 |" in text and "| caught by FlashAttention | 0 |" in text
    assert f"- {NAMES[1]} (dS = P dP): " in text and f"- {NAMES[0]} " not in text
    assert "Not judged here: 1 (shows on a GPU only)." in text
    assert "| backward | 2 | 1 | 0 | 0 | 1 | 0 | 0 |" in text
    assert all(f"| {peer.title} | " in text for peer in PEERS)


def test_false_alarms_are_told():
    record = two_found()
    record.entries[NAMES[0]].details[ALLCLOSE] = "accepts 1, rejects 2 without the bug, too, such as seqlen_q=1"
    assert "without the bug, too, which is not counted: allclose 1e-2 1." in document([table_of(record)])
    assert "without the bug, too" not in document([table_of(two_found())])


def test_the_rows_have_every_bug_and_every_law():
    (table,) = json.loads(written([table_of(two_found())]))["tables"]
    caught, survives = (table["rows"][name] for name in NAMES)
    assert (caught["kills"], caught["laws"], caught["peers"]["allclose"]) == (1, [TWO_LAWS[0]], "fail")
    assert "kills" not in survives and survives["searched"] == "pass"
    assert table["elsewhere"] == {"dq_is_not_scaled": "shows on a GPU only"}
    assert table["laws"][TWO_LAWS[0]] == [1, 1] and table["laws"].keys() == {CONTRACT, *laws()}


def test_rows_are_read_as_they_were_written(tmp_path):
    """There are two environments, and a bug that is not finished."""
    record = two_found()
    del record.entries[NAMES[1]].verdicts[CONTRACT]
    record.entries[NAMES[0]].details[TWO_LAWS[0]] = "dq is 1, should be 0 [seqlen_q=1]"
    gpu = replace(record, environment=dict(WHERE) | {"device": "cuda", "machine": "a GPU"})
    tables = [table_of(record), table_of(gpu)]
    assert not tables[0].rows[NAMES[1]].finished and tables[0].rows[NAMES[0]].detail.startswith("dq is 1")
    (tmp_path / "rows.json").write_text(written(tables))
    assert tables_of([tmp_path / "rows.json"]) == tables
    record.save(tmp_path / "record.json")
    with pytest.raises(RecordError, match="two files have rows of"):
        tables_of([tmp_path / "rows.json", tmp_path / "record.json"])


def test_rows_of_some_bugs_are_joined_with_a_record_of_others(tmp_path):
    """The tables are those of one record of all."""
    whole = two_found()
    first, second = two_found(), two_found()
    del second.entries[NAMES[0]], first.entries[NAMES[1]]
    (tmp_path / "rows.json").write_text(written([table_of(first)]))
    second.save(tmp_path / "record.json")
    assert tables_of([tmp_path / "rows.json", tmp_path / "record.json"]) == [table_of(whole)]


def test_each_output_is_made_from_several_files(tmp_path, capsys):
    cpu, gpu = tmp_path / "cpu.json", tmp_path / "gpu.json"
    to, rows, page = tmp_path / "power.md", tmp_path / "rows.json", tmp_path / "new" / "power.html"
    two_found().save(cpu)
    replace(two_found(), environment=dict(WHERE) | {"device": "cuda", "machine": "a GPU"}).save(gpu)
    outputs = ["--write", str(to), "--rows", str(rows), "--page", str(page)]
    assert run([*outputs, "--from", str(cpu), str(gpu)]) == 0
    assert "## On a CPU: " in to.read_text() and "## On a GPU: a GPU" in to.read_text()
    assert len(capsys.readouterr().out.splitlines()) == 2
    again = tmp_path / "again.md"
    assert run(["--write", str(again), "--from", str(rows)]) == 0
    assert again.read_text() == to.read_text()
    assert "a GPU" in page.read_text() and page.read_text().endswith("</html>")


def test_the_committed_document_is_made_of_the_committed_rows():
    """Only the number of bugs that were planted since may differ."""
    since = re.compile(r"^Not in the file.*\n", re.M)
    folder = ROOT / "docs" / "measured"
    want = document(tables_of([folder / "power.json"]))
    assert since.sub("", (folder / "power.md").read_text()) == since.sub("", want)
    assert len(re.findall(r"\w[^\s|]*", want)) < 1650


# --- what is an error -----------------------------------------------------------------------------


def fails(arguments, capsys):
    """Return what the command prints to stderr. It must end with status 2."""
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_mutant_that_no_longer_applies_is_an_error(monkeypatch, capsys):
    """The mutant is named before anything is judged, even if other mutants could be judged."""
    gone = planted(name="gone", law=CONTRACT, edits=(("no such line", ""),), smallest={}, story="")
    monkeypatch.setattr(command, "ALL", (gone, *ALL))
    monkeypatch.setattr(power, "Matrix", None)
    assert "mutant gone: the snippet" in fails(["--matrix", "gone", NAMES[0]], capsys)


def test_a_bug_that_is_no_more_is_an_error_in_the_document(tmp_path, capsys):
    record = record_lacking(names=NAMES[:1])
    record.entries["renamed"] = record.entries.pop(NAMES[0])
    record.save(tmp_path / "old.json")
    arguments = ["--write", str(tmp_path / "power.md"), "--from", str(tmp_path / "old.json")]
    assert "renamed, which is no planted bug" in fails(arguments, capsys)


@pytest.mark.parametrize(
    "arguments, said",
    (
        (["--matrix", "--shard", "3/2"], "argument --shard: 3/2: should be i/n"),
        (["--matrix", "--shard", "x"], "argument --shard: x: should be i/n"),
        (["--matrix", "--workers", "0"], "argument --workers: 0: should be a whole number, at least 1"),
        (["--matrix", "--law-timeout", "-1"], "argument --law-timeout: -1: should be a number of seconds"),
        (["--matrix", "--write", "power.md"], "--write power.md: name a file for the results in --json"),
        (["--write", "power.md"], "--from"),
        (["--write", "power.md", "--from", "/nowhere.json"], "/nowhere.json"),
        (["--races", "--page", "power.html"], "--page: tells what --matrix found, should be without --races"),
        (["--page", "power.html"], "--page: name the JSON files in --from"),
        (["--matrix", "--json", "x.json", "--rows", "x.json"], "--json x.json: is named twice"),
    ),
)
def test_a_bad_option_is_named(arguments, said, capsys):
    assert said in fails(arguments, capsys)


def test_shards_are_all_mutants_once():
    parts = [power.part(list(ALL), Shard(i, 3)) for i in (1, 2, 3)]
    assert sorted(m.name for part in parts for m in part) == [m.name for m in ALL]


def test_one_command_judges_and_writes(tmp_path, capsys):
    """The file has every verdict, so nothing is judged again."""
    file, to = tmp_path / "matrix.json", tmp_path / "power.md"
    record = record_lacking(names=NAMES[:1])
    record.environment = environment("cpu", "smoke", 2, 0)
    record.entries[NAMES[0]].searched = "fail"
    record.save(file)
    arguments = ["--matrix", NAMES[0], "--device", "cpu", "--profile", "smoke", "--json", str(file), "--write", str(to)]
    assert run(arguments) == 0
    assert capsys.readouterr().out.startswith("0 of 1 planted bugs to judge on cpu\n")
    assert "| only by the law that the bug names, in up to 300 cases | 1 |" in to.read_text()


def test_a_survivor_is_no_success(tmp_path, capsys):
    file = tmp_path / "matrix.json"
    record = record_lacking(names=NAMES[:1])
    record.environment = environment("cpu", "smoke", 2, 0)
    record.save(file)
    arguments = ["--matrix", NAMES[0], "--device", "cpu", "--profile", "smoke", "--json", str(file)]
    assert run(arguments) == 1
    assert f"survives: {NAMES[0]}" in capsys.readouterr().out


def test_a_gpu_bug_is_not_judged_on_a_cpu(tmp_path, capsys):
    """There the bug is neither caught nor a survivor, and a run that judges nothing is no
    success.
    """
    file = tmp_path / "matrix.json"
    assert run(["--matrix", "--device", "cpu", "both_launches_on_the_legacy", "--json", str(file)]) == 2
    record = json.loads(file.read_text())
    assert [entry["elsewhere"] for entry in record["entries"].values()] == ["shows on a GPU only"]
