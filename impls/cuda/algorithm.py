"""FlashAttention 1 and 2 on CPU or CUDA tensors: checks, allocates, calls the host functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_attest.impls.contract.arguments import (
    Sizes,
    check_backward,
    check_bias,
    check_dtypes,
    check_headdim,
    check_one_device,
    check_options,
    check_sizes,
    check_softcap,
    check_window,
    sizes_of,
    unit_stride,
)
from flash_attest.impls.diagonals import diagonals

from . import host
from .problem import DTYPES, integers

LARGEST_HEADDIM = 256  # the limit of the backward, and of 16-bit dtypes
WIDEST_HEADDIM = 1024  # the limit of the forward in float32
TILE = 64  # the smallest number of keys for a block of the backward
MANY_BLOCKS = 768  # three times as many as an H200 runs at once
MOST_SPLITS = 8  # a limit on extra memory, in copies of dq


@dataclass(frozen=True)
class Algorithm:
    """FlashAttention-1 (name "fa1") or -2 ("fa2"), with the alignment of its causal mask."""

    name: str
    alignment: str = "bottom_right"

    def forward(self, q, k, v, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None):
        """q (b, sq, h, d), k, v (b, sk, hk, d), bias (b | 1, h | 1, 1 | sq, sk) -> out, lse.

        out is like q, lse (b, h, sq) in float32. Raises ValueError for invalid arguments, before
        any launch, and RuntimeError if the kernels cannot be compiled or launched.
        """
        sizes = check(q, k, v, bias, causal, softmax_scale, self.alignment, window, softcap)
        q, k, v = map(unit_stride, (q, k, v))
        out, lse = q.new_empty(q.shape), _statistic(q)
        n = integers(q, k, v, bias, diagonals(sizes, causal, window, self.alignment), out=out)
        scratch = ()
        if self.name == "fa1":  # the sum of O, which a 16-bit out would round at each step; l; m
            scratch = (None if q.dtype == torch.float32 else _sums(q), _statistic(q), _statistic(q))
        numbers = _scale(q, softmax_scale), float(softcap or 0)
        host.call(self.name, "forward", q, k, v, bias, out, *scratch, lse, n, *numbers)
        return out, lse

    def backward(
        self, dout, q, k, v, out, lse, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None,
        wants_dbias: bool = True,
    ):  # fmt: skip
        """dout, out like q, lse (b, h, sq) -> dq, dk, dv like q, k, v[, dbias like bias].

        dbias is returned if there is a bias and wants_dbias is set. Raises as `forward` does.
        """
        sizes = check(q, k, v, bias, causal, softmax_scale, self.alignment, window, softcap, differentiated=True)
        check_backward(q, out, dout, lse)
        dout, q, k, v, out = map(unit_stride, (dout, q, k, v, out))
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        delta, lse = _statistic(q), lse.contiguous()
        numbers = _scale(q, softmax_scale), float(softcap or 0)
        splits = 1 if self.name == "fa1" else splits_of(k)
        others = dict(out=out, dout=dout, dq=dq, dk=dk, dv=dv)
        n = integers(q, k, v, bias, diagonals(sizes, causal, window, self.alignment), splits, **others)
        sums = _sums(q, splits)
        host.call(self.name, "backward", dout, q, k, v, bias, out, lse, delta, sums, dq, dk, dv, n, *numbers)
        if bias is None or not wants_dbias:
            return dq, dk, dv
        dbias = bias.new_empty(bias.shape)
        strides = torch.tensor(dbias.expand(sizes.scores).stride(), dtype=torch.int64, device="cpu")  # 0: summed over
        host.call(self.name, "bias_gradient", dout, q, k, v, bias, lse, delta, dbias, n, strides, *numbers)
        return dq, dk, dv, dbias


def check(
    q, k, v, bias, causal, softmax_scale, alignment, window=None, softcap=None, differentiated: bool = False
) -> Sizes:
    """Raise ValueError, with the values, for a call that is not supported.

    differentiated: whether the call has a backward.
    """
    sizes = sizes_of(q, k, v)
    check_dtypes(q, k, v, tuple(DTYPES))
    if differentiated:
        check_headdim(sizes.headdim, LARGEST_HEADDIM, " where a gradient is computed")
    elif q.dtype != torch.float32:
        check_headdim(sizes.headdim, LARGEST_HEADDIM, f" in {q.dtype}")
    else:
        check_headdim(sizes.headdim, WIDEST_HEADDIM)
    check_sizes(sizes)
    check_bias(bias, q, sizes.scores)
    check_one_device(q=q, k=k, v=v, bias=bias)
    if q.device.type not in ("cpu", "cuda"):
        raise ValueError(f"q is on {q.device}: should be on a CPU or CUDA device")
    check_options(causal, softmax_scale, alignment)
    check_window(window)
    check_softcap(softcap)
    return sizes


def splits_of(k: torch.Tensor) -> int:
    """k (b, sk, hk, d) -> how many blocks share the keys of a head in FlashAttention-2's backward.

    There are just enough to fill a large GPU, as each has its own float32 dq (backward.cuh). The
    number is the same on every device, so that dq has the same bits.
    """
    batch, seqlen_k, nheads_k, _ = k.shape
    tiles, to_fill = -(-seqlen_k // TILE), -(-MANY_BLOCKS // max(1, batch * nheads_k))
    return max(1, min(tiles, to_fill, MOST_SPLITS))


def _scale(q: torch.Tensor, softmax_scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)


def _statistic(q: torch.Tensor) -> torch.Tensor:
    """Return an empty (batch, nheads, seqlen_q) tensor in float32, for lse, l, m or delta."""
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)


def _sums(q: torch.Tensor, splits: int = 1) -> torch.Tensor:
    """Return an empty (splits, batch, nheads, seqlen_q, headdim) tensor in float32."""
    b, sq, h, d = q.shape
    return q.new_empty(splits, b, h, sq, d, dtype=torch.float32)
