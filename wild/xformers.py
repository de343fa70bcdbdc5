"""xformers 0.0.35: memory_efficient_attention, which chooses among CUDA kernels by the call.

Its documentation leaves rows without keys undefined, and a causal block needs at least as many keys
as queries. Grouped heads are a dimension of their own there, for which FlashAttention-2, the one of
PyTorch, has no backward.
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.notation import lengths_of
from flash_attest.wild import module_of

fmha = module_of("xformers", "xformers.ops.fmha")
FAR = 2**30


def call(q, k, v, mask, softmax_scale):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q."""
    groups, share = k.shape[2], q.shape[2] // k.shape[2]
    if share == 1:
        return fmha.memory_efficient_attention(q, k, v, attn_bias=mask, scale=softmax_scale)
    k, v = (x[:, :, :, None].expand(-1, -1, -1, share, -1) for x in (k, v))
    out = fmha.memory_efficient_attention(q.unflatten(2, (groups, share)), k, v, attn_bias=mask, scale=softmax_scale)
    return out.flatten(2, 3)


def dense(q, k, v, *, causal=False, window=None, softmax_scale=None):
    mask = None
    if window is not None:
        left, right = (FAR if side is None else side for side in window)
        mask = fmha.attn_bias.LocalAttentionFromBottomRightMask(left, 0 if causal else right)
    elif causal:
        mask = fmha.attn_bias.LowerTriangularFromBottomRightMask()
    return call(q, k, v, mask, softmax_scale)


def varlen(q, k, v, *, cu_seqlens_q, cu_seqlens_k, causal=False, softmax_scale=None, **longest):
    """(total, nheads, headdim) x 3 -> out like q, with 0 in rows of no sequence."""
    kind = fmha.attn_bias.BlockDiagonalCausalFromBottomRightMask if causal else fmha.attn_bias.BlockDiagonalMask
    queries, keys = lengths_of(cu_seqlens_q).tolist(), lengths_of(cu_seqlens_k).tolist()
    used = q[None, : sum(queries)], k[None, : sum(keys)], v[None, : sum(keys)]
    out = call(*used, kind.from_seqlens(queries, keys, device=q.device), softmax_scale)[0]
    return torch.nn.functional.pad(out, (0, 0, 0, 0, 0, len(q) - len(out)))


def accepts(case):
    """Return why a case is refused; None if it is not."""
    return "fewer keys than queries" if (case.causal or case.window) and case.seqlen_k < case.seqlen_q else None


def implementation(name, forward, backward=None, **features):
    same = dict(headdims=range(8, 257, 8), causal="optional", softmax_scale="positive", cross=True, accepts=accepts)
    return Implementation(
        name=f"xformers{name}", forward=forward, backward=backward, devices={"cuda"}, empty_rows="undefined",
        repeatable={"out"}, supports=Supports(**same, **features),
    )  # fmt: skip


IMPLS = [
    implementation("", dense, "autograd", window={"left", "right", "both"}, strides="aligned"),
    implementation("_grouped", dense, window={"left", "right", "both"}, strides="aligned", gqa=True),
    implementation("_varlen", varlen, "autograd", form="varlen"),
]
