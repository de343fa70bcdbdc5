"""Kernels with one cause or with two, which many laws show."""

import math

import torch

from flash_attest import Implementation, Supports


def attention(q, k, v, causal=False, softmax_scale=None, hidden=-math.inf):
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    s = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    if causal:
        i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
        s = torch.where(j <= i + k.shape[1] - q.shape[1], s, s + hidden)
    return torch.einsum("bhij,bjhd->bihd", s.softmax(dim=-1), v), torch.logsumexp(s, dim=-1)


def not_launched(q, k, v, *, causal=False, softmax_scale=None):
    """Raise at one head dim, which no launch fits. The contract check tries another one."""
    if q.shape[-1] == 32:
        raise RuntimeError("invalid configuration argument")
    return attention(q, k, v, causal, softmax_scale)


def small_masks(q, k, v, *, causal=False, softmax_scale=None):
    """Hide keys by a number that is too small."""
    return attention(q, k, v, causal, softmax_scale, hidden=-8.0)


def both(q, k, v, *, causal=False, softmax_scale=None):
    """Have both mistakes."""
    if q.shape[-1] == 32:
        raise RuntimeError("invalid configuration argument")
    return attention(q, k, v, causal, softmax_scale, hidden=-8.0)


def resizes_lse(q, k, v, *, causal=False, softmax_scale=None):
    """Break the contract at one head dim, and hide keys by a number that is too small."""
    out, lse = attention(q, k, v, causal, softmax_scale, hidden=-8.0)
    return out, lse[..., None] if q.shape[-1] == 64 else lse


SUPPORTS = Supports(
    dtypes={torch.float32}, headdims={16, 32, 64}, causal="optional", cross=False, gqa=False, softmax_scale=True
)
IMPLS = [
    Implementation(name=forward.__name__, forward=forward, supports=SUPPORTS, lse="natural", share=0.5)
    for forward in (not_launched, small_masks, both, resizes_lse)
]
