"""On a GPU that is too small for some cases, a law judges the others and says so."""

from contextlib import contextmanager
from dataclasses import replace
from functools import wraps

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.failures import LawBroken, OutOfMemory, Reason
from flash_attest.properties.judging import conformance, neighbours, search
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.machine import gpu_memory
from flash_attest.properties.machine.gpu_memory import ENOUGH, MOST_IN_VAIN, when_memory_suffices

LAW = laws()["test_out_matches_the_definition"]
FULL = "CUDA out of memory. Tried to allocate 8.26 GiB"


@pytest.fixture(params=[7 << 30])
def gpu(monkeypatch, request):
    """Make the CPU a GPU on which this number of bytes is free for a process that is alone."""

    @contextmanager
    def alone(device):
        yield request.param

    monkeypatch.setattr(gpu_memory, "_wait", lambda seconds: None)
    monkeypatch.setattr(gpu_memory, "_free", lambda: None)  # takes a tenth of a second
    monkeypatch.setattr(gpu_memory, "_alone", alone)
    for module in (search, conformance, neighbours):
        monkeypatch.setattr(module, "when_memory_suffices", _as_on_a_gpu)


def _as_on_a_gpu(device, known, attempt, **options):
    return when_memory_suffices("cuda", known, attempt, **options)


def needing_memory(wrapped, when):
    """Return a function of a trial that runs out of memory if when(case)."""

    @wraps(wrapped)
    def law(trial):
        if when(trial.case):
            raise torch.OutOfMemoryError(FULL)
        return wrapped(trial)

    return replace(LAW, function=law)


def is_large(case):
    return case.seqlen_k > 100


def test_the_other_cases_are_judged(gpu):
    result = judge(needing_memory(LAW.function, is_large), torch_math.IMPL, Plan(examples=24, try_contract=False))
    assert (result.verdict, result.why) == (UNKNOWN, Reason.GPU_MEMORY)
    assert "need a larger GPU: out of memory on seqlen_q=" in result.reason
    assert "alone on the GPU with 7.0 GiB free" in result.reason
    assert result.reason.endswith("others hold")
    assert result.cases > 10


def test_a_failure_among_them_is_found(gpu):
    def broken(trial):
        LAW.function(trial)
        if trial.case.seqlen_k > 20:
            raise LawBroken("wrong")

    result = judge(
        needing_memory(broken, is_large), torch_math.IMPL, Plan(examples=24, try_contract=False, goes_on=False)
    )
    assert result.verdict == FAIL


def test_if_all_are_too_large_nothing_is_said_to_hold(gpu, few_tried):
    result = judge(
        needing_memory(LAW.function, lambda case: True), torch_math.IMPL, Plan(examples=5, try_contract=False)
    )
    assert (result.verdict, result.why) == (UNKNOWN, Reason.GPU_MEMORY)
    assert "hold" not in result.reason


@pytest.mark.parametrize("gpu", [ENOUGH], indirect=True)
def test_with_enough_memory_the_implementation_takes_too_much(gpu):
    result = judge(needing_memory(LAW.function, is_large), torch_math.IMPL, Plan(examples=24, try_contract=False))
    assert (result.verdict, result.why) == (UNKNOWN, Reason.RESOURCES)


@pytest.mark.parametrize("gpu", [0], indirect=True)
def test_without_a_gpu_yet_nobody_knows_its_memory(gpu):
    with pytest.raises(OutOfMemory) as caught:
        when_memory_suffices("cuda", Known(), lambda: _raise(OutOfMemory("out of memory")))
    assert caught.value.why is Reason.RESOURCES


def test_each_law_waits_for_a_small_gpu(gpu):
    """Else a fourth law would call memory short that never was enough."""
    known = Known()
    for _ in range(MOST_IN_VAIN + 2):
        with pytest.raises(OutOfMemory) as caught:
            when_memory_suffices("cuda", known, lambda: _raise(OutOfMemory("out of memory")))
        assert caught.value.why is Reason.GPU_MEMORY


def test_a_small_gpu_passes_what_fits(gpu):
    result = judge(
        needing_memory(LAW.function, lambda case: False), torch_math.IMPL, Plan(examples=5, try_contract=False)
    )
    assert result.verdict == PASS


def _raise(error):
    raise error
