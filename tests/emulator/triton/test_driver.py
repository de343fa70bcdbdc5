"""Triton's launches on the emulator: arguments of kernels, the chosen configuration, refusals,
names in errors.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.ptx.module import PtxError
from flash_attest.emulator.triton import activate
from flash_attest.races.sanitizer.copied import triton_kernels
from flash_attest.races.tracing import trace

activate()


def draws(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


# ---- values --------------------------------------------------------------------------------------


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("n", (1, 16, 1000))  # 1 is compiled in, 16 is passed as a multiple of 16
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32), ids=str)
def test_vectors_are_added(n, dtype):
    x, y, out = (draws(n) * 9).to(dtype), (draws(n) * 9).to(dtype), torch.full((n + 9,), 7, dtype=dtype)
    add[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    assert torch.equal(out[:n], x + y) and (out[n:] == 7).all()


def test_a_kernel_is_known_by_its_name():
    """The name tells copies of a value from the races that racecheck reports."""
    add[(1,)](x := draws(16), x, x, 16, BLOCK=256)
    assert "add" in triton_kernels()


@triton.jit
def matmul(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    i, j, l = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        left = tl.load(a + i[:, None] * k + (first + l)[None, :], mask=i[:, None] < m, other=0.0)
        right = tl.load(b + (first + l)[:, None] * n + j[None, :], mask=j[None, :] < n, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(out + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


@pytest.mark.parametrize("stages", (1, 3))
@pytest.mark.parametrize(
    ("dtype", "precision", "error"),
    [
        pytest.param(torch.float16, "ieee", 2**-15, id="float16"),
        pytest.param(torch.bfloat16, "ieee", 2**-15, id="bfloat16"),
        pytest.param(torch.float32, "ieee", 2**-15, id="float32"),
        pytest.param(torch.float32, "tf32", 2**-6, id="tf32"),
    ],
)
def test_products_in_a_pipelined_loop_are_right_and_without_a_race(dtype, precision, error, stages):
    """Products of halves are exact in float32; tf32 cuts 13 bits of each operand."""
    a, b, out = draws(50, 128, dtype=dtype), draws(128, 48, dtype=dtype), torch.empty(50, 48)
    sizes = dict(M=32, N=32, K=32, PRECISION=precision, num_stages=stages)
    assert trace(lambda: matmul[(2, 2)](a, b, out, 50, 48, 128, **sizes)) == []
    want = a.double() @ b.double()
    assert (out - want).abs().max() < error * (a.double().abs() @ b.double().abs()).max()
    again = torch.empty_like(out)
    matmul[(2, 2)](a, b, again, 50, 48, 128, **sizes)
    assert torch.equal(out, again)
    copies = "cp.async" in list(matmul.device_caches[0][0].values())[-1].asm["ptx"]
    assert copies == (stages > 1)


@triton.jit
def histogram(x, out, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + value, 1, mask=i < n)
    tl.atomic_max(total, tl.max(value, 0))


def test_atomics_of_many_programs():
    x = torch.randint(0, 9, (1000,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    out, largest = torch.zeros(9, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    assert trace(lambda: histogram[(8,)](x, out, largest, 1000, 128)) == []
    assert torch.equal(out, torch.bincount(x, minlength=9).int()) and largest == x.max()


# ---- arguments -----------------------------------------------------------------------------------


class Sizes(NamedTuple):
    rows: int
    columns: int


@triton.jit
def fill(out, nothing, sizes, pair, wide, scale, half, flag, EACH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = pair[0] + pair[1][0] * scale + half + tl.where(wide > 2**40, 100.0, 0.0) + EACH[1]
    if flag:
        value += 1000.0
    if nothing is None:
        tl.store(out + i, value + tl.zeros((BLOCK,), tl.float32), mask=i < sizes.rows * sizes.columns)


@pytest.mark.parametrize("flag", (True, False))
def test_tuples_numbers_and_none(flag):
    """Elements of a tuple that are 1 are compiled in, and so are tuples of constants; None is not
    passed.
    """
    out = torch.zeros(128)
    fill[(1,)](out, None, Sizes(1, 100), (3, (7, 2)), 2**41, 0.5, 0.25, flag, EACH=(5, 6), BLOCK=128)
    assert (out[:100] == 3 + 3.5 + 0.25 + 100 + 6 + 1000 * flag).all() and (out[100:] == 0).all()


@triton.jit
def take(described, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, described.load([M, 0]))


def test_a_tensor_descriptor_is_read_through_its_pointer():
    x, out = draws(40, 20), torch.full((16, 16), 9.0)
    take[(1,)](TensorDescriptor.from_tensor(x, [16, 16]), out, 16, 16)
    assert torch.equal(out, x[16:32, :16])
    take[(1,)](TensorDescriptor.from_tensor(x[:20], [16, 16]), out, 16, 16)
    assert torch.equal(out[:4], x[16:20, :16]) and (out[4:] == 0).all()


@triton.jit
def through(addresses, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(addresses + i).to(tl.float32))


def test_a_reinterpreted_tensor_is_its_memory():
    x, out = torch.tensor([1.0, -2.0]).half().repeat(64), torch.zeros(128)
    through[(1,)](triton.reinterpret(x.view(torch.int16), tl.float16), out, 128)
    assert torch.equal(out, x.float())


def test_no_programs_are_no_launch():
    add[(0,)](draws(4), draws(4), torch.empty(4), 4, BLOCK=128)


# ---- the chosen configuration --------------------------------------------------------------------

TRIED = []


def noted(arguments):
    TRIED.append(arguments["BLOCK"])
    return (1,)


@triton.autotune([triton.Config({"BLOCK": n}) for n in (2**21, 64, 128)], key=["n"], reset_to_zero=["out"])
@triton.jit
def accumulate(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_the_first_configuration_that_can_be_compiled_is_chosen():
    """A block of 2**21 is too large for Triton; the block of 128 is not even tried."""
    x, out = draws(50), torch.zeros(50)
    with pytest.raises(Exception, match="1048576"):
        accumulate.fn[(1,)](x, out, 50, BLOCK=2**21)
    accumulate.configs = accumulate.configs[1:]
    accumulate[noted](x, out, 50)
    assert torch.equal(out, x) and accumulate.best_config.kwargs == {"BLOCK": 64} and set(TRIED) == {64}
    accumulate[noted](x, out.zero_(), 51)  # another key is tuned again
    assert set(TRIED) == {64} and len(accumulate.cache) == 2


@triton.autotune([triton.Config({}, num_stages=n) for n in (8, 2)], key=["n"])
@triton.jit
def tuned(a, b, out, n, k, SIZE: tl.constexpr):
    i, j = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for first in range(0, k, SIZE):
        total = tl.dot(tl.load(a + i * k + first + j), tl.load(b + (first + i) * SIZE + j), total)
    tl.store(out + i * SIZE + j, total)


def test_a_configuration_beyond_the_shared_memory_is_passed_over():
    a, b, out = draws(64, 256, dtype=torch.float16), draws(256, 64, dtype=torch.float16), torch.empty(64, 64)
    with pytest.raises(triton.OutOfResources, match=r"Required: \d{6}, Hardware limit: 166912"):
        tuned.fn[(1,)](a, b, out, 64, 256, 64, num_stages=16)
    tuned.configs[0].num_stages = 16
    tuned[(1,)](a, b, out, 64, 256, 64)
    assert tuned.best_config.num_stages == 2
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-4, atol=1e-3)


def test_times_can_be_taken():
    x = draws(64)
    assert triton.testing.do_bench(lambda: add[(1,)](x, x, x, 64, BLOCK=64), warmup=1, rep=1) > 0


def test_properties_are_those_of_the_target():
    driver = triton.runtime.driver.active
    assert driver.get_current_target().arch == 80 and driver.get_active_torch_device() == torch.device("cpu")
    assert driver.utils.get_device_properties(0)["max_shared_mem"] == 163 * 1024


def test_guards_of_the_current_device_do_nothing_for_a_cpu_tensor():
    x = draws(64)
    with torch.cuda.device_of(x):
        add[(1,)](x, x, x, 64, BLOCK=64)


# ---- refusals and errors -------------------------------------------------------------------------


@pytest.mark.parametrize("option", (dict(num_ctas=2), dict(launch_cooperative_grid=True)), ids=str)
def test_what_the_target_cannot_do_is_refused(option):
    x = draws(64)
    ((name, value),) = option.items()
    with pytest.raises(
        NotCovered, match=rf"{name}={value}: (there are no clusters on sm_80|should be False on the CPU)"
    ):
        add[(1,)](x, x, x, 64, BLOCK=64, **option)


@triton.jit
def printing(x, BLOCK: tl.constexpr):
    tl.device_print("x", tl.load(x + tl.arange(0, BLOCK)))


def test_device_print_prints(capfd):
    printing[(1,)](torch.arange(64.0), 64)
    lines = capfd.readouterr().out.splitlines()
    assert {line.split("x: ")[1] for line in lines} == {f"{i:f}" for i in range(64)}


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(out + i, 2 * value, mask=i < n)


def test_a_read_outside_is_named_by_tensor_and_python_line():
    x, out = draws(100), torch.zeros(128)
    (finding,) = trace(lambda: doubled[(1,)](x, out, 100, 128))
    line = doubled.starting_line_number + 3
    assert finding.headline.startswith("outside: ") and f"test_driver.py:{line}" in finding.headline
    assert "past the end of x, whose shape is (100,)" in str(finding) and "value = tl.load(x + i)" in str(finding)


def test_a_write_outside_raises_in_plain_mode():
    with pytest.raises(PtxError, match=r"doubled .*writes outside of its tensors: .* past the end of out"):
        doubled[(1,)](draws(128), torch.zeros(100), 128, 128)


@triton.jit(debug=True)
def positive(x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(value > 0, "should be positive")


def test_a_failed_assertion_is_a_trap_at_its_line():
    positive[(1,)](torch.ones(64), 64)
    with pytest.raises(PtxError, match=rf"test_driver.py:{positive.starting_line_number + 3}"):
        positive[(1,)](torch.zeros(64), 64)


def test_a_tensor_elsewhere_is_named():
    x = draws(64)
    with pytest.raises(ValueError, match="add: y is on meta: should be on the CPU"):
        add[(1,)](x, x.to("meta"), x, 64, BLOCK=64)
