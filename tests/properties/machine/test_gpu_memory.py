"""Workers share the memory of a GPU: if a case finds too little memory, it is restarted later."""

import gc
import threading
import weakref
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from itertools import count
from unittest import mock

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties import trial
from flash_attest.properties.cases import inputs
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import LawBroken, OutOfMemory, Reason, Undecided
from flash_attest.properties.judging import conformance, neighbours, search
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.machine import gpu_memory
from flash_attest.properties.machine.gpu_memory import MOST_IN_VAIN, PAUSES, first_that_fits, when_memory_suffices
from tests.trials import lines

LAW = laws()["test_out_matches_the_definition"]
FULL = "CUDA out of memory. Tried to allocate 20.00 MiB"


@pytest.fixture(scope="module", autouse=True)
def nothing_else_to_collect():
    """Leaves what earlier tests keep out of the garbage collections, which come before each
    attempt.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def pauses(monkeypatch):
    """Record the seconds of each wait, without waiting."""
    waited = []
    monkeypatch.setattr(gpu_memory, "_wait", waited.append)
    return waited


def full_at_first(times, result="done"):
    """Return an attempt that runs out of memory the first `times` times."""
    remaining = [times]

    def attempt():
        remaining[0] -= 1
        if remaining[0] >= 0:
            raise OutOfMemory("out of memory")
        return result

    return attempt


@pytest.mark.parametrize("times", range(len(PAUSES) + 2))  # the last attempt is made alone on the GPU
def test_it_is_begun_anew_after_a_pause(times, pauses):
    assert when_memory_suffices("cuda", Known(), full_at_first(times)) == "done"
    assert pauses == list(PAUSES[:times])


def test_where_it_never_suffices_a_process_stops_waiting(pauses):
    known = Known()
    for n in range(1, MOST_IN_VAIN + 3):
        with pytest.raises(OutOfMemory):
            when_memory_suffices("cuda", known, full_at_first(100))
        assert len(pauses) == len(PAUSES) * min(n, MOST_IN_VAIN)


@pytest.mark.parametrize("error", [Undecided("another reason"), LawBroken("broken"), RuntimeError()], ids=repr)
def test_nothing_else_is_begun_anew(error, pauses):
    def attempt():
        raise error

    with pytest.raises(type(error)):
        when_memory_suffices("cuda", Known(), attempt)
    assert not pauses


def test_a_cpu_is_not_waited_for(pauses):
    with pytest.raises(OutOfMemory):
        when_memory_suffices("cpu", Known(), full_at_first(1))
    assert not pauses


@pytest.fixture
def shared(monkeypatch, pauses):
    """Makes waiting for the memory of a CPU work like waiting for the memory of a GPU."""
    for module in (search, conformance, neighbours):
        monkeypatch.setattr(module, "when_memory_suffices", partial(_as_on_a_gpu, when_memory_suffices))
    return pauses


def _as_on_a_gpu(suffices, device, known, attempt, **options):
    return suffices("cuda", known, attempt, **options)


def full(wrapped, when):
    """Return a function that runs out of memory in its n-th call, from 0 on, if when(n)."""
    calls = count()

    @wraps(wrapped)  # cases are drawn by the name of the law
    def wrapper(*arguments, **options):
        result = wrapped(*arguments, **options)
        if when(next(calls)):
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
    result = judge(replace(LAW, function=full(law, lambda n: n % 5 == 0)), torch_math.IMPL, plan)
    assert len(shared) >= 2
    assert (result.verdict, result.cases, result.repeats) == (PASS, right.cases, right.repeats)
    assert result.worst_z == right.worst_z


@pytest.mark.parametrize("call", (0, 1, 4))
def test_a_case_of_the_contract_is_tried_anew(call, shared):
    impl = replace(torch_math.IMPL, forward=full(torch_math.IMPL.forward, lambda n: n == call))
    outcome = conformance.tried(impl, Plan())
    assert (outcome.problems, outcome.undecided, shared) == ([], None, [PAUSES[0]])


def leaves_a_setting(in_call, wrapped=torch_math.IMPL.forward):
    """Return a forward that changes global state in one of its calls."""
    calls = count()

    def forward(*operands, **options):
        if next(calls) == in_call:
            torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        return wrapped(*operands, **options)

    return forward


@pytest.mark.parametrize("call", (0, 3))
def test_what_a_call_without_memory_has_changed_stays_known(call, shared):
    """A restarted law would pass, because the state is restored and a second call may leave it
    unchanged.
    """
    forward = full(leaves_a_setting(call), lambda n: n == call)
    result = judge(LAW, replace(torch_math.IMPL, forward=forward), Plan(examples=12, try_contract=False))
    assert (result.verdict, result.why, shared) == (UNKNOWN, Reason.RESOURCES, [])
    impl = replace(torch_math.IMPL, forward=full(leaves_a_setting(0), lambda n: n == 0))
    with pytest.raises(Undecided, match="out of memory"):
        conformance.tried(impl, Plan())


def test_other_cases_of_the_contract_hide_no_change(shared):
    """The suite runs out of memory in a later case."""
    impl = replace(torch_math.IMPL, forward=leaves_a_setting(0))
    build = full(inputs.build, lambda n: n == 2)
    with mock.patch.object(trial, "build", build):
        (problem,) = conformance.tried(impl, Plan()).problems
    assert "cudnn.benchmark" in problem and shared == [PAUSES[0]]


def test_a_case_is_waited_for_once(shared):
    """Hypothesis runs the case and smaller ones again, without further pauses and without keeping
    tensors.
    """
    tensors, alive = [], []

    def law(trial):
        gc.collect()
        alive.append(sum(tensor() is not None for tensor in tensors))
        if trial.case.seqlen_k > 20:
            trial.tensor = torch.zeros(10)
            tensors.append(weakref.ref(trial.tensor))
            raise torch.OutOfMemoryError(FULL)

    plan = Plan(examples=12, try_contract=False)
    result = judge(replace(LAW, function=law), torch_math.IMPL, plan)
    assert (result.verdict, shared, plan.known.waits_in_vain) == (UNKNOWN, list(PAUSES), 1)
    assert len(tensors) > 2 * len(PAUSES) and max(alive) == 0


def test_a_repeat_without_memory_is_no_race(shared):
    """The failure occurs in every repeat for which the memory suffices."""
    calls = count()

    def law(trial):
        if next(calls) >= 3:  # the third repeat: a given case is not shrunk
            raise torch.OutOfMemoryError(FULL)
        raise LawBroken("wrong")

    case = parse_case("seqlen_q=3 seqlen_k=3 headdim=4")
    result = judge(replace(LAW, function=law), torch_math.IMPL, Plan(case=case, try_contract=False))
    assert result.verdict == FAIL and "a race" not in result.message
    assert f"1 of 3 repeats are undecided: out of memory on {case}" in lines(result.message)


def test_a_repeat_that_is_right_counts_beside_one_without_memory(shared):
    calls = count()

    def law(trial):
        if (n := next(calls)) == 1:
            return
        if n >= 3:
            raise torch.OutOfMemoryError(FULL)
        raise LawBroken("wrong")

    case = parse_case("seqlen_q=3 seqlen_k=3 headdim=4")
    result = judge(replace(LAW, function=law), torch_math.IMPL, Plan(case=case, try_contract=False))
    assert "1 of 3 repeats fail, 1 in the same way" in lines(result.message) and "a race" in result.message


@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="there is no GPU")
def test_memory_of_a_gpu_that_comes_back_is_used():
    """The law passes once its process may use more memory. No other process uses any."""

    def large(trial):
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        LAW.function(trial)

    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    some = torch.cuda.memory_reserved() + (300 << 20)
    torch.cuda.set_per_process_memory_fraction(some / torch.cuda.get_device_properties(0).total_memory)
    more = threading.Timer(PAUSES[0] + 1.0, torch.cuda.set_per_process_memory_fraction, (1.0,))
    more.start()
    try:
        plan = Plan(device="cuda", examples=3, try_contract=False)
        result = judge(replace(LAW, function=large), torch_math.IMPL, plan)
    finally:
        more.join()
    assert result.verdict == PASS


@pytest.fixture
def alone(monkeypatch):
    """Stands in for the locks of a GPU, and records how attempts are made."""
    how = []

    class Turns:
        def wanted(self):
            return False

        @contextmanager
        def shared(self):
            yield

        @contextmanager
        def large(self):
            yield

        @contextmanager
        def alone(self):
            how.append("alone")
            yield

    monkeypatch.setattr(gpu_memory, "turns_of", lambda device: Turns())
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (12 << 30, 16 << 30))
    return how


def _with_backward(how, fits):
    def attempt(backward):
        how.append("backward" if backward else "forward")
        if how not in fits:
            raise OutOfMemory("out of memory on seqlen_q=1: forward raises OutOfMemoryError")
        return backward

    return [partial(attempt, True), partial(attempt, False)]


@pytest.mark.parametrize(
    ("fits", "answer"),
    [
        (["backward"], (0, True)),
        (["backward", "alone", "backward"], (0, True)),
        (["backward", "alone", "backward", "forward"], (1, False)),
    ],
    ids=["beside others", "alone", "the forward"],
)
def test_large_tensors_get_the_memory_that_there_is(fits, answer, alone):
    assert first_that_fits("2 GiB", _with_backward(alone, [fits])) == answer
    assert alone == fits


def test_a_gpu_without_memory_for_a_context_is_too_small(alone, pauses, monkeypatch):
    """Even the question how much is free raises then."""

    def ask():
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", ask)
    with pytest.raises(OutOfMemory, match=r"alone on the GPU with 0\.0 GiB free") as e:
        when_memory_suffices("cuda", Known(), full_at_first(100))
    assert e.value.why is Reason.GPU_MEMORY and alone == ["alone"]


def test_what_does_not_fit_a_gpu_alone_is_no_failure(alone):
    """The run stays green, and says that this law needs a larger GPU."""
    with pytest.raises(
        Undecided, match=r"^batch=9 needs more than the 12.0 GiB of GPU memory that are free: forward"
    ) as e:
        first_that_fits("batch=9", _with_backward(alone, []))
    assert e.value.why is Reason.GPU_MEMORY and alone == ["backward", "alone", "backward", "forward"]


def test_a_law_that_does_not_fit_is_tried_once(alone):
    """Hypothesis would run other cases, which are as large."""

    def law(trial):
        first_that_fits("it", _with_backward(alone, []))

    result = judge(replace(LAW, function=law), torch_math.IMPL, Plan(examples=12, try_contract=False))
    assert (result.verdict, result.why) == (UNKNOWN, Reason.GPU_MEMORY)
    assert alone == ["backward", "alone", "backward", "forward"]
