"""Sequences whose keys lie in pages, for tests of decoding."""

from __future__ import annotations

from typing import NamedTuple

import torch

from flash_attest.impls.triton.paged import PagedDecode
from tests.impls.triton.calls import DEVICE, randn

FREE = 3  # pages of nobody, and rows of q of nobody


class Sequence(NamedTuple):
    """q (seqlen_q, nheads, headdim), k (seqlen_k, nheads_k, headdim), v (.., headdim_v)."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    def part(self, first: int, last: int) -> Sequence:
        """Return the queries first .. last, with the keys up to the last one's diagonal."""
        seqlen_k = len(self.k) - len(self.q) + last
        return Sequence(self.q[first:last], self.k[:seqlen_k], self.v[:seqlen_k])


def sequences(lengths, nheads=4, nheads_k=2, headdim=16, headdim_v=16, dtype=torch.float16) -> list[Sequence]:
    """Return one sequence for each (seqlen_q, seqlen_k)."""
    return [
        Sequence(
            randn(seqlen_q, nheads, headdim, dtype=dtype, seed=n),
            randn(seqlen_k, nheads_k, headdim, dtype=dtype, seed=n + 100),
            randn(seqlen_k, nheads_k, headdim_v, dtype=dtype, seed=n + 200),
        )
        for n, (seqlen_q, seqlen_k) in enumerate(lengths)
    ]


def in_pages(of: list[Sequence], page_size: int = 16, append: int = 0) -> tuple[dict, list[torch.Tensor]]:
    """Return the arguments of a call, and for each sequence the rows of its keys in the pool.

    Pages lie in no order. Rows of nobody are NaN, and the rest of the table is -1. The last
    `append` keys of each sequence are not in the pool but given as new ones.
    """
    pages = [-(-len(s.k) // page_size) for s in of]
    order = torch.randperm(sum(pages) + FREE, generator=torch.Generator().manual_seed(0))
    table = torch.full((len(of), max(pages) + 1), -1)
    rows = []
    for n, own in enumerate(order.split([*pages, FREE])[:-1]):
        table[n, : len(own)] = own
        j = torch.arange(len(of[n].k))
        rows.append((table[n, j // page_size] * page_size + j % page_size).to(DEVICE))
    lengths = torch.tensor([[len(s.q), len(s.k) - append] for s in of])
    call = dict(
        q=torch.cat([s.q for s in of] + [torch.full_like(of[0].q[:1], float("nan"))] * FREE),
        cu_seqlens_q=torch.cat([torch.zeros(1), lengths[:, 0].cumsum(0)]).to(DEVICE, torch.int32),
        max_seqlen_q=int(lengths[:, 0].max()),
        block_table=table.to(DEVICE, torch.int32),
        seqused_k=lengths[:, 1].to(DEVICE, torch.int32),
        max_seqlen_k=int(lengths[:, 1].max()),
    )
    for name in ("k", "v"):
        every = [getattr(s, name) for s in of]
        pool = torch.full((len(order) * page_size, *every[0].shape[1:]), float("nan"), device=DEVICE).to(every[0].dtype)
        for own, x in zip(rows, every, strict=True):
            pool[own[: len(x) - append]] = x[: len(x) - append]
        call[name] = pool.unflatten(0, (-1, page_size))
        if append:
            call[f"{name}_new"] = torch.stack([x[len(x) - append :] for x in every])
    return call, rows


def decode(of: list[Sequence], page_size: int = 16, append: int = 0, **options) -> list[tuple]:
    """Return out (seqlen_q, nheads, headdim_v) and lse (nheads, seqlen_q) of each sequence."""
    call, _ = in_pages(of, page_size, append)
    return results(of, **call, **options)


def results(of: list[Sequence], **call) -> list[tuple]:
    """Return out and lse of each sequence from a call with these arguments."""
    out, lse = PagedDecode().forward(**call)
    lengths = [len(s.q) for s in of] + [FREE]
    return list(zip(out.split(lengths), lse.split(lengths, 1), strict=True))[:-1]
