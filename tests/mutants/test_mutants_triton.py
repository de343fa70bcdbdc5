"""Mutants of the Triton kernels: building a copy adds no fault of its own and leaves no files behind."""

import inspect
import linecache
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mutants import CONTRACT, Mutant, elsewhere, triton
from mutants.judging import of_mutant, plan
from mutants.mutant import build
from properties.judging.judge import judge
from properties.judging.verdict import PASS
from properties.law import laws

INTERPRETED = [mutant for mutant in triton.MUTANTS if mutant.device == "cpu"]
COMPILED = [mutant for mutant in triton.MUTANTS if mutant.device == "cuda"]
INTERPRETABLE = [mutant for mutant in COMPILED if laws()[mutant.law].device is None]
ONE_FOR_EACH_LAW = {mutant.law: mutant for mutant in INTERPRETED if mutant.law != CONTRACT}
EACH_LAW = [  # by the others each mutant's copy is judged without its edit in test_mutants.py, on one case
    pytest.param(mutant, marks=() if law == "test_out_matches_the_definition" else pytest.mark.thorough, id=law)
    for law, mutant in ONE_FOR_EACH_LAW.items()
]
FEW = 12  # cases: a fault of the copy would show in most

pytestmark = [
    pytest.mark.skipif(bool(elsewhere(INTERPRETED[0])), reason=elsewhere(INTERPRETED[0])),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
]


def unedited(mutant: Mutant) -> Mutant:
    """The mutant without its edit."""
    return replace(mutant, edits=())


@pytest.mark.parametrize("mutant", EACH_LAW)
def test_law_holds_for_an_unedited_copy(mutant):
    """Each law that catches a mutant of the kernels passes on a copy without an edit."""
    without = unedited(mutant)
    result = judge(laws()[mutant.law], build(without), of_mutant(without, plan(examples=FEW)))
    assert result.verdict == PASS and result.cases >= FEW // 2, result.message or result.reason


@pytest.mark.parametrize("mutant", INTERPRETABLE, ids=lambda mutant: mutant.name)
def test_interpreter_does_not_show_bugs_of_compiled_kernels(mutant):
    """Otherwise the mutant need not wait for a GPU."""
    if mutant.impl == "triton_fa2_tf32":
        pytest.skip("not interpreted: rounding to tf32 is what differs on a GPU")
    here = replace(mutant, device="cpu", declares={**mutant.declares, "share": 0.01})
    result = judge(laws()[mutant.law], build(here), of_mutant(here, plan(examples=FEW)))
    assert result.verdict == PASS, result.message or result.reason


def test_compiled_mutant_says_why_it_is_not_judged_here():
    for mutant in COMPILED:
        assert "GPU" in elsewhere(mutant) or "compiled" in elsewhere(mutant)


def test_copy_is_deleted_and_its_lines_stay():
    """The interpreter and tracebacks read a kernel's source long after the copy was deleted."""
    mutant = next(m for m in INTERPRETED if m.name == "triton_accumulator_is_not_rescaled")
    forward = build(mutant).forward
    package = sys.modules[forward.__func__.__module__.rpartition(".")[0]]
    file = Path(package.__file__).parent / "forward.py"
    assert not file.parent.exists()
    linecache.checkcache()
    source = inspect.getsource(sys.modules[f"{package.__name__}.forward"].attend.fn)
    assert mutant.edits[0][1] in source and mutant.edits[0][0] not in source


def test_copies_do_not_mix():
    """Each build has its own modules, even if only the edit differs, and none of them is a module of impls."""
    mutant = INTERPRETED[0]
    modules = {build(m).forward.__func__.__module__ for m in (mutant, unedited(mutant), unedited(mutant))}
    assert len(modules) == 3 and not any(name.startswith("impls.") for name in modules)
