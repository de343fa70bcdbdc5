"""On a GPU that is too small for some cases, a law judges the others and says so."""

from contextlib import contextmanager
from dataclasses import replace
from functools import wraps

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.contract.call import Phase
from flash_attest.properties.calling import raised
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import LawBroken, OutOfMemory, Raises, Reason
from flash_attest.properties.judging import conformance, neighbours, search
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.machine import gpu_memory
from flash_attest.properties.machine.clock import Clock
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


@pytest.mark.parametrize("gpu", [None], indirect=True)
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


# What FlashAttention-3 raised on a full H200: its wheel was built with torch's stable ABI.
NO_REASON = (
    'torch_call_dispatcher( "aten::new_empty", "", stack.data(), TORCH_ABI_VERSION) API call failed at '
    "/opt/venv/lib/python3.10/site-packages/torch/include/torch/csrc/stable/ops.h, line 933"
)


@pytest.mark.parametrize(
    ("text", "device", "refusals", "expected"),
    [
        (NO_REASON, "cuda", (2, 3), OutOfMemory),
        (NO_REASON, "cuda", (2, 2), Raises),
        (NO_REASON, "cuda", (0, 0), Raises),
        (NO_REASON, "cpu", (2, 3), Raises),
        ("the launch of the kernel failed", "cuda", (2, 3), Raises),  # as after an attempt to get a larger workspace
    ],
)
def test_an_error_without_a_reason_is_of_memory_only_if_torch_refused_some(
    text, device, refusals, expected, monkeypatch
):
    counts = iter(refusals)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda: {"num_ooms": next(counts)})
    monkeypatch.setattr(raised, "device_error", lambda device: "")
    case = parse_case("seqlen_q=3 seqlen_k=3 headdim=4")
    with pytest.raises(expected), raised.judged(lambda: Phase.FORWARD, case, device, Clock()):
        raise RuntimeError(text)


def test_a_lost_gpu_is_not_asked_what_it_refused(monkeypatch):
    def lost():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lost)
    assert gpu_memory.refusals("cuda") == gpu_memory.refusals("cpu") == 0
