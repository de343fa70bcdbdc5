"""flash-attest power --matrix and --write: the summary, the document, and the errors."""

import json
from dataclasses import replace

import pytest

from flash_attest.command.power import run
from flash_attest.mutants import ALL, command
from flash_attest.mutants.mutant import CONTRACT
from flash_attest.mutants.power import command as power
from flash_attest.mutants.power.records import environment
from flash_attest.mutants.power.report import document, summary
from flash_attest.mutants.power.rules import PEERS
from flash_attest.mutants.tiled.build import planted
from flash_attest.properties.law import laws
from flash_attest.runner.parts import Shard
from tests.mutants.power_records import ALLCLOSE, NAMES, TWO_LAWS, WHERE, record_lacking

pytestmark = pytest.mark.usefixtures("gpus_stay")


def two_found():
    """Make a record of three bugs: a law and allclose catch the first, the second survives, and the
    third is not judged here.
    """
    record = record_lacking(names=(*NAMES, "dq_is_not_scaled"))
    caught, _, elsewhere = record.entries.values()
    caught.verdicts |= {TWO_LAWS[0]: "fail", ALLCLOSE: "fail"}
    elsewhere.elsewhere, elsewhere.verdicts = "shows on a GPU only", {}
    return record


def test_a_survivor_stays_in_the_count():
    text = summary(two_found())
    assert text.startswith("**On a CPU**") and "the laws catch **1 of 2** planted bugs, 1 of them with 3 cases" in text
    assert "allclose 1e-2 1," in text and "FlashAttention 0," in text
    assert "Not judged here: 1." in text and f"neither judged nor counted: {len(ALL) - 3}." in text


def test_a_bug_that_more_cases_catch_is_counted_apart():
    record = two_found()
    record.entries[NAMES[1]].searched = "fail"
    assert "**2 of 2** planted bugs, 1 of them with 3 cases" in summary(record)
    assert "1 by the law that they name in up to 300 cases" in summary(record)


def test_what_is_not_finished_is_said():
    record = two_found()
    del record.entries[NAMES[1]].verdicts[CONTRACT]
    assert "Not finished: 1 of 2." in summary(record)


def test_the_document_has_every_bug_and_every_law():
    text = document([two_found()])
    assert f"| {NAMES[0]} | 1: no_dout_gives_no_gradient | - | - | **x** | - | - |" in text
    assert f"| {NAMES[1]} | **survives** |" in text and f"- {NAMES[1]} (dS = P dP): " in text
    assert "- 1: shows on a GPU only" in text
    assert all(f"| {law.removeprefix('test_')} | " in text for law in laws())
    assert all(f"| {peer.title} | " in text for peer in PEERS)


def test_write_makes_the_document_from_several_files(tmp_path, capsys):
    cpu, gpu, to = tmp_path / "cpu.json", tmp_path / "gpu.json", tmp_path / "power.md"
    two_found().save(cpu)
    replace(two_found(), environment=dict(WHERE) | {"device": "cuda", "machine": "a GPU"}).save(gpu)
    assert run(["--write", str(to), "--from", str(cpu), str(gpu)]) == 0
    assert "**On a CPU**" in to.read_text() and "**On a GPU** (a GPU" in to.read_text()
    assert len(capsys.readouterr().out.splitlines()) == 2


# --- what is an error ----------------------------------------------------------------------------


def fails(arguments, capsys):
    """Return the last line that the command prints to stderr. It must end with status 2."""
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
    ),
)
def test_a_bad_option_is_named(arguments, said, capsys):
    assert said in fails(arguments, capsys)


def test_shards_are_all_mutants_once():
    parts = [power.part(list(ALL), Shard(i, 3)) for i in (1, 2, 3)]
    assert sorted(m.name for part in parts for m in part) == [m.name for m in ALL]


def test_one_command_judges_and_writes(tmp_path, capsys):
    """The file already has the earlier verdicts, so nothing is judged again here."""
    file, to = tmp_path / "matrix.json", tmp_path / "power.md"
    record = record_lacking(names=NAMES[:1])
    record.environment = environment("cpu", "smoke", 2, 0)
    record.entries[NAMES[0]].searched = "fail"
    record.save(file)
    arguments = ["--matrix", NAMES[0], "--device", "cpu", "--profile", "smoke", "--json", str(file), "--write", str(to)]
    assert run(arguments) == 0
    assert capsys.readouterr().out.startswith("0 of 1 planted bugs to judge on cpu\n")
    assert f"| {NAMES[0]} | no_dout_gives_no_gradient, in more cases |" in to.read_text()


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
