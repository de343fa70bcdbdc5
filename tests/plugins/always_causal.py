"""A kernel that is always causal, with its own backward and lse in base 2, in layout bhsd."""

import math

import torch

from flash_attest import Implementation, Supports


def forward(q, k, v):
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden(q), -math.inf)
    return s.softmax(dim=-1) @ v, torch.logsumexp(s, dim=-1) / math.log(2)


def backward(dout, q, k, v, out, lse):
    scale = q.shape[-1] ** -0.5
    p = ((q @ k.mT * scale).masked_fill(hidden(q), -math.inf) - lse[..., None] * math.log(2)).exp()
    ds = p * (dout @ v.mT - (dout * out).sum(dim=-1, keepdim=True))
    return ds @ k * scale, ds.mT @ q * scale, p.mT @ dout


def hidden(q):
    n = q.shape[2]
    return torch.ones(n, n, dtype=torch.bool).triu(1)


IMPL = Implementation(
    name="always_causal",
    forward=forward,
    backward=backward,
    layout="bhsd",
    devices={"cpu"},
    supports=Supports(dtypes={torch.float32}, headdims={16}, causal="always"),
    lse="log2",
)
