"""Mutants of impls/numba: every barrier has one, and building a copy adds no other fault."""

import ast
import inspect
import re
import sys
from dataclasses import replace

import pytest

from flash_attest.emulator.observation import Kind, Space
from flash_attest.mutants import CONTRACT, Mutant, elsewhere, numba
from flash_attest.mutants.judging import of_mutant, plan
from flash_attest.mutants.mutant import build
from flash_attest.mutants.numba import barriers
from flash_attest.mutants.numba.build import NUMBA, imports
from flash_attest.mutants.numba.build import unedited as unedited_copy
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from flash_attest.races.tracing import tracing
from tests.runs import python

FOLDER = NUMBA.folder
EMULATED = [mutant for mutant in numba.MUTANTS if mutant.device == "cpu"]
ONE_FOR_EACH_LAW = {mutant.law: mutant for mutant in EMULATED if mutant.law != CONTRACT}
EACH_LAW = [  # in tox, test_mutants.py judges each mutant's copy without its edit, on one case
    pytest.param(mutant, marks=pytest.mark.thorough, id=law) for law, mutant in ONE_FOR_EACH_LAW.items()
]
FEW = 12  # cases: a fault of the copy would show in most
BARRIERS = barriers.barriers()
# tests/emulator/numba/test_barriers.py removes all barriers from the PTX, which needs no compiling.
EACH_BARRIER = [
    pytest.param(mutant, marks=() if mutant.name == "numba_fa2_barrier_1" else pytest.mark.thorough, id=mutant.name)
    for mutant in barriers.MUTANTS
]

pytestmark = pytest.mark.skipif(bool(elsewhere(EMULATED[0])), reason=elsewhere(EMULATED[0]))


def unedited(mutant: Mutant) -> Mutant:
    """Return the mutant without its edit."""
    return replace(mutant, edits=())


def module_of(mutant: Mutant, name: str):
    """Return a module of the copy that the mutant runs; None if nothing imports it."""
    package = build(mutant).forward.__func__.__module__.rpartition(".")[0]
    return sys.modules.get(package if name == "__init__" else f"{package}.{name}")


# ---- barriers ------------------------------------------------------------------------------------


def test_every_barrier_is_found_and_gives_its_reason():
    nodes = [node for path in FOLDER.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func).startswith("cuda.sync")]
    assert len(BARRIERS) == len(calls) >= 10
    assert [f"{path.name}: {line[0]}" for path, _, line in BARRIERS if not line["story"]] == []


@pytest.mark.parametrize("mutant", EACH_BARRIER)
def test_report_of_a_missing_barrier_is_a_race_with_two_lines(mutant):
    """The message names two Python lines.

    The only other finding is a consequence: memory read before another thread wrote it.
    """
    supports = mutant.declares["supports"]
    sizes = "seqlen_q=33 seqlen_k=40 nheads=2 headdim=32"
    case = parse_case(f"{sizes} bias=vector" if supports.bias_kinds else sizes)
    trial = Trial(build(mutant), case, "cpu")
    with tracing() as watch:
        trial.run(backward=trial.backward)
    of_a_row = {Space.GLOBAL} if "l and m" in mutant.story else set()  # FlashAttention-1 keeps l and m in global memory
    assert {finding.space for finding in watch.findings} == {Space.SHARED} | of_a_row
    assert {finding.kind for finding in watch.findings} <= {Kind.RACE, Kind.UNINITIALISED}
    races = [finding for finding in watch.findings if finding.kind is Kind.RACE]
    assert races and all(str(x.site) in race.headline for race in races for x in (race.first, race.second))
    assert all(re.match(r"\w+\.py:\d+$", str(race.first.site)) for race in races)


# ---- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", EACH_LAW)
def test_law_holds_for_an_unedited_copy(mutant):
    """Each law that catches a mutant of the kernels passes on a copy without an edit."""
    without = unedited(mutant)
    result = judge(laws()[mutant.law], build(without), of_mutant(without, plan(examples=FEW)))
    assert result.verdict == PASS and result.cases >= FEW // 2, result.message or result.reason


def test_copy_differs_by_the_edit_and_shares_what_does_not_import_it():
    """Compiling takes most of the time, so a mutant of the backward runs the forward's kernel of
    the unedited copy.
    """
    mutant = next(m for m in EMULATED if m.source == "backward.py")
    edited, original = ({name: module_of(m, name) for name in imports()} for m in (mutant, unedited(mutant)))
    same = {name for name, module in edited.items() if module is original[name]}
    assert same - {"functions"} == imports().keys() - {"__init__", "backward", "attention", "declared", "functions"}
    old, new = mutant.edits[0]
    assert new in inspect.getsource(edited["backward"]) and old in inspect.getsource(original["backward"])


def test_copies_do_not_mix():
    """No module of a copy is a module of impls; copies are equal if and only if their edits are
    equal.
    """
    several = [*(m for m in EMULATED if m.source == "fa2.py"), *map(unedited, EMULATED[:2])]
    modules = [build(m).forward.__func__.__module__ for m in several]
    assert len(set(modules)) == len(several) - 1 and not any(name.startswith("impls.") for name in modules)


def test_copy_has_the_same_names_in_every_process():
    """Compiled kernels are cached by them."""
    program = "from flash_attest.mutants.numba.build import unedited; print(unedited().__name__, unedited().__file__)"
    there = python("-c", program).stdout
    module = unedited_copy()
    assert there == f"{module.__name__} {module.__file__}\n"
