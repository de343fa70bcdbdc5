"""Tensors whose offsets do not fit in 32 bits, and the law that uses them."""

import itertools
import math
import mmap
import re
from dataclasses import replace

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.contract.supports import LARGEST_HEADDIM
from flash_attest.properties.calling.caller import Caller
from flash_attest.properties.cases import gpu_ring, sparse_memory
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.sparse_memory import BEFORE, BEHIND, spread
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.failures import Reason, Undecided
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.law import laws
from tests.properties.cases import drawing

SHAPE = (2, 5, 3, 8)
LAW = laws()["test_offsets_need_64_bits"]
SMALL = parse_case("batch=2 nheads=2 nheads_k=2 seqlen_q=70 seqlen_k=70 headdim=8")
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def resident():
    """Return how many bytes of this process are in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


@pytest.fixture(params=DEVICES)
def values(request):
    return torch.randn(SHAPE, device=request.param)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("dim", range(3))
def test_spread_keeps_the_values_and_enlarges_the_stride(values, dtype, dim):
    near = values.to(dtype)
    far = spread(near, dim)
    assert torch.equal(far, near) and far.dtype == dtype and far.device == near.device
    assert far.stride(dim) * (SHAPE[dim] - 1) >= BEHIND and far.stride(dim) % 64 == 0
    assert far.select(dim, 1).is_contiguous()


@pytest.mark.parametrize("dim", range(3))
def test_an_offset_truncated_to_32_bits_reads_another_element_or_0(values, dim):
    """The offset may be signed or not, in elements or in bytes. It stays within the storage, so
    mapped memory is read.
    """
    far = spread(values, dim)
    whole = far.as_strided((far.untyped_storage().nbytes() // far.element_size(),), (1,), 0)
    last = far.stride(dim) * (SHAPE[dim] - 1)
    for bits in ((last + 2**31) % 2**32 - 2**31, last % 2**32, last * 4 % 2**32 // 4):
        assert bits != last and whole[far.storage_offset() + bits] in (0, *far.select(dim, 0).flatten()[:1])
    assert far.storage_offset() >= BEFORE


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16), ids=str)
@pytest.mark.parametrize(
    ("numel", "count"),
    [
        (1, 2),
        (1, 70),
        (24, 3),
        (70 * 256, 5),
        (64 * 1024, 70),
        (16384, 33),
        (64, 200),
        (64, 249),
        (64, 500),
        (64, 3000),
    ],
)
def test_rows_in_a_ring_share_no_byte_and_truncated_offsets_miss(numel, count, dtype):
    """The physical address is the address modulo the ring's period.

    Every offset of a row, truncated to 32 bits, leads to another physical address.
    """
    stride, before = sparse_memory._placement(numel, count, dtype, ring=True)
    size = dtype.itemsize
    rows = [(before + i * stride) * size % gpu_ring.PERIOD for i in range(count)]
    taken = sorted((start, start + numel * size) for start in rows)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken)) and taken[-1][1] <= gpu_ring.PERIOD
    assert stride * (count - 1) >= BEHIND and before >= BEFORE and stride % 64 == 0
    assert (before + (count - 1) * stride + numel) * size <= gpu_ring.RANGE
    for i in range(count):
        offset = i * stride
        cut = {offset % 2**32 * size, ((offset + 2**31) % 2**32 - 2**31) * size, offset * size % 2**32}
        wrong = {before * size + at for at in cut if at != offset * size}
        assert all(at % gpu_ring.PERIOD != rows[i] and 0 <= at < gpu_ring.RANGE for at in wrong)


@pytest.mark.parametrize("number", [300, pytest.param(800, marks=pytest.mark.thorough)])
def test_every_drawn_case_fits_in_a_ring(number):
    """If the largest case did not fit, the law would be unknown wherever it is drawn."""
    declared = drawing.implementation("wide", **drawing.EVERYTHING | dict(headdims=range(1, LARGEST_HEADDIM + 1)))
    cases = Drawing(attention_cases(declared, "cuda", LAW.draws), 0, number).cases
    widest = [(c.batch * c.nheads * max(c.seqlen_q, c.seqlen_k) * c.headdim, c) for c in cases]
    for _, case in sorted(widest, key=lambda pair: pair[0])[-50:]:
        for length in (case.seqlen_q, case.seqlen_k):
            sizes = (case.batch, length, case.nheads, case.headdim)
            for dim in range(3):
                if sizes[dim] > 1:  # others are not spread
                    sparse_memory._placement(math.prod(sizes) // sizes[dim], sizes[dim], case.dtype, ring=True)
    assert any(case.batch * case.nheads > 100 and case.headdim > 64 for case in cases)


@pytest.mark.parametrize(
    ("error", "why"), [(MemoryError("full"), Reason.RESOURCES), (OSError("none"), Reason.NO_SPARSE_MEMORY)]
)
def test_a_gpu_without_sparse_memory_or_room_is_undecided(monkeypatch, error, why):
    def zeros(nbytes, device):
        raise error

    monkeypatch.setattr(gpu_ring, "zeros", zeros)
    with pytest.raises(Undecided) as undecided:
        sparse_memory.sparse_zeros(2**33, torch.float32, torch.device("cuda"))
    assert undecided.value.why is why


@pytest.mark.skipif(not torch.cuda.is_available(), reason="sparse memory of a GPU: no CUDA device here")
def test_sparse_memory_of_a_gpu_is_used_again_and_stays_below_a_gib(monkeypatch):
    rings, init = [], gpu_ring._Ring.__init__
    monkeypatch.setattr(gpu_ring, "_free", {})
    monkeypatch.setattr(gpu_ring._Ring, "__init__", lambda self, device: rings.append(self) or init(self, device))
    for _ in range(20):
        far = [spread(torch.randn(SHAPE, device="cuda"), dim) for dim in (0, 1, 2, 0, 1)]  # five inputs
        assert all(tensor.abs().sum() > 0 for tensor in far)
    assert len(rings) <= 2 * len(far) and len(rings) * gpu_ring.PERIOD < 2**30
    del far
    for ring in rings:
        ring.release()


# --- the law --------------------------------------------------------------------------------------


def test_without_address_space_the_law_is_unknown_and_the_run_stays_green(monkeypatch):
    def no_memory(*_, **__):
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(sparse_memory.mmap, "mmap", no_memory)
    result = judge(LAW, torch_math.IMPL, Plan(examples=20, try_contract=False))
    assert result.verdict == UNKNOWN and result.why == Reason.NO_SPARSE_MEMORY
    assert re.search(r"needs \d+ GiB of address space: Cannot allocate memory$", result.reason)


NOTE = r"errors that this law allows: \d+, such as: "


def raising(limit, error):
    """Return torch_math, except that it raises for strides from `limit` on."""

    def forward(q, k, v, **options):
        if max(q.stride()) >= limit:
            raise error(f"strides up to {max(q.stride())}: should be below {limit}")
        return torch_math.forward(q, k, v, **options)

    return replace(torch_math.IMPL, forward=forward)


@pytest.mark.parametrize("limit, verdict", [(2**31, PASS), (2**20, REFUSED)])
def test_an_error_that_refuses_large_strides_is_no_failure(limit, verdict):
    """The error is raised for all spread dimensions, or for all but the one with 70 keys."""
    result = judge(LAW, raising(limit, ValueError), Plan(case=SMALL, try_contract=False))
    assert result.verdict == verdict
    assert re.match(rf"{NOTE}forward raises ValueError: strides up to \d+: ", result.reason)


def test_out_of_memory_for_the_whole_extent_is_no_failure():
    result = judge(LAW, raising(2**20, torch.OutOfMemoryError), Plan(case=SMALL, try_contract=False))
    assert result.verdict == REFUSED and re.match(f"{NOTE}out of memory on", result.reason)


def test_an_error_in_every_drawn_case_is_no_failure(few_tried):
    """The reason then contains the error.

    The test does not use the law itself, because Hypothesis would then draw hundreds of cases of 24
    GiB each.
    """

    def rejected(trial):
        if not trial.meter.refusals:
            trial.caller.answer(trial.caller.stored(trial.x))
        trial.needs(False)

    result = judge(replace(LAW, function=rejected), raising(1, ValueError), Plan(examples=2, try_contract=False))
    assert result.verdict == REFUSED and re.match(f"{NOTE}forward raises ValueError: strides", result.reason)


def test_an_error_after_which_the_device_does_not_work_is_a_failure(monkeypatch):
    """An illegal memory access on a GPU is such an error."""

    def forward(q, k, v, **options):
        if max(q.stride()) > 2**20:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return torch_math.forward(q, k, v, **options)

    monkeypatch.setattr(Caller, "device_works", lambda self: False)
    result = judge(LAW, replace(torch_math.IMPL, forward=forward), Plan(examples=20, try_contract=False))
    assert result.verdict == FAIL and "illegal memory access" in result.reason
