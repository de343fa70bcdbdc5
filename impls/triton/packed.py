"""Sequences of different lengths, one behind the other in the rows of q, k and v; their checks."""

from __future__ import annotations

import numbers
from typing import NamedTuple

import torch

from flash_attest.impls.contract.arguments import LARGEST_SIZE, Sizes, check_heads, check_tensor

from .device import EMULATED


class Packed(NamedTuple):
    """Sequence b is the rows cu_seqlens_q[b] .. cu_seqlens_q[b + 1] of q, and so on.

    Rows from cu_seqlens[-1] on belong to no sequence: kernels neither read nor write them.
    """

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    total_q: int


def packed_sizes_of(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k) -> tuple[Packed, Sizes, int]:
    """Return where the sequences of a call lie, the sizes of the longest, and v's head dim.

    q is (total_q, nheads, headdim), k and v are (total_k, nheads_k, ..). Raises ValueError unless
    they fit together. The numbers in cu_seqlens are checked in the emulator only: a GPU would have
    to be waited for.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x)
        if x.dim() != 3:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: should be (total, nheads, headdim)")
    (total_q, nheads, headdim), (total_k, nheads_k, headdim_k), headdim_v = q.shape, k.shape, v.shape[2]
    if headdim_k != headdim or v.shape[:2] != k.shape[:2]:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"{shapes}: k should have q's headdim, and v the rows and heads of k")
    check_heads(nheads, nheads_k)
    for name, total in (("total_q", total_q), ("total_k", total_k)):
        if total > LARGEST_SIZE:
            raise ValueError(f"{name} is {total}: should be at most {LARGEST_SIZE}")
    ends_q = _checked("q", cu_seqlens_q, max_seqlen_q, q)
    ends_k = _checked("k", cu_seqlens_k, max_seqlen_k, k)
    if len(ends_q) != len(ends_k):
        raise ValueError(
            f"cu_seqlens_q has {len(ends_q)} numbers, cu_seqlens_k {len(ends_k)}: should be as many, "
            "one more than there are sequences"
        )
    if EMULATED:
        _check_numbers("q", ends_q, max_seqlen_q, total_q)
        _check_numbers("k", ends_k, max_seqlen_k, total_k)
    sizes = Sizes(len(ends_q) - 1, int(max_seqlen_q), int(max_seqlen_k), nheads, nheads_k, headdim)
    return Packed(ends_q, ends_k, total_q), sizes, headdim_v


def _checked(of: str, ends: object, longest: object, x: torch.Tensor) -> torch.Tensor:
    """Return cu_seqlens_q or cu_seqlens_k, contiguous.

    Raises ValueError unless it and max_seqlen are what `x`, which is q or k, needs.
    """
    name = f"cu_seqlens_{of}"
    check_tensor(name, ends)
    if ends.dim() != 1 or not len(ends) or ends.dtype != torch.int32 or ends.device != x.device:
        raise ValueError(
            f"{name} is {tuple(ends.shape)} {ends.dtype} on {ends.device}: "
            f"should be (batch + 1) torch.int32 on {x.device}"
        )
    if not isinstance(longest, numbers.Integral) or isinstance(longest, bool) or longest < 0:
        raise ValueError(f"max_seqlen_{of} is {longest!r}: should be an int of at least 0")
    return ends.contiguous()


def _check_numbers(of: str, ends: torch.Tensor, longest: int, total: int) -> None:
    """Raise ValueError unless sequences lie one behind the other in `total` rows, none too long."""
    name, listed, lengths = f"cu_seqlens_{of}", ends.tolist(), ends.diff().tolist()
    if listed[0] != 0 or min(lengths, default=0) < 0:
        raise ValueError(f"{name} is {listed}: should begin with 0 and never decrease")
    if listed[-1] > total:
        raise ValueError(f"{name} ends with {listed[-1]}: should be at most {total}, the rows of {of}")
    if max(lengths, default=0) > longest:
        raise ValueError(f"max_seqlen_{of} is {longest}: should be at least {max(lengths)}, the longest of {name}")
