"""A call in the form that kernels take: named tuples of sizes, mask and strides.

This module also checks calls.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from flash_attest.impls.contract.arguments import (
    Sizes,
    check_bias,
    check_dtypes,
    check_headdim,
    check_one_device,
    check_options,
    check_sizes,
    check_softcap,
    check_window,
    sizes_of,
)
from flash_attest.impls.diagonals import Diagonals

from .device import EMULATED

LARGEST_HEADDIM = 256
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Strides(NamedTuple):
    """The strides of a tensor in elements; 0 in dimensions that broadcast.

    Its last dimension has stride 1.
    """

    batch: int = 0
    head: int = 0
    row: int = 0


class Problem(NamedTuple):
    """One call: q (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads_k, headdim).

    All fields are int64 in a kernel. Query i sees keys i + first_diagonal .. i + last_diagonal, as
    far as they exist; query head h reads key head h // group. has_bias, capped and wide are 0 or 1.
    wide: every tensor with a head dim may be accessed four elements at a time. The remaining fields
    are the strides of the call's tensors. bias is broadcast to (batch, nheads, seqlen_q, seqlen_k),
    the others are (batch, seqlen, heads, headdim).
    """

    batch: int
    nheads: int
    nheads_k: int
    group: int
    seqlen_q: int
    seqlen_k: int
    headdim: int
    first_diagonal: int
    last_diagonal: int
    has_bias: int
    capped: int
    wide: int
    q: Strides
    k: Strides
    v: Strides
    bias: Strides
    out: Strides = Strides()
    dout: Strides = Strides()
    dq: Strides = Strides()
    dk: Strides = Strides()
    dv: Strides = Strides()


def problem_of(q, k, v, bias, mask: Diagonals, capped: bool, **others: torch.Tensor) -> Problem:
    """Return the Problem of a call that `check` allows, whose tensors have unit strides.

    others: the tensors among out, dout, dq, dk, dv that the call has.
    """
    (batch, seqlen_q, nheads, headdim), (seqlen_k, nheads_k) = q.shape, k.shape[1:3]
    tensors = dict(q=q, k=k, v=v) | others
    strides = {name: strides_of(x) for name, x in tensors.items()}
    strides["bias"] = Strides() if bias is None else strides_of_bias(bias)
    return Problem(
        *(batch, nheads, nheads_k, nheads // max(1, nheads_k), seqlen_q, seqlen_k, headdim, *mask),
        has_bias=int(bias is not None),
        capped=int(capped),
        wide=int(all(by_four(x) for x in tensors.values())),
        **strides,
    )


def check(q, k, v, bias, causal, softmax_scale, alignment, window=None, softcap=None) -> Sizes:
    """Raise ValueError, with the values, for a call that is not supported."""
    sizes = sizes_of(q, k, v)
    check_dtypes(q, k, v, DTYPES)
    check_headdim(sizes.headdim, LARGEST_HEADDIM)
    check_sizes(sizes)
    check_bias(bias, q, sizes.scores)
    check_one_device(q=q, k=k, v=v, bias=bias)
    check_device(q)
    check_options(causal, softmax_scale, alignment)
    check_window(window)
    check_softcap(softcap)
    return sizes


def check_device(x: torch.Tensor, name: str = "q") -> None:
    """Raise ValueError unless a tensor is on the device on which kernels run in this process."""
    should = "cpu" if EMULATED else "cuda"
    if x.device.type != should:
        why = "there is no GPU, so kernels run in the emulator" if EMULATED else "there is a GPU"
        raise ValueError(f"{name} is on {x.device}: should be on a {should.upper()} device, as {why}")


def strides_of(x: torch.Tensor) -> Strides:
    """Return the Strides of x (batch, seqlen, heads, headdim)."""
    batch, row, head = _strides(x)
    return Strides(batch, head, row)


def strides_of_bias(bias: torch.Tensor) -> Strides:
    """Return the Strides of bias (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k)."""
    return Strides(*_strides(bias))


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    """Return all strides but the last; 0 for dimensions of size 1, whose strides are arbitrary."""
    return tuple(0 if n == 1 else stride for n, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True))


def by_four(x: torch.Tensor) -> bool:
    """Return whether each row of x can be accessed four elements at a time, without a remainder.

    x has a last stride of 1.
    """
    fours = all(n % 4 == 0 for n in (*_strides(x), x.shape[-1]))
    return fours and x.data_ptr() % (4 * x.element_size()) == 0
