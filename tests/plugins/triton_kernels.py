"""Plain plug-ins in Triton: a product of bfloat16 in the kernel, and one of float32 for every dtype."""

import torch
import triton
import triton.language as tl

from impls import Implementation, Supports


@triton.jit
def attend(Q, K, V, Out, scale, seqlen, heads, headdim: tl.constexpr, block: tl.constexpr):
    """One program for each batch and head, with all its queries and keys."""
    b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    i, d = tl.arange(0, block), tl.arange(0, headdim)
    at = ((b * seqlen + i[:, None]) * heads + h) * headdim + d[None, :]
    inside = i[:, None] < seqlen
    q, k, v = (tl.load(X + at, mask=inside, other=0.0) for X in (Q, K, V))
    s = tl.where(i[None, :] < seqlen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -float("inf"))
    p = tl.exp(s - tl.max(s, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    tl.store(Out + at, tl.dot(p.to(v.dtype), v, input_precision="ieee").to(Out.dtype.element_ty), mask=inside)


def forward(q, k, v):
    batch, seqlen, heads, headdim = q.shape
    out = torch.empty_like(q)
    block = max(16, triton.next_power_of_2(seqlen))
    attend[(batch * heads,)](q, k, v, out, headdim**-0.5, seqlen, heads, headdim, block)
    return out


def in_float32(q, k, v):
    return forward(q.float(), k.float(), v.float()).to(q.dtype)


SUPPORTS = Supports(dtypes={torch.float32, torch.float16, torch.bfloat16}, headdims={16, 32})
IMPLS = [
    Implementation(name="in_operands", forward=forward, supports=SUPPORTS, share=0.1),
    Implementation(name="in_float32", forward=in_float32, supports=SUPPORTS, share=0.1),
]
