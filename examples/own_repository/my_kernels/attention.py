"""The forward of FlashAttention in Triton."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N = 32, 32  # rows of q, and of k and v, in a tile
HEADDIMS = (16, 32, 64)


@triton.jit(do_not_specialize=["seqlen"])  # compiled once for all lengths
def attention_kernel(
    q, k, v, out, lse, seqlen, scale,
    CAUSAL: tl.constexpr, HEADDIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute softmax(scale * q k^T) v for a tile of queries of a head.

    It loops over the tiles of keys, with a running maximum.
    """
    start, head = tl.program_id(0) * BLOCK_M, tl.program_id(1).to(tl.int64)
    i, d = start + tl.arange(0, BLOCK_M), tl.arange(0, HEADDIM)
    at = head * seqlen * HEADDIM
    rows, in_rows = at + i[:, None] * HEADDIM + d[None, :], i[:, None] < seqlen
    q_tile = tl.load(q + rows, mask=in_rows, other=0.0)
    m = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEADDIM], tl.float32)
    end = tl.minimum(start + BLOCK_M, seqlen) if CAUSAL else seqlen
    for first in range(0, end, BLOCK_N):
        j = first + tl.arange(0, BLOCK_N)
        columns, in_columns = at + j[:, None] * HEADDIM + d[None, :], j[:, None] < seqlen
        k_tile = tl.load(k + columns, mask=in_columns, other=0.0)
        v_tile = tl.load(v + columns, mask=in_columns, other=0.0)
        seen = j[None, :] < seqlen
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        s = tl.where(seen, scale * tl.dot(q_tile, tl.trans(k_tile)), -float("inf"))
        before, m = m, tl.maximum(m, tl.max(s, 1))
        p, kept = tl.exp(s - m[:, None]), tl.exp(before - m)
        l = l * kept + tl.sum(p, 1)
        acc = acc * kept[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
    tl.store(out + rows, (acc / l[:, None]).to(out.dtype.element_ty), mask=in_rows)
    tl.store(lse + head * seqlen + i, m + tl.log(l), mask=i < seqlen)


def attention(q, k, v, *, causal=False):
    """q, k, v (batch, nheads, seqlen, headdim) in float16 -> out like q, lse (batch, nheads,
    seqlen).

    lse is float32. Raises ValueError for other shapes and dtypes.
    """
    batch, nheads, seqlen, headdim = q.shape
    if not q.shape == k.shape == v.shape or not q.dtype == k.dtype == v.dtype == torch.float16:
        raise ValueError("q, k and v should have one shape, and be float16")
    if headdim not in HEADDIMS:
        raise ValueError(f"headdim is {headdim}: should be one of {HEADDIMS}")
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    out, lse = torch.empty_like(q), q.new_empty(batch, nheads, seqlen, dtype=torch.float32)
    attention_kernel[(triton.cdiv(seqlen, BLOCK_M), batch * nheads)](
        q, k, v, out, lse, seqlen, headdim**-0.5, causal, headdim, BLOCK_M, BLOCK_N
    )
    return out, lse
