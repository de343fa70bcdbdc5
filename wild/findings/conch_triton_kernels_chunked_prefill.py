"""Causal with more keys than queries: two queries or more are aligned top left, one bottom right.

number: 65
package: conch-triton-kernels 1.3
law: out_matches_the_definition, out_averages_exactly_its_prefix, chunks_change_no_bit
case: batch=1 nheads=1 nheads_k=1 seqlen_q=2 seqlen_k=3 headdim=16 dtype=float32 causal=True
consequence: A chunk of a prompt, or of speculated tokens, does not see the keys before it.
found: 2026-11-25
status: not reported
gpu: not tried
shows: AssertionError: out is off by 2.72
"""

import torch
from conch.ops.attention.varlen_attention import varlen_attention

torch.manual_seed(0)
q, k, v = (torch.randn(n, 1, 64, device="cuda") for n in (2, 16, 16))
counts = torch.tensor([0, 2, 16, 0], device="cuda", dtype=torch.int32)  # 2 queries, 16 keys on page 0
out = varlen_attention(q, k[None], v[None], counts[:2], 2, counts[2:3], 16, counts[None, 3:], causal=True)
s = torch.einsum("ihd,jhd->hij", q, k).double() / 8
s[:, 0, 15] = -torch.inf  # query 0 sees the first 15 keys
error = (out - torch.einsum("hij,jhd->ihd", s.softmax(-1), v.double())).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
