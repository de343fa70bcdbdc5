"""Checks the arguments of our kernels before a launch. Error messages show the values."""

from __future__ import annotations

import numbers
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch.autograd import forward_ad

ALIGNMENTS = ("bottom_right", "top_left")
LARGEST_SCALE = 2.0**127  # its product with log2(e) is still a finite float32
SMALLEST_CAP, LARGEST_CAP = 2.0**-126, 2.0**127  # of a softcap; both are normal in float32
LARGEST_SIZE = 2**30  # a query's index plus seqlen_k, or plus a tile, then fits a kernel's 32-bit integer


class Sizes(NamedTuple):
    """The sizes of a call.

    q is (batch, seqlen_q, nheads, headdim), k and v are (batch, seqlen_k, nheads_k, headdim).
    """

    batch: int
    seqlen_q: int
    seqlen_k: int
    nheads: int
    nheads_k: int
    headdim: int

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """(batch, nheads, seqlen_q, seqlen_k): the scores' shape, to which a bias broadcasts."""
        return self.batch, self.nheads, self.seqlen_q, self.seqlen_k


def sizes_of(q: object, k: object, v: object) -> Sizes:
    """Return the sizes of a call.

    Raises ValueError unless q, k and v are tensors that fit together.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x)
        if x.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: should be (batch, seqlen, nheads, headdim)")
    (batch, seqlen_q, nheads, headdim), (seqlen_k, nheads_k) = q.shape, k.shape[1:3]
    if tuple(k.shape) != tuple(v.shape) or tuple(k.shape) != (batch, seqlen_k, nheads_k, headdim):
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"{shapes}: k and v should have one shape, and q's batch and headdim")
    check_heads(nheads, nheads_k)
    return Sizes(batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim)


def check_heads(nheads: int, nheads_k: int) -> None:
    """Raises ValueError unless each key head serves the same number of query heads."""
    if nheads and (nheads_k == 0 or nheads % nheads_k):
        raise ValueError(f"nheads is {nheads}: should be a multiple of nheads_k, which is {nheads_k}")


def check_tensor(name: str, x: object) -> None:
    """Raises ValueError unless x is a tensor with strides."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}: should be a tensor")
    if x.layout != torch.strided:
        raise ValueError(f"{name} has layout {x.layout}: should be torch.strided")


def check_sizes(sizes: Sizes) -> None:
    """Raises ValueError unless each size is at most LARGEST_SIZE."""
    for name, size in zip(sizes._fields, sizes, strict=True):
        if size > LARGEST_SIZE:
            raise ValueError(f"{name} is {size}: should be at most {LARGEST_SIZE}")


def check_headdim(headdim: int, largest: int, where: str = "") -> None:
    """Raises ValueError unless headdim is 1 to largest.

    where: the end of the message, which says when this limit applies: " with a gradient".
    """
    if not 1 <= headdim <= largest:
        raise ValueError(f"headdim is {headdim}: should be 1 to {largest}{where}")


def check_dtypes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtypes: Collection[torch.dtype]) -> None:
    """Raises ValueError unless q, k and v have the same dtype, one of `dtypes`."""
    if not (q.dtype == k.dtype == v.dtype):
        raise ValueError(f"q is {q.dtype}, k {k.dtype}, v {v.dtype}: should be one dtype")
    if q.dtype not in dtypes:
        raise ValueError(f"q is {q.dtype}: should be one of {', '.join(map(str, dtypes))}")


def check_one_device(**tensors: torch.Tensor | None) -> None:
    """Raises ValueError unless all tensors are on one device. The keywords are their names."""
    devices = {name: x.device for name, x in tensors.items() if x is not None}
    if len(set(devices.values())) > 1:
        raise ValueError(f"{', '.join(f'{name} is on {at}' for name, at in devices.items())}: should be one device")


def check_bias(bias: object, q: torch.Tensor, scores: tuple[int, int, int, int]) -> None:
    """Raises ValueError unless bias is None, or broadcasts to `scores` in float32 or q's dtype."""
    if bias is None:
        return
    check_tensor("bias", bias)
    if bias.dtype not in (torch.float32, q.dtype):
        either = " or ".join(map(str, dict.fromkeys((torch.float32, q.dtype))))
        raise ValueError(f"bias is {bias.dtype}: should be {either}")
    fits = bias.dim() == 4 and bias.shape[3] == scores[3]
    if not fits or any(n not in (1, want) for n, want in zip(bias.shape, scores, strict=True)):
        sizes = ", ".join("1" if n == 1 else f"{n} or 1" for n in scores[:3])
        raise ValueError(
            f"bias has shape {tuple(bias.shape)}: should be ({sizes}, {scores[3]}), that is "
            "(batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k)"
        )


def check_options(causal: object, softmax_scale: object, alignment: object) -> None:
    """Raises ValueError for an unknown alignment, a causal that is not a bool, or a bad scale.

    A softmax_scale is bad if it is neither None nor a number, or if its magnitude exceeds
    LARGEST_SCALE.
    """
    if alignment not in ALIGNMENTS:
        raise ValueError(f"causal_alignment is {alignment!r}: should be one of {', '.join(map(repr, ALIGNMENTS))}")
    if not isinstance(causal, bool):
        raise ValueError(f"causal is {causal!r}: should be True or False")
    number = isinstance(softmax_scale, numbers.Real) and not isinstance(softmax_scale, bool)
    if number and not isinstance(softmax_scale, int):
        softmax_scale = float(softmax_scale)  # NumPy's float16 cannot be compared with 2^127
    if softmax_scale is not None and not (number and abs(softmax_scale) <= LARGEST_SCALE):
        raise ValueError(f"softmax_scale is {softmax_scale!r}: should be a number of magnitude at most 2^127, or None")


def _is_count(side: object) -> bool:
    return isinstance(side, numbers.Integral) and not isinstance(side, bool) and side >= 0


def check_window(window: object) -> None:
    """Raises ValueError unless window is None or a pair, each side an int from 0 on or None."""
    pair = isinstance(window, tuple | list) and len(window) == 2
    if window is not None and not (pair and all(side is None or _is_count(side) for side in window)):
        raise ValueError(
            f"window is {window!r}: should be (left, right), each None or an int of at least 0, or None for no window"
        )


def check_softcap(softcap: object) -> None:
    """Raises ValueError unless softcap is None or a positive number that float32 holds."""
    number = isinstance(softcap, numbers.Real) and not isinstance(softcap, bool)
    if softcap is not None and not (number and SMALLEST_CAP <= float(softcap) <= LARGEST_CAP):
        raise ValueError(f"softcap is {softcap!r}: should be a number from 2^-126 to 2^127, or None for no cap")


def check_sinks(sinks: object, nheads: int, device: torch.device) -> None:
    """Raises ValueError unless sinks is None, or float32 (nheads,) on `device`."""
    if sinks is not None:
        check_like("sinks", sinks, (nheads,), torch.float32, device)


def check_no_tangent(**tensors: torch.Tensor | None) -> None:
    """Raises NotImplementedError for a tensor with a tangent (torch.func.jvp).

    PyTorch would silently ignore the tangent.
    """
    for name, x in tensors.items():
        if x is not None and forward_ad.unpack_dual(x).tangent is not None:
            raise NotImplementedError(
                f"{name} has a tangent: should have none, as there are gradients in reverse mode only"
            )


def check_backward(q: torch.Tensor, out: object, dout: object, lse: object) -> None:
    """Raises ValueError unless out, dout are like q (b, sq, h, d) and lse is (b, h, sq) float32."""
    batch, seqlen_q, nheads, _ = q.shape
    for name, x in (("out", out), ("dout", dout)):
        check_like(name, x, q.shape, q.dtype, q.device)
    check_like("lse", lse, (batch, nheads, seqlen_q), torch.float32, q.device)


def check_like(name: str, x: object, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Raises ValueError unless x is a tensor of this shape and dtype on this device."""
    check_tensor(name, x)
    if tuple(x.shape) != tuple(shape) or x.dtype != dtype or x.device != device:
        raise ValueError(
            f"{name} is {tuple(x.shape)} {x.dtype} on {x.device}: should be {tuple(shape)} {dtype} on {device}"
        )


def unit_stride(x: torch.Tensor) -> torch.Tensor:
    """Return x, or a copy if its last stride is not 1. A single column may have any stride."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def rounded_up(n: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least n."""
    return -(-n // multiple) * multiple
