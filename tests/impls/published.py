"""Stand-ins for packages that need a GPU, with the arguments and results that each documents.

The adapters in docs/use/adding-an-implementation.md import them by the packages' names. Each is a
loop over sequences in PyTorch. Like the packages, they return what nobody should read: NaN in rows
that belong to no sequence, and FlashAttention-2 an lse of +inf in rows that see no key.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType

import torch

OPEN = -1  # an open side of a window


def attend(q, k, v, *, causal=False, window=(OPEN, OPEN), scale=None, softcap=0.0, offset=None):
    """Return out (sq, h, dv) and lse (h, sq) of q (sq, h, d), k (sk, hk, d) and v (sk, hk, dv).

    offset: how many more keys than queries the mask takes into account; all of them by default.
    """
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, 1) for x in (k, v))
    s = torch.einsum("ihd,jhd->hij", q.float(), k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    own = torch.arange(q.shape[0])[:, None] + (k.shape[0] - q.shape[0] if offset is None else offset)
    ahead = torch.arange(k.shape[0]) - own
    left, right = window
    hidden = torch.zeros_like(ahead, dtype=torch.bool)
    if left != OPEN:
        hidden = hidden | (ahead < -left)
    if causal or right != OPEN:
        hidden = hidden | (ahead > (0 if causal else right))
    s = s.masked_fill(hidden, -math.inf)
    lse = s.logsumexp(-1) if k.shape[0] else s.new_full(s.shape[:2], -math.inf)
    p = s.softmax(-1).masked_fill(lse[..., None] == -math.inf, 0.0)
    return torch.einsum("hij,jhd->ihd", p, v), lse


def over_sequences(q, starts_q, keys, **options):
    """Return out (total_q, h, dv) and lse (h, total_q) of packed queries, and NaN in other rows.

    keys: sequence -> its k and v.
    """
    outs, lses = [], []
    for n in range(len(starts_q) - 1):
        out, lse = attend(q[starts_q[n] : starts_q[n + 1]], *keys(n), **options)
        outs.append(out)
        lses.append(lse)
    slack = q.shape[0] - starts_q[-1]
    outs.append(torch.full((slack, *outs[0].shape[1:]), math.nan))
    lses.append(torch.full((q.shape[1], slack), math.nan))
    return torch.cat(outs).to(q.dtype), torch.cat(lses, 1)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, return_attn_probs=False,
):  # fmt: skip
    """Stand in for FlashAttention-2."""
    starts = cu_seqlens_k.tolist()
    out, lse = over_sequences(
        q, cu_seqlens_q.tolist(), lambda n: (k[starts[n] : starts[n + 1]], v[starts[n] : starts[n + 1]]),
        causal=causal, window=window_size, scale=softmax_scale, softcap=softcap,
    )  # fmt: skip
    lse = lse.detach()
    return (out, lse.masked_fill(lse == -math.inf, math.inf), None) if return_attn_probs else out


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, *, cache_seqlens, cache_batch_idx, softmax_scale=None, causal=False,
    num_splits=0, return_softmax_lse=False,
):  # fmt: skip
    """Stand in for FlashAttention-3, which returns more than out and lse."""
    outs, lses = [], []
    for n, (slot, length) in enumerate(zip(cache_batch_idx.tolist(), cache_seqlens.tolist(), strict=True)):
        if k is not None:
            more = k.shape[1]
            k_cache[slot, length : length + more], v_cache[slot, length : length + more] = k[n], v[n]
            length += more
        out, lse = attend(q[n], k_cache[slot, :length], v_cache[slot, :length], causal=causal, scale=softmax_scale)
        outs.append(out)
        lses.append(lse)
    out, lse = torch.stack(outs).to(q.dtype), torch.stack(lses)
    return (out, lse, None, None) if return_softmax_lse else out


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """Stand in for FlashAttention-3: (n, b, s, h, d), (n, b, s, h) -> out, lse without n."""
    if lse_partial.stride(-2) != 1:
        raise RuntimeError("LSE tensor must be contiguous in the seqlen dimension")
    lse = lse_partial.logsumexp(0)
    weight = (lse_partial - lse.masked_fill(lse == -math.inf, 0.0)).exp()
    return (out_partial * weight[..., None]).sum(0).to(out_dtype or out_partial.dtype), lse


class BatchPrefillWithPagedKVCacheWrapper:
    """Stands in for FlashInfer, whose lse is in base 2 and (total_q, h)."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD"):
        assert kv_layout == "NHD" and float_workspace_buffer.dtype == torch.uint8

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
        head_dim_qk, page_size, *, causal=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
        q_data_type=torch.float16,
    ):  # fmt: skip
        assert {qo_indptr.dtype, paged_kv_indptr.dtype, paged_kv_indices.dtype} == {torch.int32}
        self.starts, self.indptr, self.indices = qo_indptr.tolist(), paged_kv_indptr.tolist(), paged_kv_indices.tolist()
        self.last, self.page_size = paged_kv_last_page_len.tolist(), page_size
        self.options = dict(causal=causal, window=(window_left, OPEN), scale=sm_scale, softcap=logits_soft_cap or 0.0)

    def run(self, q, paged_kv_cache, *, return_lse=False):
        def keys(n):
            pages = self.indices[self.indptr[n] : self.indptr[n + 1]]
            length = (len(pages) - 1) * self.page_size + self.last[n] if pages else 0
            return [cache[pages].flatten(0, 1)[:length] for cache in paged_kv_cache]

        out, lse = over_sequences(q, self.starts, keys, **self.options)
        return (out, lse.mT / math.log(2)) if return_lse else out


PACKAGES = {
    "flash_attn": (flash_attn_varlen_func,),
    "flash_attn_interface": (flash_attn_with_kvcache, flash_attn_combine),
    "flashinfer": (BatchPrefillWithPagedKVCacheWrapper,),
}


def install(monkeypatch) -> None:
    """Let imports of the packages find the stand-ins, in one test."""
    for name, members in PACKAGES.items():
        module = ModuleType(name)
        for member in members:
            setattr(module, member.__name__, member)
        monkeypatch.setitem(sys.modules, name, module)
