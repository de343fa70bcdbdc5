"""FlashAttention-2's forward for Hopper: TMA copies tiles, and wgmma multiplies them.

A program loads its tiles of Q, K and V with tensor descriptors. Two stages of K and V are in shared
memory, and mbarriers tell when one has come. Algorithm and names are those of forward.py. A
descriptor reads zeros outside of its tensor and writes nothing there, so only scores have to be
masked.

Triton can also divide the loop among warps (warp_specialize): one group of warps starts the copies,
and the others multiply. But up to 3.7.1 it then leaves mbarriers where it copies tiles to, without
mbarrier.inval, and where several processes share a GPU, one call in a thousand is wrong (finding
140). So this is off, and only tests turn it on.

A descriptor has three dimensions: batch, row, and the heads of a row one behind the other. With
four, and the loop divided, Triton 3.7.1 signals that a stage of K is empty before it multiplies it.

The backward is triton_fa2's.
"""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flash_attest.emulator import devices

from .attention import FlashAttention2
from .device import EMULATED
from .tiles import INF, LN2, LOG2E

ALIGNMENT = 16  # bytes, of addresses and strides in a tensor map
HEADDIMS = (64, 128)
NUMBERS = ["scale", "nheads", "group", "seqlen_q", "seqlen_k", "diagonal"]


@functools.cache
def lacking() -> str:
    """Return why the kernel cannot run in this process; "" if it can."""
    if EMULATED:
        return "" if devices.target() >= 90 else "it needs sm_90, and sm_80 is emulated: --emulated 90"
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:  # by its tool, as asking CUDA would begin to use it in the process that imports this
        found = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        found = []
    return "" if found and all(each.startswith("9.") for each in found) else "it needs a Hopper GPU (sm_90)"


@triton.jit(do_not_specialize=NUMBERS)
def forward_by_tma(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, scale, nheads, group, seqlen_q, seqlen_k, diagonal,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, SPECIALIZED: tl.constexpr,
):  # fmt: skip
    """Write out and lse: program (b, h, Q tile). Query i sees keys 0 .. i + diagonal."""
    tiles = tl.cdiv(seqlen_q, BLOCK_M)
    i0 = tl.program_id(0) % tiles * BLOCK_M
    bh = tl.program_id(0) // tiles
    b, h = bh // nheads, bh % nheads
    h_k = h // group
    i = i0 + tl.arange(0, BLOCK_M)
    q = q_desc.load([b, i0, h * BLOCK_D]).reshape(BLOCK_M, BLOCK_D)
    m = tl.full((BLOCK_M,), -INF, tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    last = tl.maximum(tl.minimum(seqlen_k, i0 + BLOCK_M + diagonal), 0)
    for j0 in tl.range(0, last, BLOCK_N, warp_specialize=SPECIALIZED, num_stages=2):
        k = k_desc.load([b, j0, h_k * BLOCK_D]).reshape(BLOCK_N, BLOCK_D)
        s = tl.dot(q, k.T) * (scale * LOG2E)
        j = j0 + tl.arange(0, BLOCK_N)
        seen = (j[None, :] < seqlen_k) & (j[None, :] <= i[:, None] + diagonal)
        s = tl.where(seen, s, -INF)
        m_new = tl.maximum(m, tl.max(s, 1))
        m_safe = tl.where(m_new == -INF, 0.0, m_new)
        p = tl.exp2(s - m_safe[:, None])
        alpha = tl.exp2(m - m_safe)
        l = alpha * l + tl.sum(p, 1)
        v = v_desc.load([b, j0, h_k * BLOCK_D]).reshape(BLOCK_N, BLOCK_D)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    dead = l == 0.0
    out = acc / tl.where(dead, 1.0, l)[:, None]
    lse = tl.where(dead, -INF, (m + tl.log2(tl.where(dead, 1.0, l))) * LN2)
    out_desc.store([b, i0, h * BLOCK_D], out.to(out_desc.dtype).reshape(1, BLOCK_M, BLOCK_D))
    tl.store(lse_ptr + bh.to(tl.int64) * seqlen_q + i, lse, mask=i < seqlen_q)


@dataclass(frozen=True)
class ByTma:
    """Attention by this kernel, with the gradients of another one.

    block_m, block_n: the tile. specialized: whether the loop is divided among warps. backward_by:
        computes gradients.
    """

    block_m: int = 64
    block_n: int = 64
    specialized: bool = False
    backward_by: FlashAttention2 = field(default_factory=FlashAttention2)

    def forward(self, q, k, v, *, causal=False, softmax_scale=None):
        """q (b, sq, h, d), k, v (b, sk, hk, d) -> out (b, sq, h, d), lse (b, h, sq).

        Raises ValueError for invalid arguments, before the launch.
        """
        p = self.backward_by.problem(q, k, v, causal=causal, softmax_scale=softmax_scale)
        if q.dtype == torch.float32 or p.own_v or p.headdim not in HEADDIMS:
            raise ValueError(
                f"q is {tuple(q.shape)}, {q.dtype}, v is {tuple(v.shape)}: should be float16 or bfloat16, with head dims of "
                f"{' or '.join(map(str, HEADDIMS))}"
            )
        out = q.new_empty(q.shape)
        lse = q.new_full(p.statistics, -torch.inf, dtype=torch.float32)
        if 0 in (p.batch, p.seqlen_q, p.seqlen_k, p.nheads):  # a tensor map has no empty dimension
            return out.zero_(), lse
        rows, keys = [1, self.block_m, p.headdim], [1, self.block_n, p.headdim]
        programs = p.batch * p.nheads * triton.cdiv(p.seqlen_q, self.block_m)
        with torch.cuda.device_of(q):
            forward_by_tma[(programs,)](
                described(q, rows), described(k, keys), described(v, keys), described(out, rows), lse, p.scale,
                p.nheads, p.group, p.seqlen_q, p.seqlen_k, p.diagonal,
                BLOCK_M=self.block_m, BLOCK_N=self.block_n, BLOCK_D=p.headdim, SPECIALIZED=self.specialized,
                num_warps=4,
            )  # fmt: skip
        return out, lse

    def backward(self, dout, q, k, v, out, lse, **options):
        """dout, out, lse as of `forward` -> dq, dk, dv."""
        return self.backward_by.backward(dout, q, k, v, out, lse, **options)


def described(x: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Return the descriptor of a tensor (batch, seqlen, heads, headdim), or of a copy if TMA cannot
    read it where it is.
    """
    batch, seqlen, heads, headdim = x.shape
    # The stride of a dimension of size 1 says nothing, but a map takes multiples of 16 bytes only.
    strides = [ALIGNMENT if n == 1 else stride for n, stride in zip(x.shape[:2], x.stride()[:2], strict=True)]
    in_rows = x.stride(3) == 1 and (heads == 1 or x.stride(2) == headdim)
    fits = all(n > 0 and n * x.element_size() % ALIGNMENT == 0 for n in strides)
    if not in_rows or not fits or x.data_ptr() % ALIGNMENT:
        x = x.clone(memory_format=torch.contiguous_format)
        strides = [*x.stride()[:2]]
    return TensorDescriptor(x, [batch, seqlen, heads * headdim], [*strides, 1], block)
