"""The matrix of races: every kind is planted, a cell has the number of repeats after which it finds
a race, and the page has the results.
"""

import os
from dataclasses import replace

import pytest
import torch

from flash_attest.command import power
from flash_attest.impls import python_tiled
from flash_attest.mutants import ALL, elsewhere
from flash_attest.mutants.cuda import barriers as cuda_barriers
from flash_attest.mutants.mutant import ROOT, build
from flash_attest.mutants.numba import barriers as numba_barriers
from flash_attest.mutants.power.child import Begins, Judged
from flash_attest.mutants.power.records import Record, RecordError, entry_of, environment, read
from flash_attest.mutants.races import MUTANTS, cuda, matrix
from flash_attest.mutants.races.cells import EVERYTHING, LAYERS, Cell, cells, verdict_of
from flash_attest.mutants.races.kinds import NAMES, Kind, planted
from flash_attest.mutants.races.page import (
    BEGIN,
    END,
    overall,
    summary,
    unfinished_in,
    unfound,
    with_matrix,
    wrongly_found,
)
from flash_attest.properties.failures import AnotherCase, LawBroken, Raises, Undecided
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.law import laws

RACES = planted(ALL)
BY_NAME = {mutant.name: mutant for mutant in ALL}
TRACE = Cell("trace")
ONE, TWO = "cuda_fa2_row_sums_go_through_memory", "cuda_fa2_copies_are_not_waited_for"
UNEDITED = "unedited_cuda_fa2"
needs_gxx = pytest.mark.skipif(bool(elsewhere(BY_NAME[ONE])), reason=elsewhere(BY_NAME[ONE]))
pytestmark = pytest.mark.usefixtures("gpus_stay")


# ---- planted races -------------------------------------------------------------------------------


def test_every_kind_is_planted_and_every_family_has_some():
    names = [name for listed in NAMES.values() for name in listed.split()]
    assert set(NAMES) == set(Kind) and len(names) == len(set(names)) >= 30
    assert all(len(listed.split()) >= 3 for listed in NAMES.values())
    assert {BY_NAME[name].family.name for name in names} == {"cuda", "cuda example", "numba", "triton"}


def test_every_barrier_and_every_race_of_this_folder_is_listed():
    planted_here = {mutant.name for mutant in (*cuda_barriers.MUTANTS, *numba_barriers.MUTANTS, *MUTANTS)}
    assert sorted(planted_here - set(RACES)) == []


def test_each_implementation_that_is_edited_is_judged_without_an_edit_too():
    edited = {race.mutant.impl for race in RACES.values() if race.kind}
    assert {race.mutant.impl for race in RACES.values() if race.kind is None} == edited
    assert all(race.mutant.edits == () for race in RACES.values() if race.kind is None)


@needs_gxx
def test_copies_that_are_waited_for_are_right():
    """The edits that plant asynchronous copies are right except for the part that the race leaves
    out.
    """
    race = BY_NAME["cuda_fa2_copies_are_not_waited_for"]
    waits = replace(race, name="waits", edits=cuda.WAITED)
    assert verdict_of(TRACE, build(waits), "cpu", 1) == (PASS, "")
    verdict, detail = verdict_of(TRACE, build(race), "cpu", 1)
    assert verdict == FAIL and detail.startswith("1: async: ")


# ---- a cell --------------------------------------------------------------------------------------


def test_cells_are_those_of_the_device():
    on_a_cpu, on_a_gpu = cells("cpu"), cells("cuda")
    assert TRACE in on_a_cpu and TRACE not in on_a_gpu
    assert Cell("sanitizer") in on_a_gpu and Cell("streams") in on_a_gpu
    assert Cell("repeat", "order") in on_a_cpu and Cell("repeat", "order") not in on_a_gpu
    assert [cell for cell in on_a_cpu if cell.layer == "repeat" and cell.default] == [Cell("repeat", EVERYTHING)]


@needs_gxx
def test_a_race_that_one_order_hides_is_found_by_repeats_in_others():
    """The verdict has the number of repeats after which the race was found."""
    late = BY_NAME["cuda_last_factor_waits_for_its_warp_alone"]
    assert verdict_of(Cell("repeat", "none"), build(late), "cpu", 5) == (PASS, "")
    verdict, detail = verdict_of(Cell("repeat", "order"), build(late), "cpu", 20)
    number, _, headline = detail.partition(": ")
    assert verdict == FAIL and number in ("2", "5", "10", "20") and headline.startswith("out: ")


@pytest.mark.parametrize(
    ("layer", "repeats", "shows_after", "asked"),
    [
        ("repeat", 20, 30, [20]),
        ("repeat", 20, 5, [20, 2, 5]),
        ("repeat", 7, 6, [7, 2, 5]),
        ("copies", 200, 30, [200, 20, 50]),
        ("copies", 3, 30, [20]),
    ],
)
def test_what_most_repeats_find_is_tried_with_few(layer, repeats, shows_after, asked, monkeypatch):
    """The number is the smallest that finds the race. A case in which nothing is found is tried
    once.
    """
    law, seen = laws()[LAYERS[layer]], []

    def shows(trial):
        seen.append(trial.repeats)
        if trial.repeats >= shows_after:
            raise LawBroken("out: differs")

    monkeypatch.setitem(laws(), law.name, replace(law, function=shows))
    verdict = verdict_of(Cell(layer, "none"), python_tiled.IMPL, "cpu", repeats)
    least = {5: 5, 6: 7}.get(shows_after, 5)
    assert verdict == ((PASS, "") if max(asked) < shows_after else (FAIL, f"{least}: out: differs"))
    assert seen == asked


def test_a_call_that_raises_is_no_matter_of_repeats(monkeypatch):
    def raises(trial):
        raise Raises("forward raises RuntimeError: no")

    monkeypatch.setitem(laws(), LAYERS["repeat"], replace(laws()[LAYERS["repeat"]], function=raises))
    verdict = verdict_of(Cell("repeat", "none"), python_tiled.IMPL, "cpu", 20)
    assert verdict == (FAIL, "raises: forward raises RuntimeError: no")


def test_a_law_that_says_nothing_or_cannot_be_decided_finds_nothing(monkeypatch):
    def undecided(trial):
        raise Undecided("no such tool")

    def another(trial):
        raise AnotherCase

    for function, verdict in ((undecided, UNKNOWN), (another, REFUSED)):
        monkeypatch.setitem(laws(), LAYERS["repeat"], replace(laws()[LAYERS["repeat"]], function=function))
        assert verdict_of(Cell("repeat", "none"), python_tiled.IMPL, "cpu", 2)[0] == verdict


# ---- the command ---------------------------------------------------------------------------------


def finds_nothing(folder, pipe, name, how, wanted):
    """Stand in for judge_cells, in another process."""
    for item in wanted:
        pipe.send(Begins(item))
        pipe.send(Judged(item, PASS, "", 0.0))


def finds_everything(folder, pipe, name, how, wanted):
    for item in wanted:
        pipe.send(Begins(item))
        pipe.send(Judged(item, FAIL if name in NAMED else PASS, "7: race", 0.0))


def finds_what_is_not_there(folder, pipe, name, how, wanted):
    for item in wanted:
        pipe.send(Begins(item))
        pipe.send(Judged(item, FAIL, "7: race", 0.0))


def ends(folder, pipe, name, how, wanted):
    pipe.send(Begins(wanted[0]))
    os._exit(3)


NAMED = (ONE,)


def run(monkeypatch, stand_in, *options):
    monkeypatch.setattr(matrix, "judge_cells", stand_in)
    return power.run(["--races", "--device", "cpu", "--workers", "1", ONE, UNEDITED, *options])


@needs_gxx
@pytest.mark.parametrize(
    ("stand_in", "status", "words"),
    [
        (finds_nothing, 1, f"found by no layer that is on by default: {ONE}"),
        (finds_everything, 0, "**1 of 1** planted races"),
        (finds_what_is_not_there, 1, f"found where nothing is planted: {UNEDITED}, trace: 7: race"),
    ],
)
def test_exit_status_and_last_lines(stand_in, status, words, monkeypatch, capsys):
    assert run(monkeypatch, stand_in) == status
    assert words in capsys.readouterr().out


@needs_gxx
def test_it_goes_on_where_it_was_stopped_and_writes_the_page(monkeypatch, capsys, tmp_path):
    file, page = tmp_path / "races.json", tmp_path / "races.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    run(monkeypatch, finds_everything, "--layers", "trace", "--json", str(file))
    assert set(read(file).entries[ONE].verdicts) == {"trace"}
    assert run(monkeypatch, finds_everything, "--json", str(file), "--write", str(page)) == 0
    assert set(read(file).entries[ONE].verdicts) == {str(cell) for cell in cells("cpu")}
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("below\n") and "\nold\n" not in text
    assert f"| trace, repeat, copies (1) | {ONE} |" in text and "false alarm (2) | 0 |" in text
    capsys.readouterr()
    assert power.run(["--races", "--write", str(page), "--from", str(file)]) == 0
    assert page.read_text() == text


@needs_gxx
def test_a_process_that_ends_counts_as_found(monkeypatch, tmp_path):
    """On a GPU a race can become an illegal access."""
    file = tmp_path / "races.json"
    run(monkeypatch, ends, "--layers", "trace", "--json", str(file))
    assert read(file).entries[ONE].verdicts == {"trace": "crash"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--layers", "trace,nosuch"], "--layers nosuch: not a layer; the layers are trace, repeat"),
        (["--layers", "sanitizer", "--device", "cpu"], "--layers sanitizer: not on cpu; there are trace, repeat"),
        (["--write", "races.md"], "--write races.md: name a file for the results in --json"),
        (["nosuch"], "no planted race is called nosuch"),
        (["--repeats", "0"], "argument --repeats: 0: should be a whole number, at least 1"),
        (["--shard", "3/2"], "argument --shard: 3/2: should be i/n"),
        (["--write", "races.md", "--from", "/nowhere.json"], "/nowhere.json"),
    ],
)
def test_options_that_cannot_be_used_are_named(options, words, capsys):
    with pytest.raises(SystemExit) as ended:
        power.run(["--races", *options])
    assert ended.value.code == 2 and words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        power.run(["--races", "--device", "cuda"])
    assert "--device cuda: there is no GPU here" in capsys.readouterr().err


# ---- the page ------------------------------------------------------------------------------------


def record_of(device="cpu", **verdicts):
    """Return a record with these verdicts of the layers' cells, for a race and for the unedited
    kernel.
    """
    record = Record(environment("cpu", "races", 20, 0) | {"device": device})
    for name, results in verdicts.items():
        record.entries[name] = entry_of(RACES[name].mutant, "")
        record.entries[name].verdicts = {cell: verdict for cell, (verdict, _) in results.items()}
        record.entries[name].details = {cell: detail for cell, (_, detail) in results.items()}
    return record


def test_only_layers_that_are_on_by_default_count():
    alone = {"repeat order": (FAIL, "2: out"), "repeat all": (PASS, ""), "trace": (PASS, "")}
    assert unfound(record_of(**{ONE: alone})) == [ONE]
    assert unfound(record_of(**{ONE: alone | {"repeat all": ("crash", "")}})) == []


def test_what_is_not_finished_is_not_missed():
    caught, nothing = {"trace": (FAIL, "1: race")}, {"trace": (PASS, "")}
    record = record_of(**{ONE: caught | {"repeat all": (PASS, "")}, TWO: nothing})
    assert unfound(record) == [] and unfinished_in(record) == [TWO]
    assert "**1 of 2** planted races" in summary(record) and "Not finished: 1." in summary(record)


def test_a_race_may_be_found_on_another_device():
    here, there = (
        record_of(**{ONE: {"trace": (PASS, "")}}),
        record_of("cuda", **{ONE: {"sanitizer": (FAIL, "1: race")}}),
    )
    assert overall([here, there]).startswith("**1 of 1** planted races are found")
    assert f"By none: {ONE}." in overall([here]) and "Not judged: cuda_backward" in overall([here])


def test_what_is_not_measured_on_a_device_is_said():
    on_cpu = record_of(**{ONE: {str(cell): (PASS, "") for cell in cells("cpu")}})
    assert (
        "Not yet measured on a GPU: other_case, cold, stress, squeezed, poison, shifted, producer, streams, sanitizer."
        in (overall([on_cpu]))
    )
    on_gpu = record_of("cuda", **{ONE: {str(cell): (PASS, "") for cell in cells("cuda") if cell.layer != "sanitizer"}})
    assert overall([on_cpu, on_gpu]).endswith("Not yet measured on a GPU: sanitizer.")


def test_whatever_is_found_without_an_edit_is_wrong():
    record = record_of(**{ONE: {"trace": (FAIL, "1: race")}, UNEDITED: {"trace": (FAIL, "1: outside")}})
    assert wrongly_found(record) == [f"{UNEDITED}, trace: 1: outside"]
    assert "**1 of 1** planted races" in summary(record)


def test_what_was_not_judged_has_no_column():
    text = with_matrix(f"{BEGIN}\n{END}\n", [record_of(**{ONE: {"trace": (FAIL, "1: race")}})])
    assert "| kind, and how many are found | trace |\n" in text


def test_races_are_listed_by_the_layers_that_find_them():
    """A layer that finds a race only under one perturbation does not count.

    A race is not missed if some layer has not judged it.
    """
    found, nothing = (FAIL, "2: out"), (PASS, "")
    both = {"trace": found, "repeat order": found, "repeat all": found, "copies all": nothing}
    trace = {"trace": found, "repeat order": found, "repeat all": nothing, "copies all": nothing}
    missed = {"trace": nothing, "repeat order": found, "repeat all": nothing, "copies all": nothing}
    for records, row in (
        ({ONE: both, TWO: trace}, f"| trace, repeat (1) | {ONE} |\n| trace (1) | {TWO} |"),
        ({ONE: missed, TWO: trace}, f"| none (1) | {ONE} |"),
        ({ONE: both, TWO: {"trace": nothing}}, f"| not finished (1) | {TWO} |"),
        ({ONE: trace, TWO: trace}, f"| trace (2) | {ONE}, {TWO} |"),
    ):
        assert row in with_matrix(f"{BEGIN}\n{END}\n", [record_of(**records)])


@pytest.mark.parametrize("text", ("", f"{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}"))
def test_a_page_without_markers_is_not_written(text):
    with pytest.raises(RecordError, match="should have one line"):
        with_matrix(text, [])


def test_a_race_that_is_no_longer_planted_is_named():
    record = record_of(**{ONE: {"trace": (FAIL, "1: race")}})
    record.entries["gone"] = record.entries[ONE]
    with pytest.raises(RecordError, match="gone, which is no planted race now"):
        with_matrix(f"{BEGIN}\n{END}\n", [record])


def test_the_page_in_docs_has_a_place_for_the_matrix():
    text = (ROOT / "docs/why/races.md").read_text()
    assert with_matrix(text, []).partition(BEGIN)[0] == text.partition(BEGIN)[0] != ""
