"""Cosine-similarity flash attention splits the mask of keys by queries, so other keys are hidden.

number: 79
package: memory-efficient-attention-pytorch 0.1.6
law: none: its scores are cosines, which no law covers
case: batch=1 nheads=1 nheads_k=1 seqlen_q=32 seqlen_k=32 headdim=64 dtype=float32
consequence: With equal bucket sizes, hidden keys count. The default sizes raise an error from 513
    keys on.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: a hidden v changes out by 9.00
"""

import torch
from memory_efficient_attention_pytorch.cosine_sim_flash_attention import FlashAttentionFunction

torch.manual_seed(0)
q, k, v = (torch.nn.functional.normalize(torch.randn(1, 1, 32, 64), dim=-1) for _ in range(3))
mask = torch.arange(32)[None] < 31  # the last key is hidden
first = FlashAttentionFunction.apply(q, k, v, mask, 16, False, 16, 16)
v[..., 31, :] += 100
change = (FlashAttentionFunction.apply(q, k, v, mask, 16, False, 16, 16) - first).abs().max().item()
assert change == 0, f"a hidden v changes out by {change:.2f}"
