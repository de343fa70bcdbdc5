"""With causal=True, more keys than queries and several buckets, out differs from default_attention.

number: 86
package: ring-attention-pytorch 0.5.20
law: query_sees_exactly_its_prefix, out_averages_exactly_its_prefix, alignment_is_as_declared
case: batch=1 nheads=1 nheads_k=1 seqlen_q=8 seqlen_k=24 headdim=64 dtype=float32 causal=True
consequence: With more than bucket_size keys, queries do not see the keys that the mask should show
    them.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: out is off by 1.44
"""

import torch
from ring_attention_pytorch import default_attention, ring_flash_attn

torch.manual_seed(0)
q, k, v = torch.randn(1, 8, 1, 64), torch.randn(1, 24, 1, 64), torch.randn(1, 24, 1, 64)
out = ring_flash_attn(q, k, v, causal=True, bucket_size=16)
error = (out - default_attention(q, k, v, causal=True)).abs().max().item()
assert error < 1e-4, f"out is off by {error:.2f}"
