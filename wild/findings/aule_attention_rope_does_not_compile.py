"""flash_attention_rope does not compile: half of the head dim is not a constexpr in its kernel.

number: 8
package: aule-attention 0.5.0
law: none: rotary embeddings cannot be declared
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=64
consequence: The documented fused rotary embedding raises a compilation error (Triton 3.7.1).
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: arange's arguments must be of type tl.constexpr
"""

import aule
import torch

q, k, v = torch.ones(3, 1, 1, 64, 64, device="cuda")
cos, sin = aule.precompute_rope_frequencies(64, 64)
aule.flash_attention_rope(q, k, v, cos, sin)
