"""Repeating finds differences between calls, and states the bound on their probability if there are none."""

import itertools
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from emulator.observation import Kind
from emulator.runtime.watch import ordered
from impls import torch_math
from impls.registry import from_file
from mutants import ALL
from mutants.judging import judge_mutant, plan
from mutants.mutant import build
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import FAIL, PASS
from properties.law import laws
from races.repeat import compare_repeats, in_order, order_of
from races.tracing import tracing
from tests.trials import implementation

REPEATS_AGREE = laws()["test_repeats_agree"]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


pytestmark = pytest.mark.usefixtures("one_thread")


def no_disturbance(repeat: int) -> None:
    pass


def scripted(*results: dict[str, torch.Tensor]):
    """A call that gives these results in turn, and then the last one again and again."""
    left = list(results)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


# --- compare_repeats --------------------------------------------------------------------------------------------------

ZERO, ONE = torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 0.0])


def test_equal_repeats_show_nothing():
    found, first = compare_repeats(lambda: {"out": ZERO.clone()}, 10, no_disturbance)
    assert (found.n, found.differing, found.elements) == (10, {}, {}) and torch.equal(first["out"], ZERO)


@pytest.mark.parametrize("when", [1, 5, 10])
def test_one_repeat_in_ten_that_differs_is_counted(when):
    calls = [{"out": ZERO}] * when + [{"out": ONE}] + [{"out": ZERO}] * (10 - when)
    found, _ = compare_repeats(scripted(*calls), 10, no_disturbance)
    assert found.differing == {"out": 1} and found.elements["out"].tolist() == [0, 1, 0, 0]


def test_a_wrong_first_call_differs_from_all_repeats():
    found, first = compare_repeats(scripted({"out": ONE}, {"out": ZERO}), 10, no_disturbance)
    assert found.differing == {"out": 10} and torch.equal(first["out"], ONE)


def test_each_output_is_counted_by_itself():
    both = {"out": ZERO, "lse": ZERO, "dq": ZERO}
    calls = [both, both | {"out": ONE}, both | {"out": ONE, "lse": ONE.flip(0)}, both]
    found, _ = compare_repeats(scripted(*calls), 3, no_disturbance)
    assert found.differing == {"out": 2, "lse": 1}
    assert found.elements["out"].tolist() == [0, 2, 0, 0] and found.elements["lse"].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_bit_is_a_difference(dtype):
    one = torch.ones(3, dtype=dtype)
    next_one = one.clone()
    next_one[2] += torch.finfo(dtype).eps
    found, _ = compare_repeats(scripted({"out": one}, {"out": next_one}), 1, no_disturbance)
    assert found.elements["out"].tolist() == [0, 0, 1]


def test_the_sign_of_zero_is_a_difference():
    found, _ = compare_repeats(scripted({"out": ZERO}, {"out": -ZERO}), 1, no_disturbance)
    assert found.differing == {"out": 1}


def test_nan_equals_itself():
    found, _ = compare_repeats(lambda: {"out": torch.full((3,), torch.nan)}, 5, no_disturbance)
    assert found.differing == {}


def test_a_result_that_is_written_again_is_compared_with_what_it_was():
    """An implementation may return the same buffer each time."""
    buffer = torch.zeros(3)

    def call():
        return {"out": buffer.add_(1)}

    found, first = compare_repeats(call, 4, no_disturbance)
    assert found.differing == {"out": 4} and first["out"].tolist() == [1, 1, 1]


def test_results_may_be_strided():
    found, _ = compare_repeats(scripted({"out": ZERO.view(2, 2).T}, {"out": ONE.view(2, 2).T}), 1, no_disturbance)
    assert found.elements["out"].tolist() == [[0, 0], [1, 0]]


def test_empty_results_do_not_differ():
    found, _ = compare_repeats(lambda: {"out": torch.empty(2, 0, 3)}, 2, no_disturbance)
    assert found.differing == {}


def test_the_disturbance_comes_before_each_repeat():
    order = []
    compare_repeats(lambda: order.append("call") or {}, 3, lambda repeat: order.append(repeat))
    assert order == ["call", 0, "call", 1, "call", 2, "call"]


@pytest.mark.parametrize(("n", "bound"), [(0, 1.0), (1, 1.0), (3, 1.0), (100, 0.03), (300, 0.01)])
def test_the_bound_is_three_over_n(n, bound):
    found, _ = compare_repeats(lambda: {"out": ZERO}, n, no_disturbance)
    assert found.bound == bound


# --- the law ----------------------------------------------------------------------------------------------------------

PLAN = Plan(examples=20, repeats=24)
DECLARED = dict(lse="natural", tile=(16, 16))
CALLS = itertools.count()


def wrong_in_one_call_of_twenty(q, k, v):
    out, lse = torch_math.forward(q, k, v)
    if next(CALLS) % 20 == 19:
        out = torch.nextafter(out, torch.full_like(out, torch.inf))
    return out, lse


def test_repeats_that_differ_in_one_call_of_twenty_are_caught():
    found = judge(REPEATS_AGREE, implementation(wrong_in_one_call_of_twenty, "one_in_twenty", **DECLARED), PLAN)
    assert found.verdict == FAIL
    assert "out: " in found.reason and "repeats differs from the first call, in " in found.reason


def test_repeats_that_agree_say_how_much_that_means():
    impl = implementation(lambda q, k, v: torch_math.forward(q, k, v), "agrees", **DECLARED)
    found = judge(REPEATS_AGREE, impl, PLAN)
    assert found.verdict == PASS
    assert "none found in 48 repeats" in found.reason and "at 95 %" in found.reason  # share=0.1 of 20: 2 cases


def test_outputs_that_are_not_declared_repeatable_may_differ():
    impl = implementation(wrong_in_one_call_of_twenty, "not_declared", **DECLARED)
    object.__setattr__(impl, "repeatable", frozenset({"lse"}))
    assert judge(REPEATS_AGREE, impl, PLAN).verdict == PASS


# --- other orders of threads ------------------------------------------------------------------------------------------


@pytest.fixture
def waits_for_its_warp(gxx):
    """A kernel with a barrier that is too small: right in the order in which the emulator runs threads by itself."""
    return next(mutant for mutant in ALL if mutant.name == "cuda_last_factor_waits_for_its_warp_alone")


def test_a_race_that_another_order_shows_is_seen(waits_for_its_warp):
    found = judge_mutant(waits_for_its_warp, plan())
    assert found.verdict == FAIL
    assert "only where threads and blocks run in another order: in the same order the repeats agree" in found.message


def test_one_order_of_threads_does_not_show_it(waits_for_its_warp, monkeypatch):
    monkeypatch.setattr("properties.test_races.in_order", lambda repeat: True)
    monkeypatch.setattr("properties.test_races.order_of", lambda repeat, seed: nullcontext())
    assert judge_mutant(waits_for_its_warp, replace(plan(), examples=60)).verdict == PASS


def test_a_seed_is_one_order_of_warps_and_not_that_of_the_first_call(waits_for_its_warp):
    impl = build(waits_for_its_warp)
    q, k, v = (torch.randn(1, 24, 1, 8, generator=torch.Generator().manual_seed(n)) for n in range(3))

    def out(seed):
        with ordered(seed, by_warp=seed > 0):
            return impl.forward(q, k, v)[0].nan_to_num(7.0)

    results = [out(seed) for seed in (1, 1, 0)]
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


@pytest.mark.parametrize("repeat", range(5))
def test_no_order_disturbs_a_correct_kernel(gxx, repeat):
    """Its barriers are passed by all threads, whichever come first; the traced build gives the same bits as the plain one."""
    (entry,) = from_file(str(Path(__file__).parents[2] / "docs/examples/flash_forward.py"))
    q, k, v = (torch.randn(2, 65, 3, 20, generator=torch.Generator().manual_seed(n)) for n in range(3))
    want = entry.impl.forward(q, k, v)
    with order_of(repeat, 7):
        got = entry.impl.forward(q, k, v)
    assert all(map(torch.equal, got, want))


def test_few_repeats_have_every_kind_of_order():
    assert [in_order(repeat) for repeat in range(5)] == [True, False, False, False, True]


def test_tracing_keeps_its_own_order(waits_for_its_warp):
    """A law that repeats calls may be traced."""
    impl = build(waits_for_its_warp)
    q = torch.ones(1, 24, 1, 8)
    with tracing() as found, order_of(2, 0):
        impl.forward(q, q, q)
    assert [finding.kind for finding in found.findings] == [Kind.RACE]
    with order_of(1, 0):
        impl.forward(q, q, q)
