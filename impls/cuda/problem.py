"""A call as integers, in the order of problem.cuh: sizes, mask, dtypes, strides."""

from __future__ import annotations

import torch

from flash_attest.impls.diagonals import Diagonals

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


def integers(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    mask: Diagonals,
    splits: int = 1,
    **others: torch.Tensor,
) -> torch.Tensor:
    """Return a call as int64 (39,), in the order of problem_of in problem.cuh.

    q (b, sq, h, d), k, v (b, sk, h_k, d), bias (b | 1, h | 1, sq | 1, sk).
    splits: how many blocks share the keys of a head in the backward. others: the tensors among out,
    dout, dq, dk, dv that the call has.
    """
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1:3]
    numbers = [batch, nheads, nheads_k, seqlen_q, seqlen_k, headdim, DTYPES[q.dtype]]
    numbers += (DTYPES[torch.float32 if bias is None else bias.dtype], splits, *mask)
    tensors = dict(q=q, k=k, v=v) | others
    for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv"):
        numbers += tensors[name].stride()[:3] if name in tensors else (0, 0, 0)
    shape = (batch, nheads, seqlen_q, seqlen_k)
    numbers += (0, 0, 0, 0) if bias is None else bias.expand(shape).stride()
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")
