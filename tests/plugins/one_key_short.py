"""A causal kernel in which the last query of a partial tile of 16 misses its own key."""

import math

import torch

from flash_attest import Implementation, Supports


def forward(q, k, v, *, causal=False):
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if causal:
        n = q.shape[1]
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        if n > 16 and n % 16:
            seen[-1, -1] = False
        s = s.masked_fill(~seen, -math.inf)
    return torch.einsum("bhij,bjhd->bihd", s.softmax(dim=-1), v), torch.logsumexp(s, dim=-1)


IMPL = Implementation(
    name="one_key_short",
    forward=forward,
    supports=Supports(dtypes={torch.float32}, headdims={16}, causal="optional"),
    lse="natural",
    tile=(16, 16),
)
