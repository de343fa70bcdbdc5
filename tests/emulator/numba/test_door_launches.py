"""Launches: their limits, the options of @cuda.jit, exceptions, the text of findings, refusals."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from numba import cuda, float32, int32
from numba.cuda.cudadrv import driver

from flash_attest.emulator.devices import emulated
from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.ptx.module import PtxError
from flash_attest.races.tracing import trace

HERE = Path(__file__).name
MAX_SHARED = emulated().max_shared


def line_of(comment: str) -> int:
    """Return the number of the line that ends with a comment."""
    (line,) = [n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith(comment)]
    return line


# ---- limits --------------------------------------------------------------------------------------


@cuda.jit
def count(x):
    cuda.atomic.add(x, 0, 1)


@pytest.mark.parametrize(
    ("grid", "block", "wrong"),
    [
        (0, 32, "grid=(0, 1, 1)"),
        ((1, 65536), 32, "grid=(1, 65536, 1)"),
        (1, 1025, "block=(1025, 1, 1)"),
        (1, (1, 1, 65), "block=(1, 1, 65)"),
        (1, (32, 33), "block=(32, 33, 1): at most 1024 threads"),
        (1, 0, "block=(0, 1, 1)"),
        (-1, 32, "grid=(-1, 1, 1)"),
    ],
)
def test_a_launch_that_a_gpu_refuses_raises(grid, block, wrong):
    x = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(PtxError, match=rf"count cannot be launched: {re.escape(wrong)}"):
        count[grid, block](x)
    assert x.item() == 0


def test_the_largest_block_and_all_dimensions_of_a_grid_run():
    x = torch.zeros(1, dtype=torch.int64)
    count[(2, 3, 4), (32, 8, 4)](x)
    assert x.item() == 24 * 1024


@pytest.mark.parametrize("configuration", [(1,), (1.5, 1), ((1, 2, 3, 4), 1), ("2", 1)])
def test_a_configuration_that_is_none_is_refused_by_numba(configuration):
    with pytest.raises((TypeError, ValueError), match="griddim"):
        count[configuration](torch.zeros(1))


def test_a_kernel_without_a_configuration_says_how():
    with pytest.raises(ValueError, match="Kernel launch configuration was not specified"):
        count(torch.zeros(1))


@cuda.jit
def last_of_dynamic(out):
    memory = cuda.shared.array(0, float32)
    memory[memory.size - 1] = 3
    cuda.syncthreads()
    out[0], out[1] = memory[memory.size - 1], memory.size


def test_more_than_48_kib_of_shared_memory_have_to_be_asked_for():
    """If the kernel does not ask for it, a GPU refuses the launch too."""
    out = torch.zeros(2)
    last_of_dynamic[1, 1, 0, 48 * 1024](out)
    assert out.tolist() == [3, 12 * 1024]
    with pytest.raises(PtxError, match=r"shared=65536 bytes: at most 49152; .*cuKernelSetAttribute"):
        last_of_dynamic[1, 1, 0, 64 * 1024](out)
    (kernel,) = last_of_dynamic.overloads.values()
    function = kernel.library.get_cufunc()
    most = driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.driver.cuKernelSetAttribute(most, MAX_SHARED, function.handle, function.device.id)
    last_of_dynamic[1, 1, 0, MAX_SHARED](out)
    assert out.tolist() == [3, MAX_SHARED / 4]
    with pytest.raises(PtxError, match=f"shared={MAX_SHARED + 1} bytes: at most {MAX_SHARED}$"):
        last_of_dynamic[1, 1, 0, MAX_SHARED + 1](out)
    with pytest.raises(ValueError, match=f"last_of_dynamic: {MAX_SHARED + 1} bytes .*should be 0 to {MAX_SHARED}"):
        driver.driver.cuKernelSetAttribute(most, MAX_SHARED + 1, function.handle, function.device.id)


@cuda.jit
def static_and_dynamic(out):
    tile, memory = cuda.shared.array(10 * 1024, float32), cuda.shared.array(0, float32)
    tile[0], memory[0] = 1, 2
    out[0] = tile[0] + memory[0]


@cuda.jit
def large_static(out):
    tile = cuda.shared.array(12 * 1024 + 1, float32)
    tile[0] = 1
    out[0] = tile[0]


def test_static_arrays_count_for_the_48_kib():
    """ptxas accepts at most 48 KiB of static arrays, and a launch can use the rest."""
    out = torch.zeros(1)
    static_and_dynamic[1, 1, 0, 8 * 1024](out)
    assert out.tolist() == [3]
    with pytest.raises(
        PtxError, match=r"shared=8196 bytes: at most 8192 beside 40960 of shared arrays; .*up to 125952 "
    ):
        static_and_dynamic[1, 1, 0, 8 * 1024 + 4](out)
    with pytest.raises(PtxError, match=r"large_static cannot be launched: 49156 bytes of shared arrays: at most 49152"):
        large_static[1, 1](out)


# ---- options of @cuda.jit ------------------------------------------------------------------------


def divide(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] / float32(3)


@pytest.mark.parametrize(
    "options",
    [
        {"opt": False},
        {"max_registers": 24},
        {"launch_bounds": (64, 2)},
        {"lineinfo": True},
        {"fastmath": True},
        {"cache": True},
        {"lto": False},
        {"debug": True, "opt": False},
        {"forceinline": True},
        {"shared_memory_carveout": 50},
    ],
    ids=str,
)
def test_a_kernel_runs_with_every_option(options):
    """A fast division may be wrong by two units in the last place; all other operations are
    exact.
    """
    x = torch.arange(50, dtype=torch.float32)
    y = torch.zeros(50)
    cuda.jit(**options)(divide)[1, 64](x, y)
    assert (y - x / 3).abs().max() <= (4e-6 if "fastmath" in options else 0)


def test_launch_bounds_bound_a_launch():
    bounded = cuda.jit(launch_bounds=64)(divide)
    with pytest.raises(PtxError, match=r"block=\(65, 1, 1\): the kernel was compiled for at most 64 threads"):
        bounded[1, 65](torch.zeros(9), torch.zeros(9))
    (kernel,) = bounded.overloads.values()
    assert kernel.max_threads_per_block == 64


def test_fastmath_reaches_the_compiler():
    compiled = {}
    for fast in False, True:
        kernel = cuda.jit(fastmath=fast)(divide)
        kernel[1, 1](torch.zeros(1), torch.zeros(1))
        (compiled[fast],) = kernel.inspect_asm().values()
    assert "div.approx" in compiled[True] and "div.rn" in compiled[False]


def test_signatures_given_at_the_decoration_are_compiled_then():
    @cuda.jit([(float32[::1], float32[::1]), (float32[:], float32[:])])
    def both(x, y):
        y[0] = x[1]

    assert len(both.signatures) == 2
    x, y = torch.arange(4.0), torch.zeros(1)
    both[1, 1](x[1:], y)
    assert y.item() == 2
    both[1, 1](x[::2], y)
    assert y.item() == 2
    with pytest.raises(TypeError, match="No matching definition"):
        both[1, 1](x.double(), y)


def test_a_specialized_kernel_forall_and_a_kernel_as_a_method():
    x, y = torch.arange(300.0), torch.zeros(300)
    kernel = cuda.jit(divide)
    kernel.forall(300)(x, y)
    assert torch.equal(y, x / 3)
    special = cuda.jit(divide).specialize(x, y)
    special[3, 100](y, y)
    assert special.specialized and torch.equal(y, x / 3 / 3)


CONSTANTS = np.arange(8, dtype=np.float32) ** 2


@cuda.jit
def constants(out):
    table = cuda.const.array_like(CONSTANTS)
    i = cuda.grid(1)
    out[i] = table[i] + CONSTANTS[7 - i]


def test_constant_arrays():
    out = torch.zeros(8)
    constants[1, 8](out)
    assert out.tolist() == list(CONSTANTS + CONSTANTS[::-1])
    (kernel,) = constants.overloads.values()
    assert kernel.const_mem_size == 64  # a global array is also a constant


def test_what_is_known_of_a_compiled_kernel():
    @cuda.jit
    def memory(x, n):
        shared, local = cuda.shared.array(100, float32), cuda.local.array(10, int32)
        for i in range(10):
            local[(i * n) % 10] = i
        shared[n] = local[n]
        cuda.syncthreads()
        x[0] = shared[n]

    x = torch.zeros(1)
    memory[1, 1](x, 3)
    (kernel,) = memory.overloads.values()
    assert x.item() == 1  # 7 * 3 = 21 is at 1, and 1 * 3 at 3
    assert (kernel.shared_mem_per_block, kernel.local_mem_per_thread, kernel.max_threads_per_block) == (400, 40, 1024)
    with pytest.raises(NotCovered, match="registers are not known on the CPU"):
        _ = kernel.regs_per_thread


# ---- debug=True ----------------------------------------------------------------------------------


@cuda.jit(debug=True, opt=False)
def careful(x, y):
    i = cuda.grid(1)
    if x[i] < 0:
        raise ValueError("negative")  # the check
    y[i] = 7 // int(x[i])


@pytest.mark.parametrize(
    ("bad", "error", "said"), [(-1.0, ValueError, "negative"), (0.0, ZeroDivisionError, "division by zero")]
)
def test_with_debug_exceptions_of_kernels_are_raised(bad, error, said):
    """The message has the line if Numba knows it. Numba does not know it for a division."""
    x, y = torch.arange(1.0, 41), torch.zeros(40)
    careful[2, 20](x, y)
    assert y[2].item() == 2
    x[25] = bad
    with pytest.raises(error, match=rf"thread \(5, 0, 0\) of block \(1, 0, 0\): .*{said}") as raised:
        careful[2, 20](x, y)
    assert error is ZeroDivisionError or f"{HERE}:{line_of('# the check')}, in careful, " in str(raised.value)
    x[25] = 1
    careful[2, 20](x, y)  # no exception is pending


# ---- findings ------------------------------------------------------------------------------------


@cuda.jit(device=True)
def neighbour(tile, i):
    return tile[i + 1]  # read by the device function


@cuda.jit
def shift(x, y):
    tile = cuda.shared.array(33, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]  # written by the kernel
    y[i] = neighbour(tile, i)  # read back


def test_a_race_is_found_with_the_lines_of_the_kernel_and_of_its_device_function():
    """The device function was compiled without lineinfo, because the author did not ask for it."""
    findings = "\n".join(map(str, trace(lambda: shift[1, 32](torch.zeros(32), torch.zeros(32)))))
    assert "race: tile[" in findings
    for text, name in ("# written by the kernel", "writes"), ("# read by the device function", "reads"):
        assert re.search(rf"{HERE}:{line_of(text)}  thread \d+ of block 0 {name} ", findings), findings


def test_accesses_outside_are_found_by_the_argument_and_its_line():
    findings = list(map(str, trace(lambda: shift[1, 33](torch.zeros(33), torch.zeros(32)))))
    wanted = (
        f"outside: y, writes 4 bytes right past the end of y, whose shape is (32,), {HERE}:{line_of('# read back')}"
    )
    assert any(wanted in finding for finding in findings), findings


def test_forced_lines_do_not_warn():
    kernel = eval("lambda x: None")  # a function without a file
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cuda.jit(kernel)[1, 1](torch.zeros(1))


def test_print_prints(capfd):
    @cuda.jit
    def talk(x):
        print("x is", x[0], cuda.threadIdx.x)

    talk[1, 2](torch.full((1,), 1.5))
    assert capfd.readouterr().out == "x is 1.500000 0\nx is 1.500000 1\n"


# ---- refusals ------------------------------------------------------------------------------------


def test_waiting_for_the_whole_grid_is_refused():
    @cuda.jit
    def wait(x):
        cuda.cg.this_grid().sync()

    with pytest.raises(NotCovered, match="wait: a grid that waits for all its blocks"):
        wait[2, 1](torch.zeros(1))
