"""Arguments of kernels: NumPy arrays, tensors, numbers, tuples; their types; and refusals by
name.
"""

from __future__ import annotations

import enum
import itertools
from typing import NamedTuple

import numpy as np
import pytest
import torch
from cuda.core.utils import StridedMemoryView
from numba import cuda
from numba.cuda import types
from numba.cuda.np import numpy_support

from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.numba.arguments import DTYPES, typeof_tensor
from flash_attest.emulator.ptx.module import PtxError
from flash_attest.races.tracing import trace

NUMBERS = [dtype for dtype in DTYPES.values() if dtype.kind != "b"]


@cuda.jit
def copy(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


@cuda.jit
def twice(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] + x[i]


def some(dtype, n=37):
    """Return values that are exact in every dtype."""
    values = np.arange(n) % 5
    return values.astype(dtype) * dtype.type(1 + 1j) if dtype.kind == "c" else values.astype(dtype)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_dtype_in_arrays_and_tensors_is_changed_in_place(dtype):
    array, tensor = some(dtype), torch.from_numpy(some(dtype))
    twice[2, 32](array)
    twice[2, 32](tensor)
    assert (array == 2 * some(dtype)).all() and np.array_equal(tensor.numpy(), array)


def test_booleans_and_the_bits_of_bfloat16_are_passed_as_they_are():
    flags = torch.arange(9) % 3 == 0
    copied = torch.zeros(9, dtype=torch.bool)
    copy[1, 9](flags, copied)
    assert torch.equal(copied, flags)
    x = torch.randn(9).bfloat16()
    y = torch.zeros_like(x)
    copy[1, 9](x.view(torch.int16), y.view(torch.int16))
    assert torch.equal(x, y)


def views():
    x = torch.arange(60.0).reshape(3, 4, 5)
    yield from (x, x[:, :, 0], x[1], x.transpose(0, 2), x[::2], x[:, 1:3], x[0, 0, 0], x[:0], x[:, :, None])
    yield from (x.permute(2, 1, 0), torch.zeros(1).expand(4), torch.zeros(1, 1), torch.zeros(0, 3), x[:1], x.mT)
    yield from (x.permute(1, 0, 2)[:, :1], torch.zeros(2, 0, 3).mT, torch.zeros(3, 1).expand(3, 2))


@pytest.mark.parametrize("x", list(views()), ids=lambda x: f"{tuple(x.shape)}-{x.stride()}")
def test_a_tensor_has_the_type_that_numba_finds_by_dlpack(x):
    """The type is the same as on a GPU."""
    memory = StridedMemoryView.from_dlpack(x, stream_ptr=-1)
    layout = "C" if memory._layout.is_contiguous_c else "F" if memory._layout.is_contiguous_f else "A"
    assert typeof_tensor(x) == types.Array(numpy_support.from_dtype(memory.dtype), x.dim(), layout)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_is_the_one_that_numba_finds_by_dlpack(dtype):
    x = torch.zeros(3, dtype=dtype)
    assert typeof_tensor(x).dtype == numpy_support.from_dtype(StridedMemoryView.from_dlpack(x, stream_ptr=-1).dtype)


@cuda.jit
def add_indices(x):
    """Compute x[i, j] += 10 i + j."""
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        x[i, j] += 10 * i + j


@pytest.mark.parametrize("of", ("tensor", "array"))
@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.T, lambda x: x[1:5:2, 2:6], lambda x: x[:, ::3], lambda x: x[:0], lambda x: x[2:3]],
)
def test_strides_are_those_of_the_array(of, view):
    """Nothing changes in a gap of the view."""
    base = torch.zeros(6, 8) if of == "tensor" else np.zeros((6, 8), np.float32)
    wanted = np.zeros((6, 8), np.float32)
    part = view(wanted)
    part += 10 * np.arange(part.shape[0])[:, None] + np.arange(part.shape[1])
    add_indices[(1, 1), (8, 8)](view(base))
    assert np.array_equal(np.asarray(base), wanted)


@cuda.jit
def read_rows(x, out):
    i = cuda.grid(1)
    out[i] = x[i, 3]


def test_a_stride_of_0_and_two_views_of_one_memory():
    x = torch.arange(8.0)
    out = torch.zeros(4)
    read_rows[1, 4](x.expand(4, 8), out)
    assert (out == 3).all()
    copy[1, 4](x[:4], x[4:])
    assert torch.equal(x[4:], x[:4])


def test_a_read_only_array_can_be_read_and_is_not_written():
    fixed = np.arange(4.0)
    fixed.flags.writeable = False
    out = np.zeros(4)
    copy[1, 4](fixed, out)
    assert (out == fixed).all()
    with pytest.raises(Exception, match="readonly array"):
        twice[1, 4](fixed)


class Color(enum.IntEnum):
    RED = 1
    BLUE = 7


class Pair(NamedTuple):
    first: np.ndarray
    scale: float


@cuda.jit
def sums(out, integer, real, flag, half, number, color, pair, nested):
    out[0] = integer
    out[1] = real
    out[2] = 1 if flag else 0
    out[3] = half
    out[4] = number.real - number.imag
    out[5] = color.value
    out[6] = pair.first[1] * pair.scale
    out[7] = nested[0] + nested[1][0][2]


def test_numbers_enumerations_and_tuples_with_arrays():
    out, array = torch.zeros(8, dtype=torch.float64), np.arange(5.0)
    pair, nested = Pair(array, 4.0), (2, (torch.arange(9),))
    sums[1, 1](out, -(2**40), 0.1, True, np.float16(1.5), 3 + 1j, Color.BLUE, pair, nested)
    assert out.tolist() == [-(2.0**40), 0.1, 1, 1.5, 2, 7, 4, 4]


@pytest.mark.parametrize(
    ("value", "stored"),
    [(np.uint8(255), 255), (np.int32(-5), -5), (2**63 - 1, 2**63 - 1), (np.uint64(2**64 - 1), -1), (False, 0)],
)
def test_integers_at_the_ends_of_their_types(value, stored):
    @cuda.jit
    def store(out, value):
        out[0] = value

    out = torch.full((1,), 77)
    store[1, 1](out, value)
    assert out.item() == stored


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        (torch.zeros(3, dtype=torch.bfloat16), TypeError, r"no bfloat16: pass x.view\(torch.int16\)"),
        (torch.zeros(3, dtype=torch.float8_e4m3fn), TypeError, "no arrays of torch.float8_e4m3fn"),
        (torch.zeros(3, device="meta"), ValueError, r"shape \(3,\) is on meta: should be on the CPU"),
        (torch.zeros(3, requires_grad=True), ValueError, r"requires gradients.*pass x.detach\(\)"),
        (torch.zeros(3).to_sparse(), TypeError, "layout torch.sparse_coo"),
        (None, TypeError, "x=None has the type none"),
        ("text", TypeError, "x='text' has the type unicode_type"),
        (np.zeros(3)[::-1], ValueError, r"x, float64, strides \(-8,\): .*negative"),
        (np.zeros(3, [("a", "f4")]), NotCovered, "x is an array of records.*pass arrays of its fields"),
        (np.zeros(3, [("a", "f4")])[0], NotCovered, "x is a record.*pass its fields"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, (str, type)) else "",
)
def test_what_is_no_argument_is_refused_by_name(argument, error, message):
    @cuda.jit
    def nothing(x):
        pass

    with pytest.raises(error, match=message):
        nothing[1, 1](argument)


@pytest.mark.parametrize("arguments", ((), (1,), (1, 2, 3)))
def test_the_number_of_arguments_is_checked(arguments):
    with pytest.raises(TypeError, match=f"takes 2 arg|{len(arguments)} argument types given"):
        copy[1, 1](*(np.zeros(4) for _ in arguments))


@cuda.jit("void(float32[::1], int32)")
def compiled_at_once(x, n):
    x[n] = n


def test_a_kernel_with_a_signature_takes_nothing_else():
    """On a GPU Numba passes the argument unchanged, and the kernel reads it as the compiled
    type.
    """
    assert len(compiled_at_once.signatures) == 1
    x = torch.zeros(4)
    compiled_at_once[1, 1](x, 3)
    assert x.tolist() == [0, 0, 0, 3]
    for wrong, said in (x.double(), "float64"), (x[::2], r"strides \(2,\)"), (x[None], "2-D"):
        with pytest.raises(TypeError, match=rf"x is .*{said}.*compiled for array\(float32, 1d, C\)"):
            compiled_at_once[1, 1](wrong, 1)
    with pytest.raises(TypeError, match=r"takes 2 arguments \(x, n\), got 1"):
        compiled_at_once[1, 1](x)
    with pytest.raises(TypeError, match=r"n=1.5 should be an integer \(int32\)"):
        compiled_at_once[1, 1](x, 1.5)


# ---- names ---------------------------------------------------------------------------------------


@cuda.jit
def beyond(pairs, sizes, n):
    pairs[1].first[n] = pairs[0][n] + sizes[0]


def test_findings_name_what_the_tuple_holds():
    x, y = np.zeros(4), np.zeros(4)
    for n, (who, verb) in itertools.product((4,), (("pairs[0]", "reads"), ("pairs[1].first", "writes"))):
        findings = trace(lambda n=n: beyond[1, 1]((x, Pair(y, 1.0)), (1, 2), n))
        assert any(f"{who}, {verb} 8 bytes" in str(finding) for finding in findings), findings


def test_a_write_beside_an_array_raises_in_plain_mode_too():
    with pytest.raises(PtxError, match=r"beyond of beyond.ptx writes outside of its tensors.*pairs\[1\].first"):
        beyond[1, 1]((np.zeros(9), Pair(np.zeros(4), 1.0)), (1, 2), 4)
