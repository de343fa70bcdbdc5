"""Tensors whose elements lie further apart than 32 bits can count, and the law that hands them over."""

import mmap
import re
import sys
from dataclasses import replace

import pytest
import torch

from impls import torch_math
from properties.cases import sparse_memory as far
from properties.cases.sparse_memory import BEFORE, BEHIND, spread
from properties.failures import Reason
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from properties.law import laws
from properties.trial import Trial

SHAPE = (2, 5, 3, 8)
LAW = laws()["test_offsets_need_64_bits"]
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


@pytest.fixture(params=DEVICES)
def values(request):
    return torch.randn(SHAPE, device=request.param)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("dim", range(3))
def test_values_are_the_same_and_lie_far_apart(values, dtype, dim):
    near = values.to(dtype)
    far = spread(near, dim)
    assert torch.equal(far, near) and far.dtype == dtype and far.device == near.device
    assert far.stride(dim) * (SHAPE[dim] - 1) >= BEHIND and far.stride(dim) % 64 == 0
    assert far.select(dim, 1).is_contiguous()


@pytest.mark.parametrize("dim", range(3))
def test_an_offset_in_32_bits_finds_another_element_or_0(values, dim):
    """Signed or not, in elements or bytes: within the storage, so that nobody's memory is read."""
    far = spread(values, dim)
    whole = far.as_strided((far.untyped_storage().nbytes() // far.element_size(),), (1,), 0)
    last = far.stride(dim) * (SHAPE[dim] - 1)
    for bits in ((last + 2**31) % 2**32 - 2**31, last % 2**32, last * 4 % 2**32 // 4):
        assert bits != last and whole[BEFORE + bits] in (0, *far.select(dim, 0).flatten()[:1])
    assert whole[0] == 0


@pytest.mark.skipif(sys.platform != "linux" or mmap.PAGESIZE > 2**16, reason="no /proc/self/statm, or large pages")
def test_it_takes_the_space_of_what_is_touched():
    before = resident()
    far = spread(torch.randn(SHAPE), 1)
    assert far.untyped_storage().nbytes() > 20 * 2**30 and resident() - before < 2**26


def test_a_single_index_stays_where_it_is(values):
    one = values[:1]
    assert spread(one, 0) is one


# --- the law ----------------------------------------------------------------------------------------------------------


def test_without_such_memory_it_is_unknown_and_the_run_green(monkeypatch):
    def none(*_, **__):
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(far.mmap, "mmap", none)
    result = judge(LAW, torch_math.IMPL, Plan(examples=20))
    assert result.verdict == UNKNOWN and result.why == Reason.LAW_OF_OTHER_DEVICE
    assert re.search(r"needs \d+ GiB of address space: Cannot allocate memory$", result.reason)


@pytest.mark.parametrize("limit, verdict", [(2**31, PASS), (2**20, REFUSED)])
def test_who_says_that_a_stride_is_too_large_is_not_wrong(limit, verdict):
    """In some cases, or in all."""

    def forward(q, k, v, **options):
        if max(q.stride()) >= limit:
            raise ValueError(f"strides up to {max(q.stride())}: should be below {limit}")
        return torch_math.forward(q, k, v, **options)

    few = replace(LAW.draws, features={"bias": (None,)})
    result = judge(replace(LAW, draws=few), replace(torch_math.IMPL, forward=forward), Plan(examples=40))
    assert result.verdict == verdict
    assert re.match(r"errors let pass: \d+, such as: forward raises ValueError: strides up to \d+: ", result.reason)


def test_memory_for_the_whole_extent_is_let_pass():
    def forward(q, k, v, **options):
        if max(q.stride()) > 2**20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 40 GiB")
        return torch_math.forward(q, k, v, **options)

    result = judge(LAW, replace(torch_math.IMPL, forward=forward), Plan(examples=20))
    assert result.verdict == REFUSED and "such as: out of memory on" in result.reason


def test_an_error_after_which_nothing_runs_is_wrong(monkeypatch):
    """As an illegal access on a GPU."""

    def forward(q, k, v, **options):
        if max(q.stride()) > 2**20:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return torch_math.forward(q, k, v, **options)

    monkeypatch.setattr(Trial, "device_works", lambda self: False)
    result = judge(LAW, replace(torch_math.IMPL, forward=forward), Plan(examples=20))
    assert result.verdict == FAIL and "illegal memory access" in result.reason
