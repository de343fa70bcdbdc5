"""Mutants of the Triton kernels: building a copy adds no other fault and leaves no files behind."""

import inspect
import linecache
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flash_attest.mutants import CONTRACT, Mutant, elsewhere, triton
from flash_attest.mutants.judging import of_mutant, plan
from flash_attest.mutants.mutant import build
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws

EMULATED = [mutant for mutant in triton.MUTANTS if mutant.device == "cpu"]
ONE_FOR_EACH_LAW = {mutant.law: mutant for mutant in EMULATED if mutant.law != CONTRACT}
# test_mutants.py judges each mutant's copy by the other laws without its edit, on one case.
EACH_LAW = [
    pytest.param(mutant, marks=() if law == "test_out_matches_the_definition" else pytest.mark.thorough, id=law)
    for law, mutant in ONE_FOR_EACH_LAW.items()
]
FEW = 12  # cases: a fault of the copy would show in most

pytestmark = pytest.mark.skipif(bool(elsewhere(EMULATED[0])), reason=elsewhere(EMULATED[0]))


def unedited(mutant: Mutant) -> Mutant:
    """Return the mutant without its edit."""
    return replace(mutant, edits=())


@pytest.mark.parametrize("mutant", EACH_LAW)
def test_law_holds_for_an_unedited_copy(mutant):
    """Each law that catches a mutant of the kernels passes on a copy without an edit."""
    without = unedited(mutant)
    result = judge(laws()[mutant.law], build(without), of_mutant(without, plan(examples=FEW)))
    assert result.verdict == PASS and result.cases >= FEW // 2, result.message or result.reason


def test_only_streams_need_a_gpu():
    """The compiler's effects on a kernel show on a CPU."""
    elsewhere_only = {mutant.name: elsewhere(mutant) for mutant in triton.MUTANTS if mutant not in EMULATED}
    assert elsewhere_only == {
        "triton_current_stream_does_not_wait_for_the_forward": "shows on a GPU only: there is none"
    }


def test_copy_is_deleted_and_its_lines_stay():
    """Triton, findings and tracebacks read a kernel's source long after the copy is deleted."""
    mutant = next(m for m in EMULATED if m.name == "triton_accumulator_is_not_rescaled")
    forward = build(mutant).forward
    package = sys.modules[forward.__func__.__module__.rpartition(".")[0]]
    file = Path(package.__file__).parent / "forward.py"
    assert not file.parent.exists()
    linecache.checkcache()
    source = inspect.getsource(sys.modules[f"{package.__name__}.forward"].attend.fn)
    assert mutant.edits[0][1] in source and mutant.edits[0][0] not in source


def test_copies_do_not_mix():
    """Each build has its own modules, even if only the edit differs, and none of them is a module
    of impls.
    """
    mutant = EMULATED[0]
    modules = {build(m).forward.__func__.__module__ for m in (mutant, unedited(mutant), unedited(mutant))}
    assert len(modules) == 3 and not any(name.startswith("impls.") for name in modules)


OTHER_BITS = {
    "triton_paged_splits_follow_the_length": "test_chunks_change_no_bit",
    "triton_paged_a_small_batch_has_more_splits": "test_batch_changes_no_bit",
}


@pytest.mark.parametrize("name", OTHER_BITS)
def test_other_splits_are_right_where_no_bits_are_promised(name):
    """The same kernels without the promise (`invariant`): their results are within the budget."""
    mutant = next(m for m in EMULATED if m.name == name)
    right = replace(mutant, declares=mutant.declares | {"invariant": ()})
    for law in (OTHER_BITS[name], "test_out_matches_the_definition"):
        result = judge(laws()[law], build(right), of_mutant(right, plan(examples=FEW)))
        assert result.verdict == PASS and result.cases, result.message or result.reason
