"""What is to be computed: sizes, mask and scale of one call, checked before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from .interpreter import INTERPRETED
from .tiles import Strides
from .tuning import tuning_key

LARGEST_HEADDIM = 256
LARGEST_SCALE = 2.0**127  # times log2(e) it is still a float32
DTYPES = (torch.float16, torch.float32) if INTERPRETED else (torch.float16, torch.bfloat16, torch.float32)
ALIGNMENTS = ("bottom_right", "top_left")


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

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.nheads // max(self.nheads_k, 1)

    @property
    def block_d(self) -> int:
        """headdim padded to a power of two; at least 32, as smaller ones would be compiled apart and win nothing."""
        return max(32, triton.next_power_of_2(self.headdim))

    @property
    def pairs(self) -> int:
        """(query, key) pairs in all heads, masked ones counted too."""
        return self.batch * self.nheads * self.seqlen_q * self.seqlen_k

    def operations(self, products: int) -> int:
        """Multiplications and additions in that many matrix products, half of them under a causal mask."""
        return products * 2 * self.pairs * self.headdim // (2 if self.causal else 1)

    def arguments(self, *tensors: torch.Tensor) -> dict:
        """What every kernel takes. `tensors` are all that it reads and writes as tiles: they decide on wide loads."""
        align = 16 // tensors[0].element_size()  # elements in the widest load, 16 bytes
        if self.headdim % align or not all(aligned(x) for x in tensors) or tensors[0].dtype == torch.float32:
            align = 1  # float32 waits for its products, not for its loads, and so has one kernel less to compile
        return dict(
            seqlen_q=self.seqlen_q,
            headdim=self.headdim,
            tuning_key=tuning_key(self.seqlen_q, self.seqlen_k, self.causal),
            BLOCK_D=self.block_d,
            ALIGN=align,
        )

    def loops(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """Whether tiles that need no mask get a loop of their own, which is faster, and compiled beside the other.

        Where something else takes the time, the loads of a bias or products without matrix units, they do not.
        """
        return dict(BIAS=bias is not None, UNMASKED=bias is None and q.dtype != torch.float32)

    def scoring(self, q: torch.Tensor, bias: torch.Tensor | None) -> dict:
        """What every kernel that computes scores takes beside: scale, mask, bias. Without a bias, q stands in for it."""
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
    return Strides(16 * batch, 16 * head, 16 * row)


def strides_of_bias(bias: torch.Tensor | None) -> Strides:
    """(batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k) -> its strides; 0 where it broadcasts."""
    if bias is None:
        return Strides(0, 0, 0)
    batch, head, row = _strides(bias)
    return Strides(16 * batch, 16 * head, 16 * row)


def aligned(x: torch.Tensor) -> bool:
    """Whether every row of a tensor starts at a multiple of 16 bytes."""
    return all(n * x.element_size() % 16 == 0 for n in _strides(x)) and x.data_ptr() % 16 == 0


def _strides(x: torch.Tensor) -> list[int]:
    """The first three strides in elements; 0 for a dimension of size 1, whose stride may be anything."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True)]


def unit_stride(x: torch.Tensor) -> torch.Tensor:
    """The same tensor, copied if its last stride is not 1."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def problem_of(q, k, v, bias=None, causal=False, softmax_scale=None, alignment="bottom_right", tf32=False) -> Problem:
    """Check everything and return the Problem. Raises ValueError, with the values, for what cannot be computed."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x)
        if x.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: should be (batch, seqlen, nheads, headdim)")
    (batch, seqlen_q, nheads, headdim), (seqlen_k, nheads_k) = q.shape, k.shape[1:3]
    if tuple(k.shape) != tuple(v.shape) or tuple(k.shape) != (batch, seqlen_k, nheads_k, headdim):
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"{shapes}: k and v should have one shape, and q's batch and headdim")
    if not 1 <= headdim <= LARGEST_HEADDIM:
        raise ValueError(f"headdim is {headdim}: should be 1 to {LARGEST_HEADDIM}")
    if nheads and (nheads_k == 0 or nheads % nheads_k):
        raise ValueError(f"nheads is {nheads}: should be a multiple of nheads_k, which is {nheads_k}")
    if bias is not None:
        check_tensor("bias", bias)
    _check_dtypes(q, k, v, bias)
    _check_devices(q, k, v, bias)
    _check_bias(bias, (batch, nheads, seqlen_q, seqlen_k))
    if alignment not in ALIGNMENTS:
        raise ValueError(f"causal_alignment is {alignment!r}: should be one of {', '.join(map(repr, ALIGNMENTS))}")
    if not isinstance(causal, bool):
        raise ValueError(f"causal is {causal!r}: should be True or False")
    number = isinstance(softmax_scale, (int, float)) and not isinstance(softmax_scale, bool)
    if softmax_scale is not None and not (number and abs(softmax_scale) <= LARGEST_SCALE):
        raise ValueError(f"softmax_scale is {softmax_scale!r}: should be a number of magnitude at most 2^127, or None")
    diagonal = seqlen_k  # beyond every key: all are seen
    if causal:
        diagonal = seqlen_k - seqlen_q if alignment == "bottom_right" else 0
    scale = headdim**-0.5 if softmax_scale is None else float(softmax_scale)  # 0 is a scale like any other
    return Problem(batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim, scale, diagonal, causal, tf32)


def check_tensor(name: str, x: object) -> None:
    """Raises ValueError for what is no tensor with strides."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}: should be a tensor")
    if x.layout != torch.strided:
        raise ValueError(f"{name} has layout {x.layout}: should be torch.strided")


def check_backward(p: Problem, q, out, dout, lse) -> None:
    """Raises ValueError unless out and dout are like q, and lse is (batch, nheads, seqlen_q) float32."""
    statistics = (p.batch, p.nheads, p.seqlen_q)
    for name, x, shape, dtype in (
        ("out", out, q.shape, q.dtype), ("dout", dout, q.shape, q.dtype), ("lse", lse, statistics, torch.float32)
    ):  # fmt: skip
        check_tensor(name, x)
        _check_like(name, x, shape, dtype, q.device)


def check_into(into, like) -> None:
    """Raises ValueError unless each of dq, dk, dv can be written to: like its input, with a last stride of 1."""
    for name, x, want in zip(("dq", "dk", "dv"), into, like, strict=True):
        check_tensor(name, x)
        _check_like(name, x, want.shape, want.dtype, want.device)
        if unit_stride(x) is not x:
            raise ValueError(f"{name} has strides {x.stride()}: should have a last stride of 1, to be written to")


def _check_like(name, x, shape, dtype, device) -> None:
    if tuple(x.shape) != tuple(shape) or x.dtype != dtype or x.device != device:
        raise ValueError(
            f"{name} is {tuple(x.shape)} {x.dtype} on {x.device}: should be {tuple(shape)} {dtype} on {device}"
        )


def _check_dtypes(q, k, v, bias) -> None:
    if not (q.dtype == k.dtype == v.dtype):
        raise ValueError(f"q is {q.dtype}, k {k.dtype}, v {v.dtype}: should be one dtype")
    if INTERPRETED and q.dtype == torch.bfloat16:
        raise ValueError("q is torch.bfloat16: Triton's interpreter computes bfloat16 wrongly; use float16 or float32")
    if q.dtype not in DTYPES:
        raise ValueError(f"q is {q.dtype}: should be one of {', '.join(map(str, DTYPES))}")
    if bias is not None and bias.dtype not in (torch.float32, q.dtype):
        either = " or ".join(map(str, dict.fromkeys((torch.float32, q.dtype))))
        raise ValueError(f"bias is {bias.dtype}: should be {either}")


def _check_devices(q, k, v, bias) -> None:
    devices = {"q": q.device, "k": k.device, "v": v.device} | ({} if bias is None else {"bias": bias.device})
    if len(set(devices.values())) > 1:
        raise ValueError(f"{', '.join(f'{name} is on {at}' for name, at in devices.items())}: should be one device")
    if q.device.type not in (("cpu", "cuda") if INTERPRETED else ("cuda",)):
        should = "a CPU or CUDA device" if INTERPRETED else "a CUDA device"
        hint = ", or in Triton's interpreter: set TRITON_INTERPRET=1 before Python starts"
        raise ValueError(f"q is on {q.device}: should be on {should}{hint if q.device.type == 'cpu' else ''}")


def _check_bias(bias, full: tuple[int, int, int, int]) -> None:
    if bias is None:
        return
    fits = bias.dim() == 4 and bias.shape[3] == full[3]
    if not fits or any(n not in (1, want) for n, want in zip(bias.shape, full, strict=True)):
        raise ValueError(
            f"bias has shape {tuple(bias.shape)}: should be ({full[0]} or 1, {full[1]} or 1, {full[2]} or 1, {full[3]}),"
            " that is (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k)"
        )
