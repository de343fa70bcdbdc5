"""Sizes, mask and scale of a call, checked before any launch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from flash_attest.impls.contract.arguments import (
    check_bias,
    check_dtypes,
    check_headdim,
    check_like,
    check_one_device,
    check_options,
    check_sizes,
    sizes_of,
    unit_stride,
)

from .device import EMULATED
from .tiles import Strides
from .tuning import tuning_key

LARGEST_HEADDIM = 256
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Problem:
    """One call: q (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads_k, headdim).

    Query i sees keys 0 .. min(i + diagonal, seqlen_k - 1).
    """

    batch: int
    seqlen_q: int
    seqlen_k: int
    nheads: int
    nheads_k: int
    headdim: int
    scale: float
    diagonal: int
    causal: bool
    tf32: bool
    forced: bool = False  # tiles are forced; they were chosen for GPUs, so head dims are padded as on a GPU

    @property
    def group(self) -> int:
        """The number of query heads that share a key head."""
        return self.nheads // max(self.nheads_k, 1)

    def block_d(self, dtype: torch.dtype) -> int:
        """Return headdim padded to a power of two, at least 32.

        A smaller minimum would need more kernels and not be faster.

        In the emulator, compiling a kernel takes longer than running it, so the minimum is larger:
        128, or 64 in float32, which also runs for a long time.
        """
        least = 32 if not EMULATED or self.forced else 64 if dtype == torch.float32 else 128
        return max(least, triton.next_power_of_2(self.headdim))

    @property
    def pairs(self) -> int:
        """The number of (query, key) pairs in all heads, including masked pairs."""
        return self.batch * self.nheads * self.seqlen_q * self.seqlen_k

    def operations(self, products: int) -> int:
        """Return the number of operations in these matrix products; half under a causal mask."""
        return products * 2 * self.pairs * self.headdim // (2 if self.causal else 1)

    def arguments(self, *tensors: torch.Tensor) -> dict:
        """Return the arguments of every kernel.

        tensors: all tensors that the kernel reads or writes as tiles. They decide whether loads are
        wide.
        """
        align = 16 // tensors[0].element_size()  # elements in the widest load, 16 bytes
        if self.headdim % align or not all(aligned(x) for x in tensors) or tensors[0].dtype == torch.float32:
            align = 1  # float32 is bound by its products, not by its loads, so it needs no second kernel
        if EMULATED and tensors[0].dtype == torch.bfloat16:
            align = 1  # bfloat16 loads as float16 does: a second kernel would only cost compilation
        return dict(
            seqlen_q=self.seqlen_q,
            headdim=self.headdim,
            tuning_key=tuning_key(self.seqlen_q, self.seqlen_k, self.causal),
            BLOCK_D=self.block_d(tensors[0].dtype),
            ALIGN=align,
        )

    def loops(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """Return whether there is a bias, and whether tiles that need no mask get a separate loop.

        A separate loop is faster but takes longer to compile. It does not pay off if loads of a
        bias, or products without matrix units, take most of the time.
        """
        return dict(BIAS=bias is not None, UNMASKED=bias is None and q.dtype != torch.float32)

    def scoring(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """Return the further arguments of kernels that compute scores: scale, mask, bias.

        Without a bias, q is a placeholder.
        """
        return dict(
            bias_ptr=q if bias is None else bias,
            bias_strides=strides_of_bias(bias),
            scale=float(self.scale),
            group=self.group,
            seqlen_k=self.seqlen_k,
            diagonal=self.diagonal,
            PRECISION="tf32" if self.tf32 else "ieee",
        )


def strides_of(x: torch.Tensor) -> Strides:
    """Return the Strides of x (batch, seqlen, heads, headdim)."""
    batch, row, head = _strides(x)
    return Strides.packed(batch, head, row)


def strides_of_bias(bias: torch.Tensor | None) -> Strides:
    """Return the Strides of a bias; they are 0 in dimensions that broadcast.

    bias is (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k).
    """
    if bias is None:
        return Strides.packed(0, 0, 0)
    batch, head, row = _strides(bias)
    return Strides.packed(batch, head, row)


def aligned(x: torch.Tensor) -> bool:
    """Return whether every row of a tensor starts at a multiple of 16 bytes."""
    return all(n * x.element_size() % 16 == 0 for n in _strides(x)) and x.data_ptr() % 16 == 0


def _strides(x: torch.Tensor) -> list[int]:
    """Return the first three strides in elements; 0 for a dimension of size 1."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True)]


def problem_of(
    q, k, v, bias=None, causal=False, softmax_scale=None, alignment="bottom_right", tf32=False, forced=False,
    largest=LARGEST_HEADDIM,
) -> Problem:  # fmt: skip
    """Check a call and return its Problem.

    Raises ValueError, with the values, if it is not supported.
    """
    sizes = sizes_of(q, k, v)
    check_sizes(sizes)
    check_headdim(sizes.headdim, largest)
    check_dtypes(q, k, v, DTYPES)
    check_bias(bias, q, sizes.scores)
    check_one_device(q=q, k=k, v=v, bias=bias)
    _check_device(q)
    check_options(causal, softmax_scale, alignment)
    seqlen_q, seqlen_k, headdim = sizes.seqlen_q, sizes.seqlen_k, sizes.headdim
    diagonal = seqlen_k  # every query sees every key
    if causal:
        diagonal = seqlen_k - seqlen_q if alignment == "bottom_right" else 0
    scale = headdim**-0.5 if softmax_scale is None else float(softmax_scale)  # 0 is a valid scale
    return Problem(*sizes, scale, diagonal, causal, tf32, forced)


def check_into(into, like) -> None:
    """Raise ValueError unless dq, dk, dv are like q, k, v, with a last stride of 1."""
    for name, x, want in zip(("dq", "dk", "dv"), into, like, strict=True):
        check_like(name, x, want.shape, want.dtype, want.device)
        if unit_stride(x) is not x:
            raise ValueError(f"{name} has strides {x.stride()}: should have a last stride of 1, to be written to")


def _check_device(q: torch.Tensor) -> None:
    should = "cpu" if EMULATED else "cuda"
    if q.device.type != should:
        why = "there is no GPU, so kernels run in the emulator" if EMULATED else "there is a GPU"
        raise ValueError(f"q is on {q.device}: should be on a {should.upper()} device, as {why}")
