"""The matrix: each planted bug is judged in a separate process, and the results are kept on
disk.
"""

import os
import signal
import time
from dataclasses import replace

import pytest

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import CONTRACT
from flash_attest.mutants.power import matrix as rooms
from flash_attest.mutants.power.child import SEARCH, Begins, How, Judged, NeedsAnother, items
from flash_attest.mutants.power.matrix import Matrix, killers, missing_items, peer_killers
from flash_attest.mutants.power.records import Record, RecordError, entry_of, merged, read, resumed
from tests.mutants.power_records import ALLCLOSE, NAMES, TWO_LAWS, WHERE, mutant_called, record_lacking

HOW = How("cpu", cases=3, repeats=3, small=True, seed=0)


def run(record, names=NAMES, file=None, judge=None, seconds=120.0, say=lambda line: None, workers=2):
    """Run the items that the record lacks; `judge` replaces the work of a process."""
    matrix = Matrix(record, list(names), HOW, workers, seconds, file, say)
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


def is_killed_in_one_law(pipe, name, how, wanted):
    for item in wanted:
        pipe.send(Begins(item))
        if item == TWO_LAWS[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        pipe.send(Judged(item, "pass", "", 0.0))


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


# ---- results -------------------------------------------------------------------------------------


def test_two_mutants_by_two_laws_and_a_peer(tmp_path):
    """The law with dout = 0 catches delta_has_an_epsilon, and no tolerance does. The other law and
    allclose catch delta_is_omitted.
    """
    file, lines = tmp_path / "matrix.json", []
    record = record_lacking(*TWO_LAWS, ALLCLOSE)
    for entry in record.entries.values():
        entry.searched = ""
    run(record, file=file, say=lines.append)
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
    """If a bug survives a run with few cases, more cases may catch it."""
    record = record_lacking(names=NAMES[:1])
    record.entries[NAMES[0]].searched = ""
    assert missing_items(record.entries[NAMES[0]]) == [SEARCH]
    run(record, NAMES[:1])
    assert record.entries[NAMES[0]].searched == "fail" and killers(record.entries[NAMES[0]]) == []


# ---- processes -----------------------------------------------------------------------------------


def test_a_process_that_dies_gives_its_law_a_verdict_and_another_goes_on():
    entry = run(record_lacking(*TWO_LAWS, names=NAMES[:1]), NAMES[:1], judge=dies_in_one_law).entries[NAMES[0]]
    assert [entry.verdicts[law] for law in TWO_LAWS] == ["crash", "pass"]
    assert entry.details[TWO_LAWS[0]] == "the process ended with status 3"
    assert killers(entry) == [TWO_LAWS[0]]


def test_a_process_that_is_killed_has_caught_nothing():
    """The system may kill the process because memory runs out."""
    entry = run(record_lacking(*TWO_LAWS, names=NAMES[:1]), NAMES[:1], judge=is_killed_in_one_law).entries[NAMES[0]]
    assert [entry.verdicts[law] for law in TWO_LAWS] == ["unknown", "pass"] and killers(entry) == []


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
    undecided = [item for item in items() if entry.verdicts[item] == "unknown"]
    assert len(lost) == 2 and len(undecided) == 2 and missing_items(entry) == []


def test_a_process_without_its_gpu_is_replaced():
    """After an illegal access, a law's findings are not due to the bug."""
    entry = run(record_lacking(*TWO_LAWS, names=NAMES[:1]), NAMES[:1], judge=loses_its_gpu).entries[NAMES[0]]
    assert [entry.verdicts[law] for law in TWO_LAWS] == ["fail", "fail"]
    assert entry.details[TWO_LAWS[0]] != entry.details[TWO_LAWS[1]]


# ---- results on disk -----------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    file, judged = tmp_path / "matrix.json", []

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(record_lacking(*TWO_LAWS), file=file, judge=passes, say=interrupt, workers=1)
    done = [name for name in NAMES if not missing_items(read(file).entries[name])]
    assert done == [NAMES[0]]
    again = resumed(file, record_lacking(*items()))
    run(again, file=file, judge=passes, say=judged.append)
    assert len(judged) == 1 and NAMES[1] in judged[0]
    assert not any(missing_items(entry) for entry in read(file).entries.values())


def test_verdicts_of_another_edit_are_not_kept(tmp_path):
    file = tmp_path / "matrix.json"
    old = record_lacking()
    old.entries[NAMES[0]].key = "of another edit"
    old.save(file)
    entries = resumed(file, record_lacking(*items())).entries
    assert entries[NAMES[0]].verdicts == {} and entries[NAMES[1]].verdicts != {}


def test_verdicts_of_another_declaration_are_not_kept():
    mutant = mutant_called(NAMES[0])
    narrower = replace(mutant, declares=mutant.declares | {"supports": Supports(headdims={8})})
    assert entry_of(mutant, "").key == entry_of(replace(mutant), "").key != entry_of(narrower, "").key


def test_what_could_not_be_judged_there_is_judged_where_it_can(tmp_path):
    files = [tmp_path / f"{n}.json" for n in range(2)]
    without, with_ = record_lacking(names=NAMES[:1]), record_lacking(names=NAMES[:1])
    without.entries[NAMES[0]].elsewhere, without.entries[NAMES[0]].verdicts = "no nvcc found here", {}
    without.save(files[0])
    with_.save(files[1])
    for order in (files, files[::-1]):
        assert merged(order)[0].entries[NAMES[0]].elsewhere == "" != merged(order)[0].entries[NAMES[0]].searched
    assert resumed(files[0], record_lacking(*items(), names=NAMES[:1])).entries[NAMES[0]].elsewhere == ""


def test_files_that_contradict_each_other_are_refused(tmp_path):
    files = [tmp_path / f"{n}.json" for n in range(2)]
    for file, verdict in zip(files, ("pass", "fail"), strict=True):
        record = record_lacking(names=NAMES[:1])
        record.entries[NAMES[0]].verdicts[TWO_LAWS[0]] = verdict
        record.save(file)
    with pytest.raises(RecordError, match=f"another verdict of {TWO_LAWS[0]} on {NAMES[0]}"):
        merged(files)


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
