"""Contiguous inputs of more than 2^31 elements that need little GPU memory, as pages repeat."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases import gpu_ring
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.random_tensors import RandomTensors
from flash_attest.properties.cases.sparse_memory import BEFORE, sparse_zeros
from flash_attest.properties.cases.support import unsupported

ELEMENTS = 2**31  # the limit of signed 32-bit offsets in elements; offsets in bytes overflow earlier
NHEADS = 8
GRID = 65535  # the largest batch * nheads, by CUDA's limit for two of the three dimensions of a grid
HEADDIM = 256  # the largest head dim used; smaller ones need longer sequences and so larger score matrices
MULTIPLES = (1, 8, 32, 128)  # lengths may have to be a multiple of one of these


def enlarged(impl: Implementation, case: Case) -> Case | None:
    """Return the case with enough batches and keys that q, k and v exceed 2^31 elements each.

    Returns None if the implementation supports no such case.
    """
    takes = impl.supports.headdim_list
    headdim = max((d for d in takes if d <= HEADDIM), default=min(takes))
    # Prefer a dtype of two bytes: the offsets in elements are the same, in half the memory.
    dtype = min((case.dtype, *impl.supports.dtypes), key=lambda dtype: dtype.itemsize)
    # Find lengths as short as the grid allows, as a multiple that the implementation supports.
    least = ELEMENTS // (GRID // NHEADS * NHEADS * headdim) + 2
    for multiple in MULTIPLES:
        seqlen = rounded_up(least | 1, multiple)
        batch = ELEMENTS // (NHEADS * seqlen * headdim) + 2  # the whole last batch lies beyond the limit
        heads = dict(batch=batch, nheads=NHEADS, nheads_k=NHEADS)
        large = case.but(**heads, seqlen_q=seqlen, seqlen_k=seqlen, headdim=headdim, dtype=dtype)
        if unsupported(impl, large) is None:
            return large
    return None


def batches_to_look_at(case: Case) -> list[int]:
    """Return the first batch, the last, and those that hold element 2^29, 2^30 or 2^31.

    The byte offsets of these elements do not fit 32 bits.
    """
    size = case.seqlen_q * case.nheads * case.headdim
    return sorted({0, case.batch - 1, *(n // size for n in (2**29, 2**30, 2**31))})


def inputs_of(case: Case, layout: str, device: str) -> Inputs:
    """Return q, k, v, dout, contiguous in this layout, "bshd" or "bhsd".

    Values are randn and repeat every gpu_ring.PERIOD bytes. The memory before each tensor is
    mapped, too, as a truncated negative offset leads there.
    """
    rows = (case.nheads, case.seqlen_q) if layout == "bhsd" else (case.seqlen_q, case.nheads)
    shape = (case.batch, *rows, case.headdim)
    return Inputs(**{name: _tensor(case, shape, name, torch.device(device)) for name in ("q", "k", "v", "dout")})


def _tensor(case: Case, shape: tuple[int, ...], name: str, device: torch.device) -> torch.Tensor:
    period, count = gpu_ring.PERIOD // case.dtype.itemsize, torch.Size(shape).numel()
    memory = sparse_zeros(BEFORE + count, case.dtype, device)
    memory[:period] = RandomTensors(case, device, name).normal((period,)).to(case.dtype)
    return memory[BEFORE:].view(shape)
