"""A causal FlashAttention forward in tensor operations, with a bug: one key too few.

docs/use/first-verdict.md finds it:

flash-attest check one_key_short.py
"""

import torch

from flash_attest import Implementation, Supports

BLOCK = 64  # rows of q, and of k and v, in a tile


def forward(q, k, v):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q, lse (batch, nheads, seqlen)."""
    if not q.shape == k.shape == v.shape:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: should have one shape")
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    batch, nheads, seqlen, headdim = q.shape
    out, lse = torch.empty_like(q), q.new_empty(batch, nheads, seqlen)
    for i in range(0, seqlen, BLOCK):  # a tile of queries
        stop = min(i + BLOCK, seqlen)
        last = stop - 1  # the last key that any of these queries sees
        m = q.new_full((batch, nheads, stop - i, 1), -torch.inf)  # the running maximum of each row
        l, acc = torch.zeros_like(m), torch.zeros_like(q[:, :, i:stop])  # running sums of exp(s - m) and exp(s - m) v
        j = 0
        while True:  # a tile of keys
            keys = slice(j, min(j + BLOCK, stop))
            s = headdim**-0.5 * q[:, :, i:stop] @ k[:, :, keys].mT
            if j == i:  # on the diagonal
                s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -torch.inf)
            before, m = m, torch.maximum(m, s.amax(-1, keepdim=True))
            p = (s - m).exp()
            l = l * (before - m).exp() + p.sum(-1, keepdim=True)
            acc = acc * (before - m).exp() + p @ v[:, :, keys]
            j += BLOCK
            if j >= last:  # the bug: key `last` is seen, too. Should be j > last
                break
        out[:, :, i:stop], lse[:, :, i:stop] = acc / l, (m + l.log()).squeeze(-1)
    return out.transpose(1, 2), lse


IMPL = Implementation(
    name="one_key_short",
    forward=forward,
    lse="natural",
    supports=Supports(dtypes={torch.float32}, headdims=range(1, 129), causal="always"),
    tile=(BLOCK, BLOCK),
)
