"""FlashAttention 1 and 2 on tensors: checks, allocates, launches."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_attest.impls.contract.arguments import check_backward, unit_stride
from flash_attest.impls.diagonals import diagonals

from . import fa1, fa2
from .backward import backward, splits_of
from .bias_gradient import bias_gradient
from .problem import check, problem_of


@dataclass(frozen=True)
class Algorithm:
    """FlashAttention-1 (name "fa1") or -2 ("fa2"), with the alignment of its causal mask."""

    name: str
    alignment: str = "bottom_right"

    def forward(self, q, k, v, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None):
        """q (b, sq, h, d), k, v (b, sk, hk, d), bias (b | 1, h | 1, 1 | sq, sk) -> out, lse.

        out is like q, lse (b, h, sq) in float32. Raises ValueError for invalid arguments, before
        any launch, and RuntimeError if the device has too little shared memory.
        """
        sizes = check(q, k, v, bias, causal, softmax_scale, self.alignment, window, softcap)
        q, k, v = map(unit_stride, (q, k, v))
        given = bias_of(q, bias)
        out = q.new_empty(q.shape)
        lse = statistic(q)
        mask = diagonals(sizes, causal, window, self.alignment)
        p = problem_of(q, k, v, None if bias is None else given, mask, softcap is not None, out=out)
        algorithm = fa1 if self.name == "fa1" else fa2
        algorithm.forward(q, k, v, given, out, lse, scale_of(q, softmax_scale), cap_of(softcap), p)
        return out, lse

    def backward(
        self, dout, q, k, v, out, lse, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None,
        wants_dbias=True,
    ):  # fmt: skip
        """dout, out like q, lse (b, h, sq) -> dq, dk, dv like q, k, v[, dbias like bias].

        dbias is returned if there is a bias and wants_dbias is set. Raises as `forward` does.
        """
        sizes = check(q, k, v, bias, causal, softmax_scale, self.alignment, window, softcap)
        check_backward(q, out, dout, lse)
        dout, q, k, v, out = map(unit_stride, (dout, q, k, v, out))
        given = bias_of(q, bias)
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        others = dict(out=out, dout=dout, dq=dq, dk=dk, dv=dv)
        mask = diagonals(sizes, causal, window, self.alignment)
        p = problem_of(q, k, v, None if bias is None else given, mask, softcap is not None, **others)
        lse, delta, scale, cap = lse.contiguous(), statistic(q), scale_of(q, softmax_scale), cap_of(softcap)
        splits = 1 if self.name == "fa1" else splits_of(k)
        sums = q.new_empty(splits * dq.numel(), dtype=torch.float32)
        backward(dout, q, k, v, given, out, lse, delta, sums, dq, dk, dv, scale, cap, splits, p)
        if bias is None or not wants_dbias:
            return dq, dk, dv
        dbias = bias.new_empty(bias.shape, dtype=torch.float32)
        bias_gradient(dout, q, k, v, given, lse, delta, dbias, scale, cap, p)
        return dq, dk, dv, dbias.to(bias.dtype)


def scale_of(q: torch.Tensor, softmax_scale: float | None) -> float:
    """Return the scale of a call: headdim ** -0.5 if softmax_scale is None."""
    return q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)


def cap_of(softcap: float | None) -> float:
    """Return the cap of a call; 1, which no kernel uses, if there is none."""
    return 1.0 if softcap is None else float(softcap)


def statistic(q: torch.Tensor) -> torch.Tensor:
    """Return an empty (batch, nheads, seqlen_q) tensor in float32, for lse, l, m or delta."""
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)


def bias_of(q: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return the bias for the kernels, in float32; empty if there is none.

    As the bias always has this dtype, there is only one compiled kernel per dtype of q.
    """
    return q.new_empty(0, dtype=torch.float32) if bias is None else unit_stride(bias).float()
