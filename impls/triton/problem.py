"""Sizes, mask and scale of a call, checked before any launch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from flash_attest.impls.contract.arguments import (
    LARGEST_SIZE,
    Sizes,
    check_bias,
    check_dtypes,
    check_headdim,
    check_like,
    check_one_device,
    check_options,
    check_sinks,
    check_sizes,
    check_softcap,
    check_window,
    sizes_of,
    unit_stride,
)
from flash_attest.impls.diagonals import diagonals

from .device import EMULATED
from .packed import Packed, packed_sizes_of
from .tiles import EITHER, Strides
from .tuning import tuning_key

LARGEST_HEADDIM = 256
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Problem:
    """One call: q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim), v
    (batch, seqlen_k, nheads_k, headdim_v).

    Query i sees keys max(i + begin, 0) .. min(i + diagonal, seqlen_k - 1). softcap 0: none. If
    sequences are `packed`, lengths are those of the longest, and diagonals are relative to each
    sequence's own (tiles.diagonals_of).
    """

    batch: int
    seqlen_q: int
    seqlen_k: int
    nheads: int
    nheads_k: int
    headdim: int
    headdim_v: int
    scale: float
    softcap: float
    begin: int
    diagonal: int
    causal: bool
    sinks: bool
    tf32: bool
    forced: bool = False  # tiles are forced; they were chosen for GPUs, so head dims are padded as on a GPU
    packed: Packed | None = None

    @property
    def group(self) -> int:
        """The number of query heads that share a key head."""
        return self.nheads // max(self.nheads_k, 1)

    @property
    def window(self) -> bool:
        """Whether a window is bounded on the left. A right bound is no more than a diagonal."""
        return self.begin > -LARGEST_SIZE

    @property
    def widest(self) -> int:
        """The number of keys that a query sees at most; a causal mask alone does not count."""
        return max(min(self.seqlen_k, self.diagonal - self.begin + 1), 0) if self.window else self.seqlen_k

    @property
    def own_v(self) -> bool:
        """Whether v has another head dim than q and k."""
        return self.headdim_v != self.headdim

    @property
    def statistics(self) -> tuple[int, ...]:
        """The shape of lse."""
        rows = (self.batch, self.nheads, self.seqlen_q)
        return rows if self.packed is None else (self.nheads, self.packed.total_q)

    @property
    def newer(self) -> bool:
        """Whether kernels have a window and another head dim of v.

        Neither costs time where it is neutral, so calls with sinks or one of these share kernels.
        """
        return self.window or self.sinks or self.own_v or self.every

    @property
    def every(self) -> bool:
        """Whether kernels have a window, a softcap, sinks, another head dim of v, and a bias.

        In the emulator, where compiling takes longer than running, this is so if the call has one
        of the first four, or packed sequences. The others get neutral values.
        """
        newer = self.window or self.softcap > 0 or self.sinks or self.own_v or self.packed is not None
        return EMULATED and not self.forced and newer

    def neutral(self, q: torch.Tensor, bias, sinks) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return bias and sinks, in float32 and not None if kernels have everything."""
        if self.every:
            if self.packed is None:  # with packed sequences there is no bias
                bias = q.new_zeros(1, 1, 1, self.seqlen_k, dtype=torch.float32) if bias is None else bias.float()
            sinks = q.new_full((self.nheads,), -torch.inf, dtype=torch.float32) if sinks is None else sinks
        return bias, sinks

    def padded(self, headdim: int, dtype: torch.dtype) -> int:
        """Return a head dim padded to a power of two, at least 32.

        A smaller minimum would need more kernels and not be faster. Beside a larger head dim the
        minimum is 64: ptxas 12.8 takes an address from a register that it never wrote if wgmma
        reads tiles with rows of 64 and of 128 bytes from one place, as K and V may have.

        In the emulator, compiling a kernel takes longer than running it, so the minimum is larger:
        128, or 64 in float32, which also runs for a long time.
        """
        larger = max(self.headdim, self.headdim_v)
        least = 64 if larger > 32 else 32
        if EMULATED and not self.forced:
            least = 64 if dtype == torch.float32 else 128
        headdim = larger if self.every else headdim
        return max(least, triton.next_power_of_2(headdim))

    @property
    def pairs(self) -> int:
        """The number of (query, key) pairs in all heads, including masked pairs."""
        return self.batch * self.nheads * self.seqlen_q * self.seqlen_k

    def operations(self, products: int) -> int:
        """Return the number of operations in these matrix products.

        It is half under a causal mask, or what a window leaves, if that is less.
        """
        seen = min(self.pairs // (2 if self.causal else 1), self.batch * self.nheads * self.seqlen_q * self.widest)
        return products * seen * (self.headdim + self.headdim_v)

    def arguments(self, *tensors: torch.Tensor) -> dict:
        """Return the arguments of every kernel.

        tensors: all tensors that the kernel reads or writes as tiles. They decide whether loads are
        wide.
        """
        align = 16 // tensors[0].element_size()  # elements in the widest load, 16 bytes
        whole = self.headdim % align == self.headdim_v % align == 0
        if not whole or not all(aligned(x) for x in tensors) or tensors[0].dtype == torch.float32:
            align = 1  # float32 is bound by its products, not by its loads, so it needs no second kernel
        if EMULATED and tensors[0].dtype == torch.bfloat16:
            align = 1  # bfloat16 loads as float16 does: a second kernel would only cost compilation
        return dict(
            seqlen_q=self.seqlen_q,
            headdim_v=self.headdim_v,
            tuning_key=tuning_key(self.seqlen_q, self.widest, self.causal),
            BLOCK_DV=self.padded(self.headdim_v, tensors[0].dtype),
            ALIGN=align,
        )

    def lengths(self, *of: str) -> dict:
        """Return the arguments that say where packed sequences lie in q, or in "q", "k".

        What is None is compiled away.
        """
        ends = {f"cu_seqlens_{x}_ptr": getattr(self.packed, f"cu_seqlens_{x}", None) for x in of}
        return ends | dict(total_q=getattr(self.packed, "total_q", None), VARLEN=self.packed is not None)

    def loops(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """Return whether there is a bias, and whether tiles that need no mask get a separate loop.

        A separate loop is faster but takes longer to compile. It does not pay off if loads of a
        bias, or products without matrix units, take most of the time.
        """
        return dict(BIAS=bias is not None, UNMASKED=(bias is None or self.every) and q.dtype != torch.float32)

    def scoring(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """Return the further arguments of kernels that compute scores: scale, mask, bias.

        Without a bias, q is a placeholder.
        """
        return dict(
            bias_ptr=q if bias is None else bias,
            bias_strides=strides_of_bias(bias),
            scale=float(self.scale),
            softcap=float(self.softcap),
            group=self.group,
            seqlen_k=self.seqlen_k,
            begin=self.begin,
            diagonal=self.diagonal,
            headdim=self.headdim,
            BLOCK_D=self.padded(self.headdim, q.dtype),
            CAP=EITHER.value if self.every else int(self.softcap > 0),
            WINDOW=self.newer,
            OWN_V=self.newer,
            PRECISION="tf32" if self.tf32 else "ieee",
        )


def strides_of(x: torch.Tensor) -> Strides:
    """Return the Strides of x (batch, seqlen, heads, headdim), or of packed sequences.

    In (total, heads, headdim), a sequence's "batch" is its first row (tiles.sequence_of).
    """
    *batch, row, head = _strides(x)
    return Strides.packed(*batch or [row], head, row)


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
    """Return all strides in elements but the last; 0 for a dimension of size 1."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True)]


def problem_of(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, window=None, softcap=None, sinks=None,
    lengths=None, alignment="bottom_right", tf32=False, forced=False, largest=LARGEST_HEADDIM,
) -> Problem:  # fmt: skip
    """Check a call and return its Problem.

    lengths: None, or (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k) of packed sequences.
    Raises ValueError, with the values, if the call is not supported.
    """
    packed, sizes, headdim_v = _dense_sizes_of(q, k, v) if lengths is None else packed_sizes_of(q, k, v, *lengths)
    check_sizes(sizes)
    check_headdim(sizes.headdim, largest)
    check_headdim(headdim_v, largest, " of v")
    check_dtypes(q, k, v, DTYPES)
    check_bias(bias, q, sizes.scores)
    check_one_device(q=q, k=k, v=v, bias=bias)
    check_device(q)
    check_options(causal, softmax_scale, alignment)
    check_window(window)
    check_softcap(softcap)
    check_sinks(sinks, sizes.nheads, q.device)
    scale = sizes.headdim**-0.5 if softmax_scale is None else float(softmax_scale)  # 0 is a valid scale
    if packed is None:
        begin, diagonal = diagonals(sizes, causal, window, alignment)
    else:  # not moved to the corner and not cut, since each sequence has its own lengths
        begin, diagonal = diagonals(sizes._replace(seqlen_k=LARGEST_SIZE), causal, window, "top_left")
    return Problem(
        *sizes, headdim_v, scale, float(softcap or 0.0), begin, diagonal, causal, sinks is not None, tf32, forced,
        packed,
    )  # fmt: skip


def _dense_sizes_of(q: object, k: object, v: object) -> tuple[None, Sizes, int]:
    """Return None, as no sequences are packed, the sizes of a call, and v's head dim."""
    both = isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor) and k.dim() == v.dim() == 4
    own_columns = both and k.shape[:3] == v.shape[:3] and k.shape[3] != v.shape[3]
    sizes = sizes_of(q, k, k if own_columns else v)
    return None, sizes, v.shape[3] if own_columns else sizes.headdim


def check_into(into, like) -> None:
    """Raise ValueError unless dq, dk, dv are like q, k, v, with a last stride of 1."""
    for name, x, want in zip(("dq", "dk", "dv"), into, like, strict=True):
        check_like(name, x, want.shape, want.dtype, want.device)
        if unit_stride(x) is not x:
            raise ValueError(f"{name} has strides {x.stride()}: should have a last stride of 1, to be written to")


def check_device(q: torch.Tensor) -> None:
    """Raise ValueError unless q is on the device of the kernels."""
    should = "cpu" if EMULATED else "cuda"
    if q.device.type != should:
        why = "there is no GPU, so kernels run in the emulator" if EMULATED else "there is a GPU"
        raise ValueError(f"q is on {q.device}: should be on a {should.upper()} device, as {why}")
