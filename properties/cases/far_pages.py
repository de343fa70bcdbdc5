"""A pool of pages, or of slots of a cache, that lie too far apart for 32-bit offsets."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases import gpu_ring
from flash_attest.properties.cases.sparse_memory import BEFORE, BEHIND, sparse_zeros
from flash_attest.properties.failures import Undecided

LARGEST_NUMBER = 2**20  # of a page; beyond 16 bits by far
LEAST_PAGES = 2**17
LARGEST_POOL = 2**34  # bytes
TABLES = ("block_table", "cache_batch_idx")


def far_apart(impl: Implementation, handed: Inputs) -> Inputs:
    """Return the inputs of a call with a larger pool. The numbers of its pages lie far apart.

    handed: contiguous inputs in the implementation's layout, whose pages are the first dimension of
    k and v. Raises Undecided if the machine has no such memory.
    """
    rows = max(handed.k[0].numel(), handed.v[0].numel())
    nbytes = rows * handed.k.element_size()
    pages = min(LARGEST_NUMBER, max(LEAST_PAGES, -(-BEHIND // max(rows, 1))), LARGEST_POOL // max(nbytes, 1))
    numbers = _numbers(handed, pages)
    changed = {}
    for name in ("k", "v"):
        small = getattr(handed, name)
        memory = sparse_zeros(BEFORE + pages * small[0].numel(), small.dtype, small.device)
        changed[name] = memory[BEFORE:].view(pages, *small.shape[1:])
        changed[name][numbers.to(small.device)] = small
    for name in TABLES:
        if (table := getattr(handed, name)) is not None:
            there = numbers.to(table.device)[table.clamp(min=0).long()].int()
            changed[name] = torch.where(table < 0, table, there)
    return handed.with_(**changed)


def _numbers(handed: Inputs, pages: int) -> torch.Tensor:
    """Return the new number of each page, the largest ones first.

    On a GPU no two share a byte of the physical memory, which repeats.
    """
    count = len(handed.k)
    apart, taken, numbers = pages // count, [], []
    nbytes = [getattr(handed, name)[0].nbytes for name in ("k", "v")]

    def is_free(page: int) -> bool:
        ring = gpu_ring.PERIOD
        return all((page - other) * n % ring >= n and (other - page) * n % ring >= n for other in taken for n in nbytes)

    for n in range(count):
        nearby = range(pages - 1 - n * apart, max(pages - 1 - (n + 1) * apart, -1), -1)
        page = nearby[0] if handed.k.device.type == "cpu" else next(filter(is_free, nearby), None)
        if page is None:
            raise Undecided(f"{count} pages do not fit into {gpu_ring.PERIOD} bytes of sparse memory")
        taken.append(page)
        numbers.append(page)
    return torch.tensor(numbers)
