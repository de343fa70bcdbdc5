"""Every planted bug is caught by its law, with a case as small as required and a message that
locates the fault.
"""

import re
import shlex
from dataclasses import replace

import pytest
import torch

from flash_attest.command import power
from flash_attest.emulator.errors import EmulatorError
from flash_attest.impls import cuda, python_tiled, torch_math
from flash_attest.impls.contract.entry import RegistryError
from flash_attest.impls.contract.loading import from_file
from flash_attest.mutants import (
    ALL,
    CONTRACT,
    Mutant,
    MutantError,
    beyond_smallest,
    by_name,
    command,
    edited_source,
    elsewhere,
)
from flash_attest.mutants.judging import first_failure, judge_mutant, of_mutant, plan
from flash_attest.mutants.mutant import ROOT, TRACED, build
from flash_attest.mutants.numba import barriers
from flash_attest.mutants.numba.build import NUMBA
from flash_attest.mutants.races import MUTANTS as RACES
from flash_attest.mutants.tiled.build import TILED, planted
from flash_attest.mutants.tiled.calling import START
from flash_attest.mutants.triton.build import TRITON
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.checks import among_others
from flash_attest.properties.judging import shrink
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.properties.machine import gpus
from flash_attest.properties.trial import Trial
from tests.mutants.kept import KEPT, NIGHTLY

# The first line of a message names a tensor, a query's keys, the causal mask, an exception, or a
# line of CUDA or Python source.
NAMED = re.compile(
    r"\b(out|lse|dq|dk|dv|dbias|dsink|q|k|v|dout|bias|query \d+ (?:sees|counts)|causal mask|raises"
    r"|\w+\.(?:cuh?|py):\d+)\b"
)
SANITIZED = "test_sanitizers_report_nothing"

LATER = {*KEPT, *NIGHTLY, *(mutant.name for mutant in (*barriers.MUTANTS, *RACES))}
WHOLE = [pytest.param(m, marks=pytest.mark.thorough if m.name in LATER else (), id=m.name) for m in ALL]


def kept() -> list:
    """Return bugs with a kept case.

    Kernels compile for seconds, so their cases are thorough.
    """
    return [
        pytest.param(m, marks=() if m.family is TILED else pytest.mark.thorough, id=m.name)
        for m in ALL
        if m.name in KEPT
    ]


def check_first_line(mutant, line):
    """Check that the line names the fault.

    An edited CUDA file that does not compile raises an exception, which is not a fault that the
    tracer found.
    """
    assert NAMED.search(line), line
    assert mutant.law != TRACED or "raises" not in line, line


def holds_without_the_edit(mutant, case):
    """Check that the law holds on the same case without the edit, so that it fails for no other
    reason.

    Raises LawBroken.
    """
    unedited = replace(mutant, edits=())
    how = of_mutant(unedited, plan())
    trial = Trial(build(unedited), case, how.device, repeats=how.repeats, origin=how.origin, alone=how.alone)
    laws()[mutant.law].function(trial)


@pytest.mark.parametrize("mutant", WHOLE)
def test_law_catches_its_mutant(mutant, monkeypatch):
    """The case is small, the message names the fault, and the replayed case fails again."""
    if reason := elsewhere(mutant):
        pytest.skip(reason)
    if mutant.law != SANITIZED:  # it takes seconds for each step
        monkeypatch.setattr(shrink, "MOST_SECONDS", 300.0)  # on a busy machine the search would end early
    result = judge_mutant(mutant, plan())
    assert result.verdict == FAIL, f"{mutant.law} gives {result.verdict}: {result.reason}"
    first_line = result.message.splitlines()[0]
    assert first_line == result.reason
    check_first_line(mutant, first_line)
    if mutant.law != CONTRACT:
        assert beyond_smallest(mutant, result.smallest) == [], result.smallest
        case = parse_case(result.smallest)
        tries = 200 if mutant.device == "cuda" else 10  # a race may not show in a single run
        how = replace(plan(), case=case)
        again = any(isinstance(first_failure(laws()[mutant.law], mutant, how), tuple) for _ in range(tries))
        assert again, f"the replay of {result.smallest} does not fail in {tries}"
        holds_without_the_edit(mutant, case)


@pytest.mark.parametrize("mutant", kept())
def test_law_fails_for_the_kept_case_of_its_mutant(mutant, monkeypatch):
    """The case is small, and the headline names the fault.

    The second command of tox judges the unedited kernel in the only case of a law with `once`,
    which takes seconds.
    """
    monkeypatch.setattr(among_others, "is_right_alone", lambda trial, case: True)  # asks a new process, for seconds
    if reason := elsewhere(mutant):
        pytest.skip(reason)
    line = KEPT[mutant.name]
    assert not line or beyond_smallest(mutant, line) == []
    how = replace(plan(), case=parse_case(line), try_contract=False) if line else plan()
    failure = first_failure(laws()[mutant.law], mutant, how)
    assert isinstance(failure, tuple), f"{mutant.law} gives {failure.verdict}: {failure.reason}"
    broken, case = failure
    check_first_line(mutant, broken.headline)
    if not laws()[mutant.law].once:
        holds_without_the_edit(mutant, case)


def test_kept_cases_are_those_of_mutants():
    assert sorted({*KEPT, *NIGHTLY} - {mutant.name for mutant in ALL}) == []


def test_a_mutant_is_a_plug_in_by_its_name():
    """Another process can find it, and the replay line of its message works."""
    mutant = next(m for m in ALL if m.family.name == "tiled")
    for each in (mutant, replace(mutant, edits=())):
        (option,) = shlex.split(by_name.option(each))
        (entry,) = from_file(option.removeprefix("--impl-from="))
        assert entry.name == f"mutant_{mutant.name}" and shlex.split(entry.option) == [option]
    with pytest.raises(RegistryError, match="there is no nothing in it"):
        from_file(f"{by_name.__file__}:nothing")


def test_each_law_is_seen_to_fail():
    """Every run has a bug of each law: its kept case, or a search for it."""
    seen = {mutant.law for mutant in ALL if mutant.name not in LATER}
    seen |= {mutant.law for mutant in ALL if mutant.name in KEPT and mutant.family is TILED}
    assert {mutant.law for mutant in ALL} - seen == set()


def test_of_each_family_a_mutant_is_searched_for():
    """Every run tests drawing, shrinking and messages with each, in addition to the kept cases."""
    searched = {mutant.family.name for mutant in ALL if mutant.name not in LATER and mutant.device == "cpu"}
    assert {mutant.family.name for mutant in ALL} == searched


def test_every_law_has_a_mutant():
    """A law without a mutant might never fail.

    The mutant is on the law's own device, and needs no library that may be missing.
    """
    always = [mutant for mutant in ALL if mutant.family not in (TRITON, NUMBA)]
    caught = {(mutant.law, mutant.device) for mutant in always}
    assert sorted({(name, law.device or "cpu") for name, law in laws().items()} - caught) == []


def test_every_mutant_names_a_law():
    """A renamed law leaves no mutant behind."""
    assert sorted({mutant.law for mutant in ALL} - set(laws()) - {CONTRACT}) == []


def test_every_law_has_its_own_name():
    """A mutant names a law without its chapter, so two chapters cannot share a name."""
    names = [law.name for law in laws().values()]
    assert len(names) == len(set(names)) and len(names) >= 45


# The second command of tox judges these implementations by every law, but not the examples.
OF_LAWS = [
    pytest.param(law, marks=() if "traced" in law.needs else pytest.mark.thorough, id=law.name)
    for law in laws().values()
]


@pytest.mark.parametrize("law", OF_LAWS)
def test_law_holds_where_nothing_is_mutated(law, request):
    """Unedited, the implementation passes each law, so a failure comes from the edit."""
    impl = torch_math.IMPL if "autograd" in law.needs or law.device == "cuda" else python_tiled.IMPL
    if law.name == SANITIZED:  # it concerns kernels other than PyTorch's
        impl = next(impl for impl in cuda.IMPLS if impl.name == "cuda_fa2")
    if "traced" in law.needs:
        request.getfixturevalue("gxx")
        (impl,) = (entry.impl for entry in from_file(str(ROOT / "examples/flash_forward.py")))
    if law.device == "cuda" and not torch.cuda.is_available():
        pytest.skip("shows on a GPU only: there is none")
    result = judge(law, impl, replace(plan(examples=8), device=law.device or "cpu"))
    assert result.verdict == PASS, result.message or result.reason


def test_names_are_unique():
    names = [mutant.name for mutant in ALL]
    assert len(names) == len(set(names)) and names == sorted(names)


def mutant_of(name, edits=(), **smallest) -> Mutant:
    """Return a mutant of python_tiled.py."""
    return planted(name=name, law=CONTRACT, edits=edits, smallest=smallest, story="")


def test_snippet_that_does_not_fit_is_named():
    """A rewritten implementation must not disable a mutant without notice."""
    gone = mutant_of("gone", (("no such line", ""),))
    with pytest.raises(MutantError, match=r"gone(.|\n)*no such line(.|\n)*0 times"):
        edited_source(gone)
    twice = mutant_of("twice", (("import", ""),))
    with pytest.raises(MutantError, match=r"twice(.|\n)*import"):
        edited_source(twice)


def test_edits_change_the_source():
    """An edit that replaces a snippet by the same text would plant nothing."""
    for mutant in ALL:
        assert edited_source(mutant) != mutant.file.read_text(), mutant.name


def test_traceback_shows_the_mutated_line():
    """The traceback shows it although the file on disk does not have the edit."""
    crash = mutant_of("crash", ((START, "    1 / 0  # planted\n"),))
    with pytest.raises(ZeroDivisionError) as caught:
        build(crash).forward(None, None, None)
    assert "1 / 0  # planted" in str(caught.traceback[-1].statement)


def test_bounds_on_the_smallest_case_are_upper_bounds_for_numbers_and_exact_for_words():
    mutant = mutant_of("m", seqlen_q=17, headdim=1, regime="spread")
    assert beyond_smallest(mutant, "seqlen_q=17 headdim=1") == []
    assert beyond_smallest(mutant, "seqlen_q=18 headdim=1 regime=mean") == [
        "seqlen_q=18, should be at most 17",
        "regime=mean, should be spread",
    ]


# ---- flash-attest power --------------------------------------------------------------------------


@pytest.mark.parametrize("names", (["nosuch"], [ALL[0].name, "nosuch"]))
def test_every_name_must_pick_a_mutant(names, capsys):
    with pytest.raises(SystemExit) as ended:
        power.run(names)
    assert ended.value.code == 2
    assert "no planted bug is called nosuch (--list lists them)" in capsys.readouterr().err


def test_a_misspelt_name_gets_a_suggestion(capsys):
    with pytest.raises(SystemExit):
        power.run([ALL[0].name[:-2] + "xyz"])
    assert f"; did you mean {ALL[0].name}?" in capsys.readouterr().err


def test_list_names_every_planted_bug_and_its_law(capsys):
    assert power.run(["--list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [[m.name, m.law] for m in ALL]


def test_a_run_that_judges_nothing_is_not_a_success(monkeypatch, capsys):
    monkeypatch.setattr(command, "elsewhere", lambda mutant: "there is no g++")
    assert power.run([ALL[0].name]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"- {ALL[0].name}: there is no g++",
        "nothing was judged: none of these mutants can be judged here, for the reasons above",
    ]


def test_device_cpu_hides_gpus_before_it_is_asked_what_can_be_judged(monkeypatch):
    seen = []
    monkeypatch.setattr(gpus, "hide_gpus", lambda: seen.append("hidden"))
    monkeypatch.setattr(command, "elsewhere", lambda mutant: seen.append(mutant.name) or "there is no g++")
    assert power.run(["--device", "cpu", ALL[0].name]) == 2
    assert seen[:2] == ["hidden", ALL[0].name]


@pytest.mark.parametrize("error", (EmulatorError, MutantError))
def test_a_mutant_that_cannot_be_built_is_an_error_without_traceback(error, monkeypatch, capsys):
    """An example is a read-only cache."""

    def fail(mutant):
        raise error("/cache cannot be written to")

    monkeypatch.setattr(command, "build", fail)
    with pytest.raises(SystemExit) as ended:
        power.run([ALL[0].name])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == "flash-attest power: error: /cache cannot be written to"
