"""The choice of a case whose contiguous inputs have more than 2^31 elements, without a GPU."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Implementation, Supports, python_tiled, torch_sdpa
from flash_attest.properties.cases import gpu_ring
from flash_attest.properties.cases.beyond_32_bits import ELEMENTS, GRID, batches_to_look_at, enlarged, inputs_of
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.support import unsupported

CASE = parse_case("seqlen_q=3 seqlen_k=3 headdim=8 dtype=float16")


def taking(**supports) -> Implementation:
    impl = python_tiled.IMPL
    return replace(impl, supports=Supports(dtypes={torch.float16}, **supports))


@pytest.mark.parametrize("headdims", (range(1, 257), {64}, {8}, {256}), ids=str)
def test_each_tensor_has_more_than_2_31_elements(headdims):
    large = enlarged(taking(headdims=headdims), CASE)
    size = large.seqlen_q * large.nheads * large.headdim
    assert (large.batch - 1) * size > ELEMENTS, "the last batch lies beyond as a whole"
    assert large.batch * large.nheads <= GRID, "one block for each head fits in a grid"
    assert large.batch * size * large.dtype.itemsize < gpu_ring.RANGE / 2
    assert large.seqlen_q % 2 == 1, "no multiple of a tile"
    places = batches_to_look_at(large)
    assert places[0] == 0 and places[-1] == large.batch - 1 and ELEMENTS // size in places


def test_a_length_that_is_accepted_is_chosen():
    def accepts(case):
        return None if case.seqlen_q % 32 == 0 else "seqlen must divide by 32"

    large = enlarged(taking(headdims={64}, accepts=accepts), CASE)
    assert large.seqlen_q % 32 == 0 and large.batch * large.seqlen_q * large.nheads * large.headdim > ELEMENTS


def test_where_no_such_case_is_accepted_there_is_none():
    assert enlarged(taking(accepts=lambda case: "seqlen up to 8 only" if case.seqlen_q > 8 else None), CASE) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="maps memory of a GPU")
@pytest.mark.parametrize("layout", ("bshd", "bhsd"))
def test_tensors_are_contiguous_and_the_batches_looked_at_differ(layout):
    large = enlarged(taking(headdims={64}), CASE)
    q, k = inputs_of(large, layout, "cuda").q, inputs_of(large, layout, "cuda").k
    assert q.is_contiguous() and q.numel() > ELEMENTS
    batches = [x[b] for x in (q, k) for b in batches_to_look_at(large)]
    assert all(bool(batch.isfinite().all() & (batch != 0).any()) for batch in batches)
    assert len({tuple(batch.flatten()[:8].tolist()) for batch in batches}) == len(batches)


@pytest.mark.parametrize(
    "name, batch, seqlen, refused",
    [
        ("torch_sdpa_flash", 8224, 256, True),
        ("torch_sdpa_flash", 8160, 256, False),
        ("torch_sdpa_flash", 6200, 259, True),  # padded to 384 queries
        ("torch_sdpa_flash", 5400, 259, False),
        ("torch_sdpa_cudnn", 8224, 256, True),
        ("torch_sdpa_cudnn", 8160, 256, False),
    ],
)
def test_sizes_that_pytorch_computes_wrongly_are_refused(name, batch, seqlen, refused):
    (impl,) = (impl for impl in torch_sdpa.IMPLS if impl.name == name)
    case = parse_case(
        f"batch={batch} nheads=8 nheads_k=8 seqlen_q={seqlen} seqlen_k={seqlen} headdim=128 dtype=float16"
    )
    assert bool(unsupported(impl, case)) is refused
    assert enlarged(impl, CASE) is None
