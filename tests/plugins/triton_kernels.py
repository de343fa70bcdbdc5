"""A plug-in in Triton that does not mention the emulator: one kernel for all dtypes.

A second implementation has a race: RACE stores the row sums to memory and loads them for columns,
which other threads hold.
"""

import torch
import triton
import triton.language as tl

from flash_attest import Implementation, Supports

LONGEST = 128  # a block holds a whole row of scores


@triton.jit
def attend(Q, K, V, Out, Scratch, scale, seqlen, heads, headdim: tl.constexpr, block: tl.constexpr, RACE: tl.constexpr):
    """Compute one batch and head, with all its queries and keys, in one program."""
    b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    i, d = tl.arange(0, block), tl.arange(0, headdim)
    at = ((b * seqlen + i[:, None]) * heads + h) * headdim + d[None, :]
    inside = i[:, None] < seqlen
    q = tl.load(Q + at, mask=inside, other=0.0)
    k = tl.load(K + at, mask=inside, other=0.0)
    v = tl.load(V + at, mask=inside, other=0.0)
    s = tl.where(i[None, :] < seqlen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -float("inf"))
    p = tl.exp(s - tl.max(s, 1)[:, None])
    total = tl.sum(p, 1)
    if RACE:
        row = Scratch + tl.program_id(0) * block
        tl.store(row + i, total)
        total = tl.load(row + tl.arange(0, block))
    p = p / total[:, None]
    tl.store(Out + at, tl.dot(p.to(v.dtype), v, input_precision="ieee").to(Out.dtype.element_ty), mask=inside)


def forward(q, k, v, race=False):
    batch, seqlen, heads, headdim = q.shape
    if not q.shape == k.shape == v.shape or not q.dtype == k.dtype == v.dtype:
        raise ValueError("q, k and v must have the same shape and dtype")
    if seqlen > LONGEST or not all(t.is_contiguous() for t in (q, k, v)):
        raise ValueError(f"the tensors must be contiguous, with seqlen up to {LONGEST}")
    out = torch.empty_like(q)
    block = max(16, triton.next_power_of_2(seqlen))
    scratch = q.new_ones(batch * heads, block, dtype=torch.float32)
    attend[(batch * heads,)](q, k, v, out, scratch, headdim**-0.5, seqlen, heads, headdim, block, race)
    return out


def racy(q, k, v):
    return forward(q, k, v, race=True)


SUPPORTS = Supports(
    dtypes={torch.float32, torch.float16, torch.bfloat16},
    headdims={16, 32},
    accepts=lambda case: f"seqlen above {LONGEST}" if case.seqlen_q > LONGEST else None,
)
IMPLS = [
    Implementation(name="right", forward=forward, supports=SUPPORTS, traced=True, devices={"cpu", "cuda"}, share=0.1),
    Implementation(name="racy", forward=racy, supports=SUPPORTS, traced=True, devices={"cpu", "cuda"}, share=0.1),
]
