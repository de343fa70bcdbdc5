"""Sizes, mask and scale of one call, checked before anything is launched."""

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
    forced: bool = False  # tiles are forced, so head dims are padded as on a GPU, for which they were chosen

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.nheads // max(self.nheads_k, 1)

    def block_d(self, dtype: torch.dtype) -> int:
        """headdim padded to a power of two, at least 32: smaller tiles compile more kernels and are not faster.

        In the emulator a kernel compiles for longer than it runs, so the least is larger; float32 also runs for long.
        """
        least = 32 if not EMULATED or self.forced else 64 if dtype == torch.float32 else 128
        return max(least, triton.next_power_of_2(self.headdim))

    @property
    def pairs(self) -> int:
        """(query, key) pairs in all heads, including masked ones."""
        return self.batch * self.nheads * self.seqlen_q * self.seqlen_k

    def operations(self, products: int) -> int:
        """Multiplications and additions in that many matrix products, half of them under a causal mask."""
        return products * 2 * self.pairs * self.headdim // (2 if self.causal else 1)

    def arguments(self, *tensors: torch.Tensor) -> dict:
        """Arguments of every kernel. `tensors`: all that it reads and writes as tiles, which decide on wide loads."""
        align = 16 // tensors[0].element_size()  # elements in the widest load, 16 bytes
        if self.headdim % align or not all(aligned(x) for x in tensors) or tensors[0].dtype == torch.float32:
            align = 1  # float32 is bound by its products, not its loads, so it needs no second kernel
        if EMULATED and tensors[0].dtype == torch.bfloat16:
            align = 1  # wide loads are those of float16: a second kernel would only compile
        return dict(
            seqlen_q=self.seqlen_q,
            headdim=self.headdim,
            tuning_key=tuning_key(self.seqlen_q, self.seqlen_k, self.causal),
            BLOCK_D=self.block_d(tensors[0].dtype),
            ALIGN=align,
        )

    def loops(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """Whether tiles that need no mask get a separate loop, which is faster but takes longer to compile.

        They do not if the loads of a bias, or products without matrix units, take the time anyway.
        """
        return dict(BIAS=bias is not None, UNMASKED=bias is None and q.dtype != torch.float32)

    def scoring(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """More arguments of kernels that compute scores: scale, mask, bias. Without a bias, q is a placeholder."""
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
    """(batch, seqlen, heads, headdim) -> its strides."""
    batch, row, head = _strides(x)
    return Strides.packed(batch, head, row)


def strides_of_bias(bias: torch.Tensor | None) -> Strides:
    """(batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k) -> its strides; 0 where it broadcasts."""
    if bias is None:
        return Strides.packed(0, 0, 0)
    batch, head, row = _strides(bias)
    return Strides.packed(batch, head, row)


def aligned(x: torch.Tensor) -> bool:
    """Whether every row of a tensor starts at a multiple of 16 bytes."""
    return all(n * x.element_size() % 16 == 0 for n in _strides(x)) and x.data_ptr() % 16 == 0


def _strides(x: torch.Tensor) -> list[int]:
    """The first three strides in elements; 0 for a dimension of size 1, where the stride is arbitrary."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True)]


def problem_of(
    q, k, v, bias=None, causal=False, softmax_scale=None, alignment="bottom_right", tf32=False, forced=False,
    largest=LARGEST_HEADDIM,
) -> Problem:  # fmt: skip
    """Check a call and return its Problem. Raises ValueError, with the values, for a call that is not supported."""
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
    """Raise ValueError unless each of dq, dk, dv has its input's shape and dtype, and a last stride of 1."""
    for name, x, want in zip(("dq", "dk", "dv"), into, like, strict=True):
        check_like(name, x, want.shape, want.dtype, want.device)
        if unit_stride(x) is not x:
            raise ValueError(f"{name} has strides {x.stride()}: should have a last stride of 1, to be written to")


def _check_device(q: torch.Tensor) -> None:
    should = "cpu" if EMULATED else "cuda"
    if q.device.type != should:
        why = "there is no GPU, so kernels run in the emulator" if EMULATED else "there is a GPU"
        raise ValueError(f"q is on {q.device}: should be on a {should.upper()} device, as {why}")
