"""Tensors have the strides of their layout, and writes around a placed tensor are detected."""

import math
from itertools import combinations

import pytest
import torch

from flash_attest.properties.cases.case import DTYPES, LAYOUTS
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.layouts import MARGIN, lay_out, layout_of, place
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.law import laws
from tests.properties.cases.drawing import ALL

each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
STORED = ["interleaved", *(name for name in LAYOUTS if name != "mixed")]
SHAPE = (2, 5, 3, 8)
STRIDES = {  # of a (2, 5, 3, 8) tensor
    "contiguous": (120, 24, 8, 1),
    "transposed": (120, 8, 40, 1),
    "packed": (360, 72, 8, 1),
    "gapped": (480, 96, 32, 1),
    "sliced": (320, 40, 8, 1),
    "last_strided": (240, 48, 16, 2),
    "offset": (120, 24, 8, 1),
    "odd_rows": (135, 27, 9, 1),
    "size_one": (120, 24, 8, 1),
    "interleaved": (360, 72, 24, 1),
}
each_layout = pytest.mark.parametrize("layout", STORED)


@pytest.fixture
def values():
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))


def test_every_layout_has_known_strides():
    assert set(STRIDES) == set(STORED)


@each_layout
@each_dtype
def test_placed_tensor_has_equal_values(values, layout, dtype):
    placed = place(values.to(dtype), layout, fill=math.nan)
    assert torch.equal(placed.tensor, values.to(dtype)) and placed.tensor.dtype == dtype


@each_layout
def test_placed_tensor_has_the_strides_of_its_layout(values, layout):
    assert place(values, layout, fill=0.0).tensor.stride() == STRIDES[layout]


def test_packed_rows_lie_between_other_rows(values):
    """The tensor lies in memory like k in a packed qkv tensor."""
    placed = place(values, "packed", fill=math.nan)
    assert placed.tensor.storage_offset() == MARGIN + 24


@each_layout
@each_dtype
def test_a_tensor_is_placed_at_another_remainder_by_128(values, layout, dtype):
    """The allocator alternates between addresses with remainders 0 and 64 once it reuses memory."""
    tensors = [place(values.to(dtype), layout, fill=math.nan)]
    for _ in range(20):
        other = place(values.to(dtype), layout, fill=math.nan, away_from=tensors[0].tensor)
        assert (other.tensor.data_ptr() - tensors[0].tensor.data_ptr()) % 128 == 64
        assert torch.equal(other.tensor, values.to(dtype))
        tensors.append(other)


@each_layout
def test_everything_around_a_placed_tensor_is_filled(values, layout):
    placed = place(values, layout, fill=math.nan)
    assert int((~placed.buffer.isnan()).sum()) == values.numel()
    assert placed.buffer[:MARGIN].isnan().all() and placed.buffer[-MARGIN:].isnan().all()


@each_layout
def test_a_placed_tensor_lies_in_its_buffer(values, layout):
    placed = place(values, layout, fill=0.0)
    assert placed.tensor.untyped_storage().data_ptr() == placed.buffer.untyped_storage().data_ptr()


@each_layout
@each_dtype
def test_untouched_buffers_count_no_write(values, layout, dtype):
    """Bits are compared, so NaN equals itself."""
    assert place(values.to(dtype), layout, fill=math.nan).written() == 0


@each_layout
def test_writes_before_and_after_the_tensor_are_counted(values, layout):
    placed = place(values, layout, fill=math.nan)
    placed.buffer[MARGIN - 1] = placed.buffer[-MARGIN] = 1.0
    assert placed.written() == 2


@each_layout
def test_a_write_into_the_tensor_is_counted(values, layout):
    placed = place(values, layout, fill=math.nan)
    placed.tensor[1, 2] += 1
    assert placed.written() == 24


@pytest.mark.parametrize("layout", ["packed", "gapped", "sliced", "last_strided", "odd_rows", "interleaved"])
def test_a_write_between_rows_is_counted(values, layout):
    placed = place(values, layout, fill=math.nan)
    placed.buffer[MARGIN + int(placed.buffer[MARGIN:-MARGIN].isnan().nonzero()[0])] = 0.0
    assert placed.written() == 1


@each_dtype
@pytest.mark.parametrize(("layout", "remainders"), [("offset", {1}), ("odd_rows", set(range(8))), ("gapped", {0})])
def test_rows_begin_at_these_elements_after_a_multiple_of_16_bytes(values, layout, remainders, dtype):
    """A kernel must check both the address and the strides: each layout has only one at odds."""
    tensor = place(values.to(dtype), layout, fill=math.nan).tensor
    addresses = {
        tensor[b, s, h].data_ptr() % 16 // dtype.itemsize for b in range(2) for s in range(5) for h in range(3)
    }
    assert addresses == {n % (16 // dtype.itemsize) for n in remainders}
    assert (tensor.data_ptr() % 16 == 0) == (layout != "offset")


@each_layout
def test_a_dimension_of_size_1_has_another_stride_in_one_layout(layout):
    """is_contiguous() says nothing about it."""
    tensor = place(torch.zeros(1, 5, 1, 8), layout, fill=math.nan).tensor
    odd = tensor.is_contiguous() and tensor.stride() != (40, 8, 8, 1)
    assert odd == (layout == "size_one")
    assert layout != "size_one" or tensor.stride() == (16, 8, 16, 1)
    assert place(torch.zeros(3, 1, 2, 8), "size_one", fill=0.0).tensor.stride() == (16, 32, 8, 1)


def test_dimensions_of_size_1_have_other_strides_in_each_input():
    """A kernel may compare strides, or take those of another tensor, where all are contiguous."""
    shape = (1, 5, 1, 8)
    tensors = {n: lay_out(torch.zeros(shape), layout_of(n, "size_one")) for n in ("q", "k", "v", "dout")}
    assert all(tensor.is_contiguous() for tensor in tensors.values())
    for one, other in combinations([tensor.stride() for tensor in tensors.values()], 2):
        assert one[0] != other[0] and one[2] != other[2], (one, other)


@pytest.mark.parametrize("shape", [(2, 5, 3, 8), (2, 2, 2, 64), (2, 40, 2, 72)], ids=str)
def test_mixed_inputs_differ_in_every_stride(shape):
    """A kernel may take any one stride of an input for another input's."""
    strides = {name: lay_out(torch.zeros(shape), layout_of(name, "mixed")).stride() for name in ("q", "k", "v", "dout")}
    for one, other in combinations(strides, 2):
        assert not any(a == b for a, b in zip(strides[one][:3], strides[other][:3], strict=True)), (one, other)


def test_sliced_inputs_have_several_batches():
    """The stride of a batch shows what was cut off; one batch has no next one."""
    draws = laws()["test_any_layout_equals_the_contiguous_one"].draws
    sliced = [case for case in Drawing(attention_cases(ALL, "cpu", draws), 0, 60).cases if case.layout == "sliced"]
    assert sliced and all(case.batch > 1 for case in sliced)


def test_changing_zero_to_minus_zero_is_counted(values):
    placed = place(values * 0 + 0.0, "contiguous", fill=0.0)
    placed.tensor.neg_()
    assert placed.written() == values.numel()


def test_contiguous_tensors_are_not_copied(values):
    assert lay_out(values, "contiguous") is values


@pytest.mark.parametrize("layout", ["transposed", "packed", "gapped", "sliced", "last_strided", "odd_rows"])
def test_other_layouts_are_not_contiguous(values, layout):
    laid = lay_out(values, layout)
    assert torch.equal(laid, values) and not laid.is_contiguous()


@each_layout
def test_empty_tensors_can_be_placed(layout):
    assert place(torch.empty(2, 0, 3, 8), layout, fill=math.nan).written() == 0
