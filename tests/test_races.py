"""Repeating and poisoning see what they are there to see, and change nothing else."""

import itertools
from contextlib import suppress

import pytest
import torch

from impls import Implementation, Supports, torch_math
from properties.judge import judge
from properties.plan import Plan
from properties.test_memory import test_what_memory_held_before_does_not_matter as memory_law
from properties.test_races import test_repeats_agree as repeats_law
from properties.verdict import FAIL, PASS
from races.poison import PATTERNS, fill_bytes, leave_behind, poisoned
from races.repeat import compare_repeats

# The two laws are called through .law; as tests they belong to properties/.
REPEATS_AGREE, MEMORY_HELD_BEFORE = repeats_law.law, memory_law.law
del repeats_law, memory_law

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64, *HALVES)


pytestmark = pytest.mark.usefixtures("one_thread")


def no_disturbance(repeat: int) -> None:
    pass


def scripted(*results: dict[str, torch.Tensor]):
    """A call that gives these results one after another, the last one for ever."""
    left = list(results)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


# --- compare_repeats -----------------------------------------------------------------------------------------------------

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
    """An implementation may give back the same buffer each time."""
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


# --- poison --------------------------------------------------------------------------------------------------------------

LIKE = torch.zeros(5, 7)
WAYS = {
    "empty": lambda dtype: torch.empty(5, 7, dtype=dtype),
    "empty_of_a_tuple": lambda dtype: torch.empty((5, 7), dtype=dtype),
    "empty_like": lambda dtype: torch.empty_like(LIKE, dtype=dtype),
    "new_empty": lambda dtype: LIKE.new_empty(5, 7, dtype=dtype),
    "empty_strided": lambda dtype: torch.empty_strided((5, 7), (7, 1), dtype=dtype),
    "new_empty_strided": lambda dtype: LIKE.new_empty_strided((5, 7), (1, 5), dtype=dtype),
    "empty_of_a_transposed_tensor": lambda dtype: torch.empty_like(LIKE.T, dtype=dtype),
    "channels_last": lambda dtype: torch.empty(1, 5, 7, 1, dtype=dtype, memory_format=torch.channels_last),
}
each_way = pytest.mark.parametrize("way", WAYS)


@each_way
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fresh_memory_is_nan_with_all_bits_set(way, dtype):
    with poisoned(0xFF, "cpu", []):
        made = WAYS[way](dtype)
    assert made.dtype == dtype and made.isnan().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fresh_memory_cannot_pass_for_a_result(dtype):
    """0x7F in every byte is NaN in float16, and 3.4e38 or more elsewhere: what survives a max or a comparison with NaN."""
    with poisoned(0x7F, "cpu", []):
        made = torch.empty(9, dtype=dtype)
    assert (made.isnan() | (made > 1e38)).all()


def test_the_patterns_are_something_nan_and_zero():
    assert PATTERNS == (0x7F, 0xFF, 0x00)


@each_way
def test_fresh_memory_is_zero_for_that_pattern(way):
    with poisoned(0x00, "cpu", []):
        made = WAYS[way](torch.float32)
    assert (made == 0).all()


@pytest.mark.parametrize("devices", [None, "cpu"])
def test_fresh_memory_inside_a_custom_op_is_reached(devices):
    """Its implementation, and what that calls in turn, runs where a dispatch mode is off otherwise."""
    name = f"flash_attest_tests::fresh_{devices}".lower()

    @torch.library.custom_op(name, mutates_args=(), device_types=devices)
    def fresh(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(100)

    @torch.library.custom_op(f"{name}_twice", mutates_args=(), device_types=devices)
    def twice(x: torch.Tensor) -> list[torch.Tensor]:
        return [fresh(x), torch.empty_like(x)]

    fresh.register_autograd(lambda ctx, grad: torch.zeros_like(ctx.x), setup_context=_keep_first)
    x = torch.ones(3, requires_grad=True)
    with poisoned(0xFF, "cpu", []):
        made = [fresh(x), *twice(x)]
        assert fresh(x).requires_grad
    assert all(tensor.isnan().all() for tensor in made)
    assert fresh(x).shape == (100,)


def _keep_first(ctx, inputs, output):
    ctx.x = inputs[0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool], ids=str)
def test_whole_numbers_are_left_alone(dtype):
    """They hold indices and counters: a wild index would crash where a wild value shows."""
    with poisoned(0x7F, "cpu", []):
        made = torch.empty_like(torch.zeros(1000, dtype=dtype)).zero_()
        kept = torch.zeros(1000, dtype=dtype)
    assert not made.any() and not kept.any()


def test_a_fill_of_whole_numbers_is_never_made(monkeypatch):
    filled = []
    monkeypatch.setattr("races.poison.fill_bytes", lambda tensor, pattern: filled.append(tensor.dtype))
    with poisoned(0x7F, "cpu", []):
        torch.empty(3, dtype=torch.int64)
        torch.empty(3)
    assert filled == [torch.float32]


def test_memory_with_contents_keeps_them():
    with poisoned(0xFF, "cpu", []):
        made = [torch.zeros(3), torch.ones(3), torch.full((3,), 2.0), torch.arange(3.0), torch.tensor([1.0]), ZERO * 1]
        made += [torch.zeros_like(ZERO), ZERO.clone(), ZERO.new_zeros(3), ZERO.contiguous(), torch.cat([ZERO, ZERO])]
    assert not any(tensor.isnan().any() for tensor in made)


def test_results_are_the_same_inside():
    q, k, v = (torch.randn(2, 9, 3, 8, generator=torch.Generator().manual_seed(n)) for n in range(3))
    want = torch_math.forward(q, k, v, causal=True)
    for pattern in PATTERNS:
        with poisoned(pattern, "cpu", [q.numel() * 4]):
            got = torch_math.forward(q, k, v, causal=True)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_gradients_are_the_same_inside():
    q = torch.randn(1, 9, 1, 8).requires_grad_()
    want = torch.autograd.grad(torch_math.forward(q, q, q)[0].sum(), q)[0]
    with poisoned(0xFF, "cpu", []):
        got = torch.autograd.grad(torch_math.forward(q, q, q)[0].sum(), q)[0]
    assert torch.equal(got, want)


@pytest.mark.parametrize("raises", [False, True])
def test_nothing_is_poisoned_afterwards(raises, monkeypatch):
    filled = []
    with suppress(ZeroDivisionError), poisoned(0xFF, "cpu", []):
        monkeypatch.setattr("races.poison.fill_bytes", lambda tensor, pattern: filled.append(tensor))
        torch.empty(3)
        1 / (not raises)
    torch.empty(3)
    assert len(filled) == 1


def test_the_inner_of_two_patterns_is_fresh_memory():
    with poisoned(0xFF, "cpu", []):
        with poisoned(0x00, "cpu", []):
            inner = torch.empty(9)
        outer = torch.empty(9)
    assert outer.isnan().all() and (inner == 0).all()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("pattern", PATTERNS, ids=hex)
def test_every_byte_is_filled(dtype, pattern):
    tensor = torch.zeros(9, dtype=dtype)
    fill_bytes(tensor, pattern)
    assert set(tensor.view(torch.uint8).tolist()) == {pattern}


def test_a_part_is_filled_without_its_neighbours():
    whole = torch.zeros(4, 4)
    fill_bytes(whole[:, 1:3], 0xFF)
    assert whole.isnan().sum() == 8 and not whole[:, [0, 3]].isnan().any()


def test_freed_blocks_of_any_size_may_be_left_behind():
    for nbytes in ([], [0], [1], [3, 4096]):
        leave_behind(0x7F, "cpu", nbytes)


# --- the laws ------------------------------------------------------------------------------------------------------------

PLAN = Plan(examples=20, repeats=24)


def implementation(forward, name: str) -> Implementation:
    """Each has its own name and is kept, as verdicts on the contract are."""
    return Implementation(
        name=name,
        forward=forward,
        supports=Supports(dtypes={torch.float32}, headdims={8}),
        lse="natural",
        tile=(16, 16),
    )


CALLS = itertools.count()


def wrong_in_one_call_of_twenty(q, k, v):
    out, lse = torch_math.forward(q, k, v)
    if next(CALLS) % 20 == 19:
        out = torch.nextafter(out, torch.full_like(out, torch.inf))
    return out, lse


def last_column_is_never_written(q, k, v):
    out, lse = torch_math.forward(q, k, v)
    fresh = torch.empty_like(out)
    fresh[..., :-1] = out[..., :-1]
    return fresh, lse


def scratch_is_taken_for_clean(q, k, v):
    out, lse = torch_math.forward(q, k, v)
    return torch.empty_like(out).mul_(0.0).add_(out), lse  # 0 * NaN is NaN


def test_repeats_that_differ_in_one_call_of_twenty_are_caught():
    found = judge(REPEATS_AGREE, implementation(wrong_in_one_call_of_twenty, "one_in_twenty"), PLAN)
    assert found.verdict == FAIL
    assert "out: " in found.reason and "repeats differs from the first call, in " in found.reason


def test_repeats_that_agree_say_how_much_that_means():
    found = judge(REPEATS_AGREE, implementation(lambda q, k, v: torch_math.forward(q, k, v), "agrees"), PLAN)
    assert found.verdict == PASS
    assert "none found in 48 repeats" in found.reason and "at 95 %" in found.reason  # share=0.1 of 20: 2 cases


def test_outputs_that_are_not_declared_repeatable_may_differ():
    impl = implementation(wrong_in_one_call_of_twenty, "not_declared")
    object.__setattr__(impl, "repeatable", frozenset({"lse"}))
    assert judge(REPEATS_AGREE, impl, PLAN).verdict == PASS


@pytest.mark.parametrize("forward", [last_column_is_never_written, scratch_is_taken_for_clean])
def test_unwritten_memory_is_caught(forward):
    found = judge(MEMORY_HELD_BEFORE, implementation(forward, forward.__name__), PLAN)
    assert found.verdict == FAIL and "out[" in found.reason


def test_clean_scratch_is_no_failure():
    def forward(q, k, v):
        out, lse = torch_math.forward(q, k, v)
        return torch.zeros_like(out).mul_(0.0).add_(out), lse

    assert judge(MEMORY_HELD_BEFORE, implementation(forward, "clean"), PLAN).verdict == PASS
