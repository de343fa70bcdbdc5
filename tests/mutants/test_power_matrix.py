"""python -m mutants --matrix: processes, results on disk, what is an error, and the document."""

import json
import os
import time
from dataclasses import replace

import pytest

from mutants import ALL
from mutants import __main__ as command
from mutants.mutant import CONTRACT
from mutants.power import command as power
from mutants.power import matrix as rooms
from mutants.power.child import PEER, SEARCH, Begins, How, Judged, NeedsAnother, items
from mutants.power.matrix import Matrix, killers, missing_items, peer_killers
from mutants.power.records import Record, RecordError, entry_of, environment, merged, read, resumed
from mutants.power.report import document, summary
from mutants.power.rules import PEERS
from mutants.tiled.build import planted
from properties.law import laws

HOW = How("cpu", cases=3, repeats=3, small=True, seed=0)
WHERE = environment("cpu", "smoke", 3, 0)
NAMES = ("delta_has_an_epsilon", "delta_is_omitted")
TWO_LAWS = ("test_no_dout_gives_no_gradient", "test_gradients_match_the_definition")
ALLCLOSE = f"{PEER}allclose"


def mutant_called(name):
    return next(m for m in ALL if m.name == name)


def record_lacking(*lacking, names=NAMES):
    """A record in which every item but these has passed."""
    record = Record(dict(WHERE), {name: entry_of(mutant_called(name), "") for name in names})
    for entry in record.entries.values():
        entry.verdicts = {item: "pass" for item in items() if item not in lacking}
        entry.searched = "pass"
    return record


def run(record, names=NAMES, file=None, judge=None, seconds=120.0, told=lambda line: None, workers=2):
    """Run what the record lacks; `judge` takes the place of what a process does."""
    matrix = Matrix(record, list(names), HOW, workers, seconds, file, told)
    if judge is not None:
        matrix.judge = judge
    matrix.run()
    return record


# Stand-ins for judge_items, which run in another process.


def dies_in_one_law(pipe, name, how, wanted):
    for item in wanted:
        pipe.send(Begins(item))
        if item == TWO_LAWS[0]:
            os._exit(3)
        pipe.send(Judged(item, "pass", "", 0.0))


def dies_always(pipe, name, how, wanted):
    pipe.send(Begins(wanted[0]))
    os._exit(3)


def hangs_in_one_law(pipe, name, how, wanted):
    for item in wanted:
        pipe.send(Begins(item))
        if item == TWO_LAWS[0]:
            time.sleep(1000)
        pipe.send(Judged(item, "pass", "", 0.0))


def loses_its_gpu(pipe, name, how, wanted):
    pipe.send(Begins(wanted[0]))
    pipe.send(Judged(wanted[0], "fail", f"in {os.getpid()}", 0.0))
    pipe.send(NeedsAnother())
    time.sleep(1000)


def passes(pipe, name, how, wanted):
    for item in wanted:
        pipe.send(Begins(item))
        pipe.send(Judged(item, "pass", "", 0.0))


# --- what is found ----------------------------------------------------------------------------------------------------


def test_two_mutants_by_two_laws_and_a_peer(tmp_path):
    """delta_has_an_epsilon is caught where dout is 0, and by no tolerance; delta_is_omitted by both."""
    file, lines = tmp_path / "matrix.json", []
    record = record_lacking(*TWO_LAWS, ALLCLOSE)
    for entry in record.entries.values():
        entry.searched = ""
    run(record, file=file, told=lines.append)
    epsilon, omitted = (record.entries[name] for name in NAMES)
    assert TWO_LAWS[0] in killers(epsilon) and peer_killers(epsilon) == []
    assert TWO_LAWS[1] in killers(omitted) and peer_killers(omitted) == ["allclose"]
    assert epsilon.details[TWO_LAWS[0]].endswith("]") and "seqlen_q=" in epsilon.details[TWO_LAWS[0]]
    assert {entry.searched for entry in record.entries.values()} == {
        ""
    }  # its own law caught each, so nothing is searched
    assert read(file) == record and missing_items(epsilon) == missing_items(omitted) == []
    assert len(lines) == 2 and all("of 2]" in line for line in lines)


def test_a_law_that_misses_in_few_cases_is_tried_in_more():
    """In a run of few cases a survivor may be one that the suite catches with more."""
    record = record_lacking(names=NAMES[:1])
    record.entries[NAMES[0]].searched = ""
    assert missing_items(record.entries[NAMES[0]]) == [SEARCH]
    run(record, NAMES[:1])
    assert record.entries[NAMES[0]].searched == "fail" and killers(record.entries[NAMES[0]]) == []


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_dies_gives_its_law_a_verdict_and_another_goes_on():
    entry = run(record_lacking(*TWO_LAWS, names=NAMES[:1]), NAMES[:1], judge=dies_in_one_law).entries[NAMES[0]]
    assert [entry.verdicts[law] for law in TWO_LAWS] == ["crash", "pass"]
    assert entry.details[TWO_LAWS[0]] == "the process ended with status 3"
    assert killers(entry) == [TWO_LAWS[0]]


def test_a_process_that_hangs_is_ended_and_nothing_is_caught_by_it():
    record = record_lacking(*TWO_LAWS, names=NAMES[:1])
    entry = run(record, NAMES[:1], judge=hangs_in_one_law, seconds=3.0).entries[NAMES[0]]
    assert [entry.verdicts[law] for law in TWO_LAWS] == ["hang", "pass"]
    assert entry.details[TWO_LAWS[0]] == "not done after 3 s" and killers(entry) == []


def test_a_bug_that_loses_process_after_process_ends(monkeypatch):
    monkeypatch.setattr(rooms, "LOSSES", 2)
    record = record_lacking(CONTRACT, *TWO_LAWS, ALLCLOSE, names=NAMES[:1])
    entry = run(record, NAMES[:1], judge=dies_always).entries[NAMES[0]]
    lost = [item for item in items() if entry.verdicts[item] == "crash"]
    left = [item for item in items() if entry.verdicts[item] == "unknown"]
    assert len(lost) == 2 and len(left) == 2 and missing_items(entry) == []


def test_a_process_without_its_gpu_is_replaced():
    """Whatever a law would find after an illegal access is not the bug's."""
    entry = run(record_lacking(*TWO_LAWS, names=NAMES[:1]), NAMES[:1], judge=loses_its_gpu).entries[NAMES[0]]
    assert [entry.verdicts[law] for law in TWO_LAWS] == ["fail", "fail"]
    assert entry.details[TWO_LAWS[0]] != entry.details[TWO_LAWS[1]]


# --- results on disk --------------------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    file, judged = tmp_path / "matrix.json", []

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(record_lacking(*TWO_LAWS), file=file, judge=passes, told=interrupt, workers=1)
    done = [name for name in NAMES if not missing_items(read(file).entries[name])]
    assert done == [NAMES[0]]
    again = resumed(file, record_lacking(*items()))
    run(again, file=file, judge=passes, told=judged.append)
    assert len(judged) == 1 and NAMES[1] in judged[0]
    assert not any(missing_items(entry) for entry in read(file).entries.values())


def test_verdicts_of_another_edit_are_not_kept(tmp_path):
    file = tmp_path / "matrix.json"
    old = record_lacking()
    old.entries[NAMES[0]].key = "of another edit"
    old.save(file)
    entries = resumed(file, record_lacking(*items())).entries
    assert entries[NAMES[0]].verdicts == {} and entries[NAMES[1]].verdicts != {}


def test_a_file_of_another_run_is_refused(tmp_path):
    file = tmp_path / "matrix.json"
    record_lacking().save(file)
    with pytest.raises(RecordError, match=r"matrix\.json has seed 0, and this run has 7"):
        resumed(file, Record(dict(WHERE) | {"seed": 7}))
    file.write_text("{")
    with pytest.raises(RecordError, match=r"matrix\.json should be a file that --matrix --json wrote"):
        read(file)


def test_parts_of_one_environment_are_joined_and_environments_kept_apart(tmp_path):
    files = [tmp_path / f"{n}.json" for n in range(3)]
    record_lacking(names=NAMES[:1]).save(files[0])
    record_lacking(names=NAMES[1:]).save(files[1])
    replace(record_lacking(), environment=dict(WHERE) | {"device": "cuda", "machine": "a GPU"}).save(files[2])
    cpu, gpu = merged(files)
    assert sorted(cpu.entries) == sorted(NAMES) == sorted(gpu.entries) and gpu.environment["device"] == "cuda"
    other = record_lacking(names=NAMES[:1])
    other.entries[NAMES[0]].key = "of another edit"
    other.save(files[1])
    with pytest.raises(RecordError, match=f"another edit of {NAMES[0]}"):
        merged(files)


# --- the document -----------------------------------------------------------------------------------------------------


def two_found():
    """One bug that a law and allclose catch, one that survives, one that is not judged here."""
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
    assert command.main(["--write", str(to), "--from", str(cpu), str(gpu)]) == 0
    assert "**On a CPU**" in to.read_text() and "**On a GPU** (a GPU" in to.read_text()
    assert len(capsys.readouterr().out.splitlines()) == 2


# --- what is an error -------------------------------------------------------------------------------------------------


def fails(arguments, capsys):
    """The last line that the command prints to stderr, when it ends with status 2."""
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_mutant_that_no_longer_applies_is_an_error(monkeypatch, capsys):
    """It is named before anything is judged, though its neighbour could be."""
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
        (["--matrix", "--shard", "3/2"], "--shard 3/2"),
        (["--matrix", "--shard", "x"], "--shard x"),
        (["--matrix", "--workers", "0"], "--workers 0"),
        (["--matrix", "--seconds", "-1"], "--seconds -1"),
        (["--matrix", "--write", "power.md"], "--write power.md: name a file for the results in --json"),
        (["--write", "power.md"], "--from"),
        (["--write", "power.md", "--from", "/nowhere.json"], "/nowhere.json"),
    ),
)
def test_a_bad_option_is_named(arguments, said, capsys):
    assert said in fails(arguments, capsys)


def test_shards_are_all_mutants_once():
    parts = [power.part(list(ALL), f"{i}/3") for i in (1, 2, 3)]
    assert sorted(m.name for part in parts for m in part) == [m.name for m in ALL]


def test_one_command_judges_and_writes(tmp_path, capsys):
    """What was judged before is in the file, so here nothing is judged again."""
    file, to = tmp_path / "matrix.json", tmp_path / "power.md"
    record = record_lacking(names=NAMES[:1])
    record.environment = environment("cpu", "smoke", 2, 0)
    record.entries[NAMES[0]].searched = "fail"
    record.save(file)
    arguments = ["--matrix", NAMES[0], "--device", "cpu", "--profile", "smoke", "--json", str(file), "--write", str(to)]
    assert command.main(arguments) == 0
    assert capsys.readouterr().out.startswith("0 of 1 planted bugs to judge on cpu\n")
    assert f"| {NAMES[0]} | no_dout_gives_no_gradient, in more cases |" in to.read_text()


def test_a_survivor_is_no_success(tmp_path, capsys):
    file = tmp_path / "matrix.json"
    record = record_lacking(names=NAMES[:1])
    record.environment = environment("cpu", "smoke", 2, 0)
    record.save(file)
    arguments = ["--matrix", NAMES[0], "--device", "cpu", "--profile", "smoke", "--json", str(file)]
    assert command.main(arguments) == 1
    assert f"survives: {NAMES[0]}" in capsys.readouterr().out


def test_a_gpu_bug_is_not_judged_on_a_cpu(tmp_path, capsys):
    """It is neither caught nor a survivor there, and a run that judges nothing is no success."""
    file = tmp_path / "matrix.json"
    assert command.main(["--matrix", "--device", "cpu", "both_launches_on_the_legacy", "--json", str(file)]) == 2
    record = json.loads(file.read_text())
    assert [entry["elsewhere"] for entry in record["entries"].values()] == ["shows on a GPU only"]
