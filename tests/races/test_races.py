"""Repeats find differences between calls, or give a bound on the probability of unseen ones."""

import itertools
import re
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch

from flash_attest.emulator.observation import Kind
from flash_attest.emulator.runtime.watch import ordered
from flash_attest.impls import torch_math
from flash_attest.impls.contract.loading import from_file
from flash_attest.mutants import ALL
from flash_attest.mutants.judging import judge_mutant, plan
from flash_attest.mutants.mutant import build
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.races.perturb import Perturbation, Setting, chosen
from flash_attest.races.perturb.order import ORDER
from flash_attest.races.repeat import bound, compare_repeats
from flash_attest.races.tracing import tracing
from tests.places import ROOT
from tests.trials import implementation

REPEATS_AGREE = laws()["test_repeats_agree"]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def scripted(*results: dict[str, torch.Tensor]):
    """Return a call that returns these results one after another, and then the last one forever."""
    remaining = list(results)
    return lambda handed: remaining.pop(0) if len(remaining) > 1 else remaining[0]


# --- compare_repeats ------------------------------------------------------------------------------

ZERO, ONE = torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 0.0])


def test_equal_repeats_show_nothing():
    result = compare_repeats(lambda handed: {"out": ZERO.clone()}, 10)
    assert (result.n, result.differing, result.elements) == (10, {}, {}) and torch.equal(result.first["out"], ZERO)


@pytest.mark.parametrize("when", [1, 5, 10])
def test_one_repeat_in_ten_that_differs_is_counted(when):
    calls = [{"out": ZERO}] * when + [{"out": ONE}] + [{"out": ZERO}] * (10 - when)
    result = compare_repeats(scripted(*calls), 10)
    assert result.differing == {"out": 1} and result.elements["out"].tolist() == [0, 1, 0, 0]


def test_a_wrong_first_call_differs_from_all_repeats():
    result = compare_repeats(scripted({"out": ONE}, {"out": ZERO}), 10)
    assert result.differing == {"out": 10} and torch.equal(result.first["out"], ONE)


def test_each_output_is_counted_by_itself():
    both = {"out": ZERO, "lse": ZERO, "dq": ZERO}
    calls = [both, both | {"out": ONE}, both | {"out": ONE, "lse": ONE.flip(0)}, both]
    result = compare_repeats(scripted(*calls), 3)
    assert result.differing == {"out": 2, "lse": 1}
    assert result.elements["out"].tolist() == [0, 2, 0, 0] and result.elements["lse"].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_bit_is_a_difference(dtype):
    one = torch.ones(3, dtype=dtype)
    next_one = one.clone()
    next_one[2] += torch.finfo(dtype).eps
    result = compare_repeats(scripted({"out": one}, {"out": next_one}), 1)
    assert result.elements["out"].tolist() == [0, 0, 1]


def test_the_sign_of_zero_is_a_difference():
    result = compare_repeats(scripted({"out": ZERO}, {"out": -ZERO}), 1)
    assert result.differing == {"out": 1}


def test_nan_equals_itself():
    result = compare_repeats(lambda handed: {"out": torch.full((3,), torch.nan)}, 5)
    assert result.differing == {}


def test_a_result_that_is_written_again_is_compared_with_what_it_was():
    """An implementation may return the same buffer each time."""
    buffer = torch.zeros(3)

    def call(handed):
        return {"out": buffer.add_(1)}

    result = compare_repeats(call, 4)
    assert result.differing == {"out": 4} and result.first["out"].tolist() == [1, 1, 1]


def test_results_may_be_strided():
    result = compare_repeats(scripted({"out": ZERO.view(2, 2).T}, {"out": ONE.view(2, 2).T}), 1)
    assert result.elements["out"].tolist() == [[0, 0], [1, 0]]


def test_empty_results_do_not_differ():
    result = compare_repeats(lambda handed: {"out": torch.empty(2, 0, 3)}, 2)
    assert result.differing == {}


@pytest.mark.parametrize(("n", "p"), [(0, 1.0), (1, 1.0), (3, 1.0), (100, 0.03), (300, 0.01)])
def test_the_bound_is_three_over_n(n, p):
    assert bound(n) == p


def test_the_first_launch_is_not_perturbed_and_each_repeat_is_one_launch():
    events = []
    noted = Perturbation("noted", "", lambda setting: noting(events, setting), frozenset({"cpu"}))
    result = compare_repeats(lambda handed: events.append("launch") or {}, 40, [noted])
    assert events[0] == "launch" and events.count("launch") == 41
    runs = [repeat for repeat, names in enumerate(result.under) if names]
    assert [e for e in events if e != "launch"] == [word for repeat in runs for word in (repeat, "over")]


@contextmanager
def noting(events, setting):
    events.append(setting.repeat)
    yield
    events.append("over")


def moves_inputs(setting):
    setting.handed["x"] = setting.handed["x"] + 1
    return nullcontext()


def test_a_difference_is_recorded_with_the_perturbations_that_it_had():
    """The inputs that a perturbation replaces are replaced for one launch only."""
    moved = Perturbation("moved", "", moves_inputs, frozenset({"cpu"}))
    setting = Setting("cpu", 0, 5, handed={"x": ZERO})
    result = compare_repeats(
        lambda handed: {"out": handed["x"].clone()}, 60, [moved, chosen("poison", "cpu")[0]], setting
    )
    assert result.which["out"] == [repeat for repeat, names in enumerate(result.under) if "moved" in names]
    assert result.only_under("out") == ["moved"] and result.largest == {"out": 1.0}
    table = {name: row for name, *row in result.by_perturbation("out")}
    alone, of_alone, beside, of_beside = table["moved"]
    assert alone == of_alone > 0 and beside == of_beside > 0 and table["none"][0] == 0 < table["none"][1]
    assert table["poison"][0] == 0 and table["poison"][2] == beside


def test_what_one_differing_repeat_has_is_not_called_a_cause():
    result = compare_repeats(scripted(*[{"out": ZERO}] * 2, {"out": ONE}, {"out": ZERO}), 12, chosen("", "cpu"))
    assert result.differing == {"out": 1} and result.only_under("out") == []


def test_outputs_that_may_differ_keep_their_least_and_largest_values():
    calls = [{"out": ZERO, "dq": t} for t in (ONE, -ONE, ZERO)]
    result = compare_repeats(scripted(*calls), 2, inexact=lambda name: name == "dq")
    least, most = result.between["dq"]
    assert least.tolist() == [0, -1, 0, 0] and most.tolist() == [0, 1, 0, 0] and set(result.between) == {"dq"}


# --- the law --------------------------------------------------------------------------------------

PLAN = Plan(examples=20, repeats=24)
DECLARED = dict(lse="natural", tile=(16, 16))
CALLS = itertools.count()


def wrong_in_one_call_of_twenty(q, k, v):
    out, lse = torch_math.forward(q, k, v)
    if next(CALLS) % 20 == 19:
        out = torch.nextafter(out, torch.full_like(out, torch.inf))
    return out, lse


def test_repeats_that_differ_in_one_call_of_twenty_are_caught():
    result = judge(REPEATS_AGREE, implementation(wrong_in_one_call_of_twenty, "one_in_twenty", **DECLARED), PLAN)
    assert result.verdict == FAIL
    assert re.search(r"out: .* repeats differs? from the first call, in ", result.reason)


def test_repeats_that_agree_say_how_much_that_means():
    impl = implementation(lambda q, k, v: torch_math.forward(q, k, v), "agrees", **DECLARED)
    result = judge(REPEATS_AGREE, impl, PLAN)
    assert result.verdict == PASS
    # A share of 0.1 of 20 examples is 2 cases
    assert "none found in 48 repeats of 2 cases under other_case, poison: p < 0.12 for each at 95 %" in result.reason
    assert "under these perturbations; not traced: a race need not change a result" in result.reason


def test_perturbations_are_chosen_by_the_plan():
    impl = implementation(lambda q, k, v: torch_math.forward(q, k, v), "agrees", **DECLARED)
    result = judge(REPEATS_AGREE, impl, replace(PLAN, perturbations="none"))
    assert "2 cases under no perturbation: p < 0.12 for each at 95 %; not traced" in result.reason


def test_a_pass_names_the_perturbations_that_were_active():
    """This seed gives one of the two repeats no perturbation, and the other poison."""
    impl = implementation(lambda q, k, v: torch_math.forward(q, k, v), "agrees", **DECLARED)
    case = parse_case("seqlen_q=24 seqlen_k=24 headdim=8 dtype=float32 seed=4")
    assert " under poison: p < " in judge(REPEATS_AGREE, impl, replace(PLAN, repeats=2, case=case)).reason


def test_a_failure_names_the_perturbation_and_repeats_it():
    """The implementation is right as long as the same call is repeated."""
    memory = {}

    def forward(q, k, v):
        out, lse = torch_math.forward(q, k, v)
        before, memory["out"] = memory.get("out", out), out
        return before if before.shape == out.shape else out, lse

    impl = implementation(forward, "late", **DECLARED)
    result = judge(REPEATS_AGREE, impl, replace(PLAN, perturbations="poison, other_case", repeats=40))
    assert result.verdict == FAIL and "only under other_case: the other repeats agree" in result.message
    assert "--perturb 'poison, other_case' --case" in result.replay and result.replay in result.message
    assert judge(REPEATS_AGREE, impl, replace(PLAN, perturbations="poison")).verdict == PASS


def test_outputs_that_are_not_declared_repeatable_may_differ():
    impl = implementation(wrong_in_one_call_of_twenty, "not_declared", **DECLARED)
    object.__setattr__(impl, "repeatable", frozenset({"lse"}))
    assert judge(REPEATS_AGREE, impl, PLAN).verdict == PASS


# --- other orders of threads ----------------------------------------------------------------------


@pytest.fixture
def waits_for_its_warp(gxx):
    """A kernel whose barrier covers too few threads. It is right in the emulator's default order of
    threads.
    """
    return next(mutant for mutant in ALL if mutant.name == "cuda_last_factor_waits_for_its_warp_alone")


def test_a_race_that_another_order_shows_is_seen(waits_for_its_warp):
    result = judge_mutant(waits_for_its_warp, plan())
    assert result.verdict == FAIL and "  order  " in result.message


def test_one_order_of_threads_does_not_show_it(waits_for_its_warp):
    how = replace(plan(), examples=60, perturbations="poison,other_case")
    assert judge_mutant(waits_for_its_warp, how).verdict == PASS


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
    """The kernel's barriers allow any order of threads; the traced build gives the same bits as the
    plain one.
    """
    (entry,) = from_file(str(ROOT / "examples/flash_forward.py"))
    q, k, v = (torch.randn(2, 65, 3, 20, generator=torch.Generator().manual_seed(n)) for n in range(3))
    want = entry.impl.forward(q, k, v)
    with ORDER.applied(Setting("cpu", repeat, 7)):
        got = entry.impl.forward(q, k, v)
    assert all(map(torch.equal, got, want))


def test_tracing_keeps_its_own_order(waits_for_its_warp):
    """A law that repeats calls may be traced."""
    impl = build(waits_for_its_warp)
    q = torch.ones(1, 24, 1, 8)
    with tracing() as result, ORDER.applied(Setting("cpu", 2, 0)):
        impl.forward(q, q, q)
    assert [finding.kind for finding in result.findings] == [Kind.RACE]
    with ORDER.applied(Setting("cpu", 1, 0)):
        impl.forward(q, q, q)
