"""Poison reaches all fresh memory and no other memory, so the law notices elements that are not
written.
"""

from contextlib import suppress

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.races.poison import PATTERNS, fill_bytes, leave_behind, poisoned
from tests.trials import implementation

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ZERO = torch.zeros(4)


# --- fresh memory ---------------------------------------------------------------------------------

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
        result = WAYS[way](dtype)
    assert result.dtype == dtype and result.isnan().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fresh_memory_cannot_pass_for_a_result(dtype):
    """0x7F in every byte is NaN in float16, and 3.4e38 or more in other dtypes, so it survives a
    max.
    """
    with poisoned(0x7F, "cpu", []):
        result = torch.empty(9, dtype=dtype)
    assert (result.isnan() | (result > 1e38)).all()


def test_the_patterns_are_something_nan_and_zero():
    assert PATTERNS == (0x7F, 0xFF, 0x00)


@each_way
def test_fresh_memory_is_zero_for_that_pattern(way):
    with poisoned(0x00, "cpu", []):
        result = WAYS[way](torch.float32)
    assert (result == 0).all()


@pytest.mark.parametrize("devices", [None, "cpu"])
def test_fresh_memory_inside_a_custom_op_is_reached(devices):
    """A plain dispatch mode is off in the op's implementation and in functions that it calls."""
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
        result = [fresh(x), *twice(x)]
        assert fresh(x).requires_grad
    assert all(tensor.isnan().all() for tensor in result)
    assert fresh(x).shape == (100,)


def _keep_first(ctx, inputs, output):
    ctx.x = inputs[0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool], ids=str)
def test_whole_numbers_are_left_alone(dtype):
    """Whole numbers hold indices and counters, and a poisoned index would crash."""
    with poisoned(0x7F, "cpu", []):
        result = torch.empty_like(torch.zeros(1000, dtype=dtype)).zero_()
        zeros = torch.zeros(1000, dtype=dtype)
    assert not result.any() and not zeros.any()


def test_a_fill_of_whole_numbers_is_never_made(monkeypatch):
    filled = []
    monkeypatch.setattr("flash_attest.races.poison.fill_bytes", lambda tensor, pattern: filled.append(tensor.dtype))
    with poisoned(0x7F, "cpu", []):
        torch.empty(3, dtype=torch.int64)
        torch.empty(3)
    assert filled == [torch.float32]


def test_memory_with_contents_keeps_them():
    with poisoned(0xFF, "cpu", []):
        result = [
            torch.zeros(3),
            torch.ones(3),
            torch.full((3,), 2.0),
            torch.arange(3.0),
            torch.tensor([1.0]),
            ZERO * 1,
        ]
        result += [torch.zeros_like(ZERO), ZERO.clone(), ZERO.new_zeros(3), ZERO.contiguous(), torch.cat([ZERO, ZERO])]
    assert not any(tensor.isnan().any() for tensor in result)


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
        monkeypatch.setattr("flash_attest.races.poison.fill_bytes", lambda tensor, pattern: filled.append(tensor))
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


# --- the law --------------------------------------------------------------------------------------

MEMORY_HELD_BEFORE = laws()["test_what_memory_held_before_does_not_matter"]
PLAN = Plan(examples=20)
DECLARED = dict(lse="natural", tile=(16, 16))


def last_column_is_never_written(q, k, v):
    out, lse = torch_math.forward(q, k, v)
    fresh = torch.empty_like(out)
    fresh[..., :-1] = out[..., :-1]
    return fresh, lse


def scratch_is_taken_for_clean(q, k, v):
    out, lse = torch_math.forward(q, k, v)
    return torch.empty_like(out).mul_(0.0).add_(out), lse  # 0 * NaN is NaN


@pytest.mark.parametrize("forward", [last_column_is_never_written, scratch_is_taken_for_clean])
def test_unwritten_memory_is_caught(forward):
    result = judge(MEMORY_HELD_BEFORE, implementation(forward, forward.__name__, **DECLARED), PLAN)
    assert result.verdict == FAIL and "out[" in result.reason


def test_clean_scratch_is_no_failure():
    def forward(q, k, v):
        out, lse = torch_math.forward(q, k, v)
        return torch.zeros_like(out).mul_(0.0).add_(out), lse

    assert judge(MEMORY_HELD_BEFORE, implementation(forward, "clean", **DECLARED), PLAN).verdict == PASS
