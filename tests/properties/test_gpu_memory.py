"""Workers share the memory of a GPU: a case that finds none is begun anew once the others have given theirs back."""

import subprocess
import sys
from dataclasses import replace
from functools import wraps

import pytest
import torch

from impls import torch_math
from properties import gpu_memory
from properties.failures import LawBroken, OutOfMemory, Undecided
from properties.gpu_memory import MOST_IN_VAIN, PAUSES, when_memory_suffices
from properties.judging import conformance, search
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import PASS, UNKNOWN
from properties.law import laws
from tests.properties.warm import ROOT

LAW = laws()["test_out_matches_the_definition"]
FULL = "CUDA out of memory. Tried to allocate 20.00 MiB"


@pytest.fixture
def pauses(monkeypatch):
    """The seconds for which was waited, which take none."""
    waited = []
    monkeypatch.setattr(gpu_memory, "_in_vain", 0)
    monkeypatch.setattr(gpu_memory.time, "sleep", waited.append)
    return waited


def full_at_first(times, result="done"):
    """An attempt for which memory does not suffice the first `times` times."""
    left = [times]

    def attempt():
        left[0] -= 1
        if left[0] >= 0:
            raise OutOfMemory("out of memory")
        return result

    return attempt


@pytest.mark.parametrize("times", range(len(PAUSES) + 1))
def test_it_is_begun_anew_after_a_pause(times, pauses):
    assert when_memory_suffices("cuda", full_at_first(times)) == "done"
    assert pauses == list(PAUSES[:times])


def test_where_it_never_suffices_a_process_stops_waiting(pauses):
    for n in range(1, MOST_IN_VAIN + 3):
        with pytest.raises(OutOfMemory):
            when_memory_suffices("cuda", full_at_first(100))
        assert len(pauses) == len(PAUSES) * min(n, MOST_IN_VAIN)


@pytest.mark.parametrize("error", [Undecided("another reason"), LawBroken("broken"), RuntimeError()], ids=repr)
def test_nothing_else_is_begun_anew(error, pauses):
    def attempt():
        raise error

    with pytest.raises(type(error)):
        when_memory_suffices("cuda", attempt)
    assert not pauses


def test_a_cpu_is_not_waited_for(pauses):
    with pytest.raises(OutOfMemory):
        when_memory_suffices("cpu", full_at_first(1))
    assert not pauses


@pytest.fixture
def shared(monkeypatch, pauses):
    """A CPU whose memory is waited for as if it were that of a GPU."""
    for module in (search, conformance):
        monkeypatch.setattr(
            module, "when_memory_suffices", lambda device, attempt: when_memory_suffices("cuda", attempt)
        )
    return pauses


def full_now_and_then(wrapped, every=5):
    """A function that finds no memory every so many calls."""
    calls = []

    @wraps(wrapped)  # cases are drawn by the name of the law
    def wrapper(*arguments, **options):
        result = wrapped(*arguments, **options)
        calls.append(1)
        if (len(calls) - 1) % every == 0:
            raise torch.OutOfMemoryError(FULL)
        return result

    return wrapper


def test_a_law_counts_a_case_once(shared):
    def law(trial):
        LAW.function(trial)
        trial.meter.repeats += 10

    plan = Plan(examples=12, try_contract=False)
    right = judge(replace(LAW, function=law), torch_math.IMPL, plan)
    assert not shared
    result = judge(replace(LAW, function=full_now_and_then(law)), torch_math.IMPL, plan)
    assert len(shared) >= 2
    assert (result.verdict, result.cases, result.repeats) == (PASS, right.cases, right.repeats)
    assert result.worst_z == right.worst_z


def test_the_contract_is_tried_anew(shared):
    impl = replace(torch_math.IMPL, forward=full_now_and_then(torch_math.IMPL.forward, every=1000))
    assert conformance.problems(impl, "cpu") == [] and shared == [PAUSES[0]]


def test_a_law_for_which_it_never_suffices_is_unknown(shared):
    result = judge(replace(LAW, function=full_now_and_then(LAW.function, every=1)), torch_math.IMPL, Plan(examples=3))
    assert result.verdict == UNKNOWN and result.reason.startswith("out of memory on ")


TAKES_MOST = """
import sys, time, torch
free, _ = torch.cuda.mem_get_info()
taken = torch.empty(free - (300 << 20), dtype=torch.uint8, device="cuda")
print("taken", flush=True)
time.sleep(4)
"""


@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="there is no GPU")
def test_another_process_has_nearly_all_of_a_gpu_for_a_while():
    """The law needs more than is left, and passes once the other process is gone."""

    def large(trial):
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        LAW.function(trial)

    torch.zeros(1, device="cuda")
    other = subprocess.Popen([sys.executable, "-c", TAKES_MOST], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert other.stdout.readline() == "taken\n"
    result = judge(replace(LAW, function=large), torch_math.IMPL, Plan(device="cuda", examples=3, try_contract=False))
    assert other.poll() is not None, "the other process was there when the law passed"
    assert (result.verdict, other.wait()) == (PASS, 0)
