"""Tests how verdicts are counted, and the line with the verdict of a run."""

from __future__ import annotations

import pytest

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.runner.green import Asked, Group, group_of, is_green, verdict_line


def result(verdict: str, why: Reason | None = None, reason: str = "", known: str = "") -> dict:
    return Result("mine", "test_causal", "test_law", verdict, reason, why, known=known).as_dict()


HOLDS, FAILS, REFUSES = result(PASS), result(FAIL, reason="out is wrong"), result(REFUSED, Reason.NOT_DECLARED)
KNOWN, UNDECIDED = result(FAIL, known="#12"), result(UNKNOWN, Reason.RESOURCES)
NOT_LOADED = result(FAIL, Reason.NOT_LOADED, "mine.py:3: importing it raises NameError")
GPU_LAW, GPU_IMPL = result(UNKNOWN, Reason.LAW_OF_OTHER_DEVICE), result(UNKNOWN, Reason.OTHER_DEVICE)


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ([HOLDS], "green: 1 law holds"),
        ([HOLDS] * 3 + [REFUSES], "green: 3 laws hold; 1 does not apply"),
        ([HOLDS, GPU_LAW, GPU_LAW, KNOWN], "green: 1 law holds; 1 fails as known; 2 need a GPU"),
        ([HOLDS, FAILS, FAILS], "not green: 2 laws fail; 1 holds"),
        ([HOLDS, UNDECIDED], "not green: 1 law undecided; 1 holds"),
        ([HOLDS, result(UNKNOWN, Reason.NO_SANITIZER)], "green: 1 law holds; 1 needs compute-sanitizer"),
        ([HOLDS, result(UNKNOWN, Reason.GPU_MEMORY)], "green: 1 law holds; 1 needs a larger GPU"),
        ([], "not green: nothing was judged"),
        ([NOT_LOADED], "not green: 1 file cannot be loaded"),
        ([HOLDS, FAILS, NOT_LOADED, NOT_LOADED], "not green: 2 files cannot be loaded; 1 law fails; 1 holds"),
    ],
)
def test_the_line_counts_verdicts_with_the_worst_first(results, line):
    assert verdict_line(results, Asked(), device="cpu") == line


def test_a_gpu_that_is_emulated_is_named_if_it_is_not_the_default():
    assert verdict_line([HOLDS], Asked(), device="cpu", emulated="sm_80") == "green: 1 law holds"
    line = verdict_line([HOLDS], Asked(), device="cpu", emulated="sm_90")
    assert line == "green on a CPU, as sm_90: 1 law holds" and is_green(line)
    assert verdict_line([FAILS], Asked(), emulated="sm_90") == "not green on a CPU, as sm_90: 1 law fails"
    assert not is_green(verdict_line([FAILS], Asked(), emulated="sm_90"))


def test_a_run_that_has_not_ended_is_not_green():
    line = verdict_line([HOLDS], Asked(), left=2, planned=3)
    assert line == "not green: 2 of 3 were not judged; 1 law holds"


def test_a_replay_that_no_law_took_is_not_green():
    refused = result(REFUSED, Reason.NO_CASE, "headdim 64 is not declared")
    line = verdict_line([refused], Asked(replayed=True))
    assert line == "not green: no law took the case: headdim 64 is not declared; 1 law does not apply"


def test_no_reason_of_an_implementation_makes_a_run_green():
    refused = result(REFUSED, Reason.NO_CASE, "whether this works could not be decided yet")
    line = verdict_line([refused], Asked(replayed=True))
    assert line.startswith("not green: no law took the case: whether this works")


def test_an_implementation_that_was_asked_for_is_not_excused():
    assert group_of(GPU_IMPL, asked_for=False) is Group.OTHER_DEVICE
    assert group_of(GPU_IMPL, asked_for=True) is Group.UNDECIDED
    assert group_of(GPU_LAW, asked_for=True) is Group.OTHER_DEVICE


@pytest.mark.parametrize("why", Reason)
def test_every_reason_counts_as_something(why):
    assert group_of(result(UNKNOWN, why), asked_for=False) in Group
